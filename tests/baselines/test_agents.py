"""Reference agents: scripted ones on the embedded world, prompted ones with an engine that writes what a script tells
it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from a2tgpo.baselines import AGENTS, AgentSpec, Played, Voice, play
from a2tgpo.baselines.agents.lexical import best_span
from a2tgpo.baselines.agents.react import EXAMPLES, worked
from a2tgpo.baselines.reference import reference_of, reference_rows, terminal_table, warnings_of, write_references
from a2tgpo.baselines.script import Generate, Opening, Script, search
from a2tgpo.cli import main
from a2tgpo.engines.base import Request
from a2tgpo.engines.transformers import TransformersEngine
from a2tgpo.envs import PROTOCOLS, Passage, Question, SearchQAVectorEnv
from a2tgpo.envs.almanac import load
from a2tgpo.envs.entities import asked_about, content_words, entities
from a2tgpo.envs.protocols.writing import written_answer, written_search
from a2tgpo.envs.retrieval import Bm25Retriever
from a2tgpo.episode import ActionKind, StopReason
from a2tgpo.errors import RetrievalError, RolloutError
from a2tgpo.policy.chat import Chat
from tests.support.byte_models import byte_policy
from tests.support.small_world import small_env
from tests.support.tiny_models import tiny_policy
from tests.support.written_engine import WrittenEngine, encoder

PASSAGES = [
    Passage("1", "Ada Lovelace", "Ada Lovelace was a mathematician. Her father was Lord Byron."),
    Passage("2", "Lord Byron", "Lord Byron was a poet. He was born in London."),
    Passage("3", "Paris", "Paris is a city on the Seine."),
]
QUESTIONS = [
    Question("q1", "Who was the father of Ada Lovelace?", ("Lord Byron",)),
    Question("q2", "Where was Lord Byron born?", ("London",)),
]


def people_env(protocol: str = "tags", num_envs: int = 2, max_turns: int = 5) -> SearchQAVectorEnv:
    engine = Bm25Retriever(PASSAGES)
    return SearchQAVectorEnv(
        QUESTIONS,
        engine,
        num_envs,
        top_k=1,
        max_turns=max_turns,
        protocol=protocol,
        scorer=None,
        autoreset_mode=AutoresetMode.DISABLED,
    )


def almanac_env(protocol: str = "tags_brief") -> SearchQAVectorEnv:
    questions, corpora = load("test", fictional=True, worlds=2)
    engines = {key: Bm25Retriever(passages) for key, passages in corpora.items()}
    return SearchQAVectorEnv(
        questions[:60],
        engines,
        16,
        max_turns=6,
        max_searches=5,
        protocol=protocol,
        scorer=None,
        autoreset_mode=AutoresetMode.DISABLED,
    )


class Told(WrittenEngine):
    """Answers every prompt with the first rule whose key ends the prompt's text, and keeps the prompts."""

    def __init__(self, tokenizer: Any, rules: Sequence[tuple[str, str]]) -> None:
        self.prompts: list[str] = []
        encode = encoder(tokenizer)

        def reply(request: Request) -> Sequence[int]:
            self.prompts.append(tokenizer.decode(request.prompt))
            return encode(next(reply for end, reply in rules if self.prompts[-1].rstrip().endswith(end)))

        super().__init__(reply)


def voice_of(rules: Sequence[tuple[str, str]]) -> Voice:
    policy = byte_policy()
    return Voice(Told(policy.tokenizer, rules), Chat(policy.tokenizer), max_tokens=100_000)


def mean(played: Sequence[Played], name: str) -> float:
    return float(sum(getattr(episode, name) for episode in played)) / len(played)


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_agents_without_a_model_in_every_protocol(protocol: str) -> None:
    env = almanac_env(protocol)
    ids = [question.id for question in env.questions]
    oracle, lexical, random = (play(name, env, ids) for name in ("oracle", "lexical", "random"))
    assert mean(oracle, "em") == 1.0
    assert [episode.searches for episode in oracle] == [question.hops for question in env.questions]
    assert [episode.turns for episode in lexical] == [2] * len(ids)
    assert mean(random, "em") < mean(lexical, "em") < 0.6
    assert all(episode.tokens == 0 for episode in [*oracle, *lexical, *random])


def test_episodes_do_not_depend_on_their_companions() -> None:
    env, ids = almanac_env(), [question.id for question in almanac_env().questions]
    alone = SearchQAVectorEnv(
        env.questions,
        env.pool.retrievers,
        1,
        max_turns=6,
        max_searches=5,
        protocol="tags_brief",
        scorer=None,
        autoreset_mode="Disabled",
    )
    assert play("random", env, ids[:20], seed=3) == play("random", alone, ids[:20], seed=3)
    assert play("random", env, ids[:20], seed=3) != play("random", env, ids[:20], seed=4)


def test_best_span_is_the_entity_beside_the_question_s_words() -> None:
    # "father", "ada", "lovelace" in the title and the second sentence: 3 words → Lord Byron; the first sentence has no
    # other entity
    assert best_span("Who was the father of Ada Lovelace?", [PASSAGES[0], PASSAGES[2]]) == "Lord Byron"
    assert best_span("Who?", []) == ""


def test_direct_answers_from_the_model_alone() -> None:
    voice = voice_of(
        [("Question: Who was the father of Ada Lovelace?\nAnswer:", " Lord Byron\nQuestion:"), ("Answer:", " Rome")]
    )
    played = play("direct", people_env(), ["q1", "q2"], voice=voice)
    assert [(episode.answer, episode.em, episode.searches, episode.turns) for episode in played] == [
        ("Lord Byron", 1.0, 0, 1),
        ("Rome", 0.0, 0, 1),
    ]
    texts: tuple[str, str] = (voice.engine.prompts[0], " Lord Byron\nQuestion:")  # type: ignore[attr-defined]
    assert played[0].tokens == sum([len(byte_policy().tokenizer(text)["input_ids"]) for text in texts])


def test_rag_reads_one_retrieval() -> None:
    voice = voice_of([("Answer:", " London\n")])
    (played,) = play("rag", people_env(), ["q2"], voice=voice)
    assert (played.answer, played.em, played.searches, played.turns, played.stop) == (
        "London",
        1.0,
        1,
        2,
        StopReason.ANSWERED,
    )
    assert "He was born in London." in voice.engine.prompts[0]  # type: ignore[attr-defined]


def test_react_goes_on_with_its_own_transcript() -> None:
    rules = [
        ("</information>", "<think> Read. </think>\n<answer> London </answer>"),
        ("born?", "<think> Look. </think>\n<search> Lord Byron born </search>"),
    ]
    voice = voice_of(rules)
    (played,) = play("react", people_env(), ["q2"], voice=voice)
    assert (played.answer, played.searches, played.turns) == ("London", 1, 2)
    first, second = voice.engine.prompts  # type: ignore[attr-defined]
    assert second.startswith(first)
    assert "Jørn Utzon" in first
    # the second prompt repeats the first, which is charged once
    count = len(byte_policy().tokenizer(second + rules[0][1])["input_ids"])
    assert abs(played.tokens - count) <= 3  # tokens may join where texts meet


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_worked_examples_obey_the_protocol(protocol: str) -> None:
    written = PROTOCOLS[protocol]
    for example in EXAMPLES:
        text = worked(example, written)
        for _, query, passage in example.searches:
            assert written_search(written, query, "x").split("x")[0] in text
            assert passage.text in text
        assert example.answer in text


def test_self_ask_searches_its_follow_up_questions() -> None:
    rules = [
        (
            "Are follow up questions needed here:",
            " Yes.\nFollow up: Who was the father of Ada Lovelace?\nIntermediate answer:",
        ),
        ("Question: Who was the father of Ada Lovelace?\nAnswer:", " Lord Byron\n"),
        ("Intermediate answer: Lord Byron", "So the final answer is:"),
        ("So the final answer is:", " Lord Byron\n"),
    ]
    (played,) = play("self_ask", people_env(), ["q1"], voice=voice_of(rules))
    assert (played.answer, played.searches, played.turns) == ("Lord Byron", 1, 2)


@pytest.mark.parametrize("name", [name for name, spec in AGENTS.items() if spec.needs_model])
def test_prompted_agents_run_with_any_model(name: str) -> None:
    policy = byte_policy(max_tokens=4096)
    voice = Voice(TransformersEngine(policy), Chat(policy.tokenizer), policy.max_tokens, max_new_tokens=6)
    played = play(name, people_env("tags_brief"), ["q1", "q2"], voice=voice)
    assert [episode.question.id for episode in played] == ["q1", "q2"]
    assert all(episode.tokens > 0 for episode in played)


def test_a_prompt_that_outgrows_the_model_ends_the_episode() -> None:
    policy = tiny_policy()
    voice = Voice(TransformersEngine(policy), Chat(policy.tokenizer), 10, max_new_tokens=4)
    env = small_env(4)
    references = reference_rows(["react", "random"], env, ["q0", "q1"], voice=voice)
    assert {row["stop"] for row in references[0].rows} == {"max_tokens"}
    assert warnings_of(references)[0].startswith("react answered none of 2 questions")


def test_report_of_references(tmp_path: Path) -> None:
    env = almanac_env()
    references = reference_rows(["oracle", "lexical"], env, [question.id for question in env.questions])
    write_references(references, tmp_path)
    head, first, *_ = (tmp_path / "reference.csv").read_text().splitlines()
    assert head == "agent,label,questions,em,f1,searches,turns,tokens,answered,em_half_width"
    assert first.startswith("oracle,scripted expert without mistakes,60,1.0,1.0,")
    rows = [json.loads(line) for line in (tmp_path / "reference.jsonl").read_text().splitlines()]
    assert len(rows) == 120
    assert terminal_table(references, "t").row_count == 2
    # 0/1 scores of mean m over 60 questions: half width 1.96 √(m(1 − m)/59)
    m = references[1].means["em"]
    assert references[1].em.half == pytest.approx(1.959964 * (m * (1 - m) / 59) ** 0.5, rel=1e-6)


def silent(opening: Opening) -> Script:
    yield from search(opening, "x")


def babbling(opening: Opening) -> Script:
    while True:
        yield Generate("again", ())


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("oracl", "agent: got 'oracl', expected one of oracle, .*; did you mean 'oracle'"),
        ("direct", "agent: 'direct' needs a language model, got none; give one with --model"),
        ("oracle", r"oracle: got question 'q1', which has no chain of relations"),
        (AgentSpec(silent, "silent"), "silent: ended after 1 turns on question 'q1' without an answer"),
        (AgentSpec(babbling, "babbling"), "babbling: needs a language model, got none"),
    ],
)
def test_what_cannot_be_played_is_refused(agent: str | AgentSpec, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        play(agent, people_env(), ["q1"])


def test_an_agent_that_only_generates_is_stopped() -> None:
    with pytest.raises(ValueError, match="babbling: got 20 generations in a row on question 'q1' without a turn"):
        play(AgentSpec(babbling, "babbling"), people_env(), ["q1"], voice=voice_of([("", "again")]))


def test_an_environment_that_restarts_itself_is_refused() -> None:
    env = SearchQAVectorEnv(QUESTIONS, Bm25Retriever(PASSAGES), 2, top_k=1)
    with pytest.raises(ValueError, match="autoreset mode 'NextStep', expected 'Disabled'"):
        play("lexical", env, ["q1"])


def test_command_prints_the_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["baseline", "table", "--questions", "24", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "oracle" in printed
    assert "left out without a language model: direct, rag, react, self_ask" in printed
    assert (tmp_path / "reference.csv").is_file()
    assert main(["baseline", "table", "--model", "nowhere"]) == 2
    assert "--model: got 'nowhere', which is not a folder" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Mara Venn's birthplace is Kloford.", ["Mara Venn", "Kloford"]),
        ("Who directed The Lord of the Rings in 2001?", ["Lord of the Rings", "2001"]),
        ("<information> John R. Vane met the U.S. Navy </information>", ["John R. Vane", "U.S. Navy"]),
        ("its code is +353, its domain .ie", ["+353", ".ie"]),
        ("nothing here", []),
    ],
)
def test_entities(text: str, names: list[str]) -> None:
    assert entities(text) == names


def test_what_a_question_asks_about() -> None:
    assert content_words("What is Mara Venn's birthplace's country?") == ["birthplace", "country"]
    assert asked_about("What is helium's symbol?") == ["helium"]
    assert content_words("What is helium's symbol?") == ["symbol"]


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=60), st.sampled_from(sorted(PROTOCOLS)))
def test_whatever_is_written_is_read_as_that_action(text: str, name: str) -> None:
    protocol = PROTOCOLS[name]
    assert protocol.parse(written_search(protocol, text)).kind is ActionKind.SEARCH
    assert protocol.parse(written_answer(protocol, text)).kind is ActionKind.ANSWER


class Flaky:
    """A retriever whose calls of these numbers (from 1) fail."""

    def __init__(self, inner: Any, broken: Sequence[int] | range) -> None:
        self.inner, self.broken, self.calls = inner, broken, 0

    def search(self, queries: Sequence[str], k: int) -> Any:
        self.calls += 1
        if self.calls in self.broken:
            raise RetrievalError(f"call {self.calls}: HTTP 503")
        return self.inner.search(queries, k)


def test_agents_play_again_what_a_search_engine_broke() -> None:
    env = people_env()
    ids = [question.id for question in env.questions]
    inner = env.pool.retrievers
    object.__setattr__(env.pool, "retrievers", Flaky(inner, []))
    undisturbed = play("lexical", env, ids)
    object.__setattr__(env.pool, "retrievers", Flaky(inner, [1, 2]))
    assert play("lexical", env, ids) == undisturbed
    object.__setattr__(env.pool, "retrievers", Flaky(inner, range(1, 99)))
    broken = play("lexical", env, ids)
    assert {(played.failed, played.error.partition(":")[0]) for played in broken} == {(True, "retrieval")}
    with pytest.raises(RolloutError, match=r"the agent 'lexical' failed, .* \(retrieval: call \d+: HTTP 503"):
        reference_of("lexical", "x", broken)
    assert len(reference_of("lexical", "x", [*undisturbed, *undisturbed, *broken]).rows) == 2 * len(undisturbed)
