"""One HTML page with everything in it. A content security policy lets nothing be loaded or run but the page's own
script.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any


def asset(name: str) -> str:
    """A file that the pages are made of."""
    return (resources.files("a2tgpo.report") / "assets" / name).read_text(encoding="utf-8")


def script(name: str) -> str:
    """The text of a script of the pages."""
    return asset(name)


def data_block(name: str, data: Any) -> str:
    """Data for the page's script. `<` never occurs in it, so no text in the data can end the block or begin markup."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="data-{name}">{text}</script>'


def page(title: str, body: str, scripts: Sequence[str], blocks: Sequence[str] = ()) -> str:
    """The whole page."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}; base-uri 'none';"
        " form-action 'none'"
    )
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        (
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme"'
            ' content="light dark">'
        ),
        f"<title>{escape(title)}</title>\n<style>\n{asset('page.css')}</style>\n</head>\n<body>\n<main>",
        body,
        "</main>",
        *blocks,
        *(f"<script>{text}</script>" for text in scripts),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)
