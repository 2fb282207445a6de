"""Lists and objects that a table or a careless export wrote as text: JSON, Python's repr, numpy's repr.

    ["Kloford", "Old Kloford"]  ['Kloford', 'Old Kloford']  ['Kloford' 'Old Kloford']  array(['Kloford'], dtype=object)
    {"target": ["Kloford"]}     [np.str_('Kloford'), None]  ('Kloford', 'Old Kloford')  {'Kloford', 'Old Kloford'}

Such a text is parsed, never evaluated. (`ast.literal_eval` would read numpy's form as one text, "KlofordOld Kloford".)
"""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from a2tgpo.envs.data.rows import parse_json

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>[ubUB]?(?:'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+"))"""
    r"""|(?P<number>[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])"""
    r"""|(?P<name>[+-]?[A-Za-z_][\w.]*)|(?P<mark>[\[\](){},:=]))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\'\"\n])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\n": ""}
_CONSTANTS = {"None": None, "null": None, "True": True, "true": True, "False": False, "false": False}
_NOT_A_NUMBER = {"nan", "NaN", "NaT", "<NA>"}
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_SURELY = re.compile(r"(?:array\(\s*)?[\[{][\[{(\s]*(?:[ub]?['\"]|np\.|numpy\.)")
"""Begins like a list of texts or an object, and like nothing else that one would write."""
_MAX_DEPTH = 20


def written_value(text: str) -> Any:
    """The list or object that a text spells out in full, or the text itself if it spells out none.

    Raises:
        ValueError: if the text begins like a list of texts or an object, but cannot be read to its end.
    """
    stripped = text.strip()
    if not stripped.startswith(("[", "{", "(", "array(")):
        return text
    try:
        value = _read(stripped)
    except (ValueError, RecursionError) as error:
        if _SURELY.match(stripped):
            raise ValueError(f"looks like a list or object written as text, but cannot be read: {error}") from error
        return text
    return value if _is_meant(stripped, value) else text


def _is_meant(text: str, value: Any) -> bool:
    """`[1, 2]` is a list; `(1975)`, `("Heroes")` and `{1, 2}` are more likely an answer."""
    if isinstance(value, dict):
        return True
    if not isinstance(value, list):
        return False
    has_text = any(isinstance(entry, str | list | dict) for entry in value)
    return text.startswith(("[", "array(")) or (has_text and (text[0] == "{" or "," in text))


def _read(text: str) -> Any:
    if text.startswith(("[", "{")):
        try:
            return parse_json(text)
        except ValueError:
            pass  # the other two dialects
    return _Parser(text).whole()


class _Token(NamedTuple):
    kind: str
    """text, number, name, mark or end."""
    text: str


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens)

    def whole(self) -> Any:
        value = self._value(0)
        if self._next.kind != "end":
            raise ValueError(f"got {self._next.text!r} behind its end")
        return value

    def _take(self) -> _Token:
        token = self._next
        self._next = next(self._tokens)
        return token

    def _value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        token = self._take()
        match token.kind:
            case "text":
                return _unescaped(token.text)
            case "number":
                return _number(token.text)
            case "name":
                return self._named(token.text, depth)
            case "mark" if token.text in _CLOSING:
                return self._entries(token.text, depth)
        raise ValueError(f"got {token.text or 'its end'!r} where a value was expected")

    def _named(self, name: str, depth: int) -> Any:
        if self._next.text != "(":
            if name.lstrip("+-") in _NOT_A_NUMBER or name.lstrip("+-") in ("inf", "Infinity"):
                return math.nan
            if name in _CONSTANTS:
                return _CONSTANTS[name]
            raise ValueError(f"got the bare word {name!r}")
        self._take()  # array([...], dtype=object), np.str_('...'), np.int64(3)
        value = self._value(depth + 1)
        while self._next.text == ",":
            self._take()
            if self._next.text != ")":
                self._keyword(depth)
        self._expect(")")
        return value

    def _keyword(self, depth: int) -> None:
        if self._take().kind != "name":
            raise ValueError("got a call with several values")
        self._expect("=")
        if self._next.kind == "name":
            self._take()
        else:
            self._value(depth + 1)

    def _entries(self, opening: str, depth: int) -> Any:
        found: list[Any] = []
        named: dict[str, Any] = {}
        while self._next.text != _CLOSING[opening] or self._next.kind != "mark":
            entry = self._value(depth + 1)
            if opening == "{" and self._next == ("mark", ":"):
                self._take()
                named[str(entry)] = self._value(depth + 1)
            else:
                found.append(entry)
            if self._next == ("mark", ","):
                self._take()
        self._take()
        if named and found:
            raise ValueError("got an object with an entry without a name")
        return named if named or (opening == "{" and not found) else found

    def _expect(self, mark: str) -> None:
        token = self._take()
        if token != ("mark", mark):
            raise ValueError(f"got {token.text or 'its end'!r}, expected {mark!r}")


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    end = len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"got {text[place : place + 20]!r}")
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind])
        place = found.end()
    while True:
        yield _Token("end", "")


def _unescaped(token: str) -> str:
    return _ESCAPE.sub(_character, token.lstrip("ubUB")[1:-1])


def _character(found: re.Match[str]) -> str:
    simple, *codes = found.groups()
    if simple is not None:
        return _CONTROLS.get(simple, simple)
    return chr(int(next(code for code in codes if code is not None), 16))


def _number(token: str) -> int | float:
    plain = token.replace("_", "")
    return int(plain) if re.fullmatch(r"[+-]?\d+", plain) else float(plain)
