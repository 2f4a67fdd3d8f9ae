"""The additions that an answer may contain and those that it may not: only the winner of all
candidates in an instruction, and only the requested value of all that were read."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator

import pytest

from loopline.agents.environments.api_worlds import INTENTS, Instance, UnfitRecipe
from loopline.agents.environments.api_worlds.instance import Recipe, build
from loopline.agents.environments.api_worlds.intents import SINGLE
from loopline.agents.environments.api_worlds.names import ACCOUNTS, CITIES, CURRENCIES, POOLS
from loopline.agents.environments.api_worlds.verification import (
    AnswerGoal,
    check_answer,
    contains_name,
)

CHOICES = {
    "bank.richer": "|".join(ACCOUNTS),
    "weather.warmer": "|".join(CITIES),
    "currency.lower_fee": "|".join(CURRENCIES),
    "flights.book_or": r"[A-Z]{2}\d{2}",
    "calendar.add_or_later": r"\d{2}:\d{2}",
}
"""Intents whose instructions name all candidates, and their form."""
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
    # This is true, but the oracle never names losers, and only the order of an answer would
    # distinguish them.
    ("weather.warmer", "It is warmer in {won} than in {lost}: {number} degrees."),
    ("flights.book_or", "I booked {won} and not {lost}."),
)


@functools.cache
def instances_of(intent: str) -> tuple[Instance, ...]:
    """Return an instance of some wording for each of many worlds, where one fits."""
    instances: list[Instance] = []
    for world in range(80):
        wording, tools = world % len(INTENTS[intent].wordings), INTENTS[intent].tools
        recipe = Recipe(
            world=world, intent=intent, wording=f"{intent}/{wording}", draw=world, tools=tools
        )
        try:
            instances.append(build(recipe))
        except UnfitRecipe:
            continue
    return tuple(instances)


def said(instance: Instance, sentence: str) -> str:
    """Return a sentence about the winner and the losers, and the winner's number."""
    intent, facts = instance.recipe.intent, instance.oracle.facts
    [won] = [fact for fact in facts if re.fullmatch(CHOICES[intent], fact)]
    named = re.findall(rf"\b(?:{CHOICES[intent]})\b", instance.instruction)
    [lost] = {*named} - {won}
    number = next((fact for fact in facts if fact != won), "")
    return sentence.format(won=won, lost=lost, number=number)


@pytest.mark.parametrize(("intent", "sentence"), HONEST)
def test_a_paraphrased_answer_that_names_only_the_winner_is_right(
    intent: str, sentence: str
) -> None:
    for instance in instances_of(intent):
        verdict = instance.verify(said(instance, sentence), instance.oracle.calls)
        assert verdict.solved, (instance.instruction, instance.oracle.answer, verdict)


@pytest.mark.parametrize(("intent", "sentence"), NAME_BOTH)
def test_an_answer_that_names_a_loser_fails_even_if_the_instruction_names_it(
    intent: str, sentence: str
) -> None:
    for instance in instances_of(intent):
        answer = said(instance, sentence)
        verdict = instance.verify(answer, instance.oracle.calls)
        assert "which was not chosen" in verdict.reason, (instance.instruction, answer)


@pytest.mark.parametrize("intent", FALLBACKS)
def test_the_samples_include_instances_with_and_without_a_granted_first_wish(
    intent: str,
) -> None:
    assert {len(instance.oracle.calls) for instance in instances_of(intent)} == {1, 2}


def rivals_in(instruction: str, fact: str) -> Iterator[str]:
    """Return the other values of a fact's kind that an instruction names."""
    for kind in (r"\b[A-Z]{1,2}\d{2}\b", r"\b\d{2}:\d{2}\b"):
        if re.fullmatch(kind, fact):
            yield from re.findall(kind, instruction)
    for pool in POOLS:
        if fact in pool:
            yield from (name for name in pool if contains_name(instruction, name))


def test_no_instruction_names_its_answer_next_to_an_undecided_candidate() -> None:
    with_choice: set[str] = set()
    for intent in SINGLE:
        for instance in instances_of(intent.name):
            instruction, oracle = instance.instruction, instance.oracle
            for fact in oracle.facts:
                others = {*rivals_in(instruction, fact)} - {fact}
                if contains_name(instruction, fact) and others:
                    with_choice.add(intent.name)
                    assert others <= {*oracle.wrong}, (instruction, oracle)
    assert with_choice == {*CHOICES}


WORDIER = (
    ("weather.high", "On {day} it will get as warm as {high} degrees in {city}."),
    ("weather.sky", "Expect {sky} weather in {city} on {day}. Have a nice trip!"),
    ("weather.sunset", "In {city} the sun goes down at {sunset} that day."),
    ("contacts.phone", "You can reach {name} at {phone}."),
    ("library.pages", "{title}, which you asked about, has {pages} pages."),
    ("shop.stock", "The shop has {stock} of the {product}."),
    ("hotels.price", "{hotel} charges {price} dollars for each night."),
    ("parcels.arrives", "Your parcel {parcel} will reach you on {arrives}."),
    ("cinema.minutes", "{movie} runs for {minutes} minutes."),
)
"""Yield honest answers with more than the fact: the instruction's text, and extra words."""
BESIDE = (
    ("weather.high", "In {city} it gets as warm as {high} degrees, and {low} at night."),
    ("weather.sky", "It will be {sky} with up to {high} degrees."),
    ("weather.sunset", "The sun rises at {sunrise} and sets at {sunset}."),
    ("contacts.phone", "{name}: {phone}, {city}."),
    ("library.pages", "It is by {author} and has {pages} pages."),
    ("shop.stock", "There are {stock} of it, for {price} dollars each."),
    ("hotels.price", "{price} dollars for one of {rooms} rooms."),
    ("parcels.arrives", "It is in {city} and arrives on {arrives}."),
    ("cinema.minutes", "It is a {genre} of {minutes} minutes."),
)
"""Yield the fact together with unrequested values that were read with it."""


def known_of(instance: Instance) -> dict[str, str] | None:
    """Return the arguments and the observation of a one-call instance, or `None` if values that
    must differ are equal, or the tool failed."""
    if instance.oracle.answer is None:
        return None
    [step] = instance.oracle.steps
    read = {name: str(value) for name, value in json.loads(step.observation).items()}
    values = {name: str(value) for name, value in (step.call.arguments or {}).items()} | read
    return values if len({*values.values()}) == len(values) else None


@pytest.mark.parametrize(("intent", "sentence"), WORDIER)
def test_a_wordy_answer_to_the_question_is_right(intent: str, sentence: str) -> None:
    cases = [
        (candidate, values) for candidate in instances_of(intent) if (values := known_of(candidate))
    ]
    assert cases
    for instance, values in cases:
        verdict = instance.verify(sentence.format(**values), instance.oracle.calls)
        assert verdict.solved, (instance.instruction, sentence.format(**values), verdict)


@pytest.mark.parametrize(("intent", "sentence"), BESIDE)
def test_an_answer_that_adds_other_values_to_the_fact_fails(intent: str, sentence: str) -> None:
    cases = [
        (candidate, values) for candidate in instances_of(intent) if (values := known_of(candidate))
    ]
    assert cases
    for instance, values in cases:
        verdict = instance.verify(sentence.format(**values), instance.oracle.calls)
        assert "which is not asked for" in verdict.reason, (instance.instruction, values)


@pytest.mark.parametrize("intent", ["weather.high", "currency.rate", "flights.book", "tasks.add"])
def test_an_answer_that_pastes_tool_output_always_fails(intent: str) -> None:
    pasted = 0
    for instance in instances_of(intent):
        if instance.oracle.answer is None:
            continue
        observation = instance.oracle.steps[-1].observation
        as_python = str(json.loads(observation))
        inside_of_json = json.dumps({"result": observation})
        for form in (observation, as_python, inside_of_json, f"Here it is: `{observation[1:-1]}`."):
            verdict = instance.verify(f"{instance.oracle.answer} {form}", instance.oracle.calls)
            assert "pastes what a tool said" in verdict.reason, form
            pasted += 1
    assert pasted


def test_an_answer_may_report_a_change_with_its_result() -> None:
    count = 0
    for instance in instances_of("library.borrow_shortest"):
        if instance.oracle.answer is not None:
            response = json.loads(instance.oracle.steps[-1].observation)
            answer = (
                f"I borrowed {response['borrowed']} for you; bring it back by {response['due']}."
            )
            assert instance.verify(answer, instance.oracle.calls).solved
            count += 1
    assert count


@pytest.mark.parametrize("minus", ["-", "\N{MINUS SIGN}", "minus "])
def test_a_number_s_sign_matters(minus: str) -> None:
    for instance in instances_of("weather.high"):
        for high in instance.oracle.facts:
            assert instance.verify(f"{high} degrees", instance.oracle.calls).solved
            verdict = instance.verify(f"{minus}{high} degrees", instance.oracle.calls)
            assert f"does not say {high}" in verdict.reason or high == "0"


def test_a_negative_number_may_be_written_with_a_sign_or_in_words() -> None:
    goal = AnswerGoal(("-3",), (), frozenset(), frozenset(), frozenset())
    for answer in ("-3 degrees", "\N{MINUS SIGN}3 degrees", "It will be minus 3."):
        assert check_answer(answer, goal).solved
    assert not check_answer("3 degrees", goal).solved
