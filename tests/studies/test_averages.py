"""Averages over data sets, and published figures beside one's own."""

import pytest

from a2tgpo.baselines.published import Protocol, beside, differences, models, published
from a2tgpo.studies.averages import averages
from a2tgpo.studies.scorecard import PartScores


def line(dataset: str, questions: int, em: float, part: str = "all") -> PartScores:
    return PartScores(dataset, part, questions, {"em": em})


def test_over_samples_and_over_sets() -> None:
    """0.5 of 300 and 0.1 of 100 questions: 160/400 = 0.4 over samples, 0.3 over sets."""
    lines = [line("A", 300, 0.5), line("A", 10, 0.9, "2 hops"), line("B", 100, 0.1)]
    [found] = averages(lines, {})
    assert (found.name, found.questions) == ("all sets", 400)
    assert (found.over_samples, found.over_sets) == pytest.approx((0.4, 0.3))


def test_each_kind_of_sets_has_its_own() -> None:
    lines = [line("A", 30, 0.5), line("B", 10, 0.1), line("C", 60, 1.0), line("D", 20, 0.0), line("E", 80, 0.5)]
    found = averages(lines, {"A": "multi-hop", "B": "multi-hop", "C": "single-hop", "D": "single-hop"})
    assert [(one.name, one.questions) for one in found] == [("multi-hop", 40), ("single-hop", 80), ("all sets", 200)]
    assert [one.over_samples for one in found] == pytest.approx([0.4, 0.75, 116 / 200])
    assert [one.over_sets for one in found] == pytest.approx([0.3, 0.5, 0.42])


def test_one_set_has_no_average() -> None:
    assert averages([line("A", 30, 0.5)], {"A": "multi-hop"}) == []


PAPER = Protocol(
    "Wikipedia 2018", "E5-base-v2", "3", "6", "greedy", "HotpotQA (multi-hop columns), NQ (single-hop columns)"
)


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        (PAPER, []),
        (Protocol("Wikipedia 2018", "E5-base-v2", "3", "6", "greedy", "NQ"), []),
        (
            Protocol("mine.jsonl", "bm25", "2", "5", "sampled, temperature 1", "MuSiQue"),
            ["corpus ≠", "retriever ≠", "top_k ≠", "turns ≠", "decoding ≠", "training_data ≠"],
        ),
        (Protocol("", "", "3", "6", "greedy", "HotpotQA"), ["corpus ?", "retriever ?"]),
    ],
)
def test_columns_that_differ_are_named(ours: Protocol, found: list[str]) -> None:
    assert differences(ours, PAPER) == found


def test_columns_are_compared_as_they_are_meant() -> None:
    theirs = Protocol("x", "y", "3", "4 searches (+1 answer)", "sampled, temperature 1 (as released)", "NQ + HotpotQA")
    assert differences(Protocol("x", "y", "3", "4", "sampled, temperature 0.7", "NQ"), theirs) == ["training_data ≠"]
    assert "decoding ?" in differences(PAPER, Protocol(decoding="not stated"))


def test_published_figures_stand_in_the_order_of_the_file_whatever_they_are() -> None:
    head, rows = beside({"HotpotQA": 99.0, "NQ": 0.0}, Protocol(), published("Qwen3-4B"))
    assert head == ["method", "HotpotQA", "NQ", "source", "differs"]
    assert {row[0] for row in rows} >= {"A2TGPO", "GRPO", "DAPO", "GSPO", "AT2PO"}
    [ours] = [row for row in rows if row[0] == "A2TGPO"]
    assert ours[3] == "arXiv 2605.06200 table 1"
    assert ours[1:3] == ["49.4", "47.5"]
    assert rows == beside({"HotpotQA": 0.0, "NQ": 99.0}, Protocol(), published("Qwen3-4B"))[1]  # never ranked
    assert all(row[-1].count("?") == 6 for row in rows)
    assert published("No-1B") == []
    assert {"Qwen3-4B", "Qwen3-8B", "Qwen2.5-7B"} <= set(models())


def test_all_rows_of_the_papers_table_are_read() -> None:
    rows = [row for model in models() for row in published(model) if row.source == "arXiv 2605.06200 table 1"]
    assert sum(len(row.scores) for row in rows) == 175
