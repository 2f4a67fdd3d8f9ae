"""Instructions in the simulated worlds: solvable, verified by their effects, and kept in separate
splits."""

from __future__ import annotations

import dataclasses
import doctest
import functools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loopline.agents.environments import api_worlds
from loopline.agents.environments.api_worlds import (
    APIS,
    HELD_OUT,
    HELD_OUT_APIS,
    INTENTS,
    MAX_CALLS,
    Difficulty,
    Instance,
    Split,
    UnfitRecipe,
    World,
    instances,
    rebuild,
    stream,
)
from loopline.agents.environments.api_worlds.domains import DOMAINS
from loopline.agents.environments.api_worlds.intent import Step, Thought, Unsolvable
from loopline.agents.environments.api_worlds.intents import COMBINED, SINGLE
from loopline.agents.environments.api_worlds.names import POOLS
from loopline.agents.environments.api_worlds.splits import intents_of
from loopline.agents.records import JsonObject, ToolCall

COUNT = 600


@functools.cache
def sample(split: Split) -> tuple[Instance, ...]:
    return tuple(instances(split, 11, COUNT))


def every() -> Iterator[Instance]:
    for split in Split:
        yield from sample(split)


def one_of(split: Split, index: int) -> Instance:
    return sample(split)[index]


any_instance = st.builds(one_of, st.sampled_from(Split), st.integers(0, COUNT - 1))


def changing(calls: Sequence[ToolCall]) -> list[int]:
    return [index for index, call in enumerate(calls) if APIS[call.name].changes]


def rows_left(instance: Instance, calls: Sequence[ToolCall]) -> dict[str, object]:
    """Effects of calls, table by table: an independent reading of the states, with which `verify`
    is compared."""
    world = World(instance.recipe.world, instance.recipe.tools)
    for call in calls:
        world.call(call.name, call.arguments)
    tables: dict[str, object] = {}
    for domain in DOMAINS.values():
        state = world.state(domain)
        for name, table in dataclasses.asdict(state).items():
            if name in state.generated:
                tables[f"{state.domain}.{name}"] = sorted(json.dumps(row) for row in table.values())
            elif name != "issued":
                tables[f"{state.domain}.{name}"] = table
    return tables


@pytest.mark.parametrize("split", Split)
def test_the_oracle_solves_every_instance_with_the_offered_tools(split: Split) -> None:
    for instance in sample(split):
        oracle = instance.oracle
        verdict = instance.verify(oracle.answer, oracle.calls)
        assert verdict.solved, (instance.instruction, oracle, verdict.reason)
        assert {call.name for call in oracle.calls} <= set(instance.recipe.tools)
        assert len(oracle.steps) < MAX_CALLS
        assert {call.name for call in oracle.calls} <= set(INTENTS[instance.recipe.intent].tools)


@given(any_instance)
@settings(max_examples=200, deadline=None)
def test_the_oracle_s_observations_match_the_world(instance: Instance) -> None:
    world = instance.world()
    for step in instance.oracle.steps:
        assert world.call(step.call.name, step.call.arguments) == step.observation


@given(any_instance, st.integers(0, 3), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_a_run_is_right_only_if_it_leaves_the_world_as_the_oracle_does(
    instance: Instance, kind: int, place: int
) -> None:
    calls = [*instance.oracle.calls]
    assume(calls)
    index = place % len(calls)
    match kind:
        case 0:
            del calls[index]
        case 1:
            calls.append(calls[index])
        case 2:
            calls.reverse()
        case _:
            calls = calls[: index + 1]
    same = rows_left(instance, calls) == rows_left(instance, instance.oracle.calls)
    verdict = instance.verify(instance.oracle.answer, calls)
    world_is_wrong = "is not as the instruction wants it" in verdict.reason
    assert world_is_wrong == (not same), (instance.instruction, calls, verdict)


def test_a_run_that_omits_a_change_fails() -> None:
    left_out = 0
    for instance in every():
        calls = instance.oracle.calls
        changes = changing(calls)
        if changes and instance.oracle.answer is not None:
            without = [call for index, call in enumerate(calls) if index != changes[-1]]
            assert not instance.verify(instance.oracle.answer, without).solved
            left_out += 1
    assert left_out > 500


def test_a_second_booking_fails_even_if_the_answer_is_right() -> None:
    booked = 0
    for instance in every():
        calls = instance.oracle.calls
        if calls and calls[-1].name in {"book_flight", "buy_tickets", "send_parcel"}:
            again = instance.verify(instance.oracle.answer, [*calls, calls[-1]])
            world = World.after(instance.recipe.world, calls)
            if "error" not in world.call(calls[-1].name, calls[-1].arguments):
                assert "is not as the instruction wants it" in again.reason
                booked += 1
    assert booked > 20


def test_looking_around_does_no_harm() -> None:
    looked = 0
    for instance in sample(Split.TRAIN):
        others = [
            n for n in instance.recipe.tools if n not in INTENTS[instance.recipe.intent].tools
        ]
        reading = [n for n in others if not APIS[n].changes and not APIS[n].parameters]
        if reading:
            extra = ToolCall(id="x", name=reading[0], arguments={})
            calls = (extra, *instance.oracle.calls)
            assert instance.verify(instance.oracle.answer, calls).solved
            looked += 1
    assert looked > 20


def test_an_answer_that_lists_everything_fails() -> None:
    words = " ".join(word for pool in POOLS for word in sorted(pool))
    numbers = " ".join(str(number) for number in range(500))
    for instance in [*every()][::9]:
        observations = " ".join(step.observation for step in instance.oracle.steps)
        for flood in (numbers, f"{observations} {words} {numbers}"):
            answer = f"{instance.oracle.answer} {flood}"
            assert not instance.verify(answer, instance.oracle.calls).solved, instance.instruction


def test_an_answer_that_names_all_candidates_fails() -> None:
    trials = 0
    for instance in every():
        rows = [
            value
            for step in instance.oracle.steps
            for value in json.loads(step.observation).values()
            if isinstance(value, list) and len(value) > 1 and isinstance(value[0], dict)
        ]
        if rows and instance.oracle.facts and len(instance.oracle.steps) == 1:
            everything = f"{instance.oracle.answer} {json.dumps(rows)}"
            counting = instance.recipe.intent.endswith("count")
            if not counting:
                trials += 1
                assert not instance.verify(everything, instance.oracle.calls).solved
    assert trials > 40


def test_an_answer_without_its_facts_or_with_a_wrong_one_fails() -> None:
    missing = 0
    for instance in [*every()][::3]:
        for fact in instance.oracle.facts:
            if re.search(rf"\b{re.escape(fact)}\b", instance.instruction):
                continue
            without = (instance.oracle.answer or "").replace(fact, "")
            assert not instance.verify(f"Done. {without}", instance.oracle.calls).solved
            missing += 1
        if instance.oracle.answer is not None:
            for empty in ("", "  "):
                assert not instance.verify(empty, instance.oracle.calls).solved
    assert missing > 500


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("The cheapest one is ZQ83, and it costs $255.00.", ""),
        ("zq83 (255 dollars)", ""),
        ("ZQ83 for two hundred and fifty-five dollars", "does not say 255"),
        ("ZQ83 costs 225 dollars", "does not say 255"),
        ("ZQ83 and AB12 cost 255 dollars", "says AB12"),
        ("ZQ83 costs 255 to 300 dollars", "says 300"),
    ],
)
def test_only_the_facts_of_an_answer_count(answer: str, reason: str) -> None:
    instance = next(
        candidate
        for seed in range(200)
        for candidate in instances("train", seed, 40)
        if candidate.recipe.intent == "flights.cheapest" and candidate.oracle.answer
    )
    flight, price = instance.oracle.facts
    text = answer.replace("zq83", flight.lower()).replace("ZQ83", flight)
    text = text.replace("255", price).replace("225", f"{int(price) - 2}")
    text = text.replace("300", f"{int(price) + 2}")
    verdict = instance.verify(text, instance.oracle.calls)
    assert reason.replace("255", price).replace("300", f"{int(price) + 2}") in verdict.reason
    assert verdict.solved == (not reason)


def test_giving_up_is_right_only_for_an_unsolvable_instance_and_after_a_try() -> None:
    hopeless = 0
    for instance in every():
        verdict = instance.verify(None, instance.oracle.calls)
        assert verdict.solved == (instance.oracle.answer is None)
        if instance.oracle.answer is None:
            hopeless += 1
            assert not instance.verify("I did it.", instance.oracle.calls).solved
            assert instance.verify(None, ()).solved == (not instance.oracle.steps)
    assert 0.08 < hopeless / (COUNT * len(Split)) < 0.2


def test_a_guess_without_any_call_fails() -> None:
    for instance in every():
        if instance.oracle.steps and not changing(instance.oracle.calls):
            verdict = instance.verify(instance.oracle.answer, ())
            assert verdict.reason == "no tool was asked that could know"


def test_a_run_beyond_the_turn_limit_fails() -> None:
    instance = next(
        candidate
        for candidate in every()
        if len(candidate.oracle.calls) == 1 and candidate.oracle.answer
    )
    calls = instance.oracle.calls * (MAX_CALLS + 1)
    assert "at most 6" in instance.verify(instance.oracle.answer, calls).reason


def test_an_instance_is_rebuilt_from_its_task() -> None:
    for instance in sample(Split.TRAIN)[::3]:
        task = instance.task
        assert rebuild(json.loads(json.dumps(task.instance))) == instance
        assert task.prompt == instance.instruction
        answer = instance.oracle.answer
        assert answer is None or answer not in task.model_dump_json()


def test_the_same_seed_gives_the_same_instances_and_a_longer_list_extends_a_shorter() -> None:
    assert instances("train", 3, 40)[:10] == instances("train", 3, 10)
    assert instances("train", 3, 10) != instances("train", 4, 10)


def test_another_process_generates_the_same_instances() -> None:
    code = (
        "from loopline.agents.environments.api_worlds import instances\n"
        "print(*(each.id for each in instances('unseen_worlds', 11, 20)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == [instance.id for instance in sample(Split.UNSEEN_WORLDS)[:20]]


def test_no_training_instance_or_instruction_is_in_another_split() -> None:
    ids = {split: {instance.id for instance in sample(split)} for split in Split}
    texts = {split: {instance.instruction for instance in sample(split)} for split in Split}
    assert sum(map(len, ids.values())) == len(set().union(*ids.values()))
    for split in HELD_OUT:
        assert not texts[split] & texts[Split.TRAIN]


def test_each_split_holds_out_the_feature_in_its_name() -> None:
    training = {
        "apis": {name for instance in sample(Split.TRAIN) for name in instance.recipe.tools},
        "intents": {instance.recipe.intent for instance in sample(Split.TRAIN)},
        "worlds": {instance.recipe.world for instance in sample(Split.TRAIN)},
        "wordings": {
            part for instance in sample(Split.TRAIN) for part in instance.recipe.wording.split("+")
        },
    }
    for instance in sample(Split.UNSEEN_APIS):
        assert HELD_OUT_APIS & set(INTENTS[instance.recipe.intent].tools)
    assert not HELD_OUT_APIS & training["apis"]
    for instance in sample(Split.UNSEEN_COMBINATIONS):
        assert instance.recipe.intent not in training["intents"]
    for instance in sample(Split.UNSEEN_WORDINGS):
        assert not set(instance.recipe.wording.split("+")) & training["wordings"]
    for instance in sample(Split.UNSEEN_WORLDS):
        assert instance.recipe.world not in training["worlds"]


def test_training_sees_every_value_of_a_choice_and_so_do_unseen_worlds() -> None:
    for split in (Split.TRAIN, Split.UNSEEN_WORLDS):
        instructions = [
            instance.instruction
            for instance in api_worlds.instances(split, 3, 1_000)
            if instance.recipe.intent == "recipes.favorite"
        ]
        assert any(" first " in text for text in instructions)
        assert any(" second " in text for text in instructions)


def test_every_api_is_needed_and_training_needs_all_that_are_not_held_out() -> None:
    needed = {
        split: {tool for part in intents_of(split) for intent in part for tool in intent.tools}
        for split in Split
    }
    assert needed[Split.TRAIN] == set(APIS) - HELD_OUT_APIS
    assert needed[Split.UNSEEN_COMBINATIONS] <= needed[Split.TRAIN]
    together = {
        split: {frozenset(intent.tools) for part in intents_of(split) for intent in part}
        for split in Split
    }
    assert not together[Split.UNSEEN_COMBINATIONS] & together[Split.TRAIN]
    assert len(together[Split.UNSEEN_COMBINATIONS]) >= 10
    assert needed[Split.UNSEEN_APIS] >= HELD_OUT_APIS


def test_the_grammar_is_broad() -> None:
    assert len(SINGLE) >= 60
    assert len(COMBINED) >= 40
    assert all(len(intent.wordings) >= 8 for intent in INTENTS.values())
    assert all(any(w.held_out for w in intent.wordings) for intent in INTENTS.values())
    texts = [wording.text for intent in SINGLE for wording in intent.wordings]
    assert len(set(texts)) == len(texts)
    assert (
        max(Counter(instance.recipe.intent for instance in sample(Split.TRAIN)).values())
        < COUNT / 12
    )


@given(any_instance)
@settings(max_examples=200, deadline=None)
def test_instructions_are_whole_sentences_and_short(instance: Instance) -> None:
    short = [instance.instruction, instance.oracle.answer or ""]
    # The agent may quote every row of a page.
    longer = [instance.oracle.rationale, *(step.rationale for step in instance.oracle.steps)]
    for limit, texts in ((160, short), (400, longer)):
        for text in texts:
            prose = re.sub(r'{"[^{}]*}', "", text) if texts is longer else text
            assert not re.search(r"[{}\[\]|]|\.\.|\bNone\b", prose), text
            assert "  " not in text
            assert len(text) <= limit
    assert 3 <= len(instance.tools) <= 8


def test_a_choice_is_justified_row_by_row() -> None:
    flights = {"origin": "Riga", "to": "Oslo", "day": "Monday", "seats": 2}
    program = INTENTS["flights.book_cheapest"].program(flights)
    assert isinstance(next(program), Step)
    rows = [
        {"flight": "AB10", "price": 90, "seats": 1},
        {"flight": "CD20", "price": 120, "seats": 2},
        {"flight": "EF30", "price": 110, "seats": 5},
    ]
    assert program.send({"flights": rows, "next_page": 2}) == Thought(
        '{"flight":"AB10","price":90,"seats":1} 1 of 2 seats, too few. '
        '{"flight":"CD20","price":120,"seats":2} CD20 120. '
        '{"flight":"EF30","price":110,"seats":5} EF30 110, before CD20 120, better.'
    )
    more = next(program)
    assert isinstance(more, Step)
    assert more.rationale == "So far EF30 with 110 is best. I look at page 2."


def test_the_sought_row_is_quoted_starting_with_the_matching_words() -> None:
    program = INTENTS["flights.cancel_by_flight"].program({"flight": "AZ38"})
    assert isinstance(next(program), Step)
    rows = [{"seats": 1, "flight": "BB10"}, {"booking": "F2", "flight": "AZ38", "seats": 3}]
    assert program.send({"bookings": rows}) == Thought('"flight":"AZ38","booking":"F2","seats":3.')


def test_a_missing_row_is_reported_in_the_same_words_on_every_page() -> None:
    program = INTENTS["library.due"].program({"title": "Iron Wings"})
    assert isinstance(next(program), Step)
    turned = program.send({"loans": [{"title": "Paper Boats", "due": "Friday"}], "next_page": 2})
    assert turned == Step(
        '"title":"Iron Wings" is not there. I look at page 2.', "list_loans", {"page": 2}
    )
    assert program.send({"loans": []}) == Thought('"title":"Iron Wings" is not there.')
    with pytest.raises(Unsolvable, match="There is no Iron Wings"):
        next(program)


def test_the_previous_thought_starts_the_next_rationale() -> None:
    counted = next(instance for instance in every() if instance.recipe.intent == "calendar.count")
    [step], oracle = counted.oracle.steps, counted.oracle
    titles = [row["title"] for row in json.loads(step.observation)["events"]]
    listing = ", ".join(f"{number} {title}" for number, title in enumerate(titles, 1))
    assert oracle.rationale.startswith(f"{listing}. I count {len(titles)} event")


def test_instances_have_the_requested_difficulty() -> None:
    hard = Difficulty(combined=1.0, trouble=0.0, missing=0.0, offered=(8, 8), max_calls=4)
    for instance in instances("train", 1, 60, hard):
        assert "+" in instance.recipe.intent
        assert len(instance.recipe.tools) == 8
        assert instance.oracle.answer is not None
        assert len(instance.oracle.steps) <= 4
    hopeless = Difficulty(trouble=0.0, missing=1.0)
    assert all(candidate.oracle.answer is None for candidate in instances("train", 1, 60, hopeless))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"combined": 1.5}, "combined is a share"),
        ({"trouble": 0.6, "missing": 0.6}, "add up to more than 1"),
        ({"offered": (5, 3)}, "1 to 24 tools"),
        ({"offered": (3, 99)}, "1 to 24 tools"),
        ({"max_calls": 0}, "max_calls must be from 1 to 6"),
    ],
)
def test_an_impossible_difficulty_is_refused(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Difficulty(**knobs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"intent": "flights.teleport"}, "no intent 'flights.teleport'"),
        ({"wording": "no/99"}, "a wording 'no/99'"),
        ({"tools": ["format_disk"]}, "no API 'format_disk'"),
    ],
)
def test_a_recipe_that_makes_no_instance_is_refused(change: JsonObject, message: str) -> None:
    recipe = sample(Split.TRAIN)[0].task.instance
    with pytest.raises(UnfitRecipe, match=message):
        rebuild({**recipe, **change})


def test_an_unknown_split_and_a_negative_number_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no split .test.; .*unseen_apis"):
        next(stream("test", 1))
    with pytest.raises(ValueError, match="cannot generate -1"):
        instances("train", 1, -1)


def test_the_example_in_the_documentation_is_correct() -> None:
    result = doctest.testmod(api_worlds)
    assert result.attempted >= 5
    assert result.failed == 0
