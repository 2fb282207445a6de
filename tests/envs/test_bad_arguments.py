"""What the Python API is given by mistake is named, with what was expected; never an AttributeError from within."""

import subprocess
import sys

CASES = r"""
import tempfile
from pathlib import Path
from a2tgpo.envs import EvidenceScorer, ObservationBudget, Passage, Question, SearchQAEnv, SearchQAVectorEnv
from a2tgpo.envs import UnicodeText
from a2tgpo.envs.almanac import ErrorModel
from a2tgpo.envs.retrieval import (
    Bm25Retriever, Cache, CircuitBreaker, HttpRetriever, RankBm25Retriever, Recorder, Retries, TimeLimit, resilient)
from a2tgpo.envs.retrieval.dense import DenseRetriever
from a2tgpo.envs.retrieval.server import RetrieverServer
from a2tgpo.envs.settings import AlmanacSettings, DataSettings
from a2tgpo.envs.wrappers import GainReward
from a2tgpo.errors import A2TGPOError

passages = [Passage("p", "Kloford", "A city."), Passage("r", "Wick", "A town.")]
questions = [Question("q", "Where?", ["Kloford", "Old Kloford"])]
assert questions[0].answers == ("Kloford", "Old Kloford")
bm25 = Bm25Retriever(passages)
file = Path(tempfile.mkdtemp()) / "cache"


class Engine:
    def __init__(self, found):
        self.found = found

    def search(self, queries, k):
        return self.found


def env(**settings):
    return SearchQAEnv(questions, bm25, top_k=1, **settings)


def played(text="<search>x</search>", retriever=bm25, **settings):
    made = SearchQAEnv(questions, retriever, top_k=1, **settings)
    made.reset()
    made.step(text)


answer = "<answer>x</answer>"
cases = [
    *(("dataset", lambda wrong=wrong: DataSettings(dataset=wrong))
      for wrong in ([], {}, 3, ["a", 3], {"a": "1"}, {"a": 0}, {"a": -1.0}, {"a": float("nan")})),
    ("question_field: got 3", lambda: DataSettings(dataset="x", question_field=3)),
    ("on_bad_row: got 'ignore'", lambda: DataSettings(dataset="x", on_bad_row="ignore")),
    ("retriever: got None", lambda: DataSettings(dataset="x", retriever=None)),
    ("retriever: got 'bm52'", lambda: DataSettings(dataset="x", retriever="bm52")),
    ("retriever: got address 'http://h:99999'", lambda: DataSettings(dataset="x", retriever="http://h:99999")),
    ("retriever: got None, expected a name", lambda: AlmanacSettings(retriever=None)),
    ("Question.answers: got 'Paris', expected a tuple of texts", lambda: Question("q", "Where?", "Paris")),
    ("Question.answers: got None", lambda: Question("q", "Where?", None)),
    ("Question.answers: got 3 in ('a', 3)", lambda: Question("q", "Where?", ("a", 3))),
    ("Question.supporting: got 'p'", lambda: Question("q", "Where?", ("a",), supporting="p")),
    ("Question.text: got None", lambda: Question("q", None, ("a",))),
    ("Question.id: got 7", lambda: Question(7, "Where?", ("a",))),
    ("questions: got 'Where?', expected Question(", lambda: SearchQAEnv(["Where?"], bm25)),
    ("questions: got None, expected Question(", lambda: SearchQAVectorEnv(None, bm25)),
    ("questions: got 'q', expected Question(", lambda: SearchQAEnv("q", bm25)),
    *((f"retriever: got {wrong}", make)
      for kind in (SearchQAEnv, SearchQAVectorEnv)
      for wrong, make in (
          ("None, expected an object with search(queries, k)", lambda kind=kind: kind(questions, None)),
          ("'bm25'", lambda kind=kind: kind(questions, "bm25")),
          ("[Passage(", lambda kind=kind: kind(questions, [passages[0]])),
          ("<class ", lambda kind=kind: kind(questions, Bm25Retriever)),
          ("'bm25'", lambda kind=kind: kind(questions, {"": "bm25"})),
      )),
    ("retriever: got no retriever", lambda: SearchQAEnv(questions, {})),
    ("bm25: got None, expected a list of Passage", lambda: Bm25Retriever(None)),
    ("bm25: got 'A city.', expected a list of Passage", lambda: Bm25Retriever("A city.")),
    ("bm25: got 'A city.', expected Passage(id, title, text)", lambda: Bm25Retriever(["A city."])),
    ("bm25: got {", lambda: Bm25Retriever([{"id": "1", "text": "x"}])),
    ("rank_bm25: got Passage(id=1", lambda: RankBm25Retriever([Passage(1, "", "x")])),
    ("b: got 2, expected a number from 0 to 1", lambda: Bm25Retriever(passages, b=2)),
    ("k1: got '1.5'", lambda: RankBm25Retriever(passages, k1="1.5")),
    ("encoder: got None", lambda: DenseRetriever(passages, None)),
    *((f"retriever: got None", make) for make in (
        lambda: Cache(None, file, "x"), lambda: Recorder(None, file), lambda: Retries(None),
        lambda: CircuitBreaker(None), lambda: TimeLimit(None), lambda: resilient(None),
        lambda: RetrieverServer(None, port=0))),
    ("Cache.path: got None", lambda: Cache(bm25, None, "x")),
    ("Cache.engine: got None", lambda: Cache(bm25, file, None)),
    ("Recorder.path: got 3", lambda: Recorder(bm25, 3)),
    ("Retries.times: got '2'", lambda: Retries(bm25, "2")),
    ("CircuitBreaker.failures: got 0", lambda: CircuitBreaker(bm25, 0)),
    ("CircuitBreaker.cooldown: got None", lambda: CircuitBreaker(bm25, cooldown=None)),
    ("TimeLimit.seconds: got '30'", lambda: TimeLimit(bm25, "30")),
    ("port: got '8000'", lambda: RetrieverServer(bm25, port="8000")),
    ("port: got 99999", lambda: RetrieverServer(bm25, port=99999)),
    ("retriever: got address None", lambda: HttpRetriever(None)),
    ("retriever, timeout in seconds: got '3'", lambda: HttpRetriever("http://x", "3")),
    ("EvidenceScorer.prior: got '100'", lambda: EvidenceScorer(passages, "100")),
    ("EvidenceScorer.passages: got 'A city.'", lambda: EvidenceScorer(["A city."])),
    ("UnicodeText.max_length: got '5'", lambda: UnicodeText("5")),
    ("observation budget, length: got 3", lambda: ObservationBudget(length=3)),
    ("observation budget, total: got '9'", lambda: ObservationBudget(total="9")),
    ("budget: got 500", lambda: env(budget=500)),
    ("protocol: got None", lambda: env(protocol=None)),
    ("protocol: got ['tags']", lambda: env(protocol=["tags"])),
    ("protocol: got 'tag', expected one of tags, tags_brief, boxed, tool_call or a Protocol; did you mean 'tags'?",
     lambda: env(protocol="tag")),
    ("reward: got ['em']", lambda: env(reward=["em"])),
    ("did you mean 'cover_em'?", lambda: env(reward="coverem")),
    ("scorer: got 1", lambda: env(scorer=1)),
    ("ErrorModel.habit: got '0.5'", lambda: ErrorModel(habit="0.5")),
    ("GainReward.weight: got '1'", lambda: GainReward(env(), "1")),
    # callables and retrievers of the user's own that return something else
    ("<lambda>: got None (NoneType)", lambda: played(answer, reward=lambda a, golds: None)),
    ("<lambda>: got nan", lambda: played(answer, reward=lambda a, golds: float("nan"))),
    ("<lambda>: got 'good'", lambda: played(answer, reward=lambda a, golds: "good")),
    ("scorer: got None from the callable", lambda: played(scorer=lambda transcript, golds: None)),
    ("retriever: got 0 results from Engine.search for 1 queries", lambda: played(retriever=Engine([]))),
    ("retriever: got None from Engine.search", lambda: played(retriever=Engine(None))),
    ("retriever: got None from Engine.search for a query", lambda: played(retriever=Engine([None]))),
    ("retriever, Engine.search: got 'A city.', expected Passage(", lambda: played(retriever=Engine([["A city."]]))),
    ("retriever, Engine.search: got Passage(", lambda: played(retriever=Engine([[Passage("1", None, "x")]]))),
]
for message, make in cases:
    try:
        make()
    except A2TGPOError as error:
        assert message in str(error), (message, str(error))
    else:
        raise AssertionError(f"accepted; expected: {message}")
"""


def test_mistakes_are_named() -> None:
    """In a process of its own, where no type checker stands before the functions."""
    done = subprocess.run([sys.executable, "-c", CASES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
