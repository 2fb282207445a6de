"""What is shown of a run is what it trained with: its prompt, its gain, its parameters, its credit."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from a2tgpo.cli import main
from a2tgpo.config import EnvironmentSettings, ModelSettings, Recipe, RolloutSettings, WarmStartSettings, to_toml
from a2tgpo.engines.base import Request
from a2tgpo.episode import ActionKind, Episode, StopReason, Turn
from a2tgpo.information_gain import score_episodes
from a2tgpo.policy import Policy
from a2tgpo.run_folder.episodes import CREDIT, episode_to_dict
from a2tgpo.run_folder.load import load_run
from a2tgpo.training.evaluate import evaluate
from a2tgpo.training.parts import make_split
from tests.support.byte_models import byte_policy
from tests.support.command_line import error_of
from tests.support.written_engine import WrittenEngine, encoder

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def finished_run(folder: Path, recipe: Recipe, policy: Policy | None = None) -> Path:
    (folder / "episodes").mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(recipe))
    (folder / "finished").write_text("")
    if policy is not None:
        policy.save(folder / "model")
    return folder


def templated_run(folder: Path) -> Path:
    policy = byte_policy(max_tokens=1024)
    policy.tokenizer.chat_template = TEMPLATE
    try:
        return finished_run(
            folder,
            Recipe(
                environment=EnvironmentSettings(worlds=2, max_turns=2),
                model=ModelSettings(source="elsewhere", chat_template=True, system_prompt="Be brief."),
                warm_start=WarmStartSettings(enabled=False),
                rollout=RolloutSettings(max_action_tokens=4, max_episode_tokens=900),
            ),
            policy,
        )
    finally:
        policy.tokenizer.chat_template = None


def test_play_shows_the_prompt_and_the_gain_of_the_policy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = templated_run(tmp_path / "run")
    run = load_run(folder)
    encode = encoder(run.policy.tokenizer)

    def reply(request: Request) -> Sequence[int]:
        shown = run.policy.tokenizer.decode(list(request.prompt))
        return encode("<answer> a </answer>" if "<information>" in shown else "<search> capital </search>")

    monkeypatch.setattr("a2tgpo.run_folder.load.engine_of", lambda recipe, policy: WrittenEngine(reply))
    split = make_split(run.recipe, run.policy, WrittenEngine(reply), "validation", 1)
    question = split.questions[3]
    assert main(["play", str(folder), "--question", question.id]) == 0
    printed = squeezed(capsys.readouterr().out)
    played = score_episodes(run.policy, evaluate(split.rollout, [question], seed=0).episodes, run.scoring).episodes[0]
    for turn in played.turns:
        assert squeezed(run.policy.tokenizer.decode(list(turn.context_ids))) in printed
        assert squeezed(run.policy.tokenizer.decode(list(turn.action_ids))) in printed
    assert "<|im_start|>systemBebrief.<|im_end|><|im_start|>user" in printed
    gain = played.turns[0].information_gain
    assert gain is not None
    assert f"informationgain{gain:+.2f}nats(thepolicy's)" in printed
    assert f"answered:outcome{played.outcome:g}" in printed


def squeezed(text: str) -> str:
    """Without frames and line breaks."""
    return "".join(character for character in text if character not in "│╭╮╰╯─\n ")


def test_play_by_hand_shows_the_evidence_scorer_s_gain(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = iter(["<search> anything at all </search>", "<answer> nothing </answer>"])
    monkeypatch.setattr("builtins.input", lambda _prompt="": next(written))
    assert main(["play", "--recipe", "smollm2"]) == 0
    printed = capsys.readouterr().out
    assert "nats (the evidence scorer's)" in printed
    assert "answered: outcome 0, EM 0" in printed


def turn_of(action: str, gain: float | None) -> Turn:
    return Turn((1,), (2, 3), (-0.5, -0.5), ActionKind(action), information_gain=gain, query="x", probability_gain=gain)


def episode(group: int, outcome: float, *turns: Turn) -> Episode:
    return Episode(group, f"q{group}", 0, turns, outcome, StopReason.ANSWERED, score=outcome)


EPISODES = [
    episode(0, 1.0, turn_of("search", 0.5), turn_of("answer", None)),
    episode(0, 0.0, turn_of("search", -0.25), turn_of("search", 1.0), turn_of("answer", None)),
    replace(episode(0, 0.0, turn_of("search", None)), stop=StopReason.FAILED),
    episode(1, 0.0, turn_of("search", 0.125), turn_of("answer", None)),
    episode(1, 0.0, turn_of("answer", None)),
]


class NoText:
    def decode(self, ids: list[int]) -> str:
        return ""

    def batch_decode(self, ids: list[list[int]]) -> list[str]:
        return [""] * len(ids)


def recorded(folder: Path, recipe: Recipe) -> Path:
    """A run with one file of episodes, with the credit that its algorithm gives."""
    run = finished_run(folder, recipe)
    algorithm = recipe.build_algorithm()
    played = [each for each in EPISODES if not each.failed]
    credit = algorithm(algorithm.tabulate(played))
    lines = [
        episode_to_dict(each, NoText(), None if each.failed else credit, None if each.failed else played.index(each))
        for each in EPISODES
    ]
    file = run / "episodes" / "step-000001.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


RECIPE = Recipe(algorithm="a2tgpo", algorithm_options={"gamma": 0.5, "loss.clip_low": 0.1})


def test_explain_uses_the_parameters_that_the_run_recorded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = recorded(tmp_path / "run", RECIPE)
    shown = []
    for words in ([], ["a2tgpo"]):
        assert main(["explain", *words, "--episode", str(file)]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "gamma=0.5" in shown[0]
    assert "c·0.1, " in shown[0]
    first = json.loads(file.read_text().splitlines()[0])["turns"][0]["advantage"]
    assert f"{first:.5f}" in shown[0]
    assert main(["explain", "igpo", "--episode", str(file)]) == 0  # as published
    assert "gamma=1.0" in capsys.readouterr().out


@pytest.mark.parametrize("name", CREDIT)
def test_explain_refuses_to_contradict_what_was_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    file = recorded(tmp_path / "run", RECIPE)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[3]["turns"][1][name] += 0.25
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    message = error_of(capsys, "explain", "--episode", str(file))
    assert f"episode 3, turn 1 of {file} was trained with {name} " in message
    assert main(["explain", "grpo", "--episode", str(file)]) == 0  # another algorithm's credit was never recorded


def test_one_question_is_explained_with_the_numbers_of_the_whole_batch(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """REINFORCE++ compares all groups, so a group alone would get other numbers."""
    file = recorded(tmp_path / "run", Recipe(algorithm="reinforce_plus_plus"))
    assert main(["explain", "--episode", str(file)]) == 0
    whole = capsys.readouterr().out
    assert main(["explain", "--episode", str(file), "--question", "q1"]) == 0
    part = capsys.readouterr().out
    assert "question q0" not in part
    assert part[part.index("── question q1") :] == whole[whole.index("── question q1") :]
    assert "expected one of the file's questions: q0, q1" in error_of(
        capsys, "explain", "--episode", str(file), "--question", "q9"
    )


def test_explain_needs_a_name_outside_of_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = recorded(tmp_path / "run", RECIPE)
    alone = file.rename(tmp_path / "alone.jsonl")
    assert "expected `a2tgpo explain ALGORITHM --episode FILE`" in error_of(capsys, "explain", "--episode", str(alone))
    assert main(["explain", "gigpo", "--episode", str(alone)]) == 0


def test_explain_runs_no_file_that_only_a_recipe_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = recorded(tmp_path / "run", RECIPE)
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    (file.parent.parent / "config.toml").write_text(to_toml(replace(RECIPE, algorithm=f"{trap}:Mine")))
    assert "a file that a recipe names is run only on request" in error_of(capsys, "explain", "--episode", str(file))
    assert not (tmp_path / "sprung").exists()
