"""Tables that fit and curves that say what they show."""

import math
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from a2tgpo.display.curves import Line, Panel, draw
from a2tgpo.display.tables import as_text, show, table

HEAD = ["algorithm", "seeds", "EM", "F1", "searches", "gain/turn", "seconds"]
ROW = ["3", "0.73 ± 0.14", "0.73 ± 0.14", "2.55 ± 0.14", "3.97 ± 0.50", "19"]


def printed(label: str, width: int) -> str:
    text = StringIO()
    show(Console(file=text, width=width), table(HEAD, [[label, *ROW]], title="study", caption="a few words"))
    return text.getvalue()


@pytest.mark.parametrize("label", ["a2tgpo", "a2tgpo-no-clip-modulation", "a" * 60])
def test_the_final_table_fits_into_80_columns_without_breaking_a_number(label: str) -> None:
    text = printed(label, 80)
    assert max(len(line) for line in text.split("\n")) <= 80
    row = next(line for line in text.split("\n") if "±" in line)
    assert row.split()[1:] == " ".join(ROW).split()
    folded = text.split("\n")[3:-2]
    assert "".join(line.split()[0] for line in folded) == label


def test_no_number_is_broken_however_narrow_the_terminal_is() -> None:
    assert all(cell in printed("a2tgpo-no-clip-modulation", 30) for cell in ROW)


def test_cells_are_no_markup() -> None:
    text = as_text(table(["[red]name", "n"], [["[bold]x[/]", "1"]], title="[blue]t"))
    assert all(part in text for part in ("[red]name", "[bold]x[/]", "[blue]t"))


def test_text_is_aligned() -> None:
    assert as_text(table(["way", "ms"], [["a long way", "1.0"], ["b", "10.0"]])).split("\n") == [
        "way           ms",
        "────────────────",
        "a long way   1.0",
        "b           10.0",
    ]


def test_a_line_is_the_mean_over_the_seeds_that_got_there() -> None:
    line = Line.over_seeds([{0: 1.0, 5: 2.0}, {0: 2.0, 5: 4.0}, {0: 3.0}])
    assert [(point.x, point.y) for point in line.points] == [(0, 2.0), (5, 3.0)]
    assert line.points[0].high == pytest.approx(2.0 + 2.484138)
    assert math.isnan(line.points[1].high)  # two seeds


def test_smoothing_is_centred_and_skips_what_is_missing() -> None:
    line = Line.over_seeds([{1: 1.0, 2: math.nan, 3: 5.0, 4: 9.0}], window=3)
    # at 1 over 1 and 2, at 2 over 1 to 3, at 3 over 2 to 4, at 4 over 3 and 4; NaN is left out
    assert [point.y for point in line.points] == [1.0, 3.0, 7.0, 7.0]


def test_pictures_are_drawn(tmp_path: Path) -> None:
    line = Line.over_seeds([{0: 0.1, 1: 0.2}, {0: 0.2, 1: 0.3}, {0: 0.0, 1: math.nan}])
    draw([Panel("t", "step", {"a": line}, {"level": 0.5}, zero=True), Panel("empty", "step", {})], tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
