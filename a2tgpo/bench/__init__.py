"""What the benches share: a model, episodes of a given shape, and clocks for time and memory."""

import gc
import platform
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

import torch
from scipy.stats import binom
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.errors import ConfigError
from a2tgpo.policy import Policy, checked_device

_Way = TypeVar("_Way")

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}

LLAMA_135M = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
)
"""A Llama-type model of 135 million parameters (the shape of SmolLM2-135M)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the bench's episodes look like: question, then `searches` times query and observation, then the answer."""

    tokens: int = 1024
    """Tokens of the longest episode."""
    searches: int = 3
    """The answer is one more turn."""
    action_tokens: int = 32
    episodes: int = 1
    shortest: float = 1.0
    """Shortest episode as a share of the longest; lengths in between are evenly spaced."""
    gold_tokens: int = 8

    def __post_init__(self) -> None:
        least = (self.searches + 1) * (self.action_tokens + 1)
        if int(self.tokens * self.shortest) < least:
            raise ConfigError(
                f"bench: got episodes of {int(self.tokens * self.shortest)} tokens, expected at least {least} for"
                f" {self.searches} searches with {self.action_tokens} tokens per action; raise tokens or lower searches"
            )


TINY_MODEL = LlamaConfig(
    vocab_size=550,
    hidden_size=64,
    intermediate_size=192,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
)
"""About the size of the model that the quickstart trains."""


def word_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """The words `t0`, `t1`, … as tokens 0, 1, …"""
    first = "t0"
    inner = Tokenizer(models.WordLevel({f"t{number}": number for number in range(size)}, unk_token=first))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token=first, eos_token=first)


def bench_policy(model: Path | LlamaConfig, dtype: str, device: str) -> Policy:
    """The model in a folder, or one of that shape with random weights."""
    if dtype not in DTYPES:
        raise ConfigError(f"bench.dtype: got {dtype!r}, expected one of {sorted(DTYPES)}")
    if isinstance(model, Path):
        return Policy.load(model, DTYPES[dtype], device)
    torch.manual_seed(0)
    return Policy(
        LlamaForCausalLM(model).to(checked_device(device)).eval(), word_tokenizer(model.vocab_size), DTYPES[dtype]
    )


def bench_episodes(shape: Shape, vocabulary: int) -> list[Episode]:
    """Episodes of random tokens; groups of eight, half of each with outcome 1, its gold answer `gold_tokens` words of
    `word_tokenizer`.
    """
    generator = torch.Generator().manual_seed(0)
    gold = " ".join(f"t{5 + number}" for number in range(shape.gold_tokens))
    result = []
    for index in range(shape.episodes):
        share = shape.shortest + (1 - shape.shortest) * (index / max(1, shape.episodes - 1))
        turns = shape.searches + 1
        shown = round(shape.tokens * share) - turns * shape.action_tokens
        contexts = [shown // turns + (turn < shown % turns) for turn in range(turns)]
        ids = torch.randint(vocabulary, (sum(contexts) + turns * shape.action_tokens,), generator=generator).tolist()
        steps = []
        for turn, size in enumerate(contexts):
            context, action, ids = ids[:size], ids[size : size + shape.action_tokens], ids[size + shape.action_tokens :]
            kind = ActionKind.SEARCH if turn < shape.searches else ActionKind.ANSWER
            steps.append(Turn(tuple(context), tuple(action), (0.0,) * len(action), kind))
        result.append(
            Episode(
                index // 8,
                f"question {index // 8}",
                index,
                tuple(steps),
                float(index % 2),
                StopReason.ANSWERED,
                gold_answers=(gold,),
            )
        )
    return result


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way of doing the work took, round by round."""

    wall: tuple[float, ...]
    """Wall time in seconds."""
    work: tuple[float, ...]
    """On a CPU processor time in seconds, over all threads, which a busy machine changes less; elsewhere the wall time.
    """
    peak_bytes: int | None
    """Largest memory held at one time: of the device, or of the whole process; `None` where the system does not tell.
    """

    @property
    def seconds(self) -> float:
        """Wall time of the middle round."""
        return median(self.wall)

    @property
    def work_seconds(self) -> float:
        """Work of the middle round."""
        return median(self.work)

    def __add__(self, other: "Cost") -> "Cost":
        """The rounds of both."""
        peaks = [peak for peak in (self.peak_bytes, other.peak_bytes) if peak is not None]
        return Cost(self.wall + other.wall, self.work + other.work, max(peaks, default=None))

    def times(self, other: "Cost") -> float:
        """Work as a multiple of another way's, the middle one of all rounds: what slows the machine for a while slows
        both in the same round.
        """
        return median(self._multiples(other))

    def times_range(self, other: "Cost") -> tuple[float, float]:
        """Where `times` lies with a confidence of at least 95 %, from the order of the rounds alone; all rounds where
        they are too few for that.
        """
        multiples = sorted(self._multiples(other))
        rank = max(0, int(binom.ppf(0.025, len(multiples), 0.5)) - 1)
        return multiples[rank], multiples[-1 - rank]

    def _multiples(self, other: "Cost") -> list[float]:
        return [own / others for own, others in zip(self.work, other.work, strict=True)]


def costs_of(
    ways: Mapping[_Way, Callable[[], object]], repeats: int, device: torch.device, *, warm_up: bool = True
) -> dict[_Way, Cost]:
    """Time and memory of each way. A round takes all ways in turn, so that a slow minute of the machine hits all alike;
    one more before them warms up.
    """
    wall: dict[_Way, list[float]] = {name: [] for name in ways}
    work: dict[_Way, list[float]] = {name: [] for name in ways}
    peaks: dict[_Way, int | None] = {}
    for repeat in range(0 if warm_up else 1, repeats + 1):
        for name, way in ways.items():
            gc.collect()
            _reset_peak(device)
            start, worked = time.perf_counter(), time.process_time()
            way()
            _wait(device)
            if repeat:
                wall[name].append(time.perf_counter() - start)
                work[name].append(time.process_time() - worked)
                peaks[name] = _peak(device)
    return {
        name: Cost(tuple(wall[name]), tuple((work if device.type == "cpu" else wall)[name]), peaks[name])
        for name in ways
    }


def machine() -> str:
    """One line for the head of a bench's output."""
    return f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads, {_processor()}" + (
        f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    )


def megabytes(size: int | None) -> str:
    """A size for people; "?" if unknown."""
    return "?" if size is None else f"{size / 2**20:,.0f} MB"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR_REFS.exists():
        _CLEAR_REFS.write_text("5")  # Linux: the high-water mark starts again from the present size


def _peak(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if not _STATUS.exists():
        return None
    found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
    return int(found[1]) * 1024 if found else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def verdict(kept: bool) -> str:
    """What the benches say of a target."""
    return "met" if kept else "missed"
