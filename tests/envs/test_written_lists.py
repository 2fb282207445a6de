"""Lists that were written as text: two gold answers, or a bad row, never one answer that nobody can give."""

import math
from typing import Any

import numpy as np
import pytest

from a2tgpo.envs.data.fields import FieldNames, ShapeError
from a2tgpo.envs.data.literals import written_value
from a2tgpo.envs.data.shapes import to_item

TWO = ("Kloford", "Old Kloford")


@pytest.mark.parametrize(
    "written",
    [
        '["Kloford", "Old Kloford"]',
        "['Kloford', 'Old Kloford']",
        "['Kloford','Old Kloford',]",
        "['Kloford' 'Old Kloford']",  # numpy
        "['Kloford'\n 'Old Kloford']",
        "array(['Kloford', 'Old Kloford'], dtype=object)",
        "array(['Kloford', 'Old Kloford'],\n      dtype='<U11')",
        "[np.str_('Kloford'), np.str_('Old Kloford')]",
        "[u'Kloford', u'Old Kloford']",
        "('Kloford', 'Old Kloford')",
        "{'Kloford', 'Old Kloford'}",
        "[['Kloford'], ['Old Kloford']]",
        "['Kloford', None, nan, 'Old Kloford']",
        "  ['Kloford', 'Old Kloford']\n",
        '{"target": ["Kloford", "Old Kloford"]}',
        "{'target': ['Kloford', 'Old Kloford']}",
        "{'target': array(['Kloford', 'Old Kloford'], dtype=object)}",
        "{'text': ['Kloford', 'Old Kloford'], 'answer_start': [3, 17]}",
        r"['\x4bloford', 'Old \u004bloford']",
        "Kloford<|answer_split|>Old Kloford",
        ["['Kloford', 'Old Kloford']"],  # in a real list
        np.array(TWO),
        (*TWO, None, math.nan),
    ],
)
@pytest.mark.parametrize("field", ["answer", "golden_answers", "reward_model"])
def test_two_gold_answers(written: Any, field: str) -> None:
    row = {"reward_model": {"ground_truth": written}} if field == "reward_model" else {field: written}
    assert to_item({"question": "q?", **row}, "f:1").question.answers == TWO


def test_a_whole_column_of_objects_written_as_text() -> None:
    target = "array(['Kloford', 'Old Kloford'], dtype=object)"
    row = {
        "question": "q?",
        "reward_model": f"{{'style': 'rule', 'ground_truth': {{'target': {target}}}}}",
        "extra_info": "{'index': 3, 'split': 'train'}",
        "context": "[['Kloford', ['A city.', 'Old.']]]",
        "supporting_facts": "[['Kloford', 0]]",
    }
    item = to_item(row, "f:1")
    assert item.question.answers == TWO
    assert item.question.id == "f_train_3"
    assert [passage.id for passage in item.passages] == list(item.question.supporting)
    assert item.passages[0].text == "A city. Old."


@pytest.mark.parametrize(
    ("given", "answers"),
    [
        ("[1912, 1913]", ("1912", "1913")),
        ("[1912 1913]", ("1912", "1913")),
        ("[np.int64(7), 2.5]", ("7", "2.5")),
        ([1912.0, 3], ("1912", "3")),  # a column of whole numbers with a gap in it becomes one of floats
        (1e15, ("1000000000000000",)),
        ("[True, False]", ("yes", "no")),
        # an answer that only looks like a list
        ("[sic]", ("[sic]",)),
        ("[O.S. 6 January] 1835", ("[O.S. 6 January] 1835",)),
        ("[Ar] 3d5 4s1", ("[Ar] 3d5 4s1",)),
        ("(1975)", ("(1975)",)),
        ('("Heroes")', ('("Heroes")',)),
        ("(What's the Story) Morning Glory?", ("(What's the Story) Morning Glory?",)),
        ("{1, 2}", ("{1, 2}",)),
        (["[0, 1]", "[2, 3]"], ("[0, 1]", "[2, 3]")),
        ("'Kloford'", ("'Kloford'",)),
    ],
)
def test_numbers_and_answers_that_only_look_like_lists(given: Any, answers: tuple[str, ...]) -> None:
    assert to_item({"question": "q?", "answer": given}, "f:1").question.answers == answers


@pytest.mark.parametrize(
    "given",
    [
        "['Kloford', 'Old Klof",  # cut off
        "['Kloford', ...]",  # numpy's and pandas' way to shorten
        "['L'Oreal', 'b']",
        "[]",
        "[None]",
        "{'target': []}",
        "{'target': ['a'",
        "['a'] and more",
        "[['a']",
        b"Kloford",
        [b"Kloford"],
        math.inf,
        math.nan,
        [math.nan, None],
        {"foo": "a"},
        "[" * 50 + "'a'" + "]" * 50,
    ],
)
def test_what_cannot_be_read_is_a_bad_row(given: Any) -> None:
    with pytest.raises(ShapeError, match=r"answer|looks like a list|empty gold"):
        to_item({"question": "q?", "answer": given}, "f:1")


def test_text_is_parsed_and_never_run_and_long_texts_take_no_time() -> None:
    assert written_value("[__import__('os').getcwd()]") == "[__import__('os').getcwd()]"
    assert written_value("[print('a')]") == ["a"]  # a name before a text, as in np.str_('a'), is not called
    for bomb in ("[" * 100_000, "['" + "a" * 1_000_000, "['" + "\\" * 1_000_001, "{" * 100_000 + "'"):
        with pytest.raises(ValueError, match="cannot be read"):
            written_value("['x', " + bomb)


@pytest.mark.parametrize(
    ("names", "answers", "text"),
    [
        (FieldNames(), ("a",), "q?"),
        (FieldNames(answer="label"), ("b", "c"), "q?"),
        (FieldNames(question="extra.q", answer="extra.golds.1"), ("e",), "other?"),
        (FieldNames(question="Extra.q"), ("a",), "other?"),
    ],
)
def test_fields_that_the_user_names(names: FieldNames, answers: tuple[str, ...], text: str) -> None:
    row = {"question": "q?", "answer": "a", "label": "['b', 'c']", "extra": {"q": "other?", "golds": ["d", "e"]}}
    item = to_item(row, "f:1", names)
    assert (item.question.answers, item.question.text) == (answers, text)


def test_a_named_field_that_is_not_there() -> None:
    with pytest.raises(
        ShapeError, match=r"answer_field: got 'labels', .*found the fields question, label; did you mean 'label'"
    ):
        to_item({"question": "q?", "label": "a"}, "f:1", FieldNames(answer="labels"))
    with pytest.raises(ShapeError, match=r"no answer field .*found the fields question, label; name it"):
        to_item({"question": "q?", "label": "a"}, "f:1")


@pytest.mark.parametrize("written", [r'["\ud800 x"]', r"['\ud83d', 'Kloford']", r'{"target": "\udc00"}'])
def test_half_characters_in_written_lists_are_bad_rows(written: str) -> None:
    with pytest.raises(ShapeError, match="half of a surrogate pair in answer"):
        to_item({"question": "q?", "answer": written}, "f:1")
