"""`a2tgpo bench WHAT`: what parts of the work cost on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

from rich.console import Console

from a2tgpo.commands.options import choose
from a2tgpo.config.parsing import Range
from a2tgpo.config.settings import Count, Natural
from a2tgpo.display.lines import say

Counts = Annotated[tuple[Count, ...], Range(1)]
"""At least one of at least one."""
Passages = Annotated[int, Range(3, why="; every search asks for three")]


@dataclass(frozen=True)
class InformationGain:
    """Old log-probabilities without and with gold-answer probes, beside the usual ways to score gold answers."""

    model: Path | None = None
    """A model folder; by default a Llama-type model of 135 million parameters with random weights."""
    tokens: Count = 1024
    """Tokens per episode."""
    searches: Natural = 3
    """The answer is one more turn."""
    action_tokens: Count = 32
    """Sampled tokens per turn."""
    episodes: Count = 1
    """Episodes of one batch."""
    gold_tokens: Count = 8
    """Tokens of the gold answer."""
    scaffold_tokens: Natural = 1
    """Tokens between a cut and the gold answer."""
    attention: Literal["sdpa", "flex"] = "sdpa"
    """How the pass with the probes is computed."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What passes are computed in."""
    device: str = "cpu"
    """`cpu`, `cuda`, or one of its devices like `cuda:1`."""
    threads: Count = 2
    """CPU threads."""
    repeats: Count = 5
    """Rounds; medians are shown."""

    def run(self) -> str:
        import torch

        from a2tgpo.bench import LLAMA_135M, Shape
        from a2tgpo.bench.gain import bench_information_gain

        torch.set_num_threads(self.threads)
        result = bench_information_gain(
            self.model or LLAMA_135M,
            Shape(self.tokens, self.searches, self.action_tokens, self.episodes, gold_tokens=self.gold_tokens),
            scaffold_tokens=self.scaffold_tokens,
            attention=self.attention,
            dtype=self.dtype,
            device=self.device,
            repeats=self.repeats,
        )
        return str(result)


@dataclass(frozen=True)
class Update:
    """A whole update step beside the bare forward, backward and optimiser step on as many tokens."""

    model: Literal["tiny", "135m"] | Path = "tiny"
    """Random weights in the quickstart's size or in that of a Llama-type model of 135 million parameters, or a model
    folder.
    """
    shapes: tuple[Literal["search-agent", "embedded-world"], ...] = ("search-agent", "embedded-world")
    """Episodes of 512 to 1,024 tokens with 4 searches and a gold answer of 8, of 45 to 90 tokens with 3 and a gold
    answer of 1, or both.
    """
    sizes: Counts = (64, 256, 1024)
    """Episodes per batch, one measurement each."""
    mini_batches: Count = 4
    """Optimiser steps per batch."""
    micro_batch_tokens: Count = 4096
    """Token budget of one forward and backward pass."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What passes are computed in."""
    device: str = "cpu"
    """`cpu`, `cuda`, or one of its devices like `cuda:1`."""
    threads: Count = 1
    """CPU threads."""
    repeats: Count = 2
    """Rounds; medians are shown."""

    def run(self) -> str:
        import torch

        from a2tgpo.bench import LLAMA_135M, TINY_MODEL
        from a2tgpo.bench.update import SHAPES, bench_update

        torch.set_num_threads(self.threads)
        results = {
            name: bench_update(
                {"tiny": TINY_MODEL, "135m": LLAMA_135M}.get(str(self.model), self.model),
                SHAPES[name],
                sizes=self.sizes,
                mini_batches=self.mini_batches,
                micro_batch_tokens=self.micro_batch_tokens,
                dtype=self.dtype,
                device=self.device,
                repeats=self.repeats,
            )
            for name in self.shapes
        }
        return "\n\n".join(f"{name}: {result}" for name, result in results.items())


@dataclass(frozen=True)
class Credit:
    """The algorithms' credit beside loops that do the same arithmetic."""

    episodes: Counts = (64, 256, 1024, 4096)
    """Episodes per batch, one measurement each."""
    repeats: Count = 20
    """Rounds; medians are shown."""

    def run(self) -> str:
        from a2tgpo.bench.credit import bench_credit, format_timings

        return format_timings(bench_credit(self.episodes, repeats=self.repeats))


@dataclass(frozen=True)
class Env:
    """Steps per second of the batched environment over a synthetic corpus, with our search and with bm25s's own."""

    sizes: Counts = (1, 64, 1024)
    """Environments that step together, one measurement each."""
    passages: Passages = 18_000
    """Passages of the corpus."""
    steps: Count = 6_000
    """Steps of all environments together."""

    def run(self) -> str:
        from a2tgpo.bench.env import bench_env
        from a2tgpo.display.tables import as_text, table

        titles = ("search", "environments", "steps/s", "steps per CPU second", "share of retrieval")
        return as_text(
            table(
                titles,
                [
                    [
                        row.search,
                        str(row.num_envs),
                        f"{row.steps_per_second:,.0f}",
                        f"{row.steps_per_cpu_second:,.0f}",
                        f"{row.retrieval_share:.0%}",
                    ]
                    for row in bench_env(self.sizes, self.passages, self.steps)
                ],
            )
        )


@dataclass(frozen=True)
class Retrieval:
    """Queries per second of every search backend and, on a question file with paragraphs, recall of the supporting
    ones.
    """

    dataset: Path | None = None
    """Question file; by default a synthetic corpus, without recall."""
    passages: Passages = 18_000
    """Passages of the synthetic corpus."""
    queries: Count = 500
    """Queries per backend."""
    backends: Annotated[tuple[str, ...], Range(1)] = ("bm25", "rank_bm25")
    """bm25, rank_bm25 or tantivy."""

    def run(self) -> str:
        from a2tgpo.bench.retrieval import RECALL_AT, bench_retrieval
        from a2tgpo.display.tables import as_text, table

        rows = bench_retrieval(self.dataset, self.passages, self.queries, self.backends)
        slowest = min(row.queries_per_second for row in rows)
        titles = ("backend", "passages", "queries/s", "of the slowest", "build (s)", "peak (GB)")
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
        return as_text(table((*titles, *(f"recall@{k}" for k in RECALL_AT)), cells))


@dataclass(frozen=True)
class Rollout:
    """Episodes played by our engine beside transformers' generate, which reads every prompt anew."""

    model: Path | None = None
    """A model folder; by default an untrained policy of the quickstart's shape."""
    episodes: Count = 64
    """Episodes side by side."""
    turns: Count = 4
    """Turns per episode."""
    max_action_tokens: Count = 16
    """Sampled tokens per turn."""
    repeats: Count = 8
    """Rounds; medians are shown."""
    vllm: bool = False
    """Also with vLLM; the default policy then has wider heads, for all engines."""

    def run(self) -> str:
        from a2tgpo.bench.rollout import bench_rollout
        from a2tgpo.display.tables import as_text, table

        rows = bench_rollout(
            self.model, self.episodes, self.turns, self.max_action_tokens, self.repeats, vllm=self.vllm
        )
        base = rows[0].tokens_per_second
        return as_text(
            table(
                ("engine", "episodes/min", "tokens/s", "of the baseline", "turns"),
                [
                    [
                        row.name,
                        f"{row.episodes_per_minute:,.0f}",
                        f"{row.tokens_per_second:,.0f}",
                        f"{row.tokens_per_second / base:.2f}×",
                        f"{row.turns:.1f}",
                    ]
                    for row in rows
                ],
            )
        )


class _Bench(Protocol):
    def run(self) -> str: ...


BENCHES: Mapping[str, type[_Bench]] = {
    "information-gain": InformationGain,
    "update": Update,
    "credit": Credit,
    "env": Env,
    "retrieval": Retrieval,
    "rollout": Rollout,
}


def bench(words: list[str], console: Console) -> int:
    """Run one bench and print it."""
    say(console, choose(BENCHES, words, "bench").run())
    return 0
