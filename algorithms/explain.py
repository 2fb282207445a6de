"""The credit of recorded episodes, step by step, so that a person can follow the arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final

from jaxtyping import Float
from torch import Tensor

from a2tgpo.algorithms.base import Algorithm
from a2tgpo.algorithms.credit import checked_credit
from a2tgpo.algorithms.workings import Workings
from a2tgpo.batch import TurnTable
from a2tgpo.episode import Episode
from a2tgpo.errors import ConfigError

MAX_QUERY: Final = 60


def explain(episodes: Sequence[Episode], algorithm: Algorithm, question: str | None = None) -> str:
    """Every group's credit with all numbers that lead to it.

    Args:
        episodes: of one or several groups, as `a2tgpo.run_folder.log.read_episodes` reads them. Failed episodes have no
            credit and are left out.
        algorithm: with the parameters to explain.
        question: only this one's groups are shown; the others still count where the algorithm compares groups.

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
    workings, credit = workings_of(algorithm, table), checked_credit(algorithm, table)
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
        if question not in (None, played[rows[0]].question_id):
            continue
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
    """The algorithm's workings. A subclass that changed `__call__` and not `workings` gets the plain ones, since those
    that it inherits tell of another credit.
    """
    changed = next(vars(cls) for cls in type(algorithm).__mro__ if "__call__" in vars(cls) or "workings" in vars(cls))
    return algorithm.workings(table) if "workings" in changed else Algorithm.workings(algorithm, table)


def _header(algorithm: Algorithm) -> str:
    parameters = ", ".join(
        f"{field.name}={getattr(algorithm, field.name)}"
        for field in fields(algorithm)
        if field.name not in ("loss", "generation_batch", "max_resamples")
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
