"""Answers to instructions that name all that could be chosen: only what won may be said."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import pytest

from agents.environments.api_worlds import INTENTS, Instance, UnfitRecipe
from agents.environments.api_worlds.instance import Recipe, build
from agents.environments.api_worlds.intents import SINGLE
from agents.environments.api_worlds.names import ACCOUNTS, CITIES, CURRENCIES, POOLS
from agents.environments.api_worlds.verification import says

CHOICES = {
    "bank.richer": "|".join(ACCOUNTS),
    "weather.warmer": "|".join(CITIES),
    "currency.lower_fee": "|".join(CURRENCIES),
    "flights.book_or": r"[A-Z]{2}\d{2}",
    "calendar.add_or_later": r"\d{2}:\d{2}",
}
"""Intents whose instructions name all that could be chosen, and what that looks like."""
FALLBACKS = ("flights.book_or", "calendar.add_or_later")
HONEST = (
    ("bank.richer", "Your {won} account is the fuller one: it has {number} dollars."),
    ("weather.warmer", "{won} is the warmer city ({number} degrees)."),
    ("currency.lower_fee", "At {number} percent, {won} costs less."),
    ("flights.book_or", "Your seats are on {won}."),
    ("calendar.add_or_later", "It is in your calendar at {won}."),
)
NAME_BOTH = (
    ("bank.richer", "There is more in {lost} than in {won}: {number} dollars."),
    ("bank.richer", "There is more in {won} or in {lost}: {number} dollars."),
    ("weather.warmer", "It is warmer in {lost} than in {won}: {number} degrees."),
    ("weather.warmer", "{won} or {lost}, with {number} degrees."),
    ("currency.lower_fee", "{lost} has a lower fee than {won}: {number} percent."),
    ("currency.lower_fee", "{won} and {lost} have the lower fee, {number} percent."),
    ("flights.book_or", "Flight {won} failed, so I booked {lost}."),
    ("flights.book_or", "I booked flight {won} or flight {lost}."),
    ("calendar.add_or_later", "{won} was not free, so it is at {lost}."),
    ("calendar.add_or_later", "I added it at {won} or at {lost}."),
    # True, but the oracle never says what lost, and only an answer's order would tell these apart.
    ("weather.warmer", "It is warmer in {won} than in {lost}: {number} degrees."),
    ("flights.book_or", "I booked {won} and not {lost}."),
)


@functools.cache
def instances_of(intent: str) -> tuple[Instance, ...]:
    """An instance of some wording for each of many worlds, where one fits."""
    found: list[Instance] = []
    for world in range(80):
        wording, tools = world % len(INTENTS[intent].wordings), INTENTS[intent].tools
        recipe = Recipe(
            world=world, intent=intent, wording=f"{intent}/{wording}", draw=world, tools=tools
        )
        try:
            found.append(build(recipe))
        except UnfitRecipe:
            continue
    return tuple(found)


def said(instance: Instance, sentence: str) -> str:
    """A sentence about what won, what lost, and the number of what won."""
    intent, facts = instance.recipe.intent, instance.oracle.facts
    [won] = [fact for fact in facts if re.fullmatch(CHOICES[intent], fact)]
    named = re.findall(rf"\b(?:{CHOICES[intent]})\b", instance.instruction)
    [lost] = {*named} - {won}
    number = next((fact for fact in facts if fact != won), "")
    return sentence.format(won=won, lost=lost, number=number)


@pytest.mark.parametrize(("intent", "sentence"), HONEST)
def test_an_answer_in_other_words_that_says_only_what_won_is_right(
    intent: str, sentence: str
) -> None:
    for instance in instances_of(intent):
        verdict = instance.verify(said(instance, sentence), instance.oracle.calls)
        assert verdict.solved, (instance.instruction, instance.oracle.answer, verdict)


@pytest.mark.parametrize(("intent", "sentence"), NAME_BOTH)
def test_an_answer_that_names_what_lost_fails_though_the_instruction_names_it(
    intent: str, sentence: str
) -> None:
    for instance in instances_of(intent):
        answer = said(instance, sentence)
        verdict = instance.verify(answer, instance.oracle.calls)
        assert "which was not chosen" in verdict.reason, (instance.instruction, answer)


@pytest.mark.parametrize("intent", FALLBACKS)
def test_the_samples_have_instances_where_the_first_wish_is_met_and_where_it_is_not(
    intent: str,
) -> None:
    assert {len(instance.oracle.calls) for instance in instances_of(intent)} == {1, 2}


def rivals_in(instruction: str, fact: str) -> Iterator[str]:
    """What else of a fact's kind an instruction names."""
    for kind in (r"\b[A-Z]{1,2}\d{2}\b", r"\b\d{2}:\d{2}\b"):
        if re.fullmatch(kind, fact):
            yield from re.findall(kind, instruction)
    for pool in POOLS:
        if fact in pool:
            yield from (name for name in pool if says(instruction, name))


def test_no_instruction_names_its_answer_beside_another_that_is_not_known_to_have_lost() -> None:
    with_choice: set[str] = set()
    for intent in SINGLE:
        for instance in instances_of(intent.name):
            instruction, oracle = instance.instruction, instance.oracle
            for fact in oracle.facts:
                others = {*rivals_in(instruction, fact)} - {fact}
                if says(instruction, fact) and others:
                    with_choice.add(intent.name)
                    assert others <= {*oracle.wrong}, (instruction, oracle)
    assert with_choice == {*CHOICES}
