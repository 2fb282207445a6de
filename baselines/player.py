"""Plays reference agents: many scripts side by side, one engine call and one environment step for all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from typing import Any

from gymnasium.vector import AutoresetMode

from a2tgpo.baselines.script import Generate, Opening, Reply, Request, Script, Seen, Write
from a2tgpo.baselines.voice import Utterance, Voice
from a2tgpo.envs import Passage, Question, SearchQAVectorEnv
from a2tgpo.envs.retrieval import LocalRetriever
from a2tgpo.episode import StopReason
from a2tgpo.errors import ConfigError

PATIENCE = 20
"""Generations in a row after which an agent has to act."""


@dataclass(frozen=True, slots=True)
class Played:
    """What an agent made of one question."""

    question: Question
    answer: str
    em: float
    f1: float
    searches: int
    turns: int
    tokens: int
    """Tokens that the language model read or wrote, a beginning shared by two prompts in a row counted once; 0 without
    a model.
    """
    stop: StopReason
    error: str = ""
    """What broke, for FAILED episodes."""

    @property
    def failed(self) -> bool:
        return self.stop is StopReason.FAILED

    def row(self) -> dict[str, Any]:
        """One row per question, as evaluations write them."""
        return {
            "question_id": self.question.id,
            "question": self.question.text,
            "gold_answers": list(self.question.answers),
            "hops": self.question.hops,
            "type": self.question.type,
            **{name: getattr(self, name) for name in ("answer", "em", "f1", "searches", "turns", "tokens")},
            "stop": str(self.stop),
        }


@dataclass
class _Play:
    """An episode in the making."""

    question: Question
    script: Script
    seed: int
    request: Request
    generations: int = 0
    in_a_row: int = 0
    tokens: int = 0
    last_prompt: tuple[int, ...] = ()
    turns: int = 0
    searches: int = 0
    error: str = ""
    """Why the last search that broke did."""
    done: Played | None = None


@dataclass
class Player:
    """One agent in one environment.

    Args:
        name: of the agent, for messages.
        script: the agent.
        env: a vector environment with `AutoresetMode.DISABLED`; as many episodes are played side by side as it has
            environments.
        voice: the language model; None for agents that need none.

    Raises:
        ConfigError: if the environment restarts finished episodes by itself.
    """

    name: str
    script: Callable[[Opening], Script]
    env: SearchQAVectorEnv
    voice: Voice | None = None
    passages: dict[tuple[str, str], Passage] = field(default_factory=dict)
    """(corpus, passage id) → passage, of all retrievers that hold their corpus."""

    def __post_init__(self) -> None:
        if self.env.autoreset_mode is not AutoresetMode.DISABLED:
            got = self.env.autoreset_mode.value
            raise ConfigError(
                f"play: got an environment with autoreset mode {got!r}, expected 'Disabled'; make it with"
                " autoreset_mode=AutoresetMode.DISABLED"
            )
        engines = self.env.pool.retrievers
        for corpus, engine in engines.items() if isinstance(engines, Mapping) else [("", engines)]:
            if isinstance(engine, LocalRetriever):
                self.passages |= {(corpus, passage.id): passage for passage in engine.passages}

    def play(self, question_ids: Sequence[str], seed: int, replays: int = 2) -> list[Played]:
        """One episode per question, in order. An episode depends on its question, its place and the seed only; one in
        which a search broke is played again, at most so many times, and has failed then.

        Raises:
            ConfigError: if the script ends without an answer, or generates without end.
        """
        size, played = self.env.num_envs, dict[int, Played]()
        waiting = list(range(len(question_ids)))
        for _ in range(1 + replays):
            for start in range(0, len(waiting), size):
                places = waiting[start : start + size]
                batch = self._batch([question_ids[place] for place in places], seed, places)
                played |= dict(zip(places, batch, strict=True))
            waiting = [place for place in waiting if played[place].failed]
            if not waiting:
                break
        return [played[place] for place in range(len(question_ids))]

    def _batch(self, question_ids: Sequence[str], seed: int, numbers: Sequence[int]) -> list[Played]:
        begun = self.env.begin(question_ids)
        plays = [self._begin(place, prompt, seed, numbers[place]) for place, (prompt, _) in enumerate(begun)]
        while active := [place for place, play in enumerate(plays) if play.done is None]:
            self._let_speak([plays[place] for place in active])
            active = [place for place in active if plays[place].done is None]
            if active:
                self._step(plays, active)
        return [play.done for play in plays if play.done is not None]

    def _begin(self, place: int, prompt: str, seed: int, number: int) -> _Play:
        rules, question = self.env.rules, self.env.question(place)
        limit = rules.max_turns - 1 if rules.max_searches is None else min(rules.max_searches, rules.max_turns - 1)
        script = self.script(Opening(question, prompt, rules.protocol, limit, Random(f"{seed} {number}")))
        return _Play(question, script, seed * 1_000_000 + number, next(script))

    def _let_speak(self, plays: Sequence[_Play]) -> None:
        """Generate until every script wants to act, or its prompt has outgrown the model."""
        while waiting := [play for play in plays if play.done is None and isinstance(play.request, Generate)]:
            if self.voice is None:
                raise ConfigError(
                    f"{self.name}: needs a language model, got none; give one with --model FOLDER (in Python: voice=)"
                )
            requests = [play.request for play in waiting if isinstance(play.request, Generate)]
            spoken = self.voice.speak(requests, [play.seed * 1_000 + play.generations for play in waiting])
            for play, utterance in zip(waiting, spoken, strict=True):
                if utterance is None:
                    self._finish(play, StopReason.MAX_TOKENS)
                else:
                    self._charge(play, utterance)
                    self._send(play, utterance.text)

    def _charge(self, play: _Play, utterance: Utterance) -> None:
        shared = sum(
            1
            for _ in takewhile(
                lambda pair: pair[0] == pair[1], zip(play.last_prompt, utterance.prompt_ids, strict=False)
            )
        )
        play.tokens += len(utterance.prompt_ids) - shared + len(utterance.action_ids)
        play.last_prompt = (*utterance.prompt_ids, *utterance.action_ids)
        play.generations += 1
        play.in_a_row += 1
        if play.in_a_row > PATIENCE:
            got = f"{PATIENCE} generations in a row on question {play.question.id!r} without a turn"
            raise ConfigError(f"{self.name}: got {got}, expected it to search or answer; end the loop of its script")

    def _step(self, plays: Sequence[_Play], active: Sequence[int]) -> None:
        actions: dict[int, str] = {}
        for place in active:
            request = plays[place].request
            assert isinstance(request, Write)
            actions[place] = request.text
        for place, step in self.env.advance(actions).items():
            play, info = plays[place], step.info
            play.turns, play.searches, play.in_a_row = info.turn, info.searches, 0
            play.error = info.retrieval_error or play.error
            if info.stop is not None:
                self._finish(play, info.stop, info.answer, info.em, info.f1)
            else:
                passages = self._found(play.question, info.passage_ids, step.observation)
                self._send(play, Seen(step.observation, passages))

    def _found(self, question: Question, ids: Sequence[str], observation: str) -> tuple[Passage, ...]:
        """The retrieved passages; those of a retriever that does not hold its corpus as one, the way they were
        shown.
        """
        corpus = question.corpus if isinstance(self.env.pool.retrievers, Mapping) else ""
        found = tuple(self.passages[corpus, key] for key in ids if (corpus, key) in self.passages)
        return found if found or not ids else (Passage("", "", observation),)

    def _send(self, play: _Play, reply: Reply) -> None:
        try:
            play.request = play.script.send(reply)
        except StopIteration:
            raise ConfigError(
                f"{self.name}: ended after {play.turns} turns on question {play.question.id!r} without an answer,"
                " expected every script to end with `yield from answer(…)` or to go on until a limit stops it"
            ) from None

    def _finish(self, play: _Play, stop: StopReason, answer: str = "", em: float = 0.0, f1: float = 0.0) -> None:
        play.script.close()
        answer = answer if stop is StopReason.ANSWERED else ""
        error = f"retrieval: {play.error}" if play.error else ""
        stop = StopReason.FAILED if error else stop
        play.done = Played(play.question, answer, em, f1, play.searches, play.turns, play.tokens, stop, error)
