"""Everything about a recipe that can be checked before anything takes time, in one go."""

from a2tgpo.config import Recipe
from a2tgpo.engines import check_engine
from a2tgpo.envs.registration import check_id


def check_recipe(recipe: Recipe) -> None:
    """Check the parts that a recipe names.

    Raises:
        ConfigError: for the first that is not there or cannot be used.
    """
    recipe.build_algorithm()
    check_id(recipe.environment.id)
    check_engine(recipe)
