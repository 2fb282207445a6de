"""Recipes: frozen dataclasses that are read from and written to TOML.

Unknown keys, wrong types and numbers out of range are errors; the complete, resolved recipe is stored with every run.
"""

import dataclasses
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from a2tgpo.checks import did_you_mean
from a2tgpo.config.parsing import check_ranges, from_dict, merged, nested
from a2tgpo.config.settings import (
    EnvironmentSettings,
    GainSettings,
    ModelSettings,
    Natural,
    RolloutSettings,
    StudySettings,
    TrainingSettings,
    UpdateSettings,
    VLLMSettings,
    WarmStartSettings,
)
from a2tgpo.errors import ConfigError
from a2tgpo.files import read_text

if TYPE_CHECKING:
    from a2tgpo.algorithms import Algorithm


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a run depends on.

    Raises:
        ConfigError: naming a setting that is out of range or does not go with the others.
    """

    name: str = "quickstart"
    """Folder of the study below `--runs`."""
    algorithm: str = "a2tgpo"
    """Name in `a2tgpo.algorithms.ALGORITHMS`, or `file.py:Class`."""
    algorithm_options: dict[str, Any] = field(default_factory=dict)
    """Hyper-parameters of the algorithm and, as a table `loss` or as `loss.NAME`, of its loss, where they differ from
    its published ones.
    """
    seed: Natural = 0
    """Of question order, sampling and mini-batches."""
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    vllm: VLLMSettings = field(default_factory=VLLMSettings)
    warm_start: WarmStartSettings = field(default_factory=WarmStartSettings)
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    update: UpdateSettings = field(default_factory=UpdateSettings)
    information_gain: GainSettings = field(default_factory=GainSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    study: StudySettings = field(default_factory=StudySettings)

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith(".") or set(self.name) & set("/\\\0"):
            raise ConfigError(
                f"name: got {self.name!r}, expected a folder's name without slash or leading dot; --runs chooses the"
                " place"
            )
        object.__setattr__(self, "algorithm_options", nested(self.algorithm_options, "algorithm_options"))
        check_ranges(self)
        if self.update.mini_batches > self.rollout.questions:
            raise ConfigError(
                f"update.mini_batches: got {self.update.mini_batches}, expected at most rollout.questions"
                f" ({self.rollout.questions}); a mini-batch holds whole groups"
            )

    def build_algorithm(self) -> "Algorithm":
        """The algorithm with its options, and the measure of gains that the recipe may set for all.

        Raises:
            ConfigError: if there is none of that name, or it does not take the options.
        """
        from a2tgpo.algorithms.gain import GainAlgorithm
        from a2tgpo.algorithms.loader import make_algorithm

        algorithm = make_algorithm(self.algorithm, self.algorithm_options)
        measure = self.information_gain.measure
        if measure == "own" or not isinstance(algorithm, GainAlgorithm):
            return algorithm
        return dataclasses.replace(algorithm, gain_measure=measure)


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Read a recipe that ships with the package (by name) or lies on disk (by path).

    A recipe may begin from another one: `base = "NAME"` or `base = "FILE.toml"`, beside the file itself. It then says
    only what differs.

    Raises:
        ConfigError: if it or one of its bases does not exist or is not TOML, if bases go in a circle, or if it holds an
            unknown key or a wrong type.
    """
    try:
        return from_dict(Recipe, _table(str(name_or_path), Path(), ()))
    except RecursionError as error:
        raise ConfigError(
            f"recipe {name_or_path}: is nested too deeply to read, expected tables of single settings"
        ) from error


def _table(name: str, beside: Path, derived: tuple[str, ...]) -> dict[str, Any]:
    """A recipe's settings, upon those of its base.

    Args:
        beside: folder that a path is relative to.
        derived: the recipes that are derived from this one, first to last.
    """
    role = f"recipe {derived[-1]}: base" if derived else "recipe"
    path = beside / name
    if name in recipe_names():
        key, text = name, (resources.files("a2tgpo.recipes") / f"{name}.toml").read_text(encoding="utf-8")
    elif path.suffix == ".toml":
        text, key = read_text(role, path), str(path.resolve())
    else:
        known = recipe_names()
        hint = did_you_mean(name, known)
        raise ConfigError(f"{role}: got {name!r}, expected a .toml file or one of {', '.join(known)}{hint}")
    if key in derived:
        raise ConfigError(f"recipe {key}: bases go in a circle: {' → '.join([*derived, key])}; one must stand alone")
    data = _parsed(text, key)
    base = data.pop("base", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise ConfigError(f"recipe {key}: base: got {base!r}, expected the name of a recipe or a .toml file")
    return merged(_table(base, path.parent, (*derived, key)), data)


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"recipe {name}: is not valid TOML: {error}; fix the line that it names") from error


def recipe_names() -> list[str]:
    """Names of the recipes that ship with the package."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in resources.files("a2tgpo.recipes").iterdir()
        if entry.name.endswith(".toml")
    )


def to_toml(recipe: Recipe) -> str:
    """The complete recipe as TOML, defaults written out."""
    return tomli_w.dumps(dataclasses.asdict(recipe))
