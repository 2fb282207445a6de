"""What one compares with: reference agents with and without a language model, stable-baselines3, and published
figures.
"""

from a2tgpo.baselines.agents import AGENTS, AgentSpec, agent_of, play
from a2tgpo.baselines.player import Played
from a2tgpo.baselines.voice import Voice

__all__ = ["AGENTS", "AgentSpec", "Played", "Voice", "agent_of", "play"]
