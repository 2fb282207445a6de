"""Recipes: round trip, and an error for everything that cannot be meant."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from a2tgpo.algorithms import DAPO
from a2tgpo.config import EnvironmentSettings, Recipe, RolloutSettings, from_dict, load_recipe, recipe_names, to_toml
from a2tgpo.envs.budget import ObservationBudget
from a2tgpo.envs.settings import AlmanacSettings, DataSettings, EpisodeSettings, names
from a2tgpo.errors import ConfigError
from a2tgpo.studies.contenders import contenders_of


def test_round_trip_through_toml() -> None:
    recipe = replace(
        Recipe(),
        algorithm="grpo",
        algorithm_options={"normalize_std": False, "loss.clip_low": 0.1, "loss.clip_high": 1},
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
    assert recipe.algorithm_options == {"ig_weight": 1, "loss": {"clip_low": 2}}
    assert type(recipe.algorithm_options["ig_weight"]) is int
    assert type(recipe.build_algorithm().ig_weight) is float  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": 1, "loss.clip_low": 2}, "loss is a value already"),
        ({"loss": {"clip_low": 1}, "loss.clip_low": 2}, r"algorithm_options\.loss\.clip_low: got it twice"),
        ({"a": {"b": [{}]}}, r"algorithm_options\.a\.b: got \[\{\}\], expected a number, a text, true or false"),
        ({"a": None}, r"algorithm_options\.a: got None"),
        ({".".join("a" * 9): 1}, "nested more than 8 deep"),
    ],
)
def test_options_that_are_no_table(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Recipe(algorithm_options=options)


@pytest.mark.parametrize(
    "text",
    [
        "seed = " + "[" * 20_000 + "]" * 20_000,
        "seed = " + "{a = " * 20_000 + "1" + "}" * 20_000,
        ".".join("a" * 2_000) + " = 1",
        "[" + ".".join("a" * 2_000) + "]",
        "algorithm_options." + ".".join("a" * 2_000) + " = 1",
        "[study.variants." + ".".join("a" * 2_000) + "]\nb = 1",
        "[environment." + ".".join("a" * 2_000) + "]\nb = 1",
    ],
    ids=["lists", "tables", "dotted", "header", "options", "variants", "section"],
)
def test_deep_recipes_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(ConfigError):
        load_recipe(tmp_path / "deep.toml")


def test_recipes_written_before_options_were_tables_still_load() -> None:
    """A run's config.toml of then: dotted names in quotes, whole numbers as 2.0, fewer settings."""
    recipe = load_recipe(Path(__file__).parent.parent / "data" / "run-before-tables.toml")
    assert recipe.algorithm_options == {"ig_weight": 0.3, "loss": {"clip_low": 0.1}, "clip_modulation": 0.5}
    algorithm = recipe.build_algorithm()
    assert (algorithm.loss.clip_low, algorithm.loss.clip_high) == (0.1, type(algorithm)().loss.clip_high)
    wide = {"algorithm": "grpo", "algorithm_options": {"loss": {"clip_low": 0.2}}, "model": {"engine": "vllm"}}
    assert recipe.study.variants == {"wide": wide}
    assert recipe.model.options == {"heads": 2}
    assert recipe.environment == load_recipe("quickstart").environment


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"dataset": "f.jsonl"},
            r"environment\.dataset: got 'f.jsonl' with environment\.id 'a2tgpo/Almanac-v0', which"
            r" brings its own questions and corpus; set environment\.id to 'a2tgpo/SearchQA-v0'",
        ),
        ({"corpus": "c"}, r"environment\.corpus: got 'c' with environment\.id 'a2tgpo/Almanac-v0'"),
        ({"aliases": "a.json"}, r"environment\.aliases: got 'a.json'"),
        ({"cache": "c.jsonl"}, r"environment\.cache: got 'c.jsonl'"),
        (
            {"id": "a2tgpo/SearchQA-v0", "hops": [2]},
            r"environment\.hops: got \(2,\) with environment\.id"
            r" 'a2tgpo/SearchQA-v0', which does not take it; leave it out, or set environment\.id to '",
        ),
        ({"id": "a2tgpo/HotpotQA-v0", "worlds": 2}, r"environment\.worlds: got 2 with environment\.id"),
    ],
)
def test_settings_of_another_environment_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(Recipe, {"environment": settings})


def test_every_setting_of_the_environments_is_one_of_the_recipe(tmp_path: Path) -> None:
    """What `gymnasium.make` takes is in a recipe or belongs to the loop: it scores itself, and chooses the split."""
    (tmp_path / "mine.py").write_text("def half(answer, gold):\n    return 0.5\n")
    world = EnvironmentSettings(reward=f"{tmp_path}/mine.py:half", passage_characters=30, observation_characters=50)
    given = world.arguments()
    assert set(given) == set(names(AlmanacSettings, EpisodeSettings)) - {"split", "scorer"}
    assert given["reward"]("a", ["b"]) == 0.5
    assert given["instructions"] is None
    assert given["budget"] == ObservationBudget(30, 50)
    told = {"dataset": "d", "corpus": "c", "aliases": "a", "cache": "s", "on_bad_row": "skip"}
    told |= {"question_field": "q", "answer_field": "extra.a", "context_field": "p"}
    given = from_dict(EnvironmentSettings, {"id": "a2tgpo/SearchQA-v0", **told}).arguments()
    assert set(given) == set(names(DataSettings, EpisodeSettings)) - {"split", "scorer", "questions"}
    assert {name: given[name] for name in told} == told


@pytest.mark.parametrize(
    ("algorithm", "measure", "credited"),
    [
        ("a2tgpo", "own", "logprob"),
        ("igpo", "own", "prob"),
        ("a2tgpo", "prob", "prob"),
        ("igpo", "logprob", "logprob"),
        ("grpo", "prob", None),
    ],
)
def test_a_recipe_may_set_the_measure_for_all(algorithm: str, measure: str, credited: str | None) -> None:
    recipe = from_dict(Recipe, {"algorithm": algorithm, "information_gain": {"measure": measure}})
    assert getattr(recipe.build_algorithm(), "gain_measure", None) == credited


@pytest.mark.parametrize(
    ("written", "dataset"),
    [
        ('"a.jsonl"', "a.jsonl"),
        ('["a.jsonl", "b"]', ("a.jsonl", "b")),
        ('{ "a.jsonl" = 1, b = 2.5 }', {"a.jsonl": 1.0, "b": 2.5}),
    ],
)
def test_a_data_set_or_several(written: str, dataset: object) -> None:
    text = f'[environment]\nid = "a2tgpo/SearchQA-v0"\ndataset = {written}'
    recipe = from_dict(Recipe, tomllib.loads(text))
    assert recipe.environment.dataset == dataset
    assert from_dict(Recipe, tomllib.loads(to_toml(recipe))) == recipe


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("mine.py:none", r"environment\.reward: got '.*mine\.py:none', but the file has no 'none'; it has half"),
        ("nowhere.py:x", r"environment\.reward: got file '.*nowhere\.py', which does not exist"),
        ("broken.py:x", r"cannot be imported \(ZeroDivisionError: division by zero, line 2\)"),
        ("syntax.py:x", r"cannot be imported \(SyntaxError: "),
    ],
)
def test_rewards_that_cannot_be_read(tmp_path: Path, reward: str, message: str) -> None:
    (tmp_path / "mine.py").write_text("def half(answer, gold):\n    return 0.5\n")
    (tmp_path / "broken.py").write_text("x = 0\n1 / x\n")
    (tmp_path / "syntax.py").write_text("def\n")
    with pytest.raises(ConfigError, match=message):
        EnvironmentSettings(reward=f"{tmp_path}/{reward}").arguments()


def test_a_recipe_says_only_what_differs_from_its_base(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "one.toml").write_text(
        'base = "quickstart"\nname = "one"\n[rollout]\nquestions = 4\n[algorithm_options.loss]\nclip_low = 0.1\n'
    )
    (tmp_path / "deep" / "two.toml").write_text(
        'base = "../one.toml"\nname = "two"\n[rollout]\ngroup_size = 3\n[algorithm_options.loss]\nclip_high = 0.2\n'
        "[environment]\nhops = [2]\n"
    )
    found, quick = load_recipe(tmp_path / "deep" / "two.toml"), load_recipe("quickstart")
    assert (found.name, found.rollout.questions, found.rollout.group_size, found.environment.hops) == (
        "two",
        4,
        3,
        (2,),
    )
    assert found.algorithm_options == {"loss": {"clip_low": 0.1, "clip_high": 0.2}}
    assert found.training == quick.training
    assert from_dict(Recipe, tomllib.loads(to_toml(found))) == found  # a run keeps it whole


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"a": "b.toml", "b": "./b.toml"},
            r"recipe .*b\.toml: bases go in a circle: .*a\.toml → .*b\.toml → .*b\.toml",
        ),
        ({"a": "b.toml", "b": "x/../a.toml"}, r"recipe .*a\.toml: bases go in a circle"),
        ({"a": "quickstar"}, r"recipe .*a\.toml: base: got 'quickstar', .*did you mean 'quickstart'\?"),
        ({"a": "none.toml"}, r"recipe .*a\.toml: base: got '.*none\.toml', expected a readable text file"),
        ({"a": 3}, r"recipe .*a\.toml: base: got 3, expected the name of a recipe or a \.toml file"),
    ],
)
def test_bases_that_cannot_be_used(tmp_path: Path, files: dict[str, object], message: str) -> None:
    (tmp_path / "x").mkdir()
    for name, base in files.items():
        (tmp_path / f"{name}.toml").write_text(f"base = {json.dumps(base)}\n")
    with pytest.raises(ConfigError, match=message):
        load_recipe(tmp_path / "a.toml")


PAPER = {
    f"paper-{hops}hop-{size}": (hops, model)
    for hops in ("multi", "single")
    for size, model in (("4b", "Qwen3-4B"), ("8b", "Qwen3-8B"), ("7b", "Qwen2.5-7B"))
}


@pytest.mark.parametrize("name", PAPER)
def test_recipes_of_the_paper_are_its_setting(name: str) -> None:
    """arXiv 2605.06200, table 3 and section 4.1."""
    hops, model = PAPER[name]
    recipe = load_recipe(name)
    assert recipe.model.source == model
    assert recipe.environment.id == {"multi": "a2tgpo/HotpotQA-v0", "single": "a2tgpo/NaturalQuestions-v0"}[hops]
    environment, rollout, update = recipe.environment, recipe.rollout, recipe.update
    assert (environment.protocol, environment.reward) == ("boxed", "em_format")
    assert (environment.top_k, environment.max_searches) == (3, 6)
    assert (rollout.questions, rollout.group_size, rollout.temperature) == (64, 16, 1.0)
    assert (rollout.max_action_tokens, rollout.max_response_tokens, rollout.max_episode_tokens) == (0, 6192, 8192)
    assert (update.mini_batches, update.learning_rate, recipe.training.steps) == (8, 1e-6, 240)
    contenders = {contender.label: contender.recipe.build_algorithm() for contender in contenders_of(recipe)}
    assert set(contenders) == {"a2tgpo", "igpo", "gigpo", "gspo", "grpo", "dapo"}
    losses = {label: algorithm.loss for label, algorithm in contenders.items()}
    widths = {label: (loss.clip_low, loss.clip_high, loss.kl_coefficient) for label, loss in losses.items()}
    assert widths == {
        "a2tgpo": (3e-3, 4e-3, 0.0),
        "igpo": (0.2, 0.2, 0.001),
        "gigpo": (0.2, 0.2, 0.001),
        "gspo": (3e-4, 4e-4, 0.0),
        "grpo": (0.2, 0.2, 0.001),
        "dapo": (0.2, 0.28, 0.0),
    }
    dapo = contenders["dapo"]
    assert isinstance(dapo, DAPO)
    assert (dapo.overlong_buffer, dapo.overlong_factor, dapo.generation_batch) == (2000, 1.0, 3)


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"recipe: got 'quickstar'.*did you mean 'quickstart'\?"):
        load_recipe("quickstar")
    with pytest.raises(ConfigError, match="expected a readable text file in UTF-8"):
        load_recipe(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("seed = = 3")
    with pytest.raises(ConfigError, match=r"not valid TOML.*line 1"):
        load_recipe(broken)
