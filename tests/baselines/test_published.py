"""Figures from papers: every row says where it is from and under which protocol, and no figure stands there twice."""

import csv
import io
from collections import Counter
from importlib import resources

TEXT = (resources.files("a2tgpo.baselines") / "published.csv").read_text(encoding="utf-8")
ROWS = list(csv.DictReader(io.StringIO(TEXT)))
SETS = {"NQ", "TriviaQA", "PopQA", "HotpotQA", "2WikiMultihopQA", "MuSiQue", "Bamboogle"}


def test_every_row_is_complete() -> None:
    for row in ROWS:
        assert None not in row, row  # more cells than columns
        assert all(row[name] for name in ("method", "dataset", "metric", "source")), row
        assert 0 <= float(row["value"]) <= 100, row


def test_no_figure_stands_there_twice() -> None:
    keys = Counter((row["method"], row["model"], row["dataset"], row["metric"], row["source"]) for row in ROWS)
    assert [key for key, count in keys.items() if count > 1] == []


def test_the_papers_table_1_is_complete() -> None:
    """Nine methods on three models and seven sets, but Tree-GRPO on Qwen2.5-7B only: 8 · 3 · 7 + 7 = 175 figures."""
    table = [row for row in ROWS if row["source"] == "arXiv 2605.06200 table 1"]
    assert len(table) == 175
    assert {row["dataset"] for row in table} == SETS
    [best] = [
        row for row in table if (row["method"], row["model"], row["dataset"]) == ("A2TGPO", "Qwen3-4B", "HotpotQA")
    ]
    assert best["metric"] == "EM"
