"""A world of a few facts for tests of the loop: deterministic, no files."""

from gymnasium.vector import AutoresetMode

from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.envs import Passage, Question, SearchQAVectorEnv
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from a2tgpo.training.rollout import Rollout

PASSAGES = [Passage(f"p{row}", f"w{row}", f"w{row} w{(row + 7) % 20} w{(row + 3) % 20}") for row in range(20)]
QUESTIONS = tuple(
    Question(f"q{row}", f"w{row} w{row + 1}", (f"w{(row + 7) % 20}", f"w{row}"), supporting=(f"p{row}",), hops=1)
    for row in range(10)
)


def small_env(num_envs: int, max_turns: int = 4, max_searches: int = 3) -> SearchQAVectorEnv:
    return SearchQAVectorEnv(
        QUESTIONS,
        Bm25Retriever(PASSAGES),
        num_envs,
        top_k=2,
        max_turns=max_turns,
        max_searches=max_searches,
        protocol="tags_brief",
        scorer=None,
        autoreset_mode=AutoresetMode.DISABLED,
    )


def small_rollout(policy: Policy, num_envs: int = 8, max_episode_tokens: int = 120) -> Rollout:
    return Rollout(
        small_env(num_envs),
        TransformersEngine(policy),
        Chat(policy.tokenizer),
        max_action_tokens=6,
        max_episode_tokens=max_episode_tokens,
    )
