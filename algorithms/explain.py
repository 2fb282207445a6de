"""The credit of recorded episodes, step by step, so that a person can follow the arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from a2tgpo.algorithms import AT2PO, GRPO, IGPO, A2TGPOReleased, Algorithm, GiGPO
from a2tgpo.algorithms.a2tgpo import A2TGPO
from a2tgpo.algorithms.base import discounted_returns, group_moments, normalize, over_turns
from a2tgpo.algorithms.gigpo import step_groups
from a2tgpo.batch import TurnTable
from a2tgpo.episode import Episode
from a2tgpo.errors import ConfigError

MAX_QUERY: Final = 60


@dataclass(frozen=True, slots=True)
class Workings:
    """The quantities between table and credit."""

    columns: Mapping[str, Float[Tensor, "episode turn"]]
    """Printed column by column, in the order of the equations; NaN is printed as a dash."""
    formulas: tuple[str, ...]
    """One line per step."""
    with_gain: str
    """Arithmetic of the advantage of a turn with a gain: a format string over the columns."""
    without_gain: str
    """The same for other turns."""


def explain(episodes: Sequence[Episode], algorithm: Algorithm) -> str:
    """Every group's credit with all numbers that lead to it.

    Args:
        episodes: of one or several groups, as `a2tgpo.run_folder.log.read_episodes` reads them. Failed episodes have no
            credit and are left out.
        algorithm: with the parameters to explain.

    Raises:
        ConfigError: if no episode is left, or the algorithm needs information gain and none was recorded.
    """
    played = [episode for episode in episodes if not episode.failed and episode.turns]
    if not played:
        raise ConfigError(
            f"explain: got {len(episodes)} episodes of which none was played to an end, expected at least one; choose"
            " another episodes file"
        )
    table = algorithm.tabulate(played)
    if algorithm.needs_information_gain and not bool(table.scored.any()):
        name = type(algorithm).__name__
        raise ConfigError(
            f"explain: got episodes without information gain, but {name} needs it on search turns; record some with an"
            " algorithm that needs it"
        )
    workings, credit = workings_of(algorithm, table), algorithm(table)
    low, high = 1 - credit.clip_scale * algorithm.loss.clip_low, 1 + credit.clip_scale * algorithm.loss.clip_high
    columns = {
        **workings.columns,
        "advantage": credit.advantage,
        "clip scale": credit.clip_scale,
        "clip low": low,
        "clip high": high,
    }
    clip_range = f"clip range = [1 − c·{algorithm.loss.clip_low:g}, 1 + c·{algorithm.loss.clip_high:g}], c = clip scale"
    parts = [_header(algorithm), *workings.formulas, clip_range, ""]
    for number in range(table.num_groups):
        rows = (table.group == number).nonzero().flatten().tolist()
        parts.append(f"── question {played[rows[0]].question_id}, {len(rows)} episodes ──")
        for row in rows:
            parts.extend(
                [
                    _episode_title(played[row], row),
                    _numbers(table, columns, row),
                    *_arithmetic(workings, table, columns, played[row], row),
                    "",
                ]
            )
    return "\n".join(parts)


def workings_of(algorithm: Algorithm, table: TurnTable) -> Workings:
    """The intermediate quantities of an algorithm; for one that is not known here, what it read."""
    if isinstance(algorithm, A2TGPO) and not isinstance(algorithm, A2TGPOReleased):
        return _a2tgpo(algorithm, table)
    if isinstance(algorithm, IGPO):
        return _igpo(algorithm, table)
    if isinstance(algorithm, GiGPO):
        return _gigpo(algorithm, table)
    if type(algorithm) in (GRPO, AT2PO):
        return _outcome_only(
            table,
            "sample" if isinstance(algorithm, GRPO) else "population",
            not isinstance(algorithm, GRPO) or algorithm.normalize_std,
        )
    known = {"outcome": over_turns(table.outcome, table), "gain": table.information_gain}
    return Workings(known, (f"credit as {type(algorithm).__name__} gives it",), "A = {advantage}", "A = {advantage}")


def _a2tgpo(algorithm: A2TGPO, table: TurnTable) -> Workings:
    mean, std, size = group_moments(table.information_gain, algorithm.gain_groups(table), table.scored, "population")
    z = algorithm.normalized_gain(table)
    ordinal = table.scored.cumsum(dim=1) - 1
    remaining = (table.scored.sum(dim=1, keepdim=True) - ordinal).clamp(min=1)
    scored = table.scored
    columns = {
        "gain": table.information_gain,
        "mean": mean.where(scored, torch.nan),
        "std": std.where(scored, torch.nan),
        "size": size.float().where(scored, torch.nan),
        "z": z.where(scored, torch.nan),
        "D": discounted_returns(z, algorithm.gamma, order=ordinal).where(scored, torch.nan),
        "terms": remaining.float().where(scored, torch.nan),
        "zR": over_turns(normalize(table.outcome, table.group, table.mask.any(dim=1), "population"), table),
    }
    root = "√{terms}" if algorithm.variance_rescaling else "1"
    formulas = (
        (
            "z = (gain − mean)/(std + 1e-6) over the question's"
            f" {'episodes at the same turn' if algorithm.turn_groups else 'turns'} (size values, population std)"
        ),
        f"D = z + {algorithm.gamma:g}·D of the next turn with a gain; terms = gains from here on",
        "zR = outcome normalised over the question's episodes (population std)",
        (
            f"advantage = {algorithm.ig_weight:g}·D/{'√terms' if algorithm.variance_rescaling else '1'} + zR; without a"
            " gain: zR"
        ),
        f"clip scale = 1 + {algorithm.clip_modulation:g}·(2·sigmoid(z) − 1); without a gain: 1",
    )
    return Workings(
        columns, formulas, f"A = {algorithm.ig_weight:g}·{{D}}/{root} + {{zR}} = {{advantage}}", "A = zR = {advantage}"
    )


def _igpo(algorithm: IGPO, table: TurnTable) -> Workings:
    rewards = algorithm.turn_rewards(table)
    advantage = discounted_returns(rewards, algorithm.gamma)
    later = torch.cat([advantage[:, 1:], torch.zeros_like(advantage[:, :1])], dim=1)
    columns = {
        "gain": table.information_gain,
        "outcome": over_turns(table.outcome, table),
        "z": rewards,
        "later": later,
    }
    formulas = (
        (
            "z = gain, and on the last turn the outcome, each less its mean over its std within the question"
            f" ({algorithm.normalization} pools, population std)"
        ),
        f"advantage = z + {algorithm.gamma:g}·advantage of the next turn (later)",
    )
    line = f"A = {{z}} + {algorithm.gamma:g}·{{later}} = {{advantage}}"
    return Workings(columns, formulas, line, line)


def _gigpo(algorithm: GiGPO, table: TurnTable) -> Workings:
    returns = discounted_returns(table.reward.where(table.mask, 0.0), algorithm.gamma)
    mean, std, size = group_moments(returns, step_groups(table), table.mask, "sample")
    columns = {
        "outcome": over_turns(table.outcome, table),
        "AE": algorithm.episode_term(table),
        "state": table.state.float(),
        "return": returns,
        "mean": mean,
        "std": std,
        "size": size.float(),
        "AS": algorithm.step_term(table),
    }
    divided = "/(std + 1e-6)" if algorithm.normalize_std else ""
    formulas = (
        (
            f"AE = (outcome − mean){divided} over"
            f" {'the turns of ' if algorithm.episode_statistics == 'turns' else ''}the question's episodes (sample std)"
        ),
        f"return = reward + {algorithm.gamma:g}·return of the next turn",
        (
            f"AS = (return − mean){divided} over the question's turns with the same state (size values); 0 if there is"
            " one only"
        ),
        f"advantage = AE + {algorithm.step_weight:g}·AS",
    )
    line = f"A = {{AE}} + {algorithm.step_weight:g}·{{AS}} = {{advantage}}"
    return Workings(columns, formulas, line, line)


def _outcome_only(table: TurnTable, statistics: str, divide: bool) -> Workings:
    mean, std, _ = (
        over_turns(value.float(), table)
        for value in group_moments(table.outcome, table.group, table.mask.any(dim=1), statistics)
    )
    columns = {"outcome": over_turns(table.outcome, table), "mean": mean, "std": std}
    divisor, line = ("/(std + 1e-6)", "({outcome} − {mean})/({std} + 1e-6)") if divide else ("", "{outcome} − {mean}")
    formulas = (
        f"advantage = (outcome − mean){divisor} over the question's episodes ({statistics} std); 0 in a group of one",
    )
    return Workings(columns, formulas, f"A = {line} = {{advantage}}", f"A = {line} = {{advantage}}")


def _header(algorithm: Algorithm) -> str:
    parameters = ", ".join(
        f"{field.name}={getattr(algorithm, field.name)}"
        for field in fields(algorithm)
        if field.name not in ("loss", "max_resamples")
    )
    return f"{type(algorithm).__name__}({parameters})"


def _episode_title(episode: Episode, row: int) -> str:
    return f"episode {row}: outcome {episode.outcome:g}, {episode.num_turns} turns, {episode.stop}"


def _numbers(table: TurnTable, columns: Mapping[str, Float[Tensor, "episode turn"]], row: int) -> str:
    width = max(10, *(len(name) + 2 for name in columns))
    head = "  turn" + "".join(f"{name:>{width}}" for name in columns)
    turns = range(int(table.num_turns[row]))
    return "\n".join(
        [
            head,
            *(
                f"  {turn:>4}" + "".join(f"{_number(values[row, turn]):>{width}}" for values in columns.values())
                for turn in turns
            ),
        ]
    )


def _arithmetic(
    workings: Workings,
    table: TurnTable,
    columns: Mapping[str, Float[Tensor, "episode turn"]],
    episode: Episode,
    row: int,
) -> list[str]:
    lines = []
    for index, turn in enumerate(episode.turns):
        template = workings.with_gain if bool(table.scored[row, index]) else workings.without_gain
        line = template.format_map({name: _number(values[row, index]) for name, values in columns.items()})
        query = turn.query[:MAX_QUERY]
        lines.append(f"  turn {index} ({turn.action}{': ' + query if query else ''}): {line}")
    return lines


def _number(value: Tensor) -> str:
    number = value.item()
    if number != number:
        return "–"
    return f"{number:g}" if number == int(number) else f"{number:.5f}"
