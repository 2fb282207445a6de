"""What is in question files: what was read from which field, counts, and questions that two files share."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from a2tgpo.envs.data.datasets import iter_items
from a2tgpo.envs.data.fields import KNOWN_NAMES, FieldNames
from a2tgpo.envs.data.rows import BadRow
from a2tgpo.envs.data.shapes import Columns, Item
from a2tgpo.envs.data.splits import SPLITS, question_key, split_files, split_of
from a2tgpo.envs.records import Passage
from a2tgpo.envs.scoring.answers import normalize_text

_SHOWN = 5
_LENGTH = 200
"""Characters of a text in the example."""


@dataclass(slots=True)
class Inspection:
    """Counts over one file."""

    file: str
    questions: int = 0
    columns: Counter[Columns] = field(default_factory=Counter)
    """Fields found and read; a file of one shape has one entry."""
    example: Item | None = None
    """The first question."""
    splits: Counter[str] = field(default_factory=Counter)
    """Questions in each split when the file is split by hash."""
    keys: dict[str, str] = field(default_factory=dict)
    """Normalised question text → id of the first question that asks it."""
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
            *self._reading(),
            f"splits, by hash: {_counts(self.splits)}",
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

    def _reading(self) -> list[str]:
        """What was read from where, with an example."""
        lines = []
        for columns, count in self.columns.most_common(_SHOWN):
            lines.append(f"fields of {count} rows: {', '.join(columns.found)}")
            lines.append(
                f"read: question from {columns.question}, gold answers from {columns.answers}, paragraphs from"
                f" {columns.paragraphs or 'nowhere'}, id from {columns.id or 'the line'}"
            )
        if self.example is not None:
            question, passages = self.example.question, self.example.passages
            answers = " | ".join(map(_short, question.answers[:_SHOWN]))
            more = ", …" if len(question.answers) > _SHOWN else ""
            lines.append(f"example: {question.id}: {_short(question.text)}")
            lines.append(f"         {len(question.answers)} gold answers: {answers}{more}")
            if passages:
                lines.append(
                    f"         {len(passages)} paragraphs: {_short(passages[0].title)}: {_short(passages[0].text)}"
                )
        return lines


def inspect_files(paths: Sequence[Path], names: FieldNames = KNOWN_NAMES) -> list[str]:
    """The reports on files and on the data files of folders, and what each two of them share, as text.

    Raises:
        DataError: if a file cannot be opened.
    """
    reports = [inspect_file(file, names) for path in paths for file in _files(path)]
    lines = [line for report in reports for line in report.lines()]
    for one, other in combinations(reports, 2):
        shared = [(one.keys[key], other.keys[key]) for key in one.keys if key in other.keys]
        pairs = ", ".join(f"{ours} = {theirs}" for ours, theirs in shared[:_SHOWN])
        told = f" ({pairs}{', …' if len(shared) > _SHOWN else ''})" if shared else ""
        lines.append(f"questions in both {one.file} and {other.file}: {len(shared)}{told}")
    return lines


def _files(path: Path) -> list[Path]:
    """The files that a data set's folder is read from, or the file itself."""
    if not path.is_dir():
        return [path]
    if (path / "questions.jsonl").is_file():
        return [path / "questions.jsonl"]
    by_split = split_files(path)
    return list(dict.fromkeys(file for name in SPLITS for file in by_split.get(name, []))) or [path]


def inspect_file(path: str | Path, names: FieldNames = KNOWN_NAMES) -> Inspection:
    """Read a file once and count.

    Args:
        names: fields to read instead of those that are known.

    Raises:
        DataError: if the file cannot be opened.
    """
    report = Inspection(str(path))
    passages: set[str] = set()
    for item in iter_items(path, names=names):
        if isinstance(item, BadRow):
            report.bad_rows.append(item)
            continue
        _count(report, item)
        passages.update(passage.id for passage in item.passages)
    report.passages = len(passages)
    return report


def _count(report: Inspection, item: Item) -> None:
    question = item.question
    report.questions += 1
    report.aliases += len(question.answers)
    report.hops[str(question.hops or "unknown")] += 1
    report.types[question.type or "unknown"] += 1
    report.answer_types[answer_type(question.answers[0])] += 1
    report.columns[item.columns] += 1
    report.example = report.example or item
    report.splits[split_of(question)] += 1
    key = question_key(question)
    if report.keys.setdefault(key, question.id) != question.id:
        report.duplicate_questions.append(question.id)
    normal = normalize_text(question.text)
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


def _short(text: str) -> str:
    """A text on one line, in quotation marks."""
    plain = " ".join(text.split())
    return f'"{plain[:_LENGTH]}…"' if len(plain) > _LENGTH else f'"{plain}"'
