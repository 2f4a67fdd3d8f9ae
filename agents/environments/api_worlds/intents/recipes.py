"""What users want of recipes."""

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
    numbered,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import fixed, from_world, one
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
    ingredient = one(rng, {row.ingredient: None for row in recipes.recipes.values()})
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
    yield numbered(observation["favorites"])
    row = yield Step(f"{number} is {recipe}. I look it up.", "get_recipe", {"recipe": recipe})
    return Answer(
        f"{recipe} takes {row['minutes']} minutes.", (row["minutes"],), "Now I know the answer."
    )


INTENTS = (
    lookup("recipes.servings", "get_recipe", "recipe", "I look up {recipe}.",
           "{recipe} makes {servings} servings.", """
        How many servings does {recipe} make?
        For how many people is the recipe {recipe}?
        Tell me how many servings {recipe} has.
        Find out for how many people {recipe} is.
        I want to cook {recipe}. How many servings is it?
        {recipe}: how many servings?
        Look up the servings of {recipe}.
        Check how many servings the recipe {recipe} makes.
        """, draw=a_recipe, facts="servings", trouble=no_recipe),
    lookup("recipes.minutes", "get_recipe", "recipe", "I look up {recipe}.",
           "{recipe} takes {minutes} minutes.", """
        How long does {recipe} take?
        How many minutes do I need to cook {recipe}?
        Tell me how long I need for {recipe}.
        Find out how many minutes {recipe} takes.
        I want to cook {recipe}. How long will it take?
        {recipe}: how many minutes?
        Look up the cooking time of {recipe}.
        Check how long the recipe {recipe} takes.
        """, draw=a_recipe, facts="minutes", trouble=no_recipe),
    plan("recipes.quickest", "search_recipes", quickest, """
        What is the quickest recipe with {ingredient}, and how long does it take?
        Which recipe with {ingredient} takes the least time, and how much?
        Find the fastest recipe with {ingredient} and its minutes.
        I have {ingredient}. What can I cook the fastest, and how long does it take?
        Tell me the quickest recipe with {ingredient} and its time.
        Look for a recipe with {ingredient} that is done first. How many minutes is it?
        {ingredient}: which recipe is the quickest, and how many minutes is that?
        How many minutes does the fastest recipe with {ingredient} take, and what is its name?
        """, draw=an_ingredient, trouble=no_ingredient),
    lookup("recipes.save", "save_recipe", "recipe", "I save {recipe}.", "{recipe} is saved.", """
        Save the recipe {recipe}.
        Add {recipe} to my favorites.
        I like {recipe}. Save it as a favorite.
        Put {recipe} on my list of favorites.
        Keep the recipe {recipe} for me as a favorite.
        {recipe} should be one of my favorites.
        Store {recipe} with my favorite recipes.
        Make {recipe} a favorite.
        """, draw=a_new_recipe, trouble=a_favorite),
    plan("recipes.save_quickest", "search_recipes save_recipe", save_quickest, """
        Save the quickest recipe with {ingredient}.
        Find the fastest recipe with {ingredient} and add it to my favorites.
        Add the quickest {ingredient} recipe to my favorites.
        Look for the recipe with {ingredient} that takes the least time and save it.
        I have {ingredient}. Save the recipe that is done first.
        Put the fastest {ingredient} recipe on my list of favorites.
        {ingredient}: save the quickest recipe.
        Of the recipes with {ingredient}, keep the quickest as a favorite.
        """, draw=a_quick_one_to_save, trouble=no_ingredient),
    plan("recipes.favorite", "list_favorites get_recipe", favorite_minutes, """
        How long does the {place} of my favorite recipes take?
        How many minutes does my {place} favorite recipe take?
        Look at my favorite recipes: how long does the {place} one take?
        Tell me the cooking time of the {place} recipe in my favorites.
        I want to cook the {place} of my favorites. How many minutes do I need?
        The {place} recipe of my favorites: how long is it?
        Find out how long I need for my {place} favorite recipe.
        Check the minutes of the {place} recipe on my list of favorites.
        """, draw=fixed("place", ("first", "second"))),
    lookup("recipes.calories", "recipe_calories", "recipe", "I need the calories.",
           "{recipe} has {calories} calories.", """
        How many calories does {recipe} have?
        What are the calories of {recipe}?
        Tell me the calories of {recipe}.
        Find out how many calories are in {recipe}.
        {recipe}: how many calories?
        Look up the calories of {recipe}.
        I want to know the calories of {recipe}.
        Check how many calories the recipe {recipe} has.
        """, draw=a_recipe, facts="calories", trouble=no_recipe),
)  # fmt: skip
