"""Which runs may be compared, and with which a run may be continued."""

import json
from dataclasses import replace
from typing import Any

from a2tgpo.config import EnvironmentSettings, Recipe
from a2tgpo.run_folder.manifest import differences, manifest


def described(recipe: Recipe) -> dict[str, Any]:
    """As it is read from a file."""
    made = manifest(recipe, {"train": []}, "c", "m", recipe.build_algorithm())
    return dict(json.loads(json.dumps(made)))


def test_a_manifest_of_a_version_with_fewer_settings_has_their_defaults() -> None:
    now, before = described(Recipe()), described(Recipe())
    del before["settings"]["environment"]["format_penalty"]
    del before["settings"]["vllm"]
    assert differences(before, now) == differences(now, before) == {}
    other = described(replace(Recipe(), environment=EnvironmentSettings(format_penalty=0.5)))
    assert differences(before, other) == {"settings.environment.format_penalty": (0.0, 0.5)}


def test_algorithm_and_seed_may_differ_and_settings_may_not() -> None:
    one, other = described(Recipe(algorithm="grpo")), described(Recipe(algorithm="igpo", seed=3))
    assert differences(one, other) == {}
    deeper = described(Recipe(environment=EnvironmentSettings(top_k=3)))
    assert differences(one, deeper) == {"settings.environment.top_k": (2, 3)}
