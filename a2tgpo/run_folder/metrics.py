"""Every number that a run logs: declared once, with unit and meaning. `docs/metrics.md` is made from this list."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

TRAIN, EVALUATION = "train", "evaluation"
"""Kinds of lines in metrics.jsonl: one per training step, one per evaluation."""
_BOTH: Final = (TRAIN, EVALUATION)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number, or a family of them: `{k}` in the name stands for a whole number."""

    name: str
    unit: str
    """`share` lies in 0 … 1; `nats` are natural logarithms."""
    meaning: str
    kinds: tuple[str, ...] = (TRAIN,)


@dataclass(frozen=True, slots=True)
class Section:
    """Metrics that belong together."""

    title: str
    metrics: tuple[Metric, ...]


def _gains(name: str, what: str) -> tuple[Metric, ...]:
    return (
        Metric(name, "nats", f"mean information gain of {what}"),
        Metric(f"{name}_std", "nats", "its spread (population standard deviation)"),
        Metric(f"{name}_positive", "share", "of the scored searches: gain above 0"),
        Metric(f"{name}_missing", "share", "of the searches: without a gain"),
        Metric(f"{name}_group_size", "episodes", "scored per question and turn: what turn-group statistics rest on"),
    )


SECTIONS: Final[tuple[Section, ...]] = (
    Section(
        "Episodes",
        (
            Metric("em", "share", "answers that match a gold answer exactly after normalisation", _BOTH),
            Metric("f1", "share", "mean word overlap with the best gold answer", _BOTH),
            Metric("outcome", "reward", "mean of what an episode is worth: its score, plus shaping", _BOTH),
            Metric("answered", "share", "of the episodes: ended with an answer", _BOTH),
            Metric("searches", "count", "mean searches of an episode that came back", _BOTH),
            Metric("turns", "count", "mean turns of an episode", _BOTH),
            Metric("tokens", "tokens", "mean length of an episode, prompt and observations included", _BOTH),
            Metric("action_tokens", "tokens", "mean tokens of an episode that the policy sampled", _BOTH),
            Metric("action_tokens_min", "tokens", "of the episode with the fewest", _BOTH),
            Metric("action_tokens_max", "tokens", "of the episode with the most", _BOTH),
            Metric("valid_format", "share", "of the episodes: answered, every turn as the protocol asks", _BOTH),
            Metric("invalid_turns", "share", "of the turns: no action could be read", _BOTH),
            Metric("gain_per_turn", "nats", "mean information gain over all scored turns", _BOTH),
            Metric("failed", "share", "of the episodes: broken by something around the agent, in no other mean", _BOTH),
            Metric("failed_groups", "questions", "of the step of which every episode failed"),
            Metric("questions", "questions", "that the evaluation rests on: those that were played", (EVALUATION,)),
            Metric("em_{k}_hops", "share", "`em` of the questions of so many hops", (EVALUATION,)),
            Metric("em_sampled", "share", "`em` at temperature 1; first and last evaluation only", (EVALUATION,)),
            Metric("em_train", "share", "`em` on as many training questions; first and last only", (EVALUATION,)),
        ),
    ),
    Section(
        "Information gain",
        (
            *_gains("gain", "all searches"),
            *_gains("gain_turn_{k}", "searches in turn k, counted from 0"),
            Metric("gain_noise", "nats", "largest change of a gain that is scored again in other company: rounding"),
            Metric("probe_token_share", "share", "tokens that the probes add to the episodes'"),
            Metric("probe_time_share", "share", "time that they add to the pass; where an evaluation is due"),
            Metric("probe_time_share_step", "share", "the same of the whole step"),
        ),
    ),
    Section(
        "Credit",
        (
            Metric("informative_groups", "share", "of the groups: some turn has credit other than 0"),
            Metric("advantage_abs", "advantage", "mean size over turns"),
            Metric("advantage_min", "advantage", "smallest of any turn"),
            Metric("advantage_mean", "advantage", "mean over turns"),
            Metric("advantage_max", "advantage", "largest of any turn"),
            Metric("clip_scale_min", "factor", "narrowest clip range of a turn, as a multiple of the algorithm's"),
            Metric("clip_scale_max", "factor", "widest clip range of a turn"),
        ),
    ),
    Section(
        "Update",
        (
            Metric("loss", "loss", "mean over the optimiser steps: surrogate + c·KL − c·entropy"),
            Metric("loss_surrogate", "loss", "its part that the credit drives"),
            Metric("loss_kl", "nats", "distance to the reference policy as the loss sees it; 0 without one"),
            Metric("loss_entropy", "nats", "entropy as the loss sees it; 0 where it has no part in the loss"),
            Metric("entropy", "nats", "mean over sampled tokens, before the update"),
            Metric("clip_fraction", "share", "of the trained tokens: the clip stops their gradient"),
            Metric("ratio", "factor", "mean importance ratio of the trained tokens"),
            Metric("kl_to_old", "nats", "per token, half the mean squared log-ratio: how far the step went"),
            Metric(
                "credited_logprob",
                "nats",
                "mean log π of tokens with positive credit; falls before a collapse",
            ),
            Metric("grad_norm", "norm", "mean over the optimiser steps, before clipping"),
            Metric("trained_tokens", "tokens", "with a part in the loss, over all optimiser steps"),
            Metric("learning_rate", "rate", "of the step"),
            Metric("skipped_updates", "count", "optimiser steps left out so far for a number that is not finite"),
        ),
    ),
    Section(
        "Engine against trainer",
        (
            Metric("sampler_mismatch", "nats", "mean |log π_old − log π_sampler| over sampled tokens"),
            Metric("sampler_mismatch_p99", "nats", "its 99th percentile"),
            Metric("sampler_mismatch_max", "nats", "its largest value"),
            Metric("sampler_ess", "share", "effective sample size of the importance weights, 1 without mismatch"),
            Metric("sampler_capped", "share", "of the tokens: weight above the loss's cap (2 where it has none)"),
        ),
    ),
    Section(
        "Time",
        (
            Metric("seconds_rollout", "seconds", "playing the episodes"),
            Metric("seconds_gain", "seconds", "scoring them and giving credit"),
            Metric("seconds_update", "seconds", "optimiser steps, and the weights to the engine"),
            Metric("seconds_evaluation", "seconds", "the evaluation", (EVALUATION,)),
        ),
    ),
)

METRICS: Final[dict[str, Metric]] = {metric.name: metric for section in SECTIONS for metric in section.metrics}
_FAMILIES: Final = {name: re.compile(re.escape(name).replace(r"\{k\}", r"\d+")) for name in METRICS if "{k}" in name}


def declared(name: str) -> Metric | None:
    """The declaration of a logged number; None if there is none."""
    if name in METRICS:
        return METRICS[name]
    return next((METRICS[family] for family, pattern in _FAMILIES.items() if pattern.fullmatch(name)), None)


def check_declared(kind: str, names: Iterable[str]) -> None:
    """Every number that is logged must be declared, for lines of this kind: a slip of the pen would be a new metric."""
    unknown = [name for name in names if (metric := declared(name)) is None or kind not in metric.kinds]
    assert not unknown, f"{kind} metrics {unknown} are not declared in a2tgpo/run_folder/metrics.py"


def page() -> str:
    """`docs/metrics.md`."""
    lines = [
        "# Metrics",
        "",
        "Every number in a run's `metrics.jsonl` (and in its TensorBoard): one line of kind `train` per step, one of"
        " kind `evaluation` per evaluation, with its `step`. A mean over nothing is `null`, or left out.",
        "",
        "Made from `a2tgpo/run_folder/metrics.py` with `python -m a2tgpo.run_folder.metrics > docs/metrics.md`; a test"
        " compares the two.",
    ]
    for section in SECTIONS:
        lines += ["", f"## {section.title}", "", "| metric | in | unit | meaning |", "|---|---|---|---|"]
        for metric in section.metrics:
            lines.append(f"| `{metric.name}` | {', '.join(metric.kinds)} | {metric.unit} | {_cell(metric.meaning)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """In a table of Markdown, a bar is written with a backslash."""
    return text.replace("|", r"\|")


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - the page is the output
