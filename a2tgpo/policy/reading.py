"""A model folder, read without downloading, without running code from it, and without filling gaps in silence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from a2tgpo.errors import ConfigError

_SHOWN = 3
_FLOATING: Final = frozenset({"F64", "F32", "F16", "BF16"})
"""Formats of safetensors that hold a weight as it is; eight bits come with scales that nothing here applies."""
_OWN_FILES: Final[dict[str, Any]] = {"local_files_only": True, "trust_remote_code": False}
"""Nothing is downloaded, and no code in the folder is run."""


def read_model(folder: Path) -> tuple[Any, Any]:
    """The model, with weights in float32, and the tokenizer of a folder in the layout of transformers.

    Raises:
        ConfigError: if the folder, its `config.json`, its weights or its tokenizer is missing or cannot be read,
            weights are pickles, missing, of another shape or format or not finite, or the model comes with code of its
            own.
    """
    tokenizer = read_tokenizer(folder)
    with _read_from(folder), _quiet():
        model, told = AutoModelForCausalLM.from_pretrained(
            folder,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, by name
            **_OWN_FILES,
        )
    _check_weights(folder, model, told)
    return model.eval(), tokenizer


def read_tokenizer(folder: Path) -> Any:
    """The tokenizer alone, of a folder that has the files of a model.

    Raises:
        ConfigError: if a file is missing or cannot be read.
    """
    check_folder(folder)
    with _read_from(folder):
        return AutoTokenizer.from_pretrained(folder, **_OWN_FILES)


@contextmanager
def _read_from(folder: Path) -> Iterator[None]:
    """What transformers cannot read is the folder's fault, whatever error it gives."""
    try:
        yield
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise ConfigError(
                f"policy: {folder} brings model code of its own, which is never run; expected an architecture that"
                " transformers knows, use another model"
            ) from error
        raise ConfigError(
            f"policy: {folder} cannot be read ({_brief(error)}), expected a whole model folder; copy or save it again"
        ) from error


def _check_weights(folder: Path, model: Any, told: dict[str, Any]) -> None:
    parameters = {name for name, _ in model.named_parameters()}
    rounded = [f"{name} {kind}" for name, kind in _kinds(folder) if name in parameters and kind not in _FLOATING]
    shapes = [f"{name} {tuple(there)}, not {tuple(needed)}" for name, there, needed in told["mismatched_keys"]]
    broken = [name for name, weight in model.state_dict().items() if not bool(weight.isfinite().all())]
    for problem, names in (
        ("lacks weights that the model needs", sorted(told["missing_keys"])),
        ("holds weights of other shapes than its config.json says", sorted(shapes)),
        ("holds weights that are not floating point", rounded),
        ("holds weights that are NaN or infinite", broken),
    ):
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise ConfigError(
                f"policy: {folder} {problem}: {', '.join(names[:_SHOWN])}{more}; expected the whole model, copy or save"
                " it again"
            )


def _kinds(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and number format of every tensor in the folder's files, as written: reading converts integers silently."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                yield name, tensors.get_slice(name).get_dtype()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' own report on weights: what it says there is checked here."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def check_folder(folder: Path) -> None:
    """Check that a folder has the files of a model.

    Raises:
        ConfigError: naming what is missing.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"policy: no folder at {folder}, expected a model folder with config.json, *.safetensors and a tokenizer;"
            " check the path"
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"policy: {folder} has no config.json, expected a model folder as `save_pretrained` of transformers"
            " writes it"
        )
    if not any(folder.glob("*.safetensors")):
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
            raise ConfigError(
                f"policy: {folder} holds pickled weights, which can run code when read; expected *.safetensors, convert"
                " it with `save_pretrained`"
            )
        raise ConfigError(f"policy: {folder} has no *.safetensors, expected the model's weights; copy them there")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise ConfigError(
            f"policy: {folder} has no tokenizer, expected tokenizer.json or a vocabulary; save one there with"
            " `tokenizer.save_pretrained`"
        )
