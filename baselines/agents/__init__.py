"""The reference agents by name, and how to play one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from a2tgpo.baselines.agents.direct import direct, rag
from a2tgpo.baselines.agents.lexical import lexical
from a2tgpo.baselines.agents.oracle import oracle
from a2tgpo.baselines.agents.react import react
from a2tgpo.baselines.agents.self_ask import self_ask
from a2tgpo.baselines.agents.uniform import uniform
from a2tgpo.baselines.player import Played, Player
from a2tgpo.baselines.script import Opening, Script
from a2tgpo.baselines.voice import Voice
from a2tgpo.checks import did_you_mean
from a2tgpo.envs import SearchQAVectorEnv
from a2tgpo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """A reference agent."""

    script: Callable[[Opening], Script]
    label: str
    """What reports call it."""
    needs_model: bool = False


AGENTS: Final[dict[str, AgentSpec]] = {
    "oracle": AgentSpec(oracle, "scripted expert without mistakes"),
    "random": AgentSpec(uniform, "uniformly random actions"),
    "lexical": AgentSpec(lexical, "one search, best matching span"),
    "direct": AgentSpec(direct, "closed book", needs_model=True),
    "rag": AgentSpec(rag, "one retrieval, then answer", needs_model=True),
    "react": AgentSpec(react, "prompted thought and action", needs_model=True),
    "self_ask": AgentSpec(self_ask, "prompted follow-up questions", needs_model=True),
}


def agent_of(name: str | AgentSpec) -> AgentSpec:
    """The agent of that name, or the agent itself.

    Raises:
        ConfigError: for an unknown name.
    """
    if isinstance(name, AgentSpec):
        return name
    if name not in AGENTS:
        raise ConfigError(f"agent: got {name!r}, expected one of {', '.join(AGENTS)}{did_you_mean(name, AGENTS)}")
    return AGENTS[name]


def play(
    agent: str | AgentSpec,
    env: SearchQAVectorEnv,
    question_ids: Sequence[str],
    seed: int = 0,
    voice: Voice | None = None,
) -> list[Played]:
    """One episode of the agent per question, in order; `Played.row()` is the row that evaluations write.

    Args:
        agent: a name in `AGENTS`, or an agent of your own.
        env: a vector environment with `AutoresetMode.DISABLED`; as many episodes are played side by side as it has
            environments.
        question_ids: questions of that environment.
        seed: an episode depends on its question, its place in the list and this only.
        voice: the language model, for agents that need one.

    Raises:
        ConfigError: for an unknown agent, one that lacks its language model, or one whose script ends without an
            answer.
    """
    spec = agent_of(agent)
    name = agent if isinstance(agent, str) else agent.label
    if spec.needs_model and voice is None:
        raise ConfigError(
            f"agent: {name!r} needs a language model, got none; give one with --model FOLDER (in Python: voice=)"
        )
    return Player(name, spec.script, env, voice).play(question_ids, seed)
