"""Logged numbers are declared, and the page about them is current."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from a2tgpo.run_folder.log import RunLog
from a2tgpo.run_folder.metrics import METRICS, SECTIONS, check_declared, declared, page
from a2tgpo.training.watchdogs import Watchdog


def test_the_page_is_current() -> None:
    """Made with `python -m a2tgpo.run_folder.metrics > docs/metrics.md`."""
    assert (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8") == page()


def test_names_are_unique() -> None:
    assert len(METRICS) == sum(len(section.metrics) for section in SECTIONS)


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("em", "em"),
        ("em_3_hops", "em_{k}_hops"),
        ("gain_turn_12_std", "gain_turn_{k}_std"),
        ("gain_turn_", None),
        ("gain_turn_x", None),
        ("em_", None),
        ("EM", None),
    ],
)
def test_declarations_are_found_by_name(name: str, of: str | None) -> None:
    metric = declared(name)
    assert (metric.name if metric else None) == of


@pytest.mark.parametrize(("kind", "name"), [("train", "entropie"), ("train", "em_sampled"), ("evaluation", "loss")])
def test_what_is_not_declared_cannot_be_logged(tmp_path: Path, kind: str, name: str) -> None:
    check_declared("train", ["loss", "em", "gain_turn_0"])
    log = RunLog(tmp_path)
    with pytest.raises(AssertionError, match=rf"{kind} metrics \['{name}'\] are not declared"):
        log.metrics(kind, 1, {name: 1.0})
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text() == ""


class Asked(Mapping[str, float]):
    """Metrics that keep the names that they were asked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.names.add(name)
        return 0.5

    def __iter__(self) -> Iterator[str]:
        return iter(METRICS)

    def __len__(self) -> int:
        return len(METRICS)


def test_watchdogs_read_declared_metrics() -> None:
    asked = Asked()
    Watchdog()(asked)
    assert len(asked.names) > 5
    check_declared("train", asked.names)
