"""Everything about recipes that can be checked before anything takes time, in one go: what is wrong is said together,
and before the warm start.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from a2tgpo.config import Recipe
from a2tgpo.engines import check_engine
from a2tgpo.envs import SearchQAVectorEnv
from a2tgpo.envs.data.splits import check_no_overlap
from a2tgpo.envs.protocols import protocol_of
from a2tgpo.errors import A2TGPOError, ConfigError
from a2tgpo.policy.load import chat_over
from a2tgpo.policy.model import checked_device
from a2tgpo.policy.reading import read_tokenizer
from a2tgpo.start.prepare import SOURCES, check_source
from a2tgpo.start.tiny import tiny_vocabulary, word_tokenizer
from a2tgpo.training.parts import make_env
from a2tgpo.training.preflight import check_retrieval


def check_recipes(recipes: Iterable[Recipe]) -> list[SearchQAVectorEnv]:
    """Check every part that the recipes name; what they share is checked once.

    Returns:
        The environments that were made for it. Their search indices are shared by whoever makes the same ones while
        they are held.

    Raises:
        A2TGPOError: if something is not there or cannot be used; several findings are listed in one ConfigError.
    """
    found: list[A2TGPOError] = []
    checked: list[object] = []
    envs: list[SearchQAVectorEnv] = []

    def environments(recipe: Recipe) -> None:
        envs.extend(_checked_environments(recipe))

    for recipe in recipes:
        environment, model = recipe.environment, recipe.model
        checks: list[tuple[Callable[[Recipe], object], object]] = [  # with what each depends on
            (Recipe.build_algorithm, (recipe.algorithm, recipe.algorithm_options)),
            (_check_device, model.device),
            (check_engine, (model, recipe.vllm)),
            (check_source, (environment, model, recipe.warm_start)),
            (_check_chat, (environment.protocol, model)),
            (environments, (environment, recipe.rollout.questions)),
        ]
        for check, parts in checks:
            if (check, parts) not in checked:
                checked.append((check, parts))
                try:
                    check(recipe)
                except A2TGPOError as error:
                    found.append(error)
    found = list({str(error): error for error in found}.values())  # two checks may stumble over one thing
    if len(found) == 1:
        raise found[0]
    if found:
        listed = "\n".join(f"  {error}" for error in found)
        raise ConfigError(f"recipe: got {len(found)} settings that cannot be used:\n{listed}")
    return envs


def _check_device(recipe: Recipe) -> None:
    checked_device(recipe.model.device)


def _check_chat(recipe: Recipe) -> None:
    """Can the protocol be written for the model? Only its tokenizer is read."""
    protocol, source = protocol_of(recipe.environment.protocol), recipe.model.source
    if source == "smollm2":
        return  # its tokenizer is part of the weights' file
    tokenizer = word_tokenizer(tiny_vocabulary(), protocol.tags) if source in SOURCES else read_tokenizer(Path(source))
    chat_over(recipe.model, tokenizer, protocol)


def _checked_environments(recipe: Recipe) -> list[SearchQAVectorEnv]:
    """The environments of both splits: data set, corpus, limits, search engine."""
    settings = recipe.environment
    envs = [make_env(recipe, split, num_envs=1) for split in (settings.train_split, settings.validation_split)]
    if len(envs[0].questions) < recipe.rollout.questions:
        raise ConfigError(
            f"rollout.questions: got {recipe.rollout.questions}, but the split has only {len(envs[0].questions)}"
            " questions; lower it or use a larger split"
        )
    if not settings.allow_overlap:
        check_no_overlap(envs[0].questions, envs[1].questions, settings.validation_split)
    check_retrieval(envs[0])
    return envs
