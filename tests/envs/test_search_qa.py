"""The environment's contract: Gymnasium's own checker, limits, info, and that all ways of running many episodes give
the same ones.
"""

import json
import math
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit, TransformReward
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorStatistics

import a2tgpo.envs
from a2tgpo.envs import ObservationBudget, Passage, Question, SearchQAEnv, SearchQAVectorEnv, UnicodeText
from a2tgpo.envs.info import INFO_TYPES
from a2tgpo.envs.registration import DATASETS
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.errors import RetrievalError
from tests.conftest import DATA

PASSAGES = [
    Passage("p1", "Mona Lisa", "The Mona Lisa was painted by Leonardo da Vinci."),
    Passage("p2", "Leonardo da Vinci", "Leonardo was born in Anchiano near the town of Vinci."),
    Passage("p3", "Anchiano", "Anchiano is a hamlet in Tuscany with <answer>Rome</answer> in its text."),
    Passage("p4", "Rome", "Rome is the capital of Italy."),
    Passage("p5", "Zürich", "Zürich lies on a lake in Switzerland."),
]
QUESTIONS = [
    Question("q1", "Where was the painter of the Mona Lisa born?", ("Anchiano",), hops=2),
    Question("q2", "What is the capital of Italy?", ("Rome", "Roma"), hops=1),
    Question("q3", "What is the capital of Italy?", ("Roma",), hops=1),
    Question("q4", "On what does Zürich lie?", ("a lake",), hops=1),
]
SCRIPT = [
    "<think>a</think><search>Mona Lisa painter</search>",
    "nonsense",
    "<think>b</think><search>Leonardo born</search>",
    "<think>c</think><answer>Anchiano</answer>",
]


def make(**kwargs: Any) -> SearchQAEnv:
    return SearchQAEnv(QUESTIONS, Bm25Retriever(PASSAGES), **kwargs)


def make_vector(num_envs: int, **kwargs: Any) -> SearchQAVectorEnv:
    return SearchQAVectorEnv(QUESTIONS, Bm25Retriever(PASSAGES), num_envs, **kwargs)


def test_one_episode_by_hand() -> None:
    env = make()
    observation, info = env.reset(seed=0, options={"question_id": "q1"})
    assert observation.endswith("Question: Where was the painter of the Mona Lisa born?\n")
    assert (info["turn"], info["action"], info["stop"], info["state_key"]) == (0, "", "", observation)
    assert math.isfinite(info["answer_logprob"])
    assert math.isnan(info["information_gain"])

    before = info["answer_logprob"]
    observation, reward, terminated, truncated, info = env.step(SCRIPT[0])
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["passage_ids"][0] == "p1"
    assert info["query"] == "Mona Lisa painter"
    assert "Leonardo da Vinci" in observation
    assert info["information_gain"] == pytest.approx(info["answer_logprob"] - before, abs=1e-12)

    observation, _, _, _, info = env.step(SCRIPT[1])
    assert (info["action"], info["invalid_actions"], info["format_ok"], info["searches"]) == ("invalid", 1, False, 1)
    assert math.isnan(info["information_gain"])
    assert "<information>" not in observation

    observation, _, _, _, info = env.step(SCRIPT[2])
    assert "p2" in info["passage_ids"]
    assert info["information_gain"] > 0  # the passage with the answer came in

    observation, reward, terminated, truncated, info = env.step(SCRIPT[3])
    assert (observation, reward, terminated, truncated) == ("", 1.0, True, False)
    assert (info["stop"], info["em"], info["f1"], info["outcome"], info["searches"], info["turn"]) == (
        "answered",
        1.0,
        1.0,
        1.0,
        2,
        4,
    )
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step("x")


def test_gains_add_up_to_the_change_of_the_value() -> None:
    env = make()
    _, info = env.reset(options={"question_id": "q1"})
    first, total = info["answer_logprob"], 0.0
    for action in SCRIPT:
        info = env.step(action)[4]
        total += 0.0 if math.isnan(info["information_gain"]) else info["information_gain"]
    assert total == pytest.approx(info["answer_logprob"] - first, abs=1e-12)


def test_a_repeated_search_gains_exactly_nothing() -> None:
    env = make()
    env.reset(options={"question_id": "q1"})
    env.step(SCRIPT[2])
    assert env.step(SCRIPT[2])[4]["information_gain"] == 0.0


def test_info_keys_and_types_never_change() -> None:
    env = make(max_searches=1)
    infos = [env.reset(seed=0)[1], *(env.step(action)[4] for action in [SCRIPT[0], "x", SCRIPT[2]])]
    for info in infos:
        assert list(info) == list(INFO_TYPES)
        assert all(isinstance(info[key], kind) for key, kind in INFO_TYPES.items())
    json.dumps(infos)


def test_no_observation_shows_a_gold() -> None:
    question = Question("g", "Which word?", ("Xylographenwald",))
    env = SearchQAEnv([question], Bm25Retriever(PASSAGES))
    texts = [env.reset()[0], *(env.step(action)[0] for action in SCRIPT)]
    assert "Xylographenwald" not in "".join(texts)


def test_turn_limit_truncates_and_still_scores_the_last_search() -> None:
    env = make(max_turns=2)
    env.reset(options={"question_id": "q1"})
    observation, *_ = env.step(SCRIPT[0])
    assert observation.endswith(env.protocol.budget_spent())  # only an answer can still count
    observation, reward, terminated, truncated, info = env.step(SCRIPT[2])
    assert (reward, terminated, truncated, info["stop"]) == (0.0, False, True, "max_turns")
    assert math.isfinite(info["information_gain"])
    assert "<information>" in observation


def test_search_budget() -> None:
    env = make(max_searches=1, max_turns=9)
    env.reset(options={"question_id": "q1"})
    assert env.step(SCRIPT[0])[0].endswith(env.protocol.budget_spent())
    observation, reward, terminated, truncated, info = env.step(SCRIPT[2])
    assert (observation, reward, terminated, truncated) == ("", 0.0, False, True)
    assert (info["stop"], info["searches"], info["passage_ids"]) == ("max_searches", 1, ())
    assert math.isnan(info["information_gain"])


def test_answer_after_the_budget_is_spent_counts() -> None:
    env = make(max_searches=0)
    env.reset(options={"question_id": "q2"})
    assert env.step("<think>x</think><answer>Roma</answer>")[1:4] == (1.0, True, False)


def test_unanswered_scores_as_unanswered() -> None:
    env = make(max_turns=1, reward="f1")
    env.reset(options={"question_id": "q2"})
    _, reward, _, truncated, info = env.step("<think>Rome</think> Rome")
    assert (reward, truncated, info["em"], info["f1"]) == (0.0, True, 0.0, 0.0)


def test_format_penalty_is_its_own_field() -> None:
    env = make(format_penalty=0.25)
    env.reset(options={"question_id": "q2"})
    env.step("nonsense")
    _, reward, _, _, info = env.step("<answer>Rome</answer>")  # no thought: the second violation
    assert (info["score"], info["shaping"], info["outcome"], reward) == (1.0, -0.5, 0.5, 0.5)


def test_same_text_different_golds_are_kept_apart_by_id() -> None:
    env = make()
    for question_id, expected in (("q2", 1.0), ("q3", 0.0)):
        env.reset(options={"question_id": question_id})
        assert env.step("<think>x</think><answer>Rome</answer>")[1] == expected


def test_a_passage_can_never_answer() -> None:
    env = make(protocol="tags")
    env.reset(options={"question_id": "q2"})
    observation, _, terminated, _, info = env.step("<think>x</think><search>Anchiano hamlet Tuscany</search>")
    assert "p3" in info["passage_ids"]
    assert "<answer>" not in observation
    assert "[answer]Rome[/answer]" in observation
    assert not terminated


class Broken:
    """Fails on chosen calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[list[str]] = []
        self.inner = Bm25Retriever(PASSAGES)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.calls.append(list(queries))
        if self.error is not None:
            raise self.error
        return self.inner.search(queries, k)


@pytest.mark.parametrize(
    "error", [RetrievalError("server said 500"), ConnectionRefusedError("nobody there"), TimeoutError("60 s")]
)
def test_failed_retrieval_is_labelled_and_costs_no_search(error: Exception) -> None:
    retriever = Broken(error)
    env = SearchQAEnv(QUESTIONS, retriever, max_searches=1)
    env.reset(options={"question_id": "q1"})
    observation, _, terminated, truncated, info = env.step(SCRIPT[0])
    assert not terminated
    assert not truncated
    assert (info["retrieval_failed"], info["retrieval_failures"], info["searches"], info["passage_ids"]) == (
        True,
        1,
        0,
        (),
    )
    assert str(error) in info["retrieval_error"]
    assert math.isnan(info["information_gain"])
    assert "<information>" not in observation
    assert str(error) not in observation
    retriever.error = None
    assert env.step(SCRIPT[0])[4]["searches"] == 1


def test_observation_budget_closes_the_block() -> None:
    long = [Passage(f"l{i}", f"Title {i}", "alpha " + "word " * 500) for i in range(3)]
    env = SearchQAEnv(QUESTIONS, Bm25Retriever(long), budget=ObservationBudget(per_passage=100, total=230))
    env.reset(seed=0)
    observation, *_, info = env.step("<think>x</think><search>alpha</search>")
    assert observation.count("<information>") == observation.count("</information>") == 1
    assert len(info["passage_ids"]) == 3
    assert observation.count("…") == 3
    assert sum(len(line.partition(") ")[2]) for line in observation.splitlines() if line.startswith("Doc")) <= 230


def test_budget_in_tokens() -> None:
    budget = ObservationBudget(per_passage=5, total=9, length=lambda text: len(text.split()))
    shown = budget.fit([Passage("1", "T", "a b c d e f g"), Passage("2", "T", "a b c d e f g"), Passage("3", "T", "a")])
    # 1 title + 5 words leave 3: the second shows its title and two words (the ellipsis joins the last), then nothing is
    # left for the third
    assert [(p.id, p.text) for p in shown] == [("1", "a b c d e…"), ("2", "a b…")]


def test_dropped_passages_are_not_reported() -> None:
    env = SearchQAEnv(QUESTIONS, Bm25Retriever(PASSAGES), budget=ObservationBudget(total=60))
    env.reset(options={"question_id": "q1"})
    observation, *_, info = env.step("<think>x</think><search>Leonardo da Vinci Anchiano</search>")
    assert observation.count("Doc ") == len(info["passage_ids"]) < 3


@pytest.mark.parametrize("scorer", ["evidence", None])
@pytest.mark.parametrize("protocol", a2tgpo.envs.PROTOCOLS)
def test_check_env_is_silent(protocol: str, scorer: str | None) -> None:
    gym.register("test/Checked-v0", entry_point=lambda **kwargs: make(**kwargs))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make("test/Checked-v0", protocol=protocol, scorer=scorer).unwrapped)
    del gym.registry["test/Checked-v0"]


@pytest.mark.parametrize("name", ["Almanac", "SearchQA", *DATASETS])
def test_every_id_is_checked(name: str) -> None:
    kwargs: dict[str, Any] = {}
    if name != "Almanac":
        kwargs = {"dataset": str(DATA / "rows" / "prepared.jsonl")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(f"a2tgpo/{name}-v0", **kwargs)
        check_env(env.unwrapped)
    assert env.spec is not None
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.reset(seed=5)[0] == env.reset(seed=5)[0]


def play(env: gym.vector.VectorEnv, steps: int, seeds: list[int]) -> list[Any]:
    observations, infos = env.reset(seed=seeds)  # type: ignore[arg-type]  # Gymnasium's own vector environments take a list
    trace: list[Any] = [observations, _plain(infos)]
    for step in range(steps):
        actions = tuple(SCRIPT[(step + index) % len(SCRIPT)] for index in range(env.num_envs))
        observations, rewards, terminated, truncated, infos = env.step(actions)
        trace += [tuple(observations), rewards.tolist(), terminated.tolist(), truncated.tolist(), _plain(infos)]
    env.close()
    return trace


def _plain(infos: dict[str, Any]) -> dict[str, Any]:
    """Only what was reported, NaN made comparable."""
    plain: dict[str, Any] = {}
    for key, values in infos.items():
        if key.startswith("_") or f"_{key}" not in infos:
            continue
        mask = infos[f"_{key}"]
        if isinstance(values, dict):
            plain[key] = _plain(values)
        else:
            plain[key] = [
                repr(float(v)) if isinstance(v, float) else v for v, ok in zip(values.tolist(), mask, strict=True) if ok
            ]
    return plain


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_ours_sync_and_async_give_identical_episodes(mode: AutoresetMode) -> None:
    seeds = [3, 1, 4]
    fns = [make] * 3
    ours = play(make_vector(3, autoreset_mode=mode), 9, seeds)
    assert play(SyncVectorEnv(fns, autoreset_mode=mode), 9, seeds) == ours
    assert play(AsyncVectorEnv(fns, autoreset_mode=mode), 9, seeds) == ours
    assert play(AsyncVectorEnv(fns, autoreset_mode=mode, shared_memory=False), 9, seeds) == ours


def test_info_arrays_are_batched_as_gymnasium_does() -> None:
    sync = SyncVectorEnv([make] * 2)
    ours = make_vector(2)
    left, right = sync.reset(seed=0)[1], ours.reset(seed=0)[1]
    assert set(left) == set(right)
    assert {key: left[key].dtype for key in left} == {key: right[key].dtype for key in right}


def test_results_do_not_depend_on_the_number_of_environments() -> None:
    wide = play(make_vector(4, autoreset_mode=AutoresetMode.NEXT_STEP), 6, [7, 8, 9, 10])
    for index in range(4):
        narrow = make_vector(1)
        observation, _ = narrow.reset(seed=[7 + index])
        assert observation[0] == wide[0][index]
        for step in range(6):
            observation, *_ = narrow.step([SCRIPT[(step + index) % len(SCRIPT)]])
            assert observation[0] == wide[2 + 5 * step][index]


def test_disabled_autoreset_leaves_finished_episodes_alone() -> None:
    env = make_vector(2, autoreset_mode="Disabled")
    env.reset(seed=[0, 0], options={"question_ids": ["q2", "q1"]})
    _, rewards, terminated, _, _ = env.step(["<think>x</think><answer>Rome</answer>", SCRIPT[0]])
    assert (rewards.tolist(), terminated.tolist()) == ([1.0, 0.0], [True, False])
    observations, rewards, terminated, truncated, info = env.step(["", SCRIPT[2]])
    assert (observations[0], rewards.tolist(), terminated.tolist(), truncated.tolist()) == (
        "",
        [0.0, 0.0],
        [True, False],
        [False, False],
    )
    assert info["_turn"].tolist() == [False, True]
    assert info["stop"][0] == "answered"  # the final info stays readable
    observations, info = env.reset(options={"reset_mask": np.array([True, False]), "question_ids": ["q4", None]})
    assert "Zürich" in observations[0]
    assert info["_turn"].tolist() == [True, False]
    assert env.question(0).id == "q4"
    assert env.question(1).id == "q1"
    assert env.step(["x", "x"])[2].tolist() == [False, False]


def test_none_lets_an_environment_wait() -> None:
    env, alone = make_vector(2, autoreset_mode="Disabled"), make_vector(1, autoreset_mode="Disabled")
    first = env.reset(seed=[0, 0], options={"question_ids": ["q2", "q1"]})[0]
    alone.reset(seed=[0], options={"question_ids": ["q1"]})
    observations, rewards, terminated, truncated, info = env.step(["<think>x</think><answer>Rome</answer>", None])
    assert (observations[1], rewards.tolist(), terminated.tolist(), truncated.tolist()) == (
        first[1],
        [1.0, 0.0],
        [True, False],
        [False, False],
    )
    assert info["_turn"].tolist() == [True, False]
    for action in (SCRIPT[0], SCRIPT[2]):  # having waited makes no difference to what comes
        got, expected = env.step([None, action]), alone.step([action])
        assert (got[0][1], got[1][1], got[2][1], got[3][1]) == (
            expected[0][0],
            expected[1][0],
            expected[2][0],
            expected[3][0],
        )
        assert {key: value[1] for key, value in got[4].items()} == {key: value[0] for key, value in expected[4].items()}
    restarting = make_vector(1)
    restarting.reset(seed=[0])
    with pytest.raises(TypeError, match="got an action of type NoneType"):
        restarting.step([None])


def test_groups_are_asked_for_by_id() -> None:
    env = make_vector(4)
    _, info = env.reset(seed=0, options={"question_ids": ["q1", "q1", "q3", "q3"]})
    assert info["question_id"].tolist() == ["q1", "q1", "q3", "q3"]
    assert [env.question(i).answers for i in range(4)] == [("Anchiano",)] * 2 + [("Roma",)] * 2


def test_one_retriever_call_per_step_and_equal_queries_once() -> None:
    retriever = Broken()
    env = SearchQAVectorEnv(QUESTIONS, retriever, 4)
    env.reset(seed=0)
    env.step([SCRIPT[0], SCRIPT[0], "nonsense", SCRIPT[2]])
    assert retriever.calls == [["Mona Lisa painter", "Leonardo born"]]
    env.step(["nonsense"] * 4)
    assert len(retriever.calls) == 1


def test_several_corpora() -> None:
    world_a, world_b = Broken(), Broken()
    questions = [Question("a", "Capital?", ("x",), corpus="A"), Question("b", "Capital?", ("y",), corpus="B")]
    env = SearchQAVectorEnv(questions, {"A": world_a, "B": world_b}, 2)
    env.reset(options={"question_ids": ["a", "b"]})
    env.step([SCRIPT[0], SCRIPT[0]])
    assert world_a.calls == world_b.calls == [["Mona Lisa painter"]]


def test_wrappers_compose() -> None:
    env = RecordEpisodeStatistics(
        TransformReward(TimeLimit(make(), max_episode_steps=2), lambda reward: 10 * float(reward))
    )
    env.reset(seed=0, options={"question_id": "q2"})
    env.step(SCRIPT[0])
    _, reward, terminated, _, info = env.step("<think>x</think><answer>Rome</answer>")
    assert (reward, terminated, info["episode"]["r"], info["episode"]["l"]) == (10.0, True, 10.0, 2)
    env.reset()
    env.step(SCRIPT[0])
    assert env.step(SCRIPT[0])[3]  # TimeLimit, not the environment, truncates
    vector = VectorStatistics(make_vector(2))
    vector.reset(options={"question_ids": ["q2", "q2"]})
    info = vector.step(["<think>x</think><answer>Rome</answer>", SCRIPT[0]])[4]
    assert info["episode"]["r"].tolist() == [1.0, 0.0]


def test_make_vec_gives_the_batched_environment() -> None:
    env = gym.make_vec("a2tgpo/Almanac-v0", num_envs=3, scorer=None)
    assert isinstance(env.unwrapped, SearchQAVectorEnv)
    sync = gym.make_vec("a2tgpo/Almanac-v0", num_envs=3, vectorization_mode="sync", scorer=None)
    assert env.reset(seed=1)[0] == sync.reset(seed=1)[0]
    assert set(env.reset(seed=1)[0]) != set(env.reset(seed=9)[0])


def test_no_torch_is_imported() -> None:
    code = (
        "import sys, gymnasium, a2tgpo.envs; gymnasium.make('a2tgpo/Almanac-v0').reset(seed=0); assert not {'torch',"
        " 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    # Gymnasium imports the module itself
    code = "import gymnasium; gymnasium.make('a2tgpo.envs:a2tgpo/Almanac-v0').reset(seed=0)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_unicode_text_space() -> None:
    space = UnicodeText(300, seed=0)
    samples = [space.sample() for _ in range(50)]
    assert all(space.contains(text) for text in samples)
    assert len(set(samples)) > 30
    assert space.contains("Zürich, 東京 \x00 \ud800")
    assert not space.contains("x" * 301)
    assert not space.contains(b"x")
    assert space == UnicodeText(300) != UnicodeText(301)
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(samples)))) == samples
    batched = gym.vector.utils.batch_space(space, 3)
    assert batched.contains(batched.sample())
    with pytest.raises(ValueError, match="max_length"):
        UnicodeText(0)


def test_observations_lie_in_their_space() -> None:
    env = make(max_turns=9)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    rng = np.random.default_rng(0)
    for _ in range(60):
        observation, _, terminated, truncated, _ = env.step(SCRIPT[rng.integers(4)])
        assert env.observation_space.contains(observation)
        if terminated or truncated:
            env.reset()


@pytest.mark.parametrize(
    "action",
    [
        "<search>" * 12_000,
        "x" * 100_000,
        "<search>" + "q" * 100_000 + "</search>",
        "\x00\ud800",
        "<answer>\udfff</answer>",
    ],
)
def test_hostile_actions_have_a_defined_result(action: str) -> None:
    env = make()
    env.reset(seed=0)
    assert env.action_space.contains(action)
    info = env.step(action)[4]
    assert info["action"] in ("search", "answer", "invalid")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"top_k": 0}, "top_k: got 0"),
        ({"top_k": 9}, "top_k: got 9, expected at most the 5 passages"),
        ({"max_turns": 0}, "max_turns: got 0"),
        ({"max_searches": -1}, "max_searches: got -1"),
        ({"protocol": "xml"}, "protocol: got 'xml'"),
        ({"reward": "bleu"}, "reward: got 'bleu'"),
        ({"scorer": "magic"}, "scorer: got 'magic'"),
        ({"format_penalty": -1.0}, "format_penalty"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_wrong_settings_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**kwargs)


@pytest.mark.parametrize("limits", [{"max_searches": 0}, {"max_turns": 1}, {"max_searches": 0, "max_turns": 1}])
@pytest.mark.parametrize("protocol", ["tags", "boxed", "tool_call", "tags_brief"])
def test_the_prompt_says_when_only_an_answer_can_count(limits: dict[str, int], protocol: str) -> None:
    notice = a2tgpo.envs.PROTOCOLS[protocol].budget_spent()
    for question in ("q1", "q2"):
        prompt, info = make(protocol=protocol, **limits).reset(options={"question_id": question})
        plain, _ = make(protocol=protocol, max_turns=2).reset(options={"question_id": question})
        assert prompt == info["state_key"] == plain + notice
        vector = make_vector(1, protocol=protocol, **limits)
        assert vector.reset(options={"question_ids": [question]})[0] == (prompt,)
        assert vector.single_observation_space.contains(prompt)
    assert bool(notice) == (protocol != "tags_brief")


def test_wrong_questions_and_calls_are_refused() -> None:
    retriever = Bm25Retriever(PASSAGES)
    with pytest.raises(ValueError, match="questions: got none"):
        SearchQAEnv([], retriever)
    with pytest.raises(ValueError, match="'q1' twice"):
        SearchQAEnv([QUESTIONS[0], QUESTIONS[0]], retriever)
    with pytest.raises(ValueError, match="not blank"):
        SearchQAEnv([Question("x", "?", (" ",))], retriever)
    with pytest.raises(ValueError, match="corpus 'A'"):
        SearchQAEnv([Question("x", "?", ("y",), corpus="A")], {"B": retriever})
    env = make()
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step("x")
    with pytest.raises(ValueError, match="question_id: got 'nope'"):
        env.reset(options={"question_id": "nope"})
    with pytest.raises(ValueError, match=r"options \['seed'\]"):
        env.reset(options={"seed": 3})
    env.reset()
    with pytest.raises(TypeError, match=r"[Ee]xpected (str|type)"):  # under pytest the annotation check speaks first
        env.step(3)  # type: ignore[arg-type]
    vector = make_vector(2)
    with pytest.raises(ValueError, match="got 3 actions"):
        vector.step(["x"] * 3)
    with pytest.raises(ValueError, match="got 1 question_ids"):
        vector.reset(options={"question_ids": ["q1"]})
    assert vector.reset(seed=np.int64(3))[0] == vector.reset(seed=[3, 4])[0]
    with pytest.raises(ValueError, match="got 3 seeds"):
        vector.reset(seed=[1, 2, 3])


def test_a_stock_agent_loop_runs() -> None:
    """The loop from Gymnasium's front page, unchanged."""
    env = gym.make("a2tgpo/Almanac-v0", render_mode="ansi")
    observation, info = env.reset(seed=42)
    for _ in range(50):
        action = env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)  # noqa: RUF059
        if terminated or truncated:
            observation, info = env.reset()  # noqa: RUF059
    assert isinstance(env.render(), str)
    env.close()
