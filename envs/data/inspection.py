"""What is in a question file: the numbers one wants to see before training on it."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from a2tgpo.envs.data.datasets import iter_items
from a2tgpo.envs.data.rows import BadRow
from a2tgpo.envs.data.shapes import Item
from a2tgpo.envs.records import Passage
from a2tgpo.envs.scoring.answers import normalize_text

_SHOWN = 5


@dataclass(slots=True)
class Inspection:
    """Counts over one file."""

    file: str
    questions: int = 0
    bad_rows: list[BadRow] = field(default_factory=list)
    hops: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    answer_types: Counter[str] = field(default_factory=Counter)
    """Of the first gold: yes/no, number, date-like, span, long (more than ten words), empty after normalisation."""
    aliases: int = 0
    """Gold answers over all questions."""
    passages: int = 0
    """Different passages that came with the questions."""
    duplicate_questions: list[str] = field(default_factory=list)
    """Ids whose normalised question text occurred before."""
    empty_gold_answers: list[str] = field(default_factory=list)
    """Ids with a gold that normalises to nothing."""
    answer_in_question: list[str] = field(default_factory=list)
    """Ids with a gold that the question itself contains: echoing it would score."""
    answer_missing: list[str] = field(default_factory=list)
    """Ids with passages of which none contains a gold (yes/no left out)."""
    supporting_missing: list[str] = field(default_factory=list)
    """Ids with a supporting passage that did not come with the question."""

    def lines(self) -> list[str]:
        """The report as text."""
        shown = [
            (
                f"{self.file}: {self.questions} questions, {len(self.bad_rows)} bad rows, {self.aliases} gold answers,"
                f" {self.passages} passages"
            ),
            f"hops: {_counts(self.hops)}",
            f"types: {_counts(self.types)}",
            f"answers: {_counts(self.answer_types)}",
        ]
        for name in (
            "duplicate_questions",
            "empty_gold_answers",
            "answer_in_question",
            "answer_missing",
            "supporting_missing",
        ):
            ids: list[str] = getattr(self, name)
            shown.append(
                f"{name.replace('_', ' ')}: {len(ids)}"
                + (f" ({', '.join(ids[:_SHOWN])}{', …' if len(ids) > _SHOWN else ''})" if ids else "")
            )
        return shown + [f"bad row {bad}" for bad in self.bad_rows[:_SHOWN]]


def inspect_file(path: str | Path) -> Inspection:
    """Read a file once and count.

    Raises:
        DataError: if the file cannot be opened.
    """
    report = Inspection(str(path))
    texts: set[str] = set()
    passages: set[str] = set()
    for item in iter_items(path):
        if isinstance(item, BadRow):
            report.bad_rows.append(item)
            continue
        _count(report, item, texts)
        passages.update(passage.id for passage in item.passages)
    report.passages = len(passages)
    return report


def _count(report: Inspection, item: Item, texts: set[str]) -> None:
    question = item.question
    report.questions += 1
    report.aliases += len(question.answers)
    report.hops[str(question.hops or "unknown")] += 1
    report.types[question.type or "unknown"] += 1
    report.answer_types[answer_type(question.answers[0])] += 1
    normal = normalize_text(question.text)
    if normal in texts:
        report.duplicate_questions.append(question.id)
    texts.add(normal)
    gold_answers = {normalize_text(answer) for answer in question.answers}
    if "" in gold_answers:
        report.empty_gold_answers.append(question.id)
    gold_answers -= {"", "yes", "no"}
    if any(f" {gold} " in f" {normal} " for gold in gold_answers):
        report.answer_in_question.append(question.id)
    if item.passages and gold_answers and not any(_contains(passage, gold_answers) for passage in item.passages):
        report.answer_missing.append(question.id)
    if "supporting_not_in_contexts" in question.metadata:
        report.supporting_missing.append(question.id)


def answer_type(answer: str) -> str:
    """A coarse kind of a gold answer."""
    words = normalize_text(answer).split()
    if not words:
        return "empty"
    if words in (["yes"], ["no"]):
        return "yes/no"
    if len(words) > 10:
        return "long"
    digits = [word for word in words if any(c.isdigit() for c in word)]
    if len(digits) == len(words):
        return "number"
    return "date-like" if len(words) <= 4 and any(len(word) == 4 and word.isdigit() for word in words) else "span"


def _contains(passage: Passage, gold_answers: set[str]) -> bool:
    text = f" {normalize_text(passage.title)} {normalize_text(passage.text)} "
    return any(f" {gold} " in text for gold in gold_answers)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "none"
