"""Several data sets as one: proportions, ids, corpora."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from a2tgpo.envs import Question
from a2tgpo.envs.data.splits import SPLITS, split_of
from a2tgpo.envs.settings import DataSettings
from a2tgpo.envs.sources import load_items
from a2tgpo.errors import DataError


@pytest.fixture
def sets(tmp_path: Path) -> dict[str, str]:
    """Two question files with paragraphs; some ids are the same in both."""
    found = {}
    for name, size in (("hotpot", 90), ("musique", 30)):
        rows = [
            {"id": f"q-{n}", "question": f"{name} {n}?", "answer": "a", "context": [[f"{name} {n}", [f"text {n}."]]]}
            for n in range(size)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        found[name] = str(tmp_path / f"{name}.jsonl")
    return found


def counts(dataset: Any) -> Counter[str]:
    return Counter(item.question.text.split()[0] for item in load_items(DataSettings(dataset=dataset)))


def test_proportions(sets: dict[str, str]) -> None:
    hotpot, musique = sets["hotpot"], sets["musique"]
    assert counts(hotpot) == {"hotpot": 90}
    assert counts([hotpot, musique]) == {"hotpot": 90, "musique": 30}  # all of each
    assert counts((Path(hotpot), Path(musique))) == {"hotpot": 90, "musique": 30}
    assert counts({hotpot: 1.0, musique: 1.0}) == {"hotpot": 30, "musique": 30}
    assert counts({hotpot: 2, musique: 1}) == {"hotpot": 60, "musique": 30}
    assert counts({hotpot: 9.0, musique: 1.0}) == {"hotpot": 90, "musique": 10}
    assert counts({hotpot: 5.0}) == {"hotpot": 90}
    assert counts({hotpot: 1.0, musique: 1e-6}) == {"hotpot": 90, "musique": 1}


def test_which_questions_stay_is_the_same_every_time_and_for_every_weight(sets: dict[str, str]) -> None:
    def kept(weight: float) -> list[str]:
        dataset = {sets["hotpot"]: weight, sets["musique"]: 1.0}
        items = load_items(DataSettings(dataset=dataset))
        return [item.question.text for item in items if item.question.text.startswith("hotpot")]

    assert kept(1.0) == kept(1.0)
    assert set(kept(1.0)) < set(kept(2.0))
    assert kept(2.0) == sorted(kept(2.0), key=lambda text: int(text[7:-1]))  # in file order


def test_ids_that_two_sets_use_are_qualified_and_the_corpus_is_that_of_all(sets: dict[str, str]) -> None:
    items = load_items(DataSettings(dataset=[sets["hotpot"], sets["musique"]]))
    ids = [item.question.id for item in items]
    assert len(set(ids)) == len(ids) == 120
    assert ids.count(f"{sets['hotpot']}/q-3") == ids.count(f"{sets['musique']}/q-3") == 1
    assert ids.count("q-80") == 1
    env = gym.make_vec("a2tgpo/SearchQA-v0", num_envs=1, dataset=[sets["hotpot"], sets["musique"]], scorer=None)
    assert len(env.pool.retrievers.passages) == 120  # type: ignore[attr-defined]


def test_every_set_has_the_split(sets: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "small.jsonl").write_text(json.dumps({"question": "q?", "answer": "a"}))
    other = next(name for name in SPLITS if name != split_of(Question("q", "q?", ("a",))))
    with pytest.raises(DataError, match=rf"small\.jsonl: got no question for split '{other}'"):
        load_items(DataSettings(dataset=[sets["hotpot"], str(tmp_path / "small.jsonl")], split=other))


def test_questions_may_be_given_instead() -> None:
    given = [Question("q", "Who?", ("Mara",))]
    env = gym.make("a2tgpo/SearchQA-v0", questions=given, retriever="http://127.0.0.1:9", scorer=None)
    assert env.unwrapped.questions == tuple(given)  # type: ignore[attr-defined]
