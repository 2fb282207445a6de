"""The keyword arguments of the environments, each listed once with its default and its meaning.

`SearchQAEnv`, `SearchQAVectorEnv` and every id that `gymnasium.make` knows take these names; what is misspelt or
belongs to another id is refused before anything is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from a2tgpo.checks import check_choice, check_number, check_whole, did_you_mean
from a2tgpo.envs.budget import ObservationBudget
from a2tgpo.envs.data.datasets import OnBadRow
from a2tgpo.envs.data.fields import FieldNames
from a2tgpo.envs.protocols import PROTOCOLS, protocol_of
from a2tgpo.envs.protocols.base import Protocol, neutralize
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.retrieval.base import Retrievers, check_retriever
from a2tgpo.envs.retrieval.maker import check_name
from a2tgpo.envs.scoring.answers import AnswerScore
from a2tgpo.envs.scoring.gold_value import EvidenceScorer, Scorer
from a2tgpo.envs.scoring.rewards import REWARDS, Reward, reward_of
from a2tgpo.errors import ConfigError
from a2tgpo.files import read_text

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """How an episode is played.

    Raises:
        ConfigError: if a number is out of range or a name unknown.
    """

    top_k: int = 3
    """Passages per search."""
    max_searches: int | None = None
    """Search budget; `None` = only `max_turns` limits searching."""
    max_turns: int = 5
    """Turn limit."""
    protocol: str | Protocol = "tags"
    """How actions and observations are written: a name in `PROTOCOLS` or a `Protocol`."""
    instructions: str | Path | None = None
    """File with the prompt's text, in which `{question}` stands for the question; `None` = the protocol's own."""
    reward: str | Reward | AnswerScore = "em"
    """The outcome: a name in `REWARDS`, or a callable of answer (or None), gold answers and, if it takes a third, the
    format of the whole episode (`EpisodeFormat`).
    """
    format_penalty: float = 0.0
    """Subtracted from the final reward for every turn that broke the format."""
    scorer: str | Scorer | None = "evidence"
    """Values the gold answer for `answer_logprob` and `information_gain`: "evidence", a `Scorer`, or None for neither:
    then no turn has an information gain.
    """
    budget: ObservationBudget = field(default_factory=ObservationBudget)
    """How much of the retrieved passages is shown."""

    def __post_init__(self) -> None:
        check_whole("top_k", self.top_k, 1)
        check_whole("max_turns", self.max_turns, 1)
        if self.max_searches is not None:
            check_whole("max_searches", self.max_searches, 0, ", or None for no limit of its own")
        check_number("format_penalty", self.format_penalty, 0.0, hint="; it is subtracted")
        if not isinstance(self.budget, ObservationBudget):
            raise ConfigError(f"budget: got {self.budget!r}, expected an ObservationBudget")
        protocol_of(self.protocol)
        if self.instructions is not None:
            read_instructions(self.instructions)
        reward_of(self.reward)
        if self.scorer != "evidence" and (isinstance(self.scorer, str) or not callable(self.scorer or str)):
            raise ConfigError(
                f"scorer: got {self.scorer!r}, expected 'evidence', None or a callable (transcript, answers) -> float"
            )

    def rules(self, corpora: Iterable[Sequence[Passage]]) -> "Rules":
        """The same settings with every name resolved.

        Args:
            corpora: what the evidence scorer counts its background on.
        """
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        values["protocol"] = protocol_of(self.protocol)
        values["reward"] = reward_of(self.reward)
        if self.instructions is not None:
            values["instructions"] = read_instructions(self.instructions)
        values["scorer"] = EvidenceScorer.of_corpora(corpora) if self.scorer == "evidence" else self.scorer
        return Rules(**values)


@dataclass(frozen=True, slots=True)
class Rules(EpisodeSettings):
    """What is the same for all episodes of an environment: the settings, with objects where they may have names."""

    protocol: Protocol = field(default_factory=lambda: PROTOCOLS["tags"])
    reward: Reward = REWARDS["em"]
    scorer: Scorer | None = None
    instructions: str | None = None
    """The text of that file."""

    def __post_init__(self) -> None:
        """Nothing: the settings were checked when they were made."""

    def prompt(self, question: str) -> str:
        """The first observation; it says so if only an answer can count."""
        if self.instructions is None:
            text = self.protocol.prompt(question)
        else:
            text = self.instructions.replace(PLACEHOLDER, neutralize(question))
        only_an_answer = self.max_searches == 0 or self.max_turns == 1
        return text + self.protocol.budget_spent() if only_an_answer else text


PLACEHOLDER = "{question}"


def read_instructions(path: str | Path) -> str:
    """The text of a prompt.

    Raises:
        ConfigError: if the file cannot be read, or has no place for the question, or several.
    """
    text = read_text("instructions", Path(path))
    if text.count(PLACEHOLDER) != 1:
        raise ConfigError(
            f"instructions: {path} has {text.count(PLACEHOLDER)} places for the question, expected {PLACEHOLDER} once"
        )
    return text


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Which questions are asked and where they are searched: every id but `Almanac`."""

    dataset: str | Path | Sequence[str | Path] | Mapping[str, int | float] | None = None
    """A question file, a folder with one file per split, or a name below `$A2TGPO_DATA`; or several: a list, or an
    object of weights, in whose proportions they are asked.
    """
    corpus: str | Path | None = None
    """A passages file, a folder with one, or a saved BM25 index; without it, the paragraphs that came with the
    questions.
    """
    split: str = "all"
    """"all", or train, validation, test."""
    retriever: str | Retrievers = "bm25"
    """"bm25", "rank_bm25", the address of a retriever server, or a `Retriever`."""
    questions: Sequence[Question] | None = None
    """Asked instead of the data set's."""
    on_bad_row: OnBadRow = "error"
    """"error" or "skip"."""
    cache: str | Path | None = None
    """File that keeps search results between runs and processes."""
    aliases: str | Path | None = None
    """2Wiki's `id_aliases.json`, whose names are added to the gold answers."""
    question_field: str = ""
    """Field of a row that holds the question; found by the known names if empty, as are the next two. A name may lead
    into objects: `extra_info.question`.
    """
    answer_field: str = ""
    """Field with the gold answer or a list of them."""
    context_field: str = ""
    """Field with the paragraphs that come with the question."""

    def __post_init__(self) -> None:
        check_choice("on_bad_row", self.on_bad_row, ("error", "skip"))
        for name in ("question_field", "answer_field", "context_field"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name}: got {getattr(self, name)!r}, expected the name of a field")
        self.weights()
        if isinstance(self.retriever, str):
            check_name(self.retriever)
        elif not isinstance(self.retriever, Mapping):
            check_retriever(self.retriever)

    def field_names(self) -> FieldNames:
        """The fields that the user named."""
        return FieldNames(self.question_field, self.answer_field, self.context_field)

    def weights(self) -> dict[str, float]:
        """The data sets by name, each with its weight."""
        match self.dataset:
            case None:
                return {}
            case str() | Path():
                return {str(self.dataset): 1.0}
            case Mapping() if self.dataset:
                return {
                    str(name): check_number(f"dataset, weight of {name}", weight, low=1e-9)
                    for name, weight in self.dataset.items()
                }
            case Sequence() if self.dataset and all(isinstance(name, str | Path) for name in self.dataset):
                return dict.fromkeys(map(str, self.dataset), 1.0)
        raise ConfigError(
            f"dataset: got {self.dataset!r}, expected a path or a name, a list of them, or an object of weights by name"
        )


@dataclass(frozen=True, slots=True)
class AlmanacSettings:
    """Which part of the embedded world is asked about (see `a2tgpo.envs.almanac.load`): the id `Almanac`."""

    split: str = "train"
    """train, validation or test."""
    fictional: bool = False
    """Replace every name by an invented one."""
    seed: int = 0
    """Of the invented names, of drawn worlds and of the order of the questions."""
    worlds: int = 1
    """More than one are small fictional worlds with other facts in each."""
    hops: Sequence[int] = (1, 2, 3, 4)
    """Lengths of the chains that are asked, each equally often."""
    retriever: str = "bm25"
    """"bm25", "rank_bm25", or the address of a retriever server."""

    def __post_init__(self) -> None:
        if not isinstance(self.retriever, str):
            raise ConfigError(
                f"retriever: got {self.retriever!r}, expected a name, since each world has a corpus of its own; for one"
                " of your own take questions and corpora from a2tgpo.envs.almanac.load and make a SearchQAEnv"
            )
        check_name(self.retriever)


def names(*kinds: type) -> tuple[str, ...]:
    """The settings that these records hold."""
    return tuple(entry.name for kind in kinds for entry in fields(kind))


def check_names(owner: str, got: Iterable[str], expected: Sequence[str], elsewhere: str = "") -> None:
    """Refuse settings that are misspelt.

    Args:
        elsewhere: the end of the message for a name that another id takes; empty if none does.

    Raises:
        ConfigError: for the first that is not among the expected ones.
    """
    for name in got:
        if name not in expected:
            hint = elsewhere if name in names(DataSettings, AlmanacSettings) else did_you_mean(name, expected)
            raise ConfigError(f"{owner}: got a setting {name!r}, expected some of {', '.join(expected)}{hint}")


def take(kind: type[_T], arguments: dict[str, Any]) -> _T:
    """A record made from those of the arguments that it holds; they are removed."""
    return kind(**{name: arguments.pop(name) for name in names(kind) if name in arguments})
