"""Information gain: how much each search told the policy about the gold answer."""

from a2tgpo.information_gain.probes import Scaffold
from a2tgpo.information_gain.score import Scores, Scoring, score_episodes

__all__ = ["Scaffold", "Scores", "Scoring", "score_episodes"]
