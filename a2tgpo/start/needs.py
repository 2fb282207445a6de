"""What a run needs before it can start: files, an index, memory, time. Estimates say what they rest on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from a2tgpo.config import ALMANAC, EnvironmentSettings, Recipe
from a2tgpo.envs.data.splits import files_of_split
from a2tgpo.envs.data.suites import public_set
from a2tgpo.envs.registration import DATASETS
from a2tgpo.envs.retrieval.maker import is_address
from a2tgpo.envs.sources import DATA_FOLDER, locate
from a2tgpo.errors import DataError
from a2tgpo.start.prepare import SOURCES

GB: Final = 1e9
GIB: Final = 1024**3
LARGEST_GPU: Final = 141 * GB


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model that memory depends on."""

    parameters: float
    layers: int
    width: int


KNOWN: Final[Mapping[str, Shape]] = {
    "Qwen3-0.6B": Shape(0.60e9, 28, 1024),
    "Qwen3-1.7B": Shape(1.72e9, 28, 2048),
    "Qwen3-4B": Shape(4.02e9, 36, 2560),
    "Qwen3-8B": Shape(8.19e9, 36, 4096),
    "Qwen2.5-7B": Shape(7.62e9, 28, 3584),
}
"""Models of the paper's family, by the last part of their folder's name; others are read from their folder."""

STEP_SECONDS: Final = {"generation": 176, "gain": 164, "update": 153, "other": 32}
"""A step of A2TGPO in figure 7 of arXiv 2605.06200: Qwen3-4B, 8 H20, 64 questions × 16 episodes."""
FIGURE_GPUS: Final = 8
FIGURE_EPISODES: Final = 1024
FIGURE_MODEL: Final = KNOWN["Qwen3-4B"]


def needs_of(recipe: Recipe, contenders: int = 1) -> list[str]:
    """What a run of the recipe needs, a line each.

    Args:
        contenders: of the study; each is one run per seed.
    """
    if recipe.model.source in SOURCES:
        return ["model: made here", *_data(recipe.environment), "memory and time: see README and docs/pretrained.md"]
    shape = shape_of(recipe.model.source)
    if shape is None:
        told = f"model: {recipe.model.source!r} is not here, so memory and time are not known; give its folder"
        return [told, *_data(recipe.environment)]
    return [
        f"model: {recipe.model.source}, {shape.parameters / GB:.2f} billion parameters",
        *_data(recipe.environment),
        *memory_of(recipe, shape),
        *time_of(recipe, shape, contenders),
    ]


def shape_of(source: str) -> Shape | None:
    """Sizes of a model, from its folder or else by name; `None` for one that is neither here nor known."""
    folder = Path(source)
    if not (folder / "config.json").is_file():
        return KNOWN.get(folder.name)
    from safetensors import safe_open

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    parameters = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                size = 1
                for extent in file.get_slice(name).get_shape():
                    size *= extent
                parameters += size
    return Shape(float(parameters), config["num_hidden_layers"], config["hidden_size"])


def memory_of(recipe: Recipe, shape: Shape) -> list[str]:
    """Memory per GPU in GB, by the arithmetic of docs/gpu.md."""
    size, tokens = shape.parameters, recipe.update.micro_batch_tokens
    rest, update = 12 * size, 18 * size + shape.layers * shape.width * 4 * tokens + 3e9
    sampler = 2 * size + recipe.vllm.kv_cache_gib * GIB if recipe.model.engine == "vllm" else 0.0
    parts = (
        f"12 bytes a parameter at rest ({rest / GB:.0f}), 18 and layer inputs of {tokens:,} tokens in the update"
        f" ({update / GB:.0f}), vLLM's weights and cache ({sampler / GB:.0f})"
    )
    reference = f"a contender with a distance to the reference (kl) needs {4 * size / GB:.0f} GB more"
    if recipe.model.device == "cuda:1":
        text = f"memory: {sampler / GB:.0f} GB on the first GPU, {update / GB:.0f} GB on the second"
        largest = max(sampler, update)
    else:
        largest = max(rest + sampler, update)
        text = f"memory per GPU: {largest / GB:.0f} GB"
    too_large = (
        [] if largest < LARGEST_GPU else ["no GPU of 141 GB holds that, and a run is not spread over several yet"]
    )
    return [f"{text}: {parts}; {reference}", *too_large]


def time_of(recipe: Recipe, shape: Shape, contenders: int) -> list[str]:
    """GPU-hours, scaled from the paper's own figure."""
    scale = shape.parameters / FIGURE_MODEL.parameters * recipe.rollout.questions * recipe.rollout.group_size
    seconds = sum(STEP_SECONDS.values()) * FIGURE_GPUS * scale / FIGURE_EPISODES * recipe.training.steps
    gain = STEP_SECONDS["gain"] / sum(STEP_SECONDS.values())
    runs = contenders * len(recipe.study.seeds)
    lines = [
        f"time: about {seconds / 3600:.0f} GPU-hours of an H20 a run, scaled by parameters, episodes and steps from"
        f" figure 7 of arXiv 2605.06200 ({sum(STEP_SECONDS.values())} s a step on {FIGURE_GPUS} H20); {gain:.0%} of"
        " that is its separate pass for the gain, which here rides on a pass that is made anyway; not measured here"
    ]
    return lines + ([f"the study: {runs} runs, about {runs * seconds / 3600:,.0f} GPU-hours"] if runs > 1 else [])


def _data(settings: EnvironmentSettings) -> list[str]:
    if settings.id == ALMANAC:
        return ["data and index: the embedded world, nothing to get"]
    given = settings.dataset or DATASETS.get(settings.id.rpartition("/")[2].removesuffix("-v0"), "")
    names = [given] if isinstance(given, str) else list(given)
    splits = dict.fromkeys((settings.train_split, settings.validation_split))
    return [*(f"data: {name}: {_place(name, list(splits))}" for name in names), f"index: {_index(settings)}"]


def _place(name: str, splits: list[str]) -> str:
    """Where a data set lies, or how to get it."""
    try:
        path = locate(name)
        if path.is_dir() and not (path / "questions.jsonl").is_file():
            for split in splits:
                files_of_split(path, split)
        return f"found in {path}"
    except DataError as error:
        known = public_set(name)
        if known is None:
            return f"missing; {error}"
        folder = known.source.rpartition("/")[0].partition("/")[0]
        return (
            f"missing: put its files for {' and '.join(splits)} into ${DATA_FOLDER}/{known.folder}; they are in the"
            f" folder {folder} of {known.source.partition(' of ')[2]}"
        )


def _index(settings: EnvironmentSettings) -> str:
    if is_address(settings.retriever):
        return (
            f"a retrieval server at {settings.retriever} with the Search-R1 API; papers use Wikipedia of 2018, 21"
            " million passages, e5-base-v2 with an exact index of about 65 GB (docs/reproduction.md)"
        )
    if settings.corpus:
        found = Path(settings.corpus).exists()
        return f"{settings.retriever} over {settings.corpus}" + ("" if found else ", which is missing")
    return f"{settings.retriever} over the paragraphs that come with the questions"
