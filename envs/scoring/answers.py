"""Comparing an answer with the gold answers: the SQuAD rules and three published variants.

Every scorer here takes the answer (`None` = the agent never answered) and all gold aliases, and returns a value in [0,
1], the best over the aliases. A gold answer that normalises to nothing (the band "!!!", a table's "---") is compared as
written, since otherwise every empty-ish answer would match it.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

AnswerScore = Callable[[str | None, Sequence[str]], float]
"""(answer or None, gold answers) -> score in [0, 1]."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_BLANK_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))
_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})


def normalize_text(text: str) -> str:
    """The SQuAD normal form: lower case, ASCII punctuation deleted, articles removed, white space collapsed.

    >>> normalize_text("The  U.S. Navy")
    'us navy'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_DELETE_PUNCTUATION)).split())


def exact_match(answer: str | None, gold_answers: Sequence[str]) -> float:
    """1.0 if the answer equals an alias after normalisation, else 0.0."""
    return _best(_equal, answer, gold_answers)


def f1(answer: str | None, gold_answers: Sequence[str]) -> float:
    """Bag-of-words F1 after normalisation; an answer or gold of yes/no scores only when both are equal (HotpotQA's
    rule).
    """
    return _best(_bag_f1, answer, gold_answers)


def cover_em(answer: str | None, gold_answers: Sequence[str]) -> float:
    """1.0 if the words of an alias occur in the answer as one run of whole words, else 0.0."""
    return _best(_covers, answer, gold_answers)


def set_f1(answer: str | None, gold_answers: Sequence[str]) -> float:
    """IGPO's F1: punctuation becomes a space, articles stay, words are counted once."""
    if answer is None:
        return 0.0
    words = set(answer.lower().translate(_BLANK_PUNCTUATION).split())
    return max((_set_f1(answer, words, gold) for gold in gold_answers), default=0.0)


ANSWER_SCORES: dict[str, AnswerScore] = {"em": exact_match, "f1": f1, "cover_em": cover_em, "set_f1": set_f1}


def _best(compare: Callable[[str, str], float], answer: str | None, gold_answers: Sequence[str]) -> float:
    if answer is None:
        return 0.0
    normal = normalize_text(answer)
    best = 0.0
    for gold in gold_answers:
        normal_gold = normalize_text(gold)
        if normal_gold:
            best = max(best, compare(normal, normal_gold))
        elif gold.strip():
            best = max(best, float(answer.strip() == gold.strip()))
    return best


def _equal(answer: str, gold: str) -> float:
    return float(answer == gold)


def _covers(answer: str, gold: str) -> float:
    return float(f" {gold} " in f" {answer} ")


def _bag_f1(answer: str, gold: str) -> float:
    if answer == gold:
        return 1.0
    if answer in _CLOSED_ANSWERS or gold in _CLOSED_ANSWERS:
        return 0.0
    words, gold_words = answer.split(), gold.split()
    common = sum((Counter(words) & Counter(gold_words)).values())
    return 2.0 * common / (len(words) + len(gold_words))


def _set_f1(answer: str, words: set[str], gold: str) -> float:
    gold_words = set(gold.lower().translate(_BLANK_PUNCTUATION).split())
    if not gold_words:
        return float(bool(gold.strip()) and answer.strip() == gold.strip())
    return 2.0 * len(words & gold_words) / (len(words) + len(gold_words))
