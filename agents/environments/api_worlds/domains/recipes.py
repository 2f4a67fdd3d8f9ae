"""Recipes and a list of favorites."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Name,
    Page,
    Setting,
    State,
    api,
    find_row,
    page_of,
)
from loopline.agents.environments.api_worlds.names import INGREDIENTS, RECIPE_FORMS, RECIPE_STYLES
from loopline.agents.records import JsonObject

MAX_FAVORITES = 8
"""Maximum number of favorites: an observation shows all of them."""


@dataclass
class Recipe:
    ingredient: str
    minutes: int
    servings: int
    calories: int


@dataclass(kw_only=True)
class Recipes(State):
    domain: ClassVar[str] = "recipes"

    recipes: dict[str, Recipe]
    favorites: list[str]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        recipes: dict[str, Recipe] = {}
        for ingredient in rng.sample(INGREDIENTS, 5):
            count = rng.choice((2, 3, 3, 4, 5))
            styles = rng.sample(RECIPE_STYLES, count)
            minutes = rng.sample(range(10, 90, 5), count)
            for style, time in zip(styles, minutes, strict=True):
                name = f"{style} {ingredient} {rng.choice(RECIPE_FORMS)}"
                recipes[name] = Recipe(
                    ingredient, time, rng.randint(1, 8), rng.randint(20, 90) * 10
                )
        return cls(recipes=recipes, favorites=rng.sample(sorted(recipes), 2))


@api("Recipes with an ingredient")
def search_recipes(recipes: Recipes, ingredient: Name, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"recipe": name, "minutes": row.minutes}
        for name, row in recipes.recipes.items()
        if row.ingredient == ingredient
    ]
    return page_of("recipes", rows, page)


@api("Minutes and servings of a recipe")
def get_recipe(recipes: Recipes, recipe: Name) -> JsonObject:
    row = find_row(recipes.recipes, recipe, "recipe")
    return {"minutes": row.minutes, "servings": row.servings}


@api("Calories of one serving of a recipe")
def recipe_calories(recipes: Recipes, recipe: Name) -> JsonObject:
    return {"calories": find_row(recipes.recipes, recipe, "recipe").calories}


@api("Add a recipe to my favorites", changes=True)
def save_recipe(recipes: Recipes, recipe: Name) -> JsonObject:
    find_row(recipes.recipes, recipe, "recipe")
    if recipe in recipes.favorites:
        raise ApiError(f"{recipe} is a favorite already")
    if len(recipes.favorites) >= MAX_FAVORITES:
        raise ApiError("there is no room for another favorite")
    recipes.favorites.append(recipe)
    recipes.favorites.sort()
    return {"saved": recipe}


@api("My favorite recipes")
def list_favorites(recipes: Recipes) -> JsonObject:
    return {"favorites": [*recipes.favorites]}
