"""Search question answering as a family of Gymnasium environments. Imports neither torch nor transformers."""

from a2tgpo.envs.budget import ObservationBudget
from a2tgpo.envs.protocols import PROTOCOLS
from a2tgpo.envs.protocols.base import Action, Protocol
from a2tgpo.envs.records import Passage, Question
from a2tgpo.envs.registration import register_envs
from a2tgpo.envs.scoring.answers import ANSWER_SCORES
from a2tgpo.envs.scoring.gold_value import EvidenceScorer, Exchange, Scorer, Transcript
from a2tgpo.envs.search_qa import SearchQAEnv
from a2tgpo.envs.spaces import UnicodeText
from a2tgpo.envs.vector import SearchQAVectorEnv

__all__ = [
    "ANSWER_SCORES",
    "PROTOCOLS",
    "Action",
    "EvidenceScorer",
    "Exchange",
    "ObservationBudget",
    "Passage",
    "Protocol",
    "Question",
    "Scorer",
    "SearchQAEnv",
    "SearchQAVectorEnv",
    "Transcript",
    "UnicodeText",
    "register_envs",
]

register_envs()
