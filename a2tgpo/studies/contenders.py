"""Who takes part in a study: algorithms, settings of them, and algorithms with a part switched off, each under a label
of its own.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from a2tgpo.config import Recipe, from_dict, load_recipe
from a2tgpo.config.parsing import merged
from a2tgpo.errors import ConfigError

Options = Mapping[str, float | str | bool]

ABLATIONS: Final[dict[str, dict[str, Options]]] = {
    "a2tgpo": {
        "no-turn-groups": {"turn_groups": False},
        "no-rescaling": {"variance_rescaling": False},
        "no-clip-modulation": {"clip_modulation": 0.0},
        "no-parts": {"turn_groups": False, "variance_rescaling": False, "clip_modulation": 0.0},
        "no-gain": {"ig_weight": 0.0, "clip_modulation": 0.0},
    },
    "gigpo": {"no-step-term": {"step_weight": 0.0}},
}
"""Algorithm → what is switched off → options. Labels are `ALGORITHM-WHAT`."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One entry of a study."""

    label: str
    recipe: Recipe
    """Complete but for the seed."""
    baseline: str
    """Label of the contender that it is compared with; its own label where it is a baseline itself."""
    ablation: bool = False
    """Is it an algorithm with a part switched off, compared with the whole?"""


def contenders_of(recipe: Recipe) -> list[Contender]:
    """The study's contenders: `study.algorithms`, then `study.variants`, then the ablations.

    Raises:
        ConfigError: if there is no seed or no contender, a seed or a label occurs twice, a label cannot name a folder,
            a variant has an unknown setting, or the baseline does not take part.
    """
    study, plain = recipe.study, [*recipe.study.algorithms]
    if not study.seeds or min(study.seeds) < 0 or len(set(study.seeds)) < len(study.seeds):
        raise ConfigError(
            f"study.seeds: got {list(study.seeds)}, expected at least one seed, each once and none below 0; name them"
            " with --study.seeds 0 1 2"
        )
    for parent in study.ablate:
        if parent not in ABLATIONS:
            raise ConfigError(
                f"study.ablate: got {parent!r}, expected one of {', '.join(ABLATIONS)}; other parts are switched off by"
                " [study.variants.NAME]"
            )
        plain += [parent] if parent not in plain else []
    found = [Contender(label(name), replace(recipe, algorithm=name), study.baseline) for name in plain]
    found += [
        Contender(name, _variant(recipe, name, settings), study.baseline) for name, settings in study.variants.items()
    ]
    for parent in study.ablate:
        for what, options in ABLATIONS[parent].items():
            off = replace(recipe, algorithm=parent, algorithm_options=merged(recipe.algorithm_options, options))
            found.append(Contender(f"{parent}-{what}", off, parent, ablation=True))
    if not found:
        raise ConfigError(
            "study.algorithms: got none and no variant, expected at least one; name them with --study.algorithms a2tgpo"
            " grpo"
        )
    _check(found, study.baseline)
    return found


def label(algorithm: str) -> str:
    """Short name of an algorithm: that of its class where it comes from a file."""
    return algorithm.rpartition(":")[2]


def _variant(recipe: Recipe, name: str, settings: Any) -> Recipe:
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"study.variants.{name}: got {settings!r}, expected a table [study.variants.{name}] with settings, for"
            " example algorithm = 'a2tgpo'"
        )
    changes = dict(settings)
    base = load_recipe(changes.pop("recipe")) if "recipe" in changes else recipe
    data = merged(dataclasses.asdict(base), changes)
    return replace(from_dict(Recipe, data, f"study.variants.{name}."), name=recipe.name, study=recipe.study)


def _check(contenders: list[Contender], baseline: str) -> None:
    labels = [contender.label for contender in contenders]
    for name in labels:
        if labels.count(name) > 1:
            raise ConfigError(
                f"study: got the label {name!r} twice, expected every contender once; name a setting of it by"
                " [study.variants.OTHER-NAME]"
            )
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise ConfigError(f"study: got the label {name!r}, expected letters, digits, - and _; it names folders")
    if len(labels) > 1 and baseline not in labels:
        raise ConfigError(
            f"study.baseline: got {baseline!r}, expected one of the study's contenders ({', '.join(labels)})"
        )
