"""What must hold before step 0: a search engine that answers, and questions that can be asked and scored. Found later,
either would end a run in the middle.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from a2tgpo.envs import Question, SearchQAVectorEnv
from a2tgpo.envs.retrieval import LocalRetriever
from a2tgpo.envs.retrieval.cache import Cache
from a2tgpo.errors import ConfigError, RetrievalError
from a2tgpo.information_gain import Scoring
from a2tgpo.information_gain.probes import scored_texts
from a2tgpo.training.rollout import Rollout

log = logging.getLogger(__name__)

OnBadQuestion = Literal["error", "skip"]
_SHOWN = 5


def check_retrieval(env: SearchQAVectorEnv) -> None:
    """Ask every search engine outside of this process one question.

    Raises:
        RetrievalError: if one does not answer.
    """
    retrievers = env.pool.retrievers
    by_corpus = retrievers if isinstance(retrievers, Mapping) else {"": retrievers}
    for corpus, retriever in by_corpus.items():
        asked = retriever
        while isinstance(asked, Cache):  # which may know the answer
            asked = asked.inner
        if isinstance(asked, LocalRetriever):
            continue
        try:
            (found,) = asked.search([env.questions[0].text], 1)
            if isinstance(found, RetrievalError):
                raise found
        except (RetrievalError, OSError) as error:
            where = f" of corpus {corpus!r}" if corpus else ""
            raise RetrievalError(
                f"environment.retriever: the search engine{where} does not answer ({error}), expected it to be up"
                " before a run begins; start it or correct its address, then call again"
            ) from error


def usable_questions(
    rollout: Rollout, tokenizer: Any, scoring: Scoring, split: str, on_bad_question: OnBadQuestion
) -> tuple[Question, ...]:
    """The questions of a split whose prompt leaves room for a turn and whose gold answer the tokenizer can write.

    Args:
        tokenizer: of the policy.
        scoring: says how gold answers are scored.
        split: its name, for messages.
        on_bad_question: `"skip"` leaves the others out and says how many.

    Raises:
        ConfigError: if there are others and they are not to be skipped, or if none is left; lists them.
    """
    questions = rollout.env.questions
    lengths = rollout.prompt_lengths(questions)
    room = rollout.max_episode_tokens - max(1, rollout.max_action_tokens)
    bad: dict[str, str] = {}
    for question, length in zip(questions, lengths, strict=True):
        if length > room:
            bad[question.id] = f"its prompt has {length} tokens, and an episode room for {room} and a turn"
        elif scoring.scaffold is not None:
            try:
                scored_texts(tokenizer, scoring.scaffold, question.answers, scoring.aliases, question.id)
            except ConfigError:
                bad[question.id] = f"the tokenizer cannot write its gold answers {list(question.answers)}"
    left = tuple(question for question in questions if question.id not in bad)
    if bad and (on_bad_question == "error" or not left):
        raise ConfigError(
            f"questions: {_listed(bad, len(questions), split)}; raise rollout.max_episode_tokens for long ones, or"
            " leave them out with rollout.on_bad_question 'skip' or by editing the file"
        )
    if bad:
        log.warning("questions: %s; they are left out", _listed(bad, len(questions), split))
    return left


def _listed(bad: Mapping[str, str], count: int, split: str) -> str:
    shown: Sequence[str] = [f"{name!r}: {reason}" for name, reason in list(bad.items())[:_SHOWN]]
    more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return f"{len(bad)} of {count} of split {split!r} cannot be used ({'; '.join(shown)}{more})"
