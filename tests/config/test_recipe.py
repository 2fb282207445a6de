"""Recipes: round trip, and an error for everything that cannot be meant."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from a2tgpo.config import Recipe, RolloutSettings, from_dict, load_recipe, recipe_names, to_toml
from a2tgpo.errors import ConfigError


def test_round_trip_through_toml() -> None:
    recipe = replace(
        Recipe(),
        algorithm="grpo",
        algorithm_options={"normalize_std": False, "loss.clip_low": 0.1},
        rollout=RolloutSettings(questions=5, group_size=3),
    )
    recipe = replace(recipe, update=replace(recipe.update, mini_batches=2))
    assert from_dict(Recipe, tomllib.loads(to_toml(recipe))) == recipe


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_are_valid(name: str) -> None:
    assert load_recipe(name).name == name


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rolout": {}}, r"rolout: unknown setting.*did you mean 'rollout'\?"),
        ({"update": {"learning_rat": 1.0}}, r"update\.learning_rat: unknown setting.*did you mean 'learning_rate'\?"),
        ({"seed": "one"}, r"seed: got 'one' \(str\), expected int"),
        ({"seed": True}, r"seed: got True \(bool\), expected int"),
        ({"seed": 1.0}, r"seed: got 1.0 \(float\), expected int"),
        (
            {"update": {"schedule": "linaer"}},
            r"update\.schedule: got 'linaer', expected one of constant, linear; did you mean 'linear'\?",
        ),
        ({"update": {"betas": [0.9]}}, r"update\.betas: got 1 values, expected 2"),
        ({"update": {"betas": [0.9, "x"]}}, r"update\.betas\[1\]: got 'x'"),
        ({"study": {"seeds": [0, "1"]}}, r"study\.seeds\[1\]: got '1'"),
        (
            {"rollout": {"group_size": 1}},
            r"rollout\.group_size: got 1, expected at least 2; a group of one carries no comparison",
        ),
        ({"rollout": {"questions": 2}}, r"update\.mini_batches: got 4, expected at most rollout\.questions \(2\)"),
        ({"update": {"learning_rate": 0.0}}, r"update\.learning_rate: got 0\.0, expected a positive number"),
        ({"update": 3}, r"update: got 3 \(int\), expected Update"),
    ],
)
def test_wrong_recipes_name_field_got_and_expected(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(Recipe, data)


def test_integers_pass_as_floats_and_tables_as_dotted_options() -> None:
    recipe = from_dict(
        Recipe, {"update": {"learning_rate": 1}, "algorithm_options": {"ig_weight": 1, "loss": {"clip_low": 2}}}
    )
    assert recipe.update.learning_rate == 1.0
    assert isinstance(recipe.update.learning_rate, float)
    assert recipe.algorithm_options == {"ig_weight": 1.0, "loss.clip_low": 2.0}


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"recipe: got 'quickstar'.*did you mean 'quickstart'\?"):
        load_recipe("quickstar")
    with pytest.raises(ConfigError, match="no readable file"):
        load_recipe(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("seed = = 3")
    with pytest.raises(ConfigError, match=r"not valid TOML.*line 1"):
        load_recipe(broken)
