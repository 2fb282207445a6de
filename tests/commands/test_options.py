"""What commands take: a sentence for every option, names for positionals, sub-commands, repeated options, tables."""

import dataclasses
import inspect
import typing
from pathlib import Path
from typing import Any

import docstring_parser
import pytest
from rich.console import Console

from a2tgpo.cli import main
from a2tgpo.commands import baseline, bench, compare, data, evaluate, explain, export, play, report, serve, study
from a2tgpo.commands.options import parse
from a2tgpo.config import Recipe
from a2tgpo.errors import ConfigError

OPTIONS: list[Any] = [
    found
    for module in (baseline, bench, compare, data, evaluate, explain, export, play, report, serve, study)
    for name, found in inspect.getmembers(module, dataclasses.is_dataclass)
    if found.__module__ == module.__name__ and not name.startswith("_")
]
SECTIONS: list[Any] = [Recipe, *filter(dataclasses.is_dataclass, typing.get_type_hints(Recipe).values())]


@pytest.mark.parametrize("kind", [*OPTIONS, *SECTIONS], ids=lambda kind: kind.__name__)
def test_every_setting_and_option_has_a_sentence(kind: type) -> None:
    """Read from the source, as tyro does."""
    assert kind.__doc__
    described = {
        entry.arg_name: entry.description
        for owner in reversed(kind.__mro__[:-1])
        for entry in docstring_parser.parse_from_object(owner).params
    }
    hints = typing.get_type_hints(kind)
    for name, hint in hints.items():
        if not dataclasses.is_dataclass(hint):
            assert (described.get(name) or "").strip().endswith((".", ")")), f"{kind.__name__}.{name}"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("train",), ("RECIPE", "--resume RUN", "--algorithm STR", "--environment.passage-characters INT")),
        (("compare",), ("RECIPE", "--algorithm NAME|FILE.py:CLASS …", "--ablate ALGORITHM …", "--study.workers INT")),
        (("evaluate",), ("RUN|MODEL",)),
        (("play",), ("RUN",)),
        (("explain",), ("ALGORITHM",)),
        (("report",), ("STUDY", "-o")),
        (("view",), ("RUN", "-o")),
        (("serve-retriever",), ("CORPUS",)),
        (("data",), ("inspect", "corpus", "index")),
        (("data", "inspect"), ("FILE …",)),
        (("data", "corpus"), ("FILE …", "-o FOLDER")),
        (("data", "index"), ("CORPUS", "-o FOLDER")),
        (("baseline",), ("table", "sb3")),
        (("bench",), ("information-gain", "update", "credit", "env", "retrieval", "rollout")),
        (("recipes",), ("List the recipes",)),
    ],
    ids=" ".join,
)
def test_help_names_what_a_command_takes(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert f"usage: a2tgpo {' '.join(words)}" in printed
    for text in shown:
        assert text in printed
    assert " STR " not in printed.splitlines()[0]  # positionals have names


def test_compare_options_add_to_the_study() -> None:
    words = [
        "quickstart",
        "--algorithm",
        "a.py:Mine",
        "gspo",
        "--ablate=a2tgpo",
        "--seed",
        "3",
        "--allow",
        "git_commit",
    ]
    recipe = compare.options_of([*words, "--algorithm", "grpo", "dapo"]).study()
    assert type(recipe) is Recipe
    assert recipe.seed == 3
    assert recipe.study.algorithms == ("a2tgpo", "igpo", "gigpo", "grpo", "a.py:Mine", "gspo", "dapo")
    assert (recipe.study.ablate, recipe.study.allow) == (("a2tgpo",), ("git_commit",))


def test_tables_on_the_command_line() -> None:
    """As TOML would read them: whole numbers stay whole, lists are lists, texts need no quotes."""
    words = ["quickstart", "--algorithm-options", "ig_weight", "1", "loss.clip_low", "0.2", "turn_groups", "false"]
    variants = ["--study.variants", "wide.rollout.questions", "32", "wide.environment.hops", "[1, 2]", "wide.seed", "4"]
    recipe = compare.options_of([*words, *variants]).study()
    assert recipe.algorithm_options == {"ig_weight": 1, "loss": {"clip_low": 0.2}, "turn_groups": False}
    assert type(recipe.algorithm_options["ig_weight"]) is int
    assert recipe.study.variants == {
        "wide": {"rollout": {"questions": 32}, "environment": {"hops": [1, 2]}, "seed": 4},
    }
    for wrong in (["ig_weight"], ["ig_weight", "1", "loss.clip_low"]):
        with pytest.raises(SystemExit) as ended:
            compare.options_of(["quickstart", "--algorithm-options", *wrong])
        assert ended.value.code == 2


def test_a_recipe_and_a_run_to_resume_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('name = "x"')
    with pytest.raises(ConfigError, match=r"train: got RECIPE 'quickstart' and --resume .*, expected one of them"):
        study.train(["quickstart", "--resume", str(tmp_path)], Console(quiet=True))


def test_ranges_of_options_name_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"--max-action-tokens: got 0, expected at least 1"):
        parse(bench.Rollout, ["--max-action-tokens", "0"], "bench rollout")
