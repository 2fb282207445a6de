"""Search question answering as a Gymnasium environment: one episode is one question, one step is one turn of free
text.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from a2tgpo.envs.info import Info
from a2tgpo.envs.pool import QuestionPool
from a2tgpo.envs.protocols.base import Protocol
from a2tgpo.envs.records import Question
from a2tgpo.envs.retrieval.base import Retrievers
from a2tgpo.envs.scoring.gold_value import Transcript
from a2tgpo.envs.search_episode import SearchEpisode
from a2tgpo.envs.settings import EpisodeSettings, Rules, check_names, names
from a2tgpo.envs.spaces import UnicodeText
from a2tgpo.errors import ConfigError

MAX_ACTION_LENGTH = 1_000_000
"""Characters that one turn may have."""


def observation_space_of(pool: QuestionPool, rules: Rules) -> UnicodeText:
    """Long enough for every prompt and for every observation that the budget allows."""
    prompt = len(rules.prompt("")) + max(len(question.text) for question in pool.questions)
    notices = (
        len(rules.protocol.corrective()) + len(rules.protocol.retrieval_failure()) + len(rules.protocol.budget_spent())
    )
    if rules.budget.length is not len:
        # A budget in another unit bounds no number of characters.
        return UnicodeText(MAX_ACTION_LENGTH)
    return UnicodeText(max(prompt, notices + rules.budget.total + _RENDERING * (rules.top_k + 1)))


_RENDERING = 200
"""Characters around one passage, and around the block, at most."""


class SearchQAEnv(gym.Env[str, str]):
    """Ask one question per episode; the agent searches and answers in free text.

    Args:
        questions: what is asked.
        retriever: one search engine, or one per `Question.corpus`.
        render_mode: "ansi" makes `render()` return the transcript.
        settings: fields of `EpisodeSettings`: limits, protocol, reward, scorer, budget.

    `info` always has the keys and types of `info.INFO_TYPES`. `reset(options={"question_id": …})` asks a certain
    question; otherwise one is drawn.

    Raises:
        ConfigError: for anything above that cannot work; see `QuestionPool` and `EpisodeSettings`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (Gymnasium's)

    def __init__(
        self,
        questions: Sequence[Question],
        retriever: Retrievers,
        *,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        check_render_mode(render_mode)
        check_names("SearchQAEnv", settings, (*names(EpisodeSettings), "render_mode"))
        chosen = EpisodeSettings(**settings)
        self.render_mode = render_mode
        self.pool = QuestionPool.of(questions, retriever, chosen.top_k)
        self.rules = chosen.rules(self.pool.corpora())
        self.observation_space = observation_space_of(self.pool, self.rules)
        self.action_space = UnicodeText(MAX_ACTION_LENGTH)
        self._episode: SearchEpisode | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start an episode with a drawn question, or with `options["question_id"]`."""
        super().reset(seed=seed)
        question = choose(self.pool, self.np_random, options)
        self._episode = SearchEpisode(question, self.rules)
        observation, info = self._episode.start()
        return observation, info.as_dict()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Run one turn.

        Raises:
            RuntimeError: before the first reset or after the end of an episode.
            TypeError: if the action is not text.
        """
        if self._episode is None:
            raise RuntimeError("step: got a step before the first reset; call reset first")
        query = self._episode.propose(checked_text(action))
        found = [] if query is None else self.pool.search([(self._episode.question.corpus, query)])[0]
        observation, reward, terminated, truncated, info = self._episode.resolve(found)
        return observation, reward, terminated, truncated, info.as_dict()

    def render(self) -> str | None:
        """The transcript so far, in "ansi" mode."""
        if self.render_mode is None or self._episode is None:
            return None
        transcript = self._episode.transcript
        return transcript.prompt + "".join(exchange.action + exchange.observation for exchange in transcript.exchanges)

    @property
    def questions(self) -> tuple[Question, ...]:
        """All questions that can be asked, with their gold answers: for trainers and viewers, never observed."""
        return self.pool.questions

    @property
    def protocol(self) -> Protocol:
        return self.rules.protocol

    @property
    def transcript(self) -> Transcript:
        """The running episode so far, with the passages shown."""
        if self._episode is None:
            raise RuntimeError("transcript: got no running episode; call reset first")
        return self._episode.transcript

    @property
    def question(self) -> Question:
        """The question being asked, with its gold answers."""
        if self._episode is None:
            raise RuntimeError("question: got no running episode; call reset first")
        return self._episode.question


def check_render_mode(render_mode: str | None) -> None:
    """Raise ConfigError for a mode that does not exist."""
    if render_mode not in (None, "ansi"):
        raise ConfigError(f"render_mode: got {render_mode!r}, expected None or 'ansi'")


def choose(pool: QuestionPool, rng: np.random.Generator, options: dict[str, Any] | None) -> Question:
    """The question that the options name, or a uniformly drawn one.

    Raises:
        ConfigError: for an unknown option or question id.
    """
    unknown = set(options or ()) - {"question_id"}
    if unknown:
        raise ConfigError(
            f"reset: got options {sorted(unknown)}, expected only 'question_id' (a vector environment: 'question_ids')"
        )
    # drawn in either case, so that naming a question does not shift later draws
    drawn = int(rng.integers(len(pool.questions)))
    if options and options.get("question_id") is not None:
        return pool.find(options["question_id"])
    return pool.questions[drawn]


def checked_text(action: object) -> str:
    """The action, which must be text (numpy's string type counts)."""
    if not isinstance(action, str):
        raise TypeError(
            f"step: got an action of type {type(action).__name__}, expected str: the text that the agent wrote"
        )
    return str(action)
