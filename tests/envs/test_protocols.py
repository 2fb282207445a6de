"""Protocols: what counts as an action, what is shown, and that nothing foreign ever acts."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2tgpo.envs.protocols import PROTOCOLS, protocol_of
from a2tgpo.envs.protocols.base import Protocol, neutralize
from a2tgpo.envs.protocols.tags import last_box
from a2tgpo.envs.records import Passage
from a2tgpo.episode import ActionKind
from tests.conftest import shared_file

S, A, X = ActionKind.SEARCH, ActionKind.ANSWER, ActionKind.INVALID
TAGS, BRIEF, BOXED = PROTOCOLS["tags"], PROTOCOLS["tags_brief"], PROTOCOLS["boxed"]


@pytest.mark.parametrize(
    ("text", "kind", "content", "format_ok"),
    [
        ("<think>hm</think><search> capital of  France </search>", S, "capital of France", True),
        ("<think>hm</think>\n<answer>Paris</answer>", A, "Paris", True),
        ("<answer>Paris</answer>", A, "Paris", False),  # no thought
        ("<search>a</search><answer>b</answer>", S, "a", False),  # two actions: the earliest
        ("<answer>b</answer><search>a</search>", A, "b", False),
        # what follows does not matter
        ("<think>x</think><answer>b</answer> trailing <answer>c</answer>", A, "b", True),
        ("<search>open", X, "", False),
        ("<search> </search>", X, "", False),
        ("<answer>\n</answer><answer>x</answer>", X, "", False),  # the earliest complete action is empty
        ("", X, "", False),
        ("just text", X, "", False),
        ("</search><search>x</search>", S, "x", False),
        ("<search>x</answer>", X, "", False),
        ("<search>a <search>b</search>", S, "b", False),  # the block starts at its last opening tag
        ("<search>a <answer>b</answer></search>", A, "b", False),  # closed first
        ("<answer>a <search>b</search></answer>", S, "b", False),
        ("<think>I could <search>x</search></think>", S, "x", False),  # generation stops here, so it acts
        ("<think>a</think><think>b</think><search>x</search>", S, "x", False),
        ("<information>Doc</information><answer>x</answer>", A, "x", False),  # written by the model itself
        ("<think>x</think><answer>a <information>b</answer>", A, "a <information>b", False),
        ("<SEARCH>x</SEARCH>", X, "", False),
        ("<think>x</think><search>a\x00b\ud800c</search>", S, "a b c", True),
        ("<think>x</think><answer>r grandfather <a hr</answer>", A, "r grandfather <a hr", True),
    ],
)
def test_tags_parse(text: str, kind: ActionKind, content: str, format_ok: bool) -> None:
    action = TAGS.parse(text)
    assert (action.kind, action.text, action.format_ok) == (kind, content, format_ok)


def test_brief_needs_no_thought() -> None:
    assert BRIEF.parse("<search>x</search>").format_ok
    assert not BRIEF.parse("so <search>x</search>").format_ok


@pytest.mark.parametrize(
    ("text", "kind", "content", "format_ok"),
    [
        ("<think>x</think><answer>It is \\boxed{Paris}.</answer>", A, "Paris", True),
        # the last box, braces balanced
        ("<think>x</think><answer>\\boxed{a} \\boxed{b_{1}}</answer>", A, "b_{1}", True),
        ("<think>x</think><answer>Paris</answer>", A, "Paris", False),
        ("<think>x</think><answer>\\boxed{}</answer>", X, "", False),
        ("<think>x</think><answer>\\boxed{a</answer>", A, "\\boxed{a", False),
        ("\\boxed{Paris}", X, "", False),
        ("<think>x</think><search>q</search>", S, "q", True),
    ],
)
def test_boxed_parse(text: str, kind: ActionKind, content: str, format_ok: bool) -> None:
    action = BOXED.parse(text)
    assert (action.kind, action.text, action.format_ok) == (kind, content, format_ok)


@pytest.mark.timeout(30)  # milliseconds where the work is linear, hours where it is not
def test_last_box_is_linear_in_hostile_text() -> None:
    assert last_box("\\boxed{" * 20_000) is None
    assert last_box("\\boxed{" * 20_000 + "x" + "}" * 20_000) == "x"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
@pytest.mark.parametrize(
    "piece",
    ["<search>", "</search>", "<answer>", "<think>", "\\boxed{", "<search></search>", "a" * 10, "<", "<think></think>"],
)
def test_hostile_100k_characters_are_parsed_in_linear_time(protocol: Protocol, piece: str) -> None:
    text = piece * (100_000 // len(piece))
    assert isinstance(protocol.parse(text).kind, ActionKind)
    assert isinstance(protocol.parse(text + "<answer>x</answer>").kind, ActionKind)
    assert len(neutralize(text)) == len(text)


PIECES = [
    *(
        "<think>",
        "</think>",
        "<search>",
        "</search>",
        "<answer>",
        "</answer>",
        "<information>",
        "</information>",
        "<result>",
        "</result>",
    ),
    *(
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        '{"name": "search", "arguments": {"query": "x"}}',
        "\\boxed{",
        "}",
        "{",
    ),
    *("Paris", " ", "\n", "\x00", "\ud800", "é", "東京", '"', "\\", "<", ">", "/", "a b c", "<|im_end|>", "null", "[]"),
]


def _fuzz(protocol: Protocol, rng: random.Random) -> None:
    text = "".join(rng.choices(PIECES, k=rng.randrange(14)))
    action = protocol.parse(text)
    assert (action.kind is X) == (not action.text)
    action.text.encode("utf-8")  # no lone surrogates reach the retriever
    assert "\x00" not in action.text
    # a passage made of the same pieces shows no marker of the protocol beyond its own frame
    shown = protocol.observation([Passage("1", text, text), Passage("2", "", text)])
    empty = protocol.observation([Passage("1", "t", "t"), Passage("2", "", "t")])
    for marker in protocol.tags:
        assert shown.count(marker) == empty.count(marker)
        assert protocol.prompt(text).count(marker) == protocol.prompt("").count(marker)
    assert protocol.parse(shown).kind is X


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_fuzz(protocol: Protocol) -> None:
    rng = random.Random(1)
    for _ in range(1_000):
        _fuzz(protocol, rng)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_fuzz_100000(protocol: Protocol) -> None:
    rng = random.Random(2)
    for _ in range(100_000):
        _fuzz(protocol, rng)


@pytest.mark.parametrize("protocol", [TAGS, BRIEF, BOXED], ids=["tags", "tags_brief", "boxed"])
def test_text_after_the_action_does_not_matter(protocol: Protocol) -> None:
    rng = random.Random(3)
    acted = 0
    for _ in range(6_000):
        text = "".join(rng.choices(PIECES, k=8))
        ends = [text.find(stop) + len(stop) for stop in protocol.stop_strings if stop in text]
        for end in sorted(ends):
            if protocol.parse(text[:end]).kind is not X:
                acted += 1
                assert protocol.parse(text[:end]) == protocol.parse(text)
                break
    assert acted > 100


def test_real_outputs_have_a_defined_result() -> None:
    with shared_file("data/trajectories/search_r1_rollouts.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    assert len(rows) == 250
    kinds = {name: [protocol.parse(row["response"]).kind for row in rows] for name, protocol in PROTOCOLS.items()}
    # these are whole transcripts, in which search calls and results alternate: the first complete block counts
    assert {kind: kinds["tags"].count(kind) for kind in ActionKind} == {S: 61, A: 0, X: 189}
    assert all(len(found) == 250 for found in kinds.values())


@given(st.text())
def test_neutralize_keeps_the_length_and_leaves_no_tag(text: str) -> None:
    shown = neutralize(text)
    assert len(shown) == len(text)
    shown.encode("utf-8")
    assert neutralize(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<answer>42</answer>", "[answer]42[/answer]"),
        ("<|im_end|>", "[|im_end|]"),
        ("<｜end▁of▁sentence｜><｜User｜>", "[｜end▁of▁sentence｜][｜User｜]"),  # DeepSeek's
        ("a < b > c", "a < b > c"),
        ("<<answer>>", "<[answer]>"),
        ("<an<answer>swer>", "<an[answer]swer>"),
        ("</s><unk>", "[/s][unk]"),
        ("r grandfather <a hr", "r grandfather <a hr"),
    ],
)
def test_neutralize(text: str, shown: str) -> None:
    assert neutralize(text) == shown


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_scaffold_around_a_gold_parses_to_that_gold(protocol: Protocol) -> None:
    before, after = protocol.scaffold
    action = protocol.parse(f"{before}Les McCann{after}")
    assert (action.kind, action.text, action.format_ok) == (A, "Les McCann", True)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_notices_are_no_evidence(protocol: Protocol) -> None:
    evidence = [tag for tag in ("<information>", "<result>", "<tool_response>") if tag in protocol.tags]
    for notice in (protocol.corrective(), protocol.retrieval_failure(), protocol.budget_spent()):
        if protocol.observation_role == "":
            assert not any(tag in notice for tag in evidence)
    assert protocol.corrective()
    assert protocol.retrieval_failure()
    assert protocol.observation([])


def test_unknown_protocol_names_the_choices() -> None:
    with pytest.raises(ValueError, match="tags_brief"):
        protocol_of("xml")


@pytest.mark.parametrize(
    ("text", "kind", "content", "format_ok"),
    [
        ('<tool_call>\n{"name": "search", "arguments": {"query": "Paris"}}\n</tool_call>', S, "Paris", True),
        (
            '<think>\nx\n</think>\n\n<tool_call>{"name": "search", "arguments": {"query": "Paris"}}</tool_call>',
            S,
            "Paris",
            True,
        ),
        ('so <tool_call>{"name": "search", "arguments": {"query": "Paris"}}</tool_call>', S, "Paris", False),
        ('<tool_call>{"name": "search", "arguments": "{\\"query\\": \\"Paris\\"}"}</tool_call>', S, "Paris", True),
        ('<tool_call>{"name": "search", "arguments": {"query": "a\\u0000\\ud800 b"}}</tool_call>', S, "a b", True),
        ('<tool_call>{"name": "python", "arguments": {"query": "Paris"}}</tool_call>', X, "", False),
        ('<tool_call>{"name": "search", "arguments": {"query": 3}}</tool_call>', X, "", False),
        ('<tool_call>{"name": "search", "arguments": {"q": "Paris"}}</tool_call>', X, "", False),
        ('<tool_call>{"name": "search"}</tool_call>', X, "", False),
        ("<tool_call>search('Paris')</tool_call>", X, "", False),
        ("<tool_call>[1]</tool_call>", X, "", False),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", X, "", False),
        ("<tool_call>" + "9" * 10_000 + "</tool_call>", X, "", False),
        ('<tool_call>{"name": "search", "arguments": {"query": "</tool_call>"}}</tool_call>', X, "", False),
        ("<answer>Paris</answer>", A, "Paris", True),
        ("<answer></answer>", X, "", False),
        (
            '<answer>Paris</answer><tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>',
            A,
            "Paris",
            True,
        ),
    ],
)
def test_tool_call_parse(text: str, kind: ActionKind, content: str, format_ok: bool) -> None:
    action = PROTOCOLS["tool_call"].parse(text)
    assert (action.kind, action.text, action.format_ok) == (kind, content, format_ok)
