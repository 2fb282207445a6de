import dataclasses
from itertools import islice
from random import Random
from typing import Any

import pytest
import torch

from a2tgpo import config
from a2tgpo.config import Recipe
from a2tgpo.envs.almanac import load
from a2tgpo.envs.protocols import PROTOCOLS
from a2tgpo.errors import ConfigError
from a2tgpo.policy import Policy
from a2tgpo.policy.chat import Chat
from a2tgpo.start.demonstrations import Demonstration
from a2tgpo.start.tiny import tiny_policy, tiny_vocabulary, word_tokenizer
from a2tgpo.start.warm_start import OBSERVATION_WEIGHT, _batches, _Trainer, make_demonstrations, warm_start

TAGS = PROTOCOLS["tags_brief"].tags
EPISODE = (
    "Question: What is Runo Haizann's birthplace?\n<search>Runo Haizann birthplace</search><information> Runo Haizann's"
    " birthplace is X. </information>"
)


@pytest.fixture(autouse=True)
def _one_thread():  # type: ignore[no-untyped-def]
    """Models this small are slower on two threads than on one, and very much slower where others want the cores as
    well.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recipe(**settings: Any) -> Recipe:
    warm = dataclasses.replace(config.WarmStartSettings(demonstrations=200, evaluate_questions=64), **settings)
    return Recipe(
        environment=config.EnvironmentSettings(worlds=2, top_k=2, max_searches=5, max_turns=6), warm_start=warm
    )


def test_a_tag_is_one_token_and_a_name_one_or_two() -> None:
    tokenizer = tiny_policy(TAGS).tokenizer
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(EPISODE, add_special_tokens=False)["input_ids"])
    assert tokens[:9] == ["question", ":", "what", "is", "runo", "haizann", "'s", "birthplace", "?"]
    assert tokens[9:14] == ["<search>", "runo", "haizann", "birthplace", "</search>"]
    assert tokens[14:] == ["<information>", "runo", "haizann", "'s", "birthplace", "is", "<unk>", ".", "</information>"]


def test_the_vocabulary_is_closed_over_all_drawn_worlds() -> None:
    tokenizer = tiny_policy(TAGS).tokenizer
    questions, corpora = load("test", fictional=True, worlds=30, seed=11)
    texts = [
        *(question.text for question in questions),
        *(passage.text for corpus in corpora.values() for passage in corpus),
    ]
    ids = {token for row in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in row}
    assert tokenizer.unk_token_id not in ids
    assert len(tokenizer) < 300


def test_offsets_point_into_the_text() -> None:
    tokenizer = tiny_policy(TAGS).tokenizer
    encoded = tokenizer(EPISODE, add_special_tokens=False, return_offsets_mapping=True)
    shown = [EPISODE[start:end].lower() for start, end in encoded["offset_mapping"]]
    known = [
        (text, token)
        for text, token in zip(shown, tokenizer.convert_ids_to_tokens(encoded["input_ids"]), strict=True)
        if token != "<unk>"
    ]
    assert all(text == token for text, token in known)


def test_the_policy_survives_saving(tmp_path) -> None:  # type: ignore[no-untyped-def]
    policy = tiny_policy(TAGS, seed=1)
    policy.save(tmp_path)
    again = Policy.load(tmp_path)
    assert again.weights_hash() == policy.weights_hash()
    assert again.tokenizer(EPISODE)["input_ids"] == policy.tokenizer(EPISODE)["input_ids"]
    assert policy.weights_hash() == tiny_policy(TAGS, seed=1).weights_hash() != tiny_policy(TAGS, seed=2).weights_hash()


def test_the_tiny_policy_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    tiny_policy(TAGS, seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_words_that_text_could_not_produce_are_refused() -> None:
    with pytest.raises(ValueError, match=r"words: got .'New York'., expected lower-case"):
        word_tokenizer([*tiny_vocabulary(), "New York"], TAGS)
    with pytest.raises(ValueError, match="width 30 and 4 heads"):
        tiny_policy(TAGS, width=30)


def test_demonstrations_mask_exactly_what_the_expert_wrote() -> None:
    policy = tiny_policy(TAGS)
    tokenizer, chat = policy.tokenizer, Chat(policy.tokenizer)
    demonstrations = make_demonstrations(policy, recipe(mistakes=0.0, habit=0.0))
    assert len(demonstrations) == 200
    assert all(demonstration.outcome == 1.0 for demonstration in demonstrations)  # a flawless expert
    for demonstration in demonstrations[:40]:
        written = chat.decode(
            [token for token, mine in zip(demonstration.token_ids, demonstration.action_mask, strict=True) if mine]
        )
        shown = tokenizer.decode(
            [token for token, mine in zip(demonstration.token_ids, demonstration.action_mask, strict=True) if not mine]
        )
        assert "<information>" not in written
        assert written.count("<answer>") == 1
        assert written.startswith("<search>")
        assert shown.startswith("question :")
        assert "<search>" not in shown
        assert "<answer>" not in shown


def test_demonstrations_repeat_with_their_seed_and_err_as_told() -> None:
    policy = tiny_policy(TAGS)
    first, again, other = (
        make_demonstrations(policy, recipe(mistakes=0.4, habit=0.6, seed=seed)) for seed in (3, 3, 4)
    )
    assert first == again != other
    assert 0.2 < sum(demonstration.outcome for demonstration in first) / len(first) < 0.7


def test_the_loss_weighs_observations_less_and_padding_nothing() -> None:
    policy = tiny_policy(TAGS)
    rows = [
        Demonstration((3, 40, 41, 4, 30), (False, False, True, True, False), 1.0),
        Demonstration((3, 40, 41), (False, True, True), 0.0),
    ]
    trainer = _Trainer(policy, recipe().warm_start, rows)
    loss, action_loss = trainer._loss(rows)
    total, weights, actions = 0.0, 0.0, []
    for row in rows:
        logprobs = torch.log_softmax(policy.model(torch.tensor([row.token_ids])).logits[0].float(), dim=-1)
        for place in range(1, len(row.token_ids)):
            value = -float(logprobs[place - 1, row.token_ids[place]].detach())
            weight = 1.0 if row.action_mask[place] else OBSERVATION_WEIGHT
            total, weights = total + weight * value, weights + weight
            actions += [value] if row.action_mask[place] else []
    assert float(loss.detach()) == pytest.approx(total / weights, rel=1e-5)
    assert float(action_loss) == pytest.approx(sum(actions) / len(actions), rel=1e-5)


def test_batches_show_every_demonstration_once_per_round() -> None:
    rows = [Demonstration((1,) * (1 + place % 7), (False,) * (1 + place % 7), float(place)) for place in range(50)]
    batches = list(islice(_batches(rows, 8, Random(0)), 7))  # ⌈50 / 8⌉
    assert sorted(row.outcome for batch in batches for row in batch) == [float(place) for place in range(50)]


def test_training_is_deterministic_and_lowers_the_loss() -> None:
    losses = []
    for _ in range(2):
        policy = tiny_policy(TAGS)
        trainer = _Trainer(policy, recipe().warm_start, make_demonstrations(policy, recipe()))
        for _ in range(40):
            trainer.update()
        losses.append([float(loss) for loss in trainer._losses])
    assert losses[0] == losses[1]
    assert sum(losses[0][:5]) / 5 > 4.5  # near ln 218 = 5.4, the loss of a uniform guess
    assert sum(losses[0][-5:]) / 5 < 4.0


def test_a_missed_target_is_a_clear_error_and_progress_is_told() -> None:
    told: list[int] = []
    with pytest.raises(
        ConfigError,
        match=(
            r"warm_start.target_success: got .* after warm_start.max_steps = 12 steps .* expected 20%; raise max_steps"
        ),
    ):
        warm_start(tiny_policy(TAGS), recipe(max_steps=12, evaluate_every=5), lambda step, metrics: told.append(step))
    assert told == [5, 10, 12]


def test_a_reached_target_ends_it() -> None:
    result = warm_start(tiny_policy(TAGS), recipe(max_steps=50, evaluate_every=3, target_success=0.0))
    assert result.steps == 3
    assert 0.0 <= result.sampled <= 1.0
    assert result.demonstrations_correct > 0.2


@pytest.mark.slow
def test_the_shipped_warm_start_reaches_its_target() -> None:
    policy = tiny_policy(TAGS)
    result = warm_start(policy, Recipe())
    assert 0.1 <= result.sampled <= 0.45
