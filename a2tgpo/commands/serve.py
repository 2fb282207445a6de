"""`a2tgpo serve-retriever`: offer a corpus over HTTP in the Search-R1 API."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from a2tgpo.commands.options import parse
from a2tgpo.config.parsing import Range
from a2tgpo.display.lines import say
from a2tgpo.envs.retrieval.maker import open_retriever
from a2tgpo.envs.retrieval.server import RetrieverServer
from a2tgpo.errors import ConfigError


@dataclass(frozen=True)
class ServeOptions:
    """What is served, and where."""

    corpus: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS")]
    """Passages file, a folder with `passages.jsonl`, or a saved BM25 index."""
    backend: Literal["bm25", "rank_bm25"] = "bm25"
    """Search engine."""
    host: str = "127.0.0.1"
    """Address to listen on. The API has no authentication: leave it at the loopback address unless the network is yours
    alone.
    """
    port: Annotated[int, Range(0, 65_535)] = 8000
    """Port to listen on; 0 takes a free one."""


def serve_retriever(words: list[str], console: Console) -> int:
    """Serve until interrupted."""
    options = parse(ServeOptions, words, "serve-retriever")
    retriever = open_retriever(options.backend, options.corpus)
    try:
        server = RetrieverServer(retriever, options.host, options.port)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"port: got {options.port} on {options.host}, which cannot be used ({error}); choose another with --port"
        ) from error
    with server:
        say(console, f"serving {options.corpus} on {server.url}/retrieve; end with Ctrl-C")
        server.serve_forever()
    return 0
