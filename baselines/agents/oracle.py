"""The scripted expert of the embedded world, without mistakes: how far searching can get there."""

from a2tgpo.baselines.script import Opening, Script, answer, search
from a2tgpo.envs.almanac import ErrorModel, Expert
from a2tgpo.envs.protocols import PROTOCOLS
from a2tgpo.envs.records import Passage
from a2tgpo.episode import ActionKind
from a2tgpo.errors import ConfigError


def oracle(opening: Opening) -> Script:
    """Walk the chain of the question, one search per hop.

    Raises:
        ConfigError: if the question is none of the embedded world.
    """
    known = opening.question.metadata
    if "relations" not in known or "entities" not in known:
        raise ConfigError(
            f"oracle: got question {opening.question.id!r}, which has no chain of relations in its metadata, expected"
            " one of a2tgpo/Almanac-v0; use another agent on this data set"
        )
    expert = Expert(opening.question, known["relations"], ErrorModel(), opening.rng, opening.max_searches)
    passages: tuple[Passage, ...] = ()
    while True:
        # the expert writes plain tags; the environment may want another protocol
        action = PROTOCOLS["tags_brief"].parse(expert.act(passages))
        if action.kind is ActionKind.ANSWER:
            yield from answer(opening, action.text)
            return
        passages = (yield from search(opening, action.text)).passages
