"""Wrappers: a discrete action space for agents that cannot write text, and information gain as part of the reward."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from a2tgpo.checks import check_number
from a2tgpo.envs.entities import asked_about, content_words, entities, words
from a2tgpo.envs.info import Info
from a2tgpo.envs.protocols.writing import UNKNOWN, written_answer, written_search
from a2tgpo.envs.records import Passage
from a2tgpo.envs.search_qa import SearchQAEnv
from a2tgpo.errors import ConfigError

ENTITIES: Final = 8
"""Entities that an agent can choose among; the oldest are forgotten."""
WORDS: Final = 4
"""Content words of the question that a query can hold, in the question's order."""
TEMPLATES: Final = WORDS + 1
"""Queries about an entity: the entity alone, or with one of the question's words."""
PER_ENTITY: Final = 4 + TEMPLATES + WORDS
GLOBALS: Final = 3 + 2 * WORDS
_OFTEN = 3

Features = NDArray[np.float32]


@dataclass
class _Memory:
    """What the wrapper remembers of the episode."""

    words: list[str]
    asked: list[str]
    entities: list[str]
    """Newest first."""
    fresh: set[str] = field(default_factory=set)
    """Entities that the last observation showed for the first time."""
    mentions: Counter[str] = field(default_factory=Counter)
    searched: set[tuple[str, int]] = field(default_factory=set)
    used: Counter[int] = field(default_factory=Counter)
    together: set[tuple[str, int]] = field(default_factory=set)
    """Entities and words that shared a sentence of the last observation."""
    first: str = ""
    """The first fresh entity of the last observation."""

    def read(self, passages: Sequence[Passage]) -> None:
        """Take in a search result: its new entities come first, in order of mention."""
        text = " ".join(f"{passage.title}. {passage.text}" if passage.title else passage.text for passage in passages)
        found = entities(text)
        fresh = [entity for entity in found if entity not in self.mentions and entity not in self.asked]
        self.fresh, self.first = set(fresh), fresh[0] if fresh else ""
        self.mentions.update(found)
        self.together = set()
        for sentence in text.split(". "):
            heard = set(words(sentence))
            places = [place for place, word in enumerate(self.words) if word in heard]
            self.together.update((entity, place) for entity in entities(sentence) for place in places)
        self.entities = list(dict.fromkeys([*fresh, *found, *self.entities]))[:ENTITIES]


class DiscreteSearch(gym.Wrapper[Any, Any, Any, Any]):
    """Search question answering with numbered actions and numbers as observations.

    Actions (`Discrete(8 · 5 + 8)`): `5 · e + t` searches entity e with template t: alone (t = 0) or with word t − 1 of
    the question; `40 + e` answers with entity e. Entities are the names and figures read so far, newest first: those of
    the last result that are new, in order of mention, then its others, then older ones. Numbers of entities and words
    that do not exist start again from the first that does, so every action means something; `info["action_mask"]` and
    `action_masks()` are true for those that exist and for searches as long as the budget allows them.

    Observation (`Box(0, 1, (115,))`), per entity: exists, in the question, new in the last result, the first of the
    new; searched with each template so far; shared a sentence of the last result with each word. Then: share of turns
    used, share of searches used, did the last turn fail; per word: exists, how often used (in thirds, at most 1).

    Args:
        env: a `SearchQAEnv`, possibly wrapped.

    Raises:
        ConfigError: for any other environment, or one with a protocol that cannot be written by rule.
    """

    def __init__(self, env: gym.Env[str, str]) -> None:
        super().__init__(env)
        if not isinstance(env.unwrapped, SearchQAEnv):
            raise ConfigError(
                f"DiscreteSearch: got {type(env.unwrapped).__name__}, expected a SearchQAEnv, whose actions are"
                " searches and answers; make one with gymnasium.make('a2tgpo/Almanac-v0')"
            )
        self.base: SearchQAEnv = env.unwrapped
        written_search(self.base.protocol, "a")
        self.action_space = Discrete(ENTITIES * TEMPLATES + ENTITIES)
        self.observation_space = Box(0.0, 1.0, (ENTITIES * PER_ENTITY + GLOBALS,), np.float32)
        self._memory = _Memory([], [], [])
        self._info: Info = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, Info]:
        """Start an episode; options as for the environment."""
        _, info = self.env.reset(seed=seed, options=options)
        question = self.base.question.text
        asked = asked_about(question)
        self._memory = _Memory(content_words(question)[:WORDS], asked, asked[:ENTITIES])
        return self._features(info), self._with_mask(info)

    def step(self, action: np.int64 | int) -> tuple[Features, float, bool, bool, Info]:
        """One turn."""
        _, reward, terminated, truncated, info = self.env.step(self.text_of(int(action)))
        self._memory.fresh, self._memory.together, self._memory.first = set(), set(), ""
        if info["query"] and not info["retrieval_failed"]:
            self._memory.read(self.base.transcript.exchanges[-1].passages)
        return self._features(info), float(reward), terminated, truncated, self._with_mask(info)

    def text_of(self, action: int) -> str:
        """What is written for an action."""
        memory = self._memory
        known = memory.entities or [UNKNOWN]
        if action >= ENTITIES * TEMPLATES:
            return written_answer(self.base.protocol, known[(action - ENTITIES * TEMPLATES) % len(known)])
        place, template = divmod(action, TEMPLATES)
        entity, template = known[place % len(known)], template % (len(memory.words) + 1)
        memory.searched.add((entity, template))
        memory.used.update([template - 1])
        word = memory.words[template - 1] if template else ""
        return written_search(self.base.protocol, f"{entity} {word}".strip())

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions make sense now: one flag per action. (The name is the one that sb3-contrib asks for.)"""
        mask = np.zeros(ENTITIES * TEMPLATES + ENTITIES, dtype=np.bool_)
        known = len(self._memory.entities)
        limit = self.base.rules.max_searches
        if limit is None or self._info["searches"] < limit:
            searches = mask[: ENTITIES * TEMPLATES].reshape(ENTITIES, TEMPLATES)
            searches[:known, : len(self._memory.words) + 1] = True
        mask[ENTITIES * TEMPLATES : ENTITIES * TEMPLATES + known] = True
        return mask

    def _with_mask(self, info: Info) -> Info:
        self._info = info
        return {**info, "action_mask": self.action_masks()}

    def _features(self, info: Info) -> Features:
        memory, rules = self._memory, self.base.rules
        table = np.zeros((ENTITIES, PER_ENTITY), dtype=np.float32)
        for row, entity in enumerate(memory.entities):
            table[row, :4] = 1.0, entity in memory.asked, entity in memory.fresh, entity == memory.first
            table[row, 4 : 4 + TEMPLATES] = [(entity, template) in memory.searched for template in range(TEMPLATES)]
            table[row, 4 + TEMPLATES :] = [(entity, place) in memory.together for place in range(WORDS)]
        failed = info["action"] == "invalid" or info["retrieval_failed"]
        spent = info["searches"] / (rules.max_searches or rules.max_turns)
        exists = [float(place < len(memory.words)) for place in range(WORDS)]
        used = [min(1.0, memory.used[place] / _OFTEN) for place in range(WORDS)]
        tail = np.array([info["turn"] / rules.max_turns, min(1.0, spent), failed, *exists, *used], dtype=np.float32)
        return np.concatenate([table.ravel(), tail])


class GainReward(gym.Wrapper[Any, Any, Any, Any]):
    """Adds `weight` times the turn's information gain to the reward; turns without a gain are left as they are.

    Raises:
        ConfigError: for an environment without information gain in its info, or one that has no scorer.
    """

    def __init__(self, env: gym.Env[Any, Any], weight: float) -> None:
        super().__init__(env)
        if not isinstance(env.unwrapped, SearchQAEnv) or env.unwrapped.rules.scorer is None:
            raise ConfigError(
                f"GainReward: got {env.unwrapped}, expected a SearchQAEnv with a scorer, which measures the gain; make"
                " it with scorer='evidence'"
            )
        self.weight = check_number("GainReward.weight", weight)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """One turn of the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        gain = info["information_gain"]
        return (
            observation,
            float(reward) + (0.0 if math.isnan(gain) else self.weight * gain),
            terminated,
            truncated,
            info,
        )


class LimitEnds(gym.Wrapper[Any, Any, Any, Any]):
    """Reports an episode that a limit ended as terminated.

    `DiscreteSearch` shows how much of the limits is used up, so running into one is a state worth 0 and not a cut in an
    endless task. An algorithm that bootstraps after truncations would learn that never answering is as good as
    answering later.
    """

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """One turn of the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward), terminated or truncated, False, info
