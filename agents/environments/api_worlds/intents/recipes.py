"""Users' intents for recipes."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.recipes import Recipes
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    best_of,
    lookup,
    number_names,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import (
    choose_row,
    from_values,
    from_world,
)
from loopline.agents.environments.api_worlds.names import INGREDIENTS
from loopline.agents.environments.api_worlds.world import World

a_recipe = from_world("recipe", lambda world: world.state(Recipes).recipes)
a_new_recipe = from_world(
    "recipe",
    lambda world: [
        name for name in world.state(Recipes).recipes if name not in world.state(Recipes).favorites
    ],
)
a_favorite = from_world("recipe", lambda world: world.state(Recipes).favorites)
an_ingredient = from_world(
    "ingredient",
    lambda world: sorted({row.ingredient for row in world.state(Recipes).recipes.values()}),
)


def no_ingredient(rng: random.Random, world: World) -> Slots | None:
    there = {row.ingredient for row in world.state(Recipes).recipes.values()}
    return {"ingredient": rng.choice([name for name in INGREDIENTS if name not in there])}


def no_recipe(rng: random.Random, world: World) -> Slots | None:
    missing = no_ingredient(rng, world)
    return missing and {"recipe": f"golden {missing['ingredient']} pie"}


def a_quick_one_to_save(rng: random.Random, world: World) -> Slots | None:
    recipes = world.state(Recipes)
    ingredient = choose_row(rng, {row.ingredient: None for row in recipes.recipes.values()})
    rows = [
        (row.minutes, name) for name, row in recipes.recipes.items() if row.ingredient == ingredient
    ]
    return None if min(rows)[1] in recipes.favorites else {"ingredient": ingredient}


def quickest(slots: Slots) -> Program:
    ingredient = slots["ingredient"]
    best = yield from best_of(
        "search_recipes", "recipes", f"I need the recipes with {ingredient}.",
        {"ingredient": ingredient}, label="recipe", by="minutes",
    )  # fmt: skip
    recipe, minutes = best["recipe"], best["minutes"]
    return Answer(
        f"The quickest is {recipe} with {minutes} minutes.", (recipe, minutes),
        f"{recipe} with {minutes} minutes is the quickest.",
    )  # fmt: skip


def save_quickest(slots: Slots) -> Program:
    ingredient = slots["ingredient"]
    best = yield from best_of(
        "search_recipes", "recipes", f"I need the recipes with {ingredient}.",
        {"ingredient": ingredient}, label="recipe", by="minutes",
    )  # fmt: skip
    recipe = best["recipe"]
    yield Step(f"{recipe} is the quickest, so I save it.", "save_recipe", {"recipe": recipe})
    return Answer(f"I saved {recipe}.", (recipe,))


def favorite_minutes(slots: Slots) -> Program:
    observation = yield Step("I need my favorites.", "list_favorites", {})
    number = 1 if slots["place"] == "first" else 2
    recipe = observation["favorites"][number - 1]
    yield number_names(observation["favorites"])
    row = yield Step(f"{number} is {recipe}. I look it up.", "get_recipe", {"recipe": recipe})
    return Answer(
        f"{recipe} takes {row['minutes']} minutes.", (row["minutes"],), "Now I know the answer."
    )


INTENTS = (
    lookup("recipes.servings", draw=a_recipe, trouble=no_recipe),
    lookup("recipes.minutes", draw=a_recipe, trouble=no_recipe),
    plan("recipes.quickest", quickest, draw=an_ingredient, trouble=no_ingredient),
    lookup("recipes.save", draw=a_new_recipe, trouble=a_favorite),
    plan("recipes.save_quickest", save_quickest, draw=a_quick_one_to_save, trouble=no_ingredient),
    plan("recipes.favorite", favorite_minutes, draw=from_values("place", ("first", "second"))),
    lookup("recipes.calories", draw=a_recipe, trouble=no_recipe),
)
