"""One run, live or ended or next to another run, and the actions on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.agents.records import Step
from loopline.runtime.client.edited_prompts import changed_prompts, prompts_of_run
from loopline.runtime.client.waiting import describe_waits, readable_approvals
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.dashboard.approvals_view import approval_row
from loopline.runtime.dashboard.frame import HEADERS, PATH, Frame, new_form_id, number_of
from loopline.runtime.dashboard.sign_in import Viewer, require_change
from loopline.runtime.errors import InputError
from loopline.runtime.gateway.event_stream import event, event_stream
from loopline.runtime.observe.run_history import KnownRun, find_run
from loopline.runtime.observe.run_page.page import render_body
from loopline.runtime.terminal.dialogue import decision_of, milliseconds
from loopline.workers.json_bytes import json_bytes

EDITED_CHARS = 50_000
"""Maximum characters of a question that can be edited, since forms are limited."""
COMPARED_CHARS = 4_000
"""Maximum characters of one step's text in the comparison of two runs."""


@dataclass(frozen=True)
class ComparedStep:
    """A step as shown next to a step of another run."""

    place: str
    agent: str
    decision: str
    text: str
    figures: str


class RunView:
    """Pages below `/dashboard/runs/ID`."""

    def __init__(self, frame: Frame, state: StateDirectory) -> None:
        self._frame = frame
        self._store = state.store

    def routes(self) -> list[Route]:
        page, form = self._frame.page, self._frame.form
        return [
            Route("/compare", page(self._compare), methods=["GET"]),
            Route("/runs/{id}", page(self._page), methods=["GET"]),
            Route("/runs/{id}/record", page(self._record), methods=["GET"]),
            Route("/runs/{id}/body", page(self._body), methods=["GET"]),
            Route("/runs/{id}/events", page(self._events), methods=["GET"]),
            Route("/runs/{id}/cancel", form(self._cancel), methods=["POST"]),
            Route("/runs/{id}/fork", form(self._fork), methods=["POST"]),
            Route("/runs/{id}/reward", form(self._reward), methods=["POST"]),
        ]

    async def _find(self, run_id: str) -> KnownRun:
        """Find a run. Raises `UserError` if neither the bus nor the store has it."""
        return await find_run(self._frame.bus, run_id, self._store)

    async def _page(self, request: Request, viewer: Viewer) -> Response:
        known_run = await self._find(request.path_params["id"])
        return self._frame.render(
            request,
            viewer,
            "run.html.j2",
            title=f"Run {known_run.run.id}",
            run=known_run.run,
            active=known_run.ended is None,
            body=self._panel(known_run, viewer),
            turns=sorted({step.turn for step in known_run.steps}),
            agents=sorted({step.agent for step in known_run.steps}),
            prompts=prompts_of_run(known_run.run),
            form_id=new_form_id(),
            may_edit_question=len(known_run.run.task.prompt) <= EDITED_CHARS,
            rewarded=request.query_params.get("rewarded"),
        )

    async def _record(self, request: Request, viewer: Viewer) -> Response:
        """Send the whole run as JSON, including the parts that the page leaves out."""
        known_run = await self._find(request.path_params["id"])
        record = known_run.ended or {
            "run": known_run.run.model_dump(mode="json"),
            "steps": [step.model_dump(mode="json") for step in known_run.steps],
        }
        body = json_bytes(record) if isinstance(record, dict) else record.model_dump_json()
        return Response(body, headers=HEADERS, media_type="application/json")

    async def _body(self, request: Request, viewer: Viewer) -> Response:
        known_run = await self._find(request.path_params["id"])
        return self._frame.fragment("run_panel.html.j2", **self._panel_values(known_run, viewer))

    def _panel(self, known_run: KnownRun, viewer: Viewer) -> object:
        values = self._panel_values(known_run, viewer)
        return self._frame.part("run_panel.html.j2", path=PATH, **values)

    def _panel_values(self, known_run: KnownRun, viewer: Viewer) -> dict[str, Any]:
        return {
            "viewer": viewer,
            "rows": [*map(approval_row, readable_approvals(known_run.run.id, known_run.waits))],
            "run": known_run.run,
            "active": known_run.ended is None,
            "body": render_body(known_run, priced=self._frame.settings.priced_pools),
            "steps": len(known_run.steps),
            "waits": describe_waits(known_run.waits),
        }

    async def _events(self, request: Request, viewer: Viewer) -> Response:
        """Stream the models' output live: texts by agent, steps, the end."""
        run_id = request.path_params["id"]
        after = request.headers.get("last-event-id", "0-0")
        if not all(part.isdecimal() for part in after.split("-")) or len(after) > 40:
            raise InputError(f"{after[:40]!r} is not the id of an event")
        # After a failure, the browser reconnects with the last id that it has.
        lost = event(orjson.dumps({"kind": "lost", "agent": "", "text": ""}))
        return event_stream(self._follow(run_id, after), lambda _: lost, HEADERS)

    async def _follow(self, run_id: str, after: str) -> AsyncGenerator[bytes]:
        async for item in self._frame.client.follow(run_id, after):
            data = {
                "kind": item.kind,
                "agent": item.fields.get("agent", ""),
                "text": item.fields.get("text", ""),
            }
            yield event(orjson.dumps(data), id=item.id)

    async def _cancel(self, request: Request, viewer: Viewer, form: dict[str, str]) -> Response:
        require_change(viewer)
        run_id = request.path_params["id"]
        await self._frame.client.cancel(run_id, f"cancelled on the dashboard by {_name(viewer)}")
        return self._frame.go_to(f"/runs/{run_id}")

    async def _fork(self, request: Request, viewer: Viewer, form: dict[str, str]) -> Response:
        """Repeat a turn with the form's changes, and show both runs side by side."""
        require_change(viewer)
        known_run = await self._find(request.path_params["id"])
        at_turn = number_of(form, "at_turn")
        seed = number_of(form, "seed")
        question = form.get("question", "").replace("\r\n", "\n")
        texts = {
            file: form[f"prompt:{file}"]
            for file in prompts_of_run(known_run.run)
            if f"prompt:{file}" in form
        }
        run = await self._frame.client.fork(
            known_run.trajectory(),
            int(at_turn or 0),
            seed=None if seed is None else int(seed),
            tags={"forked_by": _name(viewer)},
            prompt_files=changed_prompts(known_run.run, texts),
            question=question if question and question != known_run.run.task.prompt else None,
        )
        return self._frame.go_to("/compare?" + urlencode({"a": known_run.run.id, "b": run.id}))

    async def _reward(self, request: Request, viewer: Viewer, form: dict[str, str]) -> Response:
        require_change(viewer)
        run_id, value = request.path_params["id"], number_of(form, "value")
        if value is None:
            raise InputError("a reward is a number: 1 for good, 0 for bad, or anything between")
        turn = number_of(form, "turn")
        await self._frame.client.reward(
            run_id,
            value,
            agent=form.get("agent") or None,
            turn=None if turn is None else int(turn),
            source=f"dashboard:{_name(viewer)}",
            reward_id=form.get("form_id") or None,
            comment=form.get("comment", "")[:2_000],
        )
        return self._frame.go_to(f"/runs/{run_id}?rewarded={value:g}")

    async def _compare(self, request: Request, viewer: Viewer) -> Response:
        ids = [request.query_params.get(name, "") for name in ("a", "b")]
        if not all(ids):
            raise InputError("two runs are compared: /dashboard/compare?a=ID&b=ID")
        known_runs = await asyncio.gather(*(self._find(run_id) for run_id in ids))
        return self._frame.render(
            request,
            viewer,
            "compare.html.j2",
            title="Two runs",
            runs=known_runs,
            steps=_side_by_side(*(run.steps for run in known_runs)),
            refresh=f"{PATH}/compare?" + urlencode({"a": ids[0], "b": ids[1]}),
            active=any(run.ended is None for run in known_runs),
        )


def _side_by_side(
    first: Sequence[Step], second: Sequence[Step]
) -> list[tuple[ComparedStep | None, ComparedStep | None]]:
    """Pair the steps of the same turn and branch, which are shown next to each other."""
    sides = [
        {(step.turn, step.branch): _compared(step) for step in steps} for steps in (first, second)
    ]
    places = sorted({place for side in sides for place in side})
    return [(sides[0].get(place), sides[1].get(place)) for place in places]


def _compared(step: Step) -> ComparedStep:
    calls = step.candidates[step.selected].calls if step.candidates else ()
    text = "\n\n".join(call.said for call in calls)
    tokens = sum(call.usage.completion for call in step.calls)
    seconds = max(0.0, step.timings.ended - step.timings.started)
    return ComparedStep(
        place=f"{step.turn}.{step.branch}" if step.branch else f"{step.turn}",
        agent=step.agent,
        decision=decision_of(step),
        text=text if len(text) <= COMPARED_CHARS else text[:COMPARED_CHARS] + "…",
        figures=f"{tokens:,} tokens, {milliseconds(seconds)}",
    )


def _name(viewer: Viewer) -> str:
    return viewer.key.name or viewer.key.id
