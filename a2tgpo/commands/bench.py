"""`a2tgpo bench WHAT`: what parts of the work cost on this machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from rich.console import Console

from a2tgpo.commands.options import parse
from a2tgpo.errors import ConfigError

_T = TypeVar("_T")
_LEAST = {"searches": 0, "scaffold_tokens": 0, "passages": 3}
"""Smallest value of settings that count something; of all others 1. A search of the benches asks for three passages."""


@dataclass(frozen=True)
class GainOptions:
    """Old log-probabilities without and with gold-answer probes, beside the usual ways to score gold answers."""

    model: Path | None = None
    """A model folder; by default a Llama-type model of 135 million parameters with random weights."""
    tokens: int = 1024
    """Tokens per episode."""
    searches: int = 3
    """The answer is one more turn."""
    action_tokens: int = 32
    """Sampled tokens per turn."""
    episodes: int = 1
    gold_tokens: int = 8
    scaffold_tokens: int = 1
    """Tokens between a cut and the gold answer."""
    attention: Literal["sdpa", "flex"] = "sdpa"
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    threads: int = 2
    repeats: int = 5


@dataclass(frozen=True)
class UpdateOptions:
    """A whole update step beside the bare forward, backward and optimiser step on as many tokens."""

    model: Literal["tiny", "135m"] | Path = "tiny"
    """Random weights in the quickstart's size or in that of a Llama-type model of 135 million parameters, or a model
    folder.
    """
    shapes: tuple[Literal["search-agent", "embedded-world"], ...] = ("search-agent", "embedded-world")
    """Episodes of 512 to 1,024 tokens with 4 searches and a gold answer of 8, of 45 to 90 tokens with 3 and a gold
    answer of 1, or both.
    """
    sizes: tuple[int, ...] = (64, 256, 1024)
    """Episodes per batch, one measurement each."""
    mini_batches: int = 4
    micro_batch_tokens: int = 4096
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    threads: int = 1
    repeats: int = 2


@dataclass(frozen=True)
class CreditOptions:
    """The algorithms' credit beside loops that do the same arithmetic."""

    episodes: tuple[int, ...] = (64, 256, 1024, 4096)
    repeats: int = 20


def bench(words: list[str], console: Console) -> int:
    """Run one bench and print it."""
    if words[:1] in (["-h"], ["--help"]):
        console.print(
            f"a2tgpo bench {' | '.join(BENCHES)}   (--help after one of them tells its settings)", soft_wrap=True
        )
        return 0
    if not words or words[0] not in BENCHES:
        raise ConfigError(f"bench: got {words[0] if words else 'nothing'!r}, expected one of {', '.join(BENCHES)}")
    console.print(BENCHES[words[0]](words[1:]), highlight=False, markup=False, soft_wrap=True)
    return 0


def _options(kind: type[_T], words: list[str], what: str) -> _T:
    """The arguments of a bench.

    Raises:
        ConfigError: if a number of something is too small to measure anything, or a list is empty.
    """
    options = parse(kind, words, f"bench {what}")
    for name, value in vars(options).items():
        values, least, flag = (
            value if isinstance(value, tuple) else (value,),
            _LEAST.get(name, 1),
            f"--{name.replace('_', '-')}",
        )
        if not values:
            raise ConfigError(f"bench.{name}: got nothing, expected at least one value after {flag}")
        for each in values:
            if type(each) is int and each < least:
                raise ConfigError(
                    f"bench.{name}: got {each}, expected at least {least}; give {flag} a larger value or leave it out"
                )
    return options


def _information_gain(words: list[str]) -> str:
    options = _options(GainOptions, words, "information-gain")
    import torch

    from a2tgpo.bench import LLAMA_135M, Shape
    from a2tgpo.bench.gain import bench_information_gain

    torch.set_num_threads(options.threads)
    shape = Shape(
        options.tokens, options.searches, options.action_tokens, options.episodes, gold_tokens=options.gold_tokens
    )
    result = bench_information_gain(
        options.model or LLAMA_135M,
        shape,
        scaffold_tokens=options.scaffold_tokens,
        attention=options.attention,
        dtype=options.dtype,
        device=options.device,
        repeats=options.repeats,
    )
    return str(result)


def _update(words: list[str]) -> str:
    options = _options(UpdateOptions, words, "update")
    import torch

    from a2tgpo.bench import LLAMA_135M, TINY_MODEL
    from a2tgpo.bench.update import SHAPES, bench_update

    torch.set_num_threads(options.threads)
    results = [
        bench_update(
            {"tiny": TINY_MODEL, "135m": LLAMA_135M}.get(str(options.model), options.model),
            SHAPES[name],
            sizes=options.sizes,
            mini_batches=options.mini_batches,
            micro_batch_tokens=options.micro_batch_tokens,
            dtype=options.dtype,
            device=options.device,
            repeats=options.repeats,
        )
        for name in options.shapes
    ]
    return "\n\n".join(f"{name}: {result}" for name, result in zip(options.shapes, results, strict=True))


def _credit(words: list[str]) -> str:
    options = _options(CreditOptions, words, "credit")
    from a2tgpo.bench.credit import bench_credit, format_timings

    return format_timings(bench_credit(options.episodes, repeats=options.repeats))


@dataclass(frozen=True)
class EnvOptions:
    """Steps per second of the batched environment over a synthetic corpus, with our search and with bm25s's own."""

    sizes: tuple[int, ...] = (1, 64, 1024)
    """Environments that step together, one measurement each."""
    passages: int = 18_000
    steps: int = 6_000


@dataclass(frozen=True)
class RetrievalOptions:
    """Queries per second of every search backend and, on a question file with paragraphs, recall of the supporting
    ones.
    """

    dataset: Path | None = None
    """Question file; by default a synthetic corpus, without recall."""
    passages: int = 18_000
    queries: int = 500
    backends: tuple[str, ...] = ("bm25", "rank_bm25")


@dataclass(frozen=True)
class RolloutOptions:
    """Episodes played by our engine beside transformers' generate, which reads every prompt anew."""

    model: Path | None = None
    """A model folder; by default an untrained policy of the quickstart's shape."""
    episodes: int = 64
    turns: int = 4
    max_action_tokens: int = 16
    repeats: int = 8
    vllm: bool = False
    """Also with vLLM; the default policy then has wider heads, for all engines."""


def _env(words: list[str]) -> str:
    options = _options(EnvOptions, words, "env")
    from a2tgpo.bench.env import bench_env
    from a2tgpo.display.tables import as_text, table

    rows = bench_env(options.sizes, options.passages, options.steps)
    titles = ("search", "environments", "steps/s", "steps per CPU second", "share of retrieval")
    cells = [
        (
            r.search,
            r.num_envs,
            f"{r.steps_per_second:,.0f}",
            f"{r.steps_per_cpu_second:,.0f}",
            f"{r.retrieval_share:.0%}",
        )
        for r in rows
    ]
    return as_text(table(titles, [[str(cell) for cell in row] for row in cells]))


def _retrieval(words: list[str]) -> str:
    options = _options(RetrievalOptions, words, "retrieval")
    from a2tgpo.bench.retrieval import RECALL_AT, bench_retrieval
    from a2tgpo.display.tables import as_text, table

    rows = bench_retrieval(options.dataset, options.passages, options.queries, options.backends)
    slowest = min(row.queries_per_second for row in rows)
    titles = (
        "backend",
        "passages",
        "queries/s",
        "of the slowest",
        "build (s)",
        "peak (GB)",
        *(f"recall@{k}" for k in RECALL_AT),
    )
    cells = [
        [
            row.backend,
            f"{row.passages:,}",
            f"{row.queries_per_second:,.0f}",
            f"{row.queries_per_second / slowest:,.0f}×",
            f"{row.build_seconds:.1f}",
            f"{row.peak_gigabytes:.1f}",
            *([f"{value:.1%}" for value in row.recall] or ["–"] * len(RECALL_AT)),
        ]
        for row in rows
    ]
    return as_text(table(titles, cells))


def _rollout(words: list[str]) -> str:
    options = _options(RolloutOptions, words, "rollout")
    from a2tgpo.bench.rollout import bench_rollout
    from a2tgpo.display.tables import as_text, table

    rows = bench_rollout(
        options.model, options.episodes, options.turns, options.max_action_tokens, options.repeats, vllm=options.vllm
    )
    titles = ("engine", "episodes/min", "tokens/s", "of the baseline", "turns")
    base = rows[0].tokens_per_second
    cells = [
        [
            r.name,
            f"{r.episodes_per_minute:,.0f}",
            f"{r.tokens_per_second:,.0f}",
            f"{r.tokens_per_second / base:.2f}×",
            f"{r.turns:.1f}",
        ]
        for r in rows
    ]
    return as_text(table(titles, cells))


BENCHES: Mapping[str, Callable[[list[str]], str]] = {
    "information-gain": _information_gain,
    "update": _update,
    "credit": _credit,
    "env": _env,
    "retrieval": _retrieval,
    "rollout": _rollout,
}
