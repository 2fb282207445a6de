"""Settings are listed once, checked before anything is read, and indices are shared."""

import gc
import re
import weakref
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import a2tgpo.envs
from a2tgpo.envs import Passage, Question
from a2tgpo.envs.data.corpus import to_line
from a2tgpo.envs.retrieval import Bm25Retriever, CircuitBreaker, RankBm25Retriever
from a2tgpo.envs.retrieval.maker import make_retriever, open_retriever
from a2tgpo.envs.scoring.rewards import EpisodeFormat
from a2tgpo.envs.settings import AlmanacSettings, DataSettings, EpisodeSettings, Rules
from a2tgpo.errors import ConfigError

PASSAGES = [Passage("p1", "Kloford", "Kloford is a city."), Passage("p2", "", "Mara Venn lives in Kloford.")]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "environment.md"


@pytest.mark.parametrize("make", [gym.make, gym.make_vec])
@pytest.mark.parametrize(
    ("env_id", "got", "message"),
    [
        ("Almanac", {"max_turn": 3}, "got a setting 'max_turn', expected some of .*; did you mean 'max_turns'?"),
        ("Almanac", {"fictive": True}, "; did you mean 'fictional'?"),
        ("Almanac", {"rendermode": "ansi"}, "; did you mean 'render_mode'?"),
        ("Almanac", {"dataset": "x.jsonl"}, "got a setting 'dataset', .*; ids that read files take it, .*SearchQA-v0"),
        ("SearchQA", {"dataset": "absent.jsonl", "topk": 3}, "; did you mean 'top_k'?"),
        ("SearchQA", {"dataset": "absent.jsonl", "hops": [1]}, "got a setting 'hops', .*; only a2tgpo/Almanac-v0"),
        ("SearchQA", {"dataset": "absent.jsonl", "protocol": "xml"}, "protocol: got 'xml'"),
        ("HotpotQA", {"dataset": "absent.jsonl", "scorer": "policy"}, "scorer: got 'policy'"),
        ("HotpotQA", {"dataset": "absent.jsonl", "reward": "bleu"}, "reward: got 'bleu'"),
        ("PopQA", {"max_turns": 0}, "max_turns: got 0"),
    ],
)
def test_what_is_misspelt_or_belongs_to_another_id(make: Any, env_id: str, got: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        make(f"a2tgpo/{env_id}-v0", **got)


def test_constructors_suggest_too() -> None:
    questions, retriever = [a2tgpo.envs.Question("q", "Who?", ("Mara",))], Bm25Retriever(PASSAGES)
    for kind in (a2tgpo.envs.SearchQAEnv, a2tgpo.envs.SearchQAVectorEnv):
        with pytest.raises(ConfigError, match=rf"{kind.__name__}: got a setting 'max_search', .* 'max_searches'\?"):
            kind(questions, retriever, top_k=1, max_search=3)
    with pytest.raises(ConfigError, match=r"autoreset_mode: got 'disabled', .*; did you mean 'Disabled'\?"):
        a2tgpo.envs.SearchQAVectorEnv(questions, retriever, top_k=1, autoreset_mode="disabled")
    with pytest.raises(ConfigError, match="render_mode: got 'human', expected None or 'ansi'"):
        a2tgpo.envs.SearchQAVectorEnv(questions, retriever, top_k=1, render_mode="human")


def test_rules_are_the_settings_with_names_resolved() -> None:
    assert {entry.name for entry in fields(Rules)} == {entry.name for entry in fields(EpisodeSettings)}
    rules = EpisodeSettings(protocol="boxed", reward="f1", top_k=7).rules([PASSAGES])
    score = rules.reward("Paris", ["paris"], EpisodeFormat(1, 0, True))
    assert (rules.protocol.name, score, rules.top_k) == ("boxed", 1.0, 7)
    assert EpisodeSettings(scorer=None).rules([]).scorer is None


def test_the_prompts_text_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Answer in \\boxed{}.\nQ: {question}\nA:", encoding="utf-8")
    env = a2tgpo.envs.SearchQAEnv(
        [Question("q", "Who <answer> {wrote} it?", ("x",))],
        Bm25Retriever(PASSAGES),
        top_k=1,
        instructions=tmp_path / "prompt.txt",
    )
    shown, _ = env.reset()
    assert shown == "Answer in \\boxed{}.\nQ: Who [answer] {wrote} it?\nA:"
    assert env.observation_space.contains(shown)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no place", r"instructions: .*prompt.txt has 0 places for the question, expected \{question\} once"),
        ("{question} {question}", "has 2 places"),
        (None, r"instructions: got '.*prompt.txt', expected a readable text file in UTF-8"),
    ],
)
def test_prompts_that_cannot_be_used(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "prompt.txt").write_text(text)
    with pytest.raises(ConfigError, match=message):
        EpisodeSettings(instructions=tmp_path / "prompt.txt")


def test_the_page_names_every_setting() -> None:
    text = DOCS.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text))
    settings = [e.name for kind in (EpisodeSettings, DataSettings, AlmanacSettings) for e in fields(kind)]
    assert not set(settings) - named


def test_environments_over_one_corpus_share_its_index() -> None:
    splits = [
        gym.make_vec("a2tgpo/Almanac-v0", num_envs=2, split=split, fictional=True, worlds=3, scorer=None)
        for split in ("train", "validation")
    ]
    train, validation = (env.pool.retrievers for env in splits)  # type: ignore[attr-defined]
    assert sorted(train) == ["fiction-00", "fiction-01", "fiction-02"]
    assert all(train[key] is validation[key] for key in train)


def test_an_index_is_built_once_per_backend_and_corpus_and_forgotten_with_its_users() -> None:
    one = make_retriever("bm25", PASSAGES)
    assert make_retriever("bm25", list(PASSAGES)) is one
    assert make_retriever("bm25", PASSAGES[:1]) is not one
    assert isinstance(make_retriever("rank_bm25", PASSAGES), RankBm25Retriever)
    assert isinstance(make_retriever("http://127.0.0.1:9", PASSAGES), CircuitBreaker)
    watched = weakref.ref(one)
    del one
    gc.collect()
    assert watched() is None


def test_a_corpus_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "passages.jsonl"
    file.write_text("".join(map(to_line, PASSAGES)), encoding="utf-8")
    one = open_retriever("bm25", file)
    assert open_retriever("bm25", tmp_path) is one
    file.write_text("".join(map(to_line, PASSAGES[:1])), encoding="utf-8")
    changed = open_retriever("bm25", file)
    assert len(changed.passages) == 1  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"retriever: got 'bm52', expected .*; did you mean 'bm25'\?"):
        open_retriever("bm52", tmp_path / "absent.jsonl")
