"""Every worker of a study sees GPUs of its own."""

import os

import pytest

from a2tgpo.studies.gpus import gpus, gpus_of_run, share, take_gpus


@pytest.mark.parametrize(
    ("available", "each", "expected"),
    [
        (["0", "1", "2"], 1, [["0"], ["1"], ["2"], ["0"]]),
        (["4", "7", "GPU-a1", "9"], 2, [["4", "7"], ["GPU-a1", "9"], ["4", "7"], ["GPU-a1", "9"]]),
        (["0", "1", "2"], 2, [["0", "1"], ["0", "1"], ["0", "1"], ["0", "1"]]),  # the third is left over
        (["5"], 2, [["5"]] * 4),  # too few: the run itself says so
        ([], 1, [[]] * 4),
    ],
)
def test_shares(available: list[str], each: int, expected: list[list[str]]) -> None:
    assert [share(available, each, worker) for worker in range(4)] == expected


def test_what_a_run_needs() -> None:
    assert [gpus_of_run(device) for device in ("cpu", "cuda", "cuda:0", "cuda:1")] == [0, 1, 1, 2]


def test_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-b")
    assert gpus() == ["3", "GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus() == []


def test_every_worker_sees_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for worker in range(3):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
        take_gpus(1, worker)
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert seen == ["4", "7", "4"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    take_gpus(0, 1)  # runs that use none
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"
