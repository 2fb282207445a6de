"""Many search-QA episodes at once, with one retriever call per step."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from a2tgpo.checks import check_whole, did_you_mean
from a2tgpo.envs.info import INFO_TYPES, Info, StepInfo
from a2tgpo.envs.pool import QuestionPool
from a2tgpo.envs.protocols.base import Protocol
from a2tgpo.envs.records import Question
from a2tgpo.envs.retrieval.base import Retrievers
from a2tgpo.envs.search_episode import SearchEpisode, Step
from a2tgpo.envs.search_qa import MAX_ACTION_LENGTH, check_render_mode, checked_text, choose, observation_space_of
from a2tgpo.envs.settings import EpisodeSettings, check_names, names
from a2tgpo.envs.spaces import UnicodeText
from a2tgpo.errors import ConfigError

Texts = tuple[str, ...]
Flags = NDArray[np.bool_]
VectorStep = tuple[Texts, NDArray[np.float64], Flags, Flags, Info]
_DTYPES: dict[type, type] = {int: np.int64, float: np.float64, bool: np.bool_}


class SearchQAVectorEnv(VectorEnv[Texts, Sequence[str | None], NDArray[Any]]):
    """`num_envs` search-QA episodes that step together. Arguments as for `SearchQAEnv`.

    Every search of a step goes to the retriever in one call, equal queries once. Episodes are the same as those of
    `SyncVectorEnv` over `SearchQAEnv` with the same seeds: each environment has its own generator, seeded as Gymnasium
    does it.

    `reset(options={"question_ids": [...]})` asks one question per environment, `{"reset_mask": array}` resets only
    some.

    Autoreset modes: NEXT_STEP (the default, as in Gymnasium), SAME_STEP, and DISABLED, where stepping a finished
    environment is a no-op: observation "", reward 0, its flags stay set, and its info stays the final one with the mask
    `_key` false. In that mode an action may also be None: that environment waits, since its policy is still writing;
    its observation and info stay, with the mask `_key` false.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        retriever: Retrievers,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        check_whole("num_envs", num_envs, 1)
        check_render_mode(render_mode)
        check_names("SearchQAVectorEnv", settings, (*names(EpisodeSettings), "render_mode", "autoreset_mode"))
        chosen = EpisodeSettings(**settings)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.metadata = {"render_modes": ["ansi"], "render_fps": 1, "autoreset_mode": self.autoreset_mode}
        self.pool = QuestionPool.of(questions, retriever, chosen.top_k)
        self.rules = chosen.rules(self.pool.corpora())
        self.single_observation_space: gym.Space[str] = observation_space_of(self.pool, self.rules)
        self.single_action_space: gym.Space[str] = UnicodeText(MAX_ACTION_LENGTH)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rngs = [seeding.np_random(None)[0] for _ in range(num_envs)]
        self._episodes: list[SearchEpisode | None] = [None] * num_envs
        self._observations = [""] * num_envs
        self._infos = {key: _column(kind, num_envs) for key, kind in INFO_TYPES.items()}
        self._terminated = np.zeros(num_envs, dtype=np.bool_)
        self._truncated = np.zeros(num_envs, dtype=np.bool_)

    @property
    def questions(self) -> tuple[Question, ...]:
        """All questions that can be asked, with their gold answers: for trainers and viewers, never observed."""
        return self.pool.questions

    @property
    def protocol(self) -> Protocol:
        return self.rules.protocol

    def question(self, index: int) -> Question:
        """The question that environment `index` is asking.

        Raises:
            RuntimeError: before the first reset.
        """
        return self._episode(index).question

    def reset(
        self, *, seed: int | np.integer[Any] | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Texts, Info]:
        """Start an episode in every environment, or in those of `options["reset_mask"]`.

        Args:
            seed: one per environment; an int stands for `seed, seed + 1, …`.
            options: `question_ids`: one id (or None = drawn) per environment; `reset_mask`: bool array.

        Raises:
            ConfigError: for a wrong number of seeds or ids, or an unknown option.
        """
        chosen, question_ids, others = self._reset_options(options)
        for index, env_seed in enumerate(self._seeds(seed)):
            if not chosen[index]:
                continue
            if env_seed is not None:
                self._rngs[index] = seeding.np_random(env_seed)[0]
            single_options = others if question_ids is None else {"question_id": question_ids[index]}
            self._start(index, single_options)
        return tuple(self._observations), self._reported(chosen)

    def step(self, actions: Sequence[str | None]) -> VectorStep:
        """One turn in every environment (in those with an action, where finished ones are left alone).

        Raises:
            ConfigError: for a wrong number of actions.
            RuntimeError: before the first reset.
            TypeError: if an action is not text.
        """
        if len(actions) != self.num_envs:
            raise ConfigError(
                f"step: got {len(actions)} actions, expected one per environment ({self.num_envs}); finished ones take "
                "any text, for example ''"
            )
        finished = self._terminated | self._truncated
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        idle, reported = finished, np.ones(self.num_envs, dtype=np.bool_)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            idle = finished | np.fromiter((action is None for action in actions), np.bool_, self.num_envs)
            reported = ~idle
        for index in np.flatnonzero(finished).tolist():
            if self.autoreset_mode is AutoresetMode.DISABLED:
                self._observations[index] = ""
            else:
                self._start(index, None)
        turns = {index: checked_text(actions[index]) for index in np.flatnonzero(~idle).tolist()}
        for index, step in self._turns(turns).items():
            rewards[index] = step.reward
        terminated, truncated = self._terminated.copy(), self._truncated.copy()
        extra = self._same_step_reset(terminated | truncated) if self.autoreset_mode is AutoresetMode.SAME_STEP else {}
        return tuple(self._observations), rewards, terminated, truncated, extra | self._reported(reported)

    def begin(self, question_ids: Sequence[str]) -> list[tuple[str, StepInfo]]:
        """Ask these questions in the first environments; the others wait. With `advance`, the way to drive episodes
        without Gymnasium's arrays: it costs time for the episodes at hand only, however many environments there are.

        Returns:
            First observation and info of each.

        Raises:
            ConfigError: for more questions than environments, an unknown id, or environments that restart by
                themselves.
        """
        if self.autoreset_mode is not AutoresetMode.DISABLED:
            raise ConfigError(
                f"autoreset_mode: got {self.autoreset_mode.value!r}, expected 'Disabled', where finished episodes stay "
                "finished; make the environment with autoreset_mode=AutoresetMode.DISABLED"
            )
        if len(question_ids) > self.num_envs:
            raise ConfigError(
                f"begin: got {len(question_ids)} questions for {self.num_envs} environments, expected at most as many; "
                "raise num_envs or ask them in several batches"
            )
        return [self._start(index, {"question_id": name}) for index, name in enumerate(question_ids)]

    def advance(self, actions: Mapping[int, str]) -> dict[int, Step]:
        """One turn in the environments named, with one retriever call.

        Raises:
            RuntimeError: before the first reset, or for an environment whose episode is over.
            TypeError: if an action is not text.
        """
        return self._turns({index: checked_text(action) for index, action in actions.items()})

    def render(self) -> tuple[str, ...] | None:
        """The transcripts so far, in "ansi" mode."""
        if self.render_mode is None:
            return None
        transcripts = [self._episode(index).transcript for index in range(self.num_envs)]
        return tuple(
            t.prompt + "".join(exchange.action + exchange.observation for exchange in t.exchanges) for t in transcripts
        )

    def _turns(self, actions: Mapping[int, str]) -> dict[int, Step]:
        """Step these episodes with one search call."""
        queries: dict[int, str] = {}
        for index, text in actions.items():
            query = self._episode(index).propose(text)
            if query is not None:
                queries[index] = query
        found = self.pool.search([(self.question(index).corpus, query) for index, query in queries.items()])
        hits = dict(zip(queries, found, strict=True))
        steps = {index: self._episode(index).resolve(hits.get(index, [])) for index in actions}
        for index, step in steps.items():
            self._observations[index] = step.observation
            self._terminated[index], self._truncated[index] = step.terminated, step.truncated
            self._keep(index, step.info)
        return steps

    def _same_step_reset(self, finished: Flags) -> Info:
        """Restart finished episodes at once; their last observation and info go under `final_obs` and `final_info`."""
        if not finished.any():
            return {}
        final_obs = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(finished):
            final_obs[index] = self._observations[index]
        final_info = self._reported(finished)
        for index in np.flatnonzero(finished):
            self._start(int(index), None)
        return {
            "final_obs": final_obs,
            "_final_obs": finished.copy(),
            "final_info": final_info,
            "_final_info": finished.copy(),
        }

    def _start(self, index: int, options: dict[str, Any] | None) -> tuple[str, StepInfo]:
        episode = SearchEpisode(choose(self.pool, self._rngs[index], options), self.rules)
        observation, info = episode.start()
        self._episodes[index], self._observations[index] = episode, observation
        self._terminated[index] = self._truncated[index] = False
        self._keep(index, info)
        return observation, info

    def _episode(self, index: int) -> SearchEpisode:
        episode = self._episodes[index]
        if episode is None:
            raise RuntimeError(f"environment {index}: got no running episode; call reset first")
        return episode

    def _seeds(self, seed: int | np.integer[Any] | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        seeds: list[int | None] = (
            [int(seed) + index for index in range(self.num_envs)] if isinstance(seed, int | np.integer) else list(seed)
        )
        if len(seeds) != self.num_envs:
            raise ConfigError(
                f"reset: got {len(seeds)} seeds, expected one per environment ({self.num_envs}) or a single int"
            )
        return seeds

    def _reset_options(
        self, options: dict[str, Any] | None
    ) -> tuple[Flags, Sequence[str | None] | None, dict[str, Any] | None]:
        """(which environments, their question ids if given, all other options)."""
        others = dict(options or {})
        question_ids = others.pop("question_ids", None)
        if question_ids is not None and len(question_ids) != self.num_envs:
            raise ConfigError(
                f"reset: got {len(question_ids)} question_ids, expected one per environment ({self.num_envs}); None"
                " draws one"
            )
        mask = others.pop("reset_mask", None)
        chosen = np.ones(self.num_envs, dtype=np.bool_) if mask is None else np.asarray(mask, dtype=np.bool_)
        if chosen.shape != (self.num_envs,) or not chosen.any():
            raise ConfigError(
                f"reset: got a reset_mask of shape {chosen.shape} with {chosen.sum()} true, expected ({self.num_envs},)"
                " and at least one true"
            )
        return chosen, question_ids, others

    def _keep(self, index: int, info: StepInfo) -> None:
        """Write an info into the arrays, one per key."""
        for key, value in info.as_dict().items():
            self._infos[key][index] = value

    def _reported(self, reported: Flags) -> Info:
        """One array per info key, and `_key` for who reported it, as Gymnasium batches infos."""
        batched: Info = {}
        for key, column in self._infos.items():
            batched[key], batched[f"_{key}"] = column.copy(), reported.copy()
        return batched


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        known = [known.value for known in AutoresetMode]
        raise ConfigError(
            f"autoreset_mode: got {mode!r}, expected one of {', '.join(known)}{did_you_mean(mode, known)}"
        ) from error


def _column(kind: type, rows: int) -> NDArray[Any]:
    """An info key of all environments; empty until they are reset."""
    dtype = _DTYPES.get(kind)
    return np.full(rows, None, dtype=object) if dtype is None else np.zeros(rows, dtype=dtype)
