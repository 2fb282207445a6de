"""Answer comparison: literal cases, the rules restated the slow way, and properties."""

import json
import random
import re
import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2tgpo.envs.scoring.answers import (
    ANSWER_SCORES,
    cover_em,
    exact_match,
    f1,
    normalize_text,
    set_f1,
)
from tests.conftest import DATA, shared_file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  U.S. Navy", "us navy"),
        ("Finnmark county,", "finnmark county"),
        ("1,289,500", "1289500"),
        ("An apple a day", "apple day"),
        ("Panathinaikos", "panathinaikos"),
        ("!!!", ""),
        ("The \\", ""),
        ("vaskania (βασκανία)", "vaskania βασκανία"),
        ("[O.S. 6 January] 1835", "os 6 january 1835"),
    ],
)
def test_normalize(text: str, expected: str) -> None:
    assert normalize_text(text) == expected


@pytest.mark.parametrize(
    ("answer", "golds", "em", "bag"),
    [
        # common {eiffel, tower} = 2; prediction "eiffel tower paris" 3 words, gold 2: 2·2/(3+2) = 0.8
        ("the Eiffel Tower, Paris", ["Eiffel Tower"], 0.0, 0.8),
        ("eiffel tower", ["Eiffel Tower."], 1.0, 1.0),
        ("Moskva", ["Moscow", "Moskva"], 1.0, 1.0),
        # bag, not set: "new new york" has 3 words, "new york" 2, common 2: 4/5
        ("new new york", ["New York"], 0.0, 0.8),
        ("no", ["yes"], 0.0, 0.0),
        ("yes", ["Yes"], 1.0, 1.0),
        ("yes he did", ["yes"], 0.0, 2 * 1 / 4),
        ("no", ["no way"], 0.0, 0.0),
        (None, ["Paris"], 0.0, 0.0),
        ("", ["Paris"], 0.0, 0.0),
        ("", ["!!!"], 0.0, 0.0),
        ("!!!", ["!!!"], 1.0, 1.0),
        ("???", ["!!!"], 0.0, 0.0),
        ("the", ["\\", "Bob"], 0.0, 0.0),
        ("Paris", [""], 0.0, 0.0),
        ("", [""], 0.0, 0.0),
        ("Paris", [], 0.0, 0.0),
    ],
)
def test_em_and_f1(answer: str | None, golds: list[str], em: float, bag: float) -> None:
    if answer == "yes he did":
        bag = 0.0  # HotpotQA's rule: a yes/no gold scores only when equal
    assert exact_match(answer, golds) == em
    assert f1(answer, golds) == pytest.approx(bag, abs=1e-12)


def test_variants() -> None:
    # IGPO: {the, eiffel, tower, paris} and {eiffel, tower}: 2·2/(4+2) = 2/3
    assert set_f1("the Eiffel Tower, Paris", ["Eiffel Tower"]) == pytest.approx(2 / 3, abs=1e-12)
    assert set_f1(None, ["x"]) == 0.0
    assert set_f1("!!!", ["!!!"]) == 1.0
    assert cover_em("It is in Paris, France", ["paris"]) == 1.0
    assert cover_em("I know", ["no"]) == 0.0  # whole words only
    assert cover_em("now or never", ["or"]) == 1.0


def test_golds_are_not_mutated() -> None:
    golds = ["B", "A"]
    for outcome in ANSWER_SCORES.values():
        outcome("a", golds)
    assert golds == ["B", "A"]


def _squad_normalize(text: str) -> str:
    """The official recipe, step by step."""
    text = text.lower()
    text = "".join(c for c in text if c not in set(string.punctuation))
    text = re.sub(r"\b(a|an|the)\b", " ", text)
    return " ".join(text.split())


def _slow_f1(prediction: str, gold: str) -> float:
    left, right = _squad_normalize(prediction).split(), _squad_normalize(gold).split()
    if _squad_normalize(prediction) == _squad_normalize(gold):
        return 1.0
    if {" ".join(left), " ".join(right)} & {"yes", "no", "noanswer"}:
        return 0.0
    remaining, common = list(right), 0
    for word in left:
        if word in remaining:
            remaining.remove(word)
            common += 1
    if common == 0:
        return 0.0
    precision, recall = common / len(left), common / len(right)
    return 2 * precision * recall / (precision + recall)


def made_up_answers() -> tuple[list[str], list[str]]:
    """Gold answers of the made-up rows, and what is right or wrong for them."""
    lines = (DATA / "rows" / "hard.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    golds = [gold for row in rows for gold in row.get("answers") or [row.get("answer", "Vandria")]]
    return golds, [text for row in rows for text in (*row["expected"]["right"], *row["expected"]["wrong"])]


def real_answers() -> tuple[list[str], list[str]]:
    """Gold answers of real questions, and what a search agent answered."""
    lines = shared_file("data/trajectories/search_r1_rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [gold for row in rows for gold in row["golden_answers"]], [row["pred"] for row in rows if row["pred"]]


@pytest.mark.parametrize("answers", [made_up_answers, real_answers])
def test_parity_with_the_rules_on_2000_pairs(answers: Callable[[], tuple[list[str], list[str]]]) -> None:
    golds, predictions = answers()
    golds = [gold for gold in golds if _squad_normalize(gold)]
    predictions = [*predictions, *golds]
    rng = random.Random(0)
    positive = 0
    for _ in range(2000):
        gold = rng.choice(golds)
        prediction = (
            rng.choice(predictions)
            if rng.random() < 0.5
            else f"{rng.choice(['the', 'a', ''])} {gold}{rng.choice(['.', ' of', ' '])}"
        )
        assert exact_match(prediction, [gold]) == float(_squad_normalize(prediction) == _squad_normalize(gold))
        assert f1(prediction, [gold]) == pytest.approx(_slow_f1(prediction, gold), abs=1e-12)
        positive += f1(prediction, [gold]) > 0
    assert positive > 500


@given(st.text(), st.lists(st.text(), max_size=4))
def test_scores_lie_between_zero_and_one_and_em_implies_f1(answer: str, golds: list[str]) -> None:
    scores = {name: outcome(answer, golds) for name, outcome in ANSWER_SCORES.items()}
    assert all(0.0 <= score <= 1.0 for score in scores.values())
    if scores["em"] == 1.0:
        assert scores["f1"] == 1.0
    assert all(outcome(None, golds) == 0.0 for outcome in ANSWER_SCORES.values())


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_every_usable_alias_matches_itself(golds: list[str]) -> None:
    for gold in golds:
        if gold.strip():
            assert exact_match(gold, golds) == 1.0
