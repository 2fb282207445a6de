"""Scripted demonstrations: the expert of the embedded world plays the very environment that training uses, and its text
becomes tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from a2tgpo.envs import SearchQAVectorEnv
from a2tgpo.envs.almanac import ErrorModel, Expert
from a2tgpo.envs.records import Passage, Question
from a2tgpo.policy.chat import Chat


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One episode of the expert."""

    token_ids: tuple[int, ...]
    action_mask: tuple[bool, ...]
    """True on the tokens that the expert wrote."""
    outcome: float
    """What the environment gave for it; the expert errs on purpose."""


def demonstrate(
    env: SearchQAVectorEnv,
    chat: Chat,
    questions: Sequence[Question],
    relations: Sequence[str],
    errors: ErrorModel,
    seed: int,
) -> list[Demonstration]:
    """One demonstration per question, in order; deterministic given the seed.

    Args:
        env: a vector environment over these questions with `AutoresetMode.DISABLED`; as many episodes are played side
            by side as it has environments.
        chat: renders the environment's texts for the tokenizer.
        questions: chain questions of the embedded world (with `metadata["entities"]` and `metadata["relations"]`).
        relations: what the expert may confuse a relation with.
        errors: how often it errs, and how.
        seed: of its mistakes.
    """
    passages = {passage.id: passage for corpus in env.pool.corpora() for passage in corpus}
    demonstrations: list[Demonstration] = []
    for start in range(0, len(questions), env.num_envs):
        chosen = questions[start : start + env.num_envs]
        experts = [
            Expert(
                question,
                relations,
                errors,
                Random(f"{seed} {start + place}"),
                env.rules.max_searches or env.rules.max_turns - 1,
            )
            for place, question in enumerate(chosen)
        ]
        demonstrations.extend(_play(env, chat, chosen, experts, passages))
    return demonstrations


def _play(
    env: SearchQAVectorEnv,
    chat: Chat,
    questions: Sequence[Question],
    experts: Sequence[Expert],
    passages: dict[str, Passage],
) -> list[Demonstration]:
    token_ids = [chat.prompt_ids(observation) for observation, _ in env.begin([question.id for question in questions])]
    masks = [[False] * len(prompt) for prompt in token_ids]
    outcomes = [0.0] * len(questions)
    found: list[list[Passage]] = [[] for _ in questions]
    active = list(range(len(questions)))
    while active:
        actions = {place: experts[place].act(found[place]) for place in active}
        for place, step in env.advance(actions).items():
            shown = [] if step.over else chat.observation_ids(step.observation, ())
            written = chat.action_ids(actions[place])
            token_ids[place] += written + shown
            masks[place] += [True] * len(written) + [False] * len(shown)
            outcomes[place] += step.reward
            found[place] = [passages[key] for key in step.info.passage_ids]
            if step.over:
                active.remove(place)
    rows = zip(token_ids, masks, outcomes, strict=True)
    return [Demonstration(tuple(row), tuple(mask), outcome) for row, mask, outcome in rows]
