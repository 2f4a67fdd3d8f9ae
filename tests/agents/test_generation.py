"""Options that a caller sets for a run's completions, and the agents of a team that they reach."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from loopline.agents.errors import UnsupportedGeneration
from loopline.agents.generation import generation_of, require_honoured
from loopline.agents.records import GenerationOptions, JsonObject, ToolChoice
from loopline.agents.template_options import TemplateValue
from loopline.bus import BusSettings
from loopline.runtime.client.client import Client
from loopline.runtime.errors import InputError
from tests.agents.conversations import a_run

EVERYTHING = GenerationOptions(
    temperature=0.5,
    top_p=0.9,
    top_k=20,
    frequency_penalty=0.1,
    max_tokens=9,
    stop=("\n",),
    seed=3,
    reasoning_effort="low",
)
SAMPLING = GenerationOptions(temperature=0.5, top_p=0.9, top_k=20, frequency_penalty=0.1)
ROW: JsonObject = {
    "team": {
        "kind": "sequence",
        "parts": [
            {"kind": "agent", "name": "writer"},
            {
                "kind": "parallel",
                "parts": [{"kind": "agent", "name": "a"}, {"kind": "agent", "name": "b"}],
            },
        ],
    }
}


@pytest.mark.parametrize(
    ("workflow", "options", "answering", "others"),
    [
        ("solo", {}, ["solo"], []),
        ("delegate", {}, ["planner"], ["slm", "expert"]),
        ("umi", {}, ["umi_summarizer"], ["umi_planner", "umi_caller"]),
        ("umi_single", {}, ["umi_single"], []),
        ("agent", {}, ["agent"], []),
        ("completion", {"prompt": "api_call"}, ["completion"], []),
        ("team", ROW, ["a", "b"], ["writer"]),
    ],
)
def test_length_limits_reach_the_answering_role_and_sampling_options_all_roles(
    workflow: str, options: JsonObject, answering: list[str], others: list[str]
) -> None:
    require_honoured(workflow, options, EVERYTHING)
    altered = {"options": options, "generation": EVERYTHING}
    run = a_run(workflow).model_copy(update=altered)
    for agent in answering:
        assert generation_of(run, agent, None) == EVERYTHING
    for agent in others:
        assert generation_of(run, agent, None) == SAMPLING


def test_the_caller_s_options_override_the_agent_s() -> None:
    of_agent = GenerationOptions(
        temperature=1.0, top_p=0.3, tool_choice=ToolChoice(mode="required")
    )
    run = a_run("agent")
    assert generation_of(run, "agent", of_agent) is of_agent
    altered = run.model_copy(update={"generation": GenerationOptions(temperature=0.0)})
    assert generation_of(altered, "agent", of_agent) == of_agent.model_copy(
        update={"temperature": 0.0}
    )


@pytest.mark.parametrize(
    ("workflow", "generation", "field"),
    [
        ("delegate", GenerationOptions(n=2), "n"),
        ("solo", GenerationOptions(token_texts=True), "token_texts"),
        ("agent", GenerationOptions(tool_choice=ToolChoice(mode="none")), "tool_choice"),
        ("umi", GenerationOptions(parallel_tool_calls=False), "parallel_tool_calls"),
        ("pair", GenerationOptions(temperature=0.2), "temperature"),
    ],
)
def test_an_option_that_a_workflow_cannot_honour_is_refused_by_name(
    workflow: str, generation: GenerationOptions, field: str
) -> None:
    with pytest.raises(UnsupportedGeneration, match=f"'{workflow}' cannot honour '{field}'") as why:
        require_honoured(workflow, {}, generation)
    assert why.value.field == field


def test_a_chat_accepts_every_option_of_a_chat_api() -> None:
    whole = EVERYTHING.model_copy(
        update={"n": 3, "token_texts": True, "tool_choice": ToolChoice(mode="required")}
    )
    require_honoured("chat", {}, whole)
    run = a_run("chat").model_copy(update={"generation": whole})
    assert generation_of(run, "chat", None) == whole


def test_the_caller_s_seed_becomes_the_run_s_seed() -> None:
    client = Client(BusSettings())
    run = client.new_run("?", generation=GenerationOptions(seed=7), seed=1)
    assert (run.seed, run.generation) == (7, GenerationOptions(seed=7))
    assert client.new_run("?", generation=GenerationOptions()).generation is None
    with pytest.raises(InputError, match="cannot honour 'n'"):
        client.new_run("?", generation=GenerationOptions(n=2))


def test_options_for_one_agent_apply_only_to_it_and_override_the_general_ones() -> None:
    of_writer = GenerationOptions(temperature=0.2, max_tokens=7)
    generation = GenerationOptions(temperature=0.9, agents={"a": of_writer})
    require_honoured("team", ROW, generation)
    run = a_run("team").model_copy(update={"options": ROW, "generation": generation})
    assert generation_of(run, "a", None) == of_writer
    assert generation_of(run, "b", None) == GenerationOptions(temperature=0.9)
    only = a_run("pair").model_copy(
        update={"generation": GenerationOptions(agents={"plan_agent": of_writer})}
    )
    assert generation_of(only, "plan_agent", None) == of_writer
    assert generation_of(only, "tool_agent", None) == GenerationOptions()


def test_a_seed_for_one_agent_is_refused() -> None:
    generation = GenerationOptions(agents={"planner": GenerationOptions(seed=1)})
    with pytest.raises(UnsupportedGeneration, match="'seed' can't be set for one agent"):
        require_honoured("delegate", {}, generation)


def test_template_switches_apply_to_all_agents_unless_one_agent_overrides_them() -> None:
    off = GenerationOptions(template_options={"enable_thinking": False})
    both = GenerationOptions(template_options={"enable_thinking": True, "style": "short"})
    generation = both.model_copy(update={"agents": {"a": off}})
    require_honoured("team", ROW, generation)
    run = a_run("team").model_copy(update={"options": ROW, "generation": generation})
    of_a: dict[str, TemplateValue] = {"enable_thinking": False, "style": "short"}
    assert generation_of(run, "a", None) == GenerationOptions(template_options=of_a)
    assert generation_of(run, "b", None) == both
    of_agent = GenerationOptions(agents={"plan_agent": off})
    pair = a_run("pair").model_copy(update={"generation": of_agent})
    assert generation_of(pair, "plan_agent", None) == off
    assert generation_of(pair, "tool_agent", None) == GenerationOptions()


def test_a_switch_that_could_write_turn_markup_is_refused() -> None:
    with pytest.raises(ValidationError, match="has at most 100 letters"):
        GenerationOptions(template_options={"style": "<|im_end|>"})
