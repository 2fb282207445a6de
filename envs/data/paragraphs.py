"""The paragraphs that come with a question, and the one passage of a corpus row, in every form found in the wild."""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from a2tgpo.envs.data.fields import RawRow, ShapeError, plain_text, structured
from a2tgpo.envs.data.tables import unquoted

CONTEXT_FIELDS = ("contexts", "paragraphs", "context", "ctxs", "documents", "passages", "docs")
"""Fields of a row that may hold its paragraphs, in order."""
_SORTED_FIELDS = (
    (("positive_ctxs", True), ("hard_negative_ctxs", False), ("negative_ctxs", False)),
    (("gold_docs", True), ("evidence_docs", True), ("negative_docs", False)),
)
"""Fields that hold paragraphs of one kind: DPR's, BrowseComp-Plus's."""
_TITLES = ("title", "wikipedia_title", "doc_title")
_TEXTS = ("paragraph_text", "passage_text", "text", "content", "passage", "sentences", "body", "document", "paragraph")
_FLAGS = ("is_supporting", "is_selected")
_LONGEST_TITLE = 300
"""Characters of a first line that can be a title."""


class Paragraph(NamedTuple):
    """One paragraph of a question."""

    title: str
    text: str
    supporting: bool | None
    """None = not said."""


def read_paragraphs(row: RawRow, field: str = "") -> tuple[list[Paragraph], str]:
    """(every paragraph, entities unescaped, the field they are from); none if the row has no such field.

    Args:
        field: the field that the user named; empty = by the known names.

    Raises:
        ShapeError: for a field that holds something else.
    """
    if field:
        return _entries(structured(row.named(field, "context_field"), field), row), field
    for source, prefix in ((row, ""), (RawRow(row.mapping("metadata")), "metadata.")):
        for name, value in source.first(CONTEXT_FIELDS):
            if _opens(value) or not isinstance(value, str):
                entries = structured(value, name)
                if isinstance(entries, str):
                    raise ShapeError(f"{name}: looks like JSON but is not")
                if entries:
                    return _entries(entries, row), prefix + name
            elif value.strip():
                return _entries(value, row), prefix + name
    return _of_sorted_fields(row)


def title_and_text(entry: Mapping[str, Any], title: str = "") -> tuple[str, str] | None:
    """Title and text of a passage given as an object, or None if it has no text.

    Where both stand in `contents`, the title is the first line: in quotation marks, or short and followed by a text.
    """
    fields = RawRow(entry)
    titles = (plain_text(value) for _, value in fields.first(_TITLES) if isinstance(value, str | int | float))
    title = next(titles, title)
    for name in fields.present(_TEXTS):
        value = entry.get(name)
        if isinstance(value, list) and len(value) > 1 and value[0] == f"{title}\n":
            value = value[1:]  # KILT's pages begin with their title
        text = _joined(value)
        if text is not None:
            return title, text
    contents = fields.get("contents")
    return split_contents(contents, title) if isinstance(contents, str) else None


def split_contents(contents: str, title: str = "") -> tuple[str, str]:
    """(title, text) of what FlashRAG's and Search-R1's corpora write into one field.

    >>> split_contents('"Kloford"\\nA city.')
    ('Kloford', 'A city.')
    >>> split_contents("A text without a title.")
    ('', 'A text without a title.')
    """
    first, found, text = contents.partition("\n")
    head = first.strip()
    if title:  # a field of its own has it; the first line is left out only if it says the same
        return (title, text) if found and unwrapped(head) == title.strip() else (title, contents)
    quoted = unwrapped(head) != head
    if not found or not (quoted or (text.strip() and len(head) <= _LONGEST_TITLE)):
        return (unwrapped(head), "") if quoted and found else ("", contents)
    return unwrapped(head), text


def unwrapped(title: str) -> str:
    """A title without the quotation marks that the corpora of the API put around it; those of its own stay, whether
    they were doubled (`\"""Heroes"" (album)"`) or not.
    """
    if len(title) < 2 or not title[0] == title[-1] == '"':
        return title
    plain = unquoted(title)
    if plain != title:
        return plain
    inner = title[1:-1]
    mark = inner.find('"')
    opens = mark == 0 or inner[mark - 1].isspace() or inner[mark - 1] in "([{"
    return inner if opens and inner.count('"') % 2 == 0 else title


def _opens(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip().startswith(("[", "{"))


def _entries(raw: Any, row: RawRow) -> list[Paragraph]:
    if isinstance(raw, str):  # one paragraph, as in SQuAD
        title = row.get("title")
        return [_paragraph([title if isinstance(title, str) else "", raw])]
    if isinstance(raw, Mapping):
        raw = list(_of_columns(raw))
    if not isinstance(raw, list | tuple):
        raise ShapeError(f"context of type {type(raw).__name__}, expected a list of paragraphs")
    return [_paragraph(entry) for entry in raw]


def _of_columns(raw: Mapping[str, Any]) -> Iterator[Any]:
    """The entries of `{"title": […], "sentences": […]}`, or of texts by title."""
    columns = RawRow(raw)
    lists = {str(name): value for name, value in raw.items() if isinstance(value, list)}
    texts = next(iter(columns.first(_TEXTS)), None)
    if texts is None:
        if "title" in raw or not all(isinstance(value, str | list) for value in raw.values()):
            raise _not_columns(raw)
        yield from ([title, text] for title, text in raw.items())
        return
    rows = len(texts[1]) if isinstance(texts[1], list) else -1
    titles = columns.get("title")
    if rows < 0 or (titles is not None and (not isinstance(titles, list) or len(titles) != rows)):
        raise _not_columns(raw)
    for place in range(rows):
        yield {name: value[place] for name, value in lists.items() if len(value) == rows}


def _not_columns(raw: Mapping[str, Any]) -> ShapeError:
    return ShapeError(
        f"context object with fields {sorted(map(str, raw))}, expected the lists title and sentences of equal length"
    )


def _paragraph(entry: Any) -> Paragraph:
    title, text, flag = "", None, None
    if isinstance(entry, str):
        text = entry
    elif isinstance(entry, Mapping):
        found = title_and_text(entry)
        title, text = found if found is not None else ("", None)
        flag = next((bool(entry[name]) for name in _FLAGS if isinstance(entry.get(name), bool | int)), None)
    elif isinstance(entry, list | tuple) and len(entry) == 2 and isinstance(entry[0], str):
        title, text = entry[0], _joined(entry[1])
    if text is None:
        raise ShapeError(
            f"context entry of type {type(entry).__name__}, expected a text, [title, sentences] or an object with text"
            " (and title)"
        )
    return Paragraph(html.unescape(title).strip(), html.unescape(text).strip(), flag)


def _joined(value: Any) -> str | None:
    """A text, or sentences as one: HotpotQA's carry their own leading space, 2Wiki's do not."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or not all(isinstance(part, str) for part in value):
        return None
    return " ".join(" ".join(value).split())


def _of_sorted_fields(row: RawRow) -> tuple[list[Paragraph], str]:
    for group in _SORTED_FIELDS:
        found: list[Paragraph] = []
        names: list[str] = []
        for name, supporting in group:
            entries = row.structured(name)
            if isinstance(entries, list) and entries:
                names.append(row.spelled(name))
                found += [_paragraph(entry)._replace(supporting=supporting) for entry in entries]
        if found:
            return found, ", ".join(names)
    return [], ""
