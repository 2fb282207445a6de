"""`a2tgpo serve-retriever`: offer a corpus over HTTP in the Search-R1 API."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from a2tgpo.commands.options import parse
from a2tgpo.envs.retrieval.maker import open_retriever
from a2tgpo.envs.retrieval.server import RetrieverServer
from a2tgpo.errors import ConfigError


@dataclass(frozen=True)
class ServeOptions:
    """What is served, and where."""

    corpus: tyro.conf.Positional[Path]
    """Passages file, a folder with `passages.jsonl`, or a saved BM25 index."""
    backend: Literal["bm25", "rank_bm25"] = "bm25"
    host: str = "127.0.0.1"
    """Address to listen on. The API has no authentication: leave it at the loopback address unless the network is yours
    alone.
    """
    port: int = 8000


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
        console.print(
            f"serving {options.corpus} on {server.url}/retrieve; end with Ctrl-C",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        server.serve_forever()
    return 0
