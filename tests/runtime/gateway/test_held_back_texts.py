"""A draft that a ladder refuses reaches no client that streams the text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.runtime.gateway.conftest import streamed, text_of
from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving

WRONG, RIGHT, PLAIN = "2 + 2 = 5, I am sure.", "2 + 2 = 4, of course.", "Hello from the small one."


def script(**answers: str) -> str:
    rules = [{"where": [question], "says": [text]} for question, text in answers.items()]
    return json.dumps({"answers": rules})


@pytest.fixture(scope="module")
def climbing() -> Iterator[ScriptedGateway]:
    with serving(
        f"models.slm.scripted={script(Add=WRONG, Greet=PLAIN)}",
        f"models.llm.scripted={script(Add=RIGHT, Greet='Hello from the big one.')}",
        "policies.agent=slm",
        f"options.agent.escalation={json.dumps({'arithmetic': True})}",
    ) as gateway:
        yield gateway


def followed(gateway: ScriptedGateway, question: str) -> tuple[list[tuple[str, str]], Any]:
    """Agent and text of each of the run's text events, in order; and the run."""
    body = {"workflow": "agent", "prompt": question, "stream": True}
    with gateway.client() as client:
        run_id = client.post("/v1/runs", json=body).json()["id"]
        lines = client.get(f"/v1/runs/{run_id}/events").text.splitlines()
        run = client.get(f"/v1/runs/{run_id}").json()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data:")]
    return [(e["agent"], e["text"]) for e in events if e["type"] in ("tokens", "restart")], run


def test_events_contain_the_big_models_text_but_no_refused_draft(
    climbing: ScriptedGateway,
) -> None:
    texts, run = followed(climbing, "Add two and two.")
    assert {agent for agent, _ in texts} == {"agent.big"}
    assert "".join(text for _, text in texts) == RIGHT
    assert run["answer"] == RIGHT
    drafts = [call["text"] for call in run["steps"][0]["candidates"][0]["calls"]]
    assert drafts == [WRONG, RIGHT], "the record has both"


def test_an_accepted_draft_arrives_with_its_step(climbing: ScriptedGateway) -> None:
    texts, run = followed(climbing, "Greet me.")
    assert texts == []
    assert run["answer"] == PLAIN


async def test_a_streamed_chat_with_a_team_contains_only_the_answer(
    climbing: ScriptedGateway,
) -> None:
    async with climbing.http() as http:
        body = {
            "model": "workflow/agent",
            "messages": [{"role": "user", "content": "Add two and two."}],
        }
        assert text_of(await streamed(http, body)) == RIGHT
