"""The native API, `/v1/runs`: the features of `runtime ask` and `runtime runs`, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.agents.errors import AgentError
from loopline.agents.records import Outcome, Run
from loopline.agents.workflows import workflows
from loopline.bus import (
    RunState,
    is_entry_id,
    pool_of,
)
from loopline.runtime.client.edited_prompts import changed_prompts
from loopline.runtime.client.run_ids import new_run_id
from loopline.runtime.client.run_records import run_of, steps_of, trajectory_of
from loopline.runtime.gateway import idempotency, webhooks
from loopline.runtime.gateway.api_keys import ApiKey
from loopline.runtime.gateway.errors import (
    ApiError,
    invalid,
    not_allowed,
    validated,
)
from loopline.runtime.gateway.event_stream import event, event_stream
from loopline.runtime.gateway.http import Http, check_query, json_response, number_in
from loopline.runtime.gateway.http_spans import trace_tags
from loopline.runtime.gateway.runs_request import (
    CreateRun,
    Feedback,
    ForkRun,
    ListedRun,
    run_body,
)
from loopline.runtime.gateway.service import RESERVED_TAGS, Service
from loopline.runtime.gateway.sessions import TAG, session_of
from loopline.runtime.observe.run_index import PassedRuns, Place, RunQuery, find_runs

MAX_LISTED = 100
_STATES = ("active", "waiting", *map(str, Outcome))


class RunsApi:
    """Handlers of the routes."""

    def __init__(self, service: Service, http: Http) -> None:
        self._service = service
        self._client = service.client
        self._bus = service.client.bus
        self._http = http
        self._priced = frozenset(service.settings.priced_pools)
        self._passed = PassedRuns()

    def routes(self) -> list[Route]:
        return [
            Route("/v1/runs", self.create, methods=["POST"]),
            Route("/v1/runs", self.list, methods=["GET"]),
            Route("/v1/runs/{id}", self.get, methods=["GET"]),
            Route("/v1/runs/{id}/events", self.events, methods=["GET"]),
            Route("/v1/runs/{id}/cancel", self.cancel, methods=["POST"]),
            Route("/v1/runs/{id}/fork", self.fork, methods=["POST"]),
            Route("/v1/runs/{id}/feedback", self.feedback, methods=["POST"]),
            Route("/v1/sessions/{session}/feedback", self.session_feedback, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        caller = await self._http.caller(request)
        body = await self._http.body(request)
        params = validated(CreateRun, body, strict=True)
        _refuse_reserved(params.tags)
        model = f"workflow/{params.workflow}"
        if not caller.allows(model):
            raise not_allowed(model)
        self._check_policies(caller, params.policies)
        _require_tools(params)
        if params.webhook is not None:
            await webhooks.check_url(params.webhook, self._service.settings.gateway)
        claimed = await self._claimed(request, caller, "runs", body, params.start_after)
        run_id = claimed.id
        state = await self._bus.run_state(run_id)
        if state.state == "missing":
            await self._submit(caller, params, claimed, trace_tags(request, run_id))
            state = await self._bus.run_state(run_id)
        return json_response(self._body(state), 202, {"location": f"/v1/runs/{run_id}"})

    async def _claimed(
        self,
        request: Request,
        caller: ApiKey,
        route: str,
        body: Mapping[str, Any],
        delay: float = 0.0,
    ) -> idempotency.ClaimedRun:
        """Return the run that a request starts, or has started earlier with the same key."""
        key = request.headers.get(idempotency.HEADER)
        if key is None:
            return idempotency.ClaimedRun(new_run_id(self._bus.clock.now()), "")
        digest = idempotency.digest_of(route, body)
        return await idempotency.run_of_key(self._bus, caller.id, key, digest, delay)

    async def _submit(
        self,
        caller: ApiKey,
        params: CreateRun,
        claimed: idempotency.ClaimedRun,
        trace: dict[str, str],
    ) -> None:
        messages = params.conversation
        users = [message.content for message in messages if message.role == "user"]
        run = self._client.new_run(
            params.prompt or (users[-1] if users else ""),
            messages=messages,
            workflow=params.workflow,
            policies=params.policies,
            options=params.all_options,
            generation=params.generation.options,
            stream=params.stream,
            seed=params.seed,
            budget=params.run_budget(self._service.settings.gateway.run_seconds),
            tags={**params.tags, **caller.tags, **trace},
            run_id=claimed.id,
            account=caller.id,
            webhook=params.webhook,
        )
        await self._client.submit(
            run,
            delay=params.start_after,
            key_limits=caller.limits,
            idempotency=claimed.digest,
        )

    async def list(self, request: Request) -> Response:
        """List the caller's newest runs, including those of the chat API. With a narrow filter, an
        answer may contain fewer runs than requested and still set `has_more`: the next page
        continues after it."""
        caller = await self._http.caller(request)
        query = request.query_params
        check_query(request, "limit", "status", "workflow", "tag", "before")
        if query.get("status", "") not in ("", *_STATES):
            raise invalid(f"status: {', '.join(_STATES)}", "status", "invalid_value")
        limit = number_in(query.get("limit", "20"), "limit", 1, MAX_LISTED)
        tags: dict[str, str] = {}
        for part in query.getlist("tag"):
            name, equals, value = part.partition("=")
            if not equals:
                raise invalid(f"tag: NAME=VALUE, not {part[:64]!r}", "tag", "invalid_value")
            tags[name] = value
        wanted = RunQuery(
            workflow=query.get("workflow", ""),
            state=query.get("status", ""),
            tags=tags,
            account=caller.id,
        )
        after = None if "before" not in query else await self._place(caller, query["before"])
        page = await find_runs(self._bus, wanted, limit, after, self._passed)
        data = [
            ListedRun(
                id=line.id,
                workflow=line.workflow,
                status=line.state,
                created=line.created,
                tags=dict(line.tags),
                session=line.tags.get(TAG),
            ).model_dump(mode="json")
            for line in page.lines
        ]
        last = page.lines[-1].id if page.lines else None
        more = page.next_page
        return json_response(
            {
                "object": "list",
                "data": data,
                "last_id": last if more is None else more.run_id,
                "has_more": more is not None,
            }
        )

    async def _place(self, caller: ApiKey, run_id: str) -> Place:
        """Return the place of a run in the caller's list. Raises `ApiError`."""
        state = await self._bus.run_state(run_id)
        if state.state == "missing" or run_of(state).account != caller.id:
            raise invalid(f"before: the bus has no run {run_id[:64]!r} of this key", "before")
        return Place(round(state.admitted * 1000), run_id)

    async def get(self, request: Request) -> Response:
        _, state = await self._own(request)
        return json_response(self._body(state))

    async def events(self, request: Request) -> Response:
        """Stream the events of a run after any event, until the run has ended."""
        run, _ = await self._own(request)
        after = request.headers.get("last-event-id") or request.query_params.get("after") or "0-0"
        if not is_entry_id(after):
            raise invalid(f"{after[:64]!r} is not the id of an event", code="invalid_event_id")
        return event_stream(self._events(run.id, after), _error_event)

    async def _events(self, run_id: str, after: str) -> AsyncGenerator[bytes]:
        async with aclosing(self._client.follow(run_id, after)) as entries:
            async for entry in entries:
                body = orjson.dumps({"type": entry.kind, **entry.fields})
                yield event(body, id=entry.id, name=entry.kind)

    async def cancel(self, request: Request) -> Response:
        run, _ = await self._own(request)
        await self._client.cancel(run.id)
        return json_response(self._body(await self._bus.run_state(run.id)))

    async def fork(self, request: Request) -> Response:
        caller = await self._http.caller(request)
        _, state = await self._own(request)
        body = await self._http.body(request)
        params = validated(ForkRun, body, strict=True)
        _refuse_reserved(params.tags)
        if state.active:
            raise ApiError(409, "a run can be forked once it has ended", code="run_active")
        self._check_policies(caller, params.policies)
        parent = run_of(state)
        claimed = await self._claimed(request, caller, f"runs/{parent.id}/fork", body)
        run_id = claimed.id
        forked = await self._bus.run_state(run_id)
        if forked.state == "missing":
            await self._client.fork(
                trajectory_of(state),
                params.at_turn,
                seed=params.seed,
                policies=params.policies,
                tags={**params.tags, **caller.tags, **trace_tags(request, run_id)},
                prompt_files=changed_prompts(parent, params.prompts),
                question=params.question,
                run_id=run_id,
                key_limits=caller.limits,
                idempotency=claimed.digest,
            )
            forked = await self._bus.run_state(run_id)
        return json_response(self._body(forked), 202, {"location": f"/v1/runs/{run_id}"})

    async def feedback(self, request: Request) -> Response:
        """Post a reward for an earlier run, also for a run that has left the bus: whether it was
        the caller's run is then checked when the store is read."""
        caller = await self._http.caller(request)
        state = await self._bus.run_state(request.path_params["id"])
        if state.state != "missing" and run_of(state).account != caller.id:
            raise _not_found(request.path_params["id"])
        params = validated(Feedback, await self._http.body(request), strict=True)
        posted = await self._client.reward(
            request.path_params["id"],
            params.value,
            agent=params.agent,
            turn=params.turn,
            source=params.source,
            reward_id=params.id,
            comment=params.comment,
            account=caller.id,
        )
        return json_response({"object": "reward", "id": posted.reward.id, "new": posted.new}, 202)

    async def session_feedback(self, request: Request) -> Response:
        """Post a reward for every trajectory of a session of the caller."""
        caller = await self._http.caller(request)
        session_of(request.path_params["session"], None, caller.id)  # raises for an invalid name
        params = validated(Feedback, await self._http.body(request), strict=True)
        if params.turn is not None:
            raise invalid("a session's reward can't have a turn", "turn")
        posted = await self._client.reward_session(
            request.path_params["session"],
            params.value,
            agent=params.agent,
            source=params.source,
            reward_id=params.id,
            comment=params.comment,
            account=caller.id,
        )
        return json_response({"object": "reward", "id": posted.reward.id, "new": posted.new}, 202)

    async def _own(self, request: Request) -> tuple[Run, RunState]:
        """Return a run of the caller. Raises `ApiError` 404, also for another caller's run."""
        caller = await self._http.caller(request)
        run_id = request.path_params["id"]
        state = await self._bus.run_state(run_id)
        if state.state != "missing":
            run = run_of(state)
            if run.account == caller.id:
                return run, state
        raise _not_found(run_id)

    def _check_policies(self, caller: ApiKey, named: Mapping[str, str]) -> None:
        """Check the policies. Raises `ApiError` for a policy that no pool serves or that the caller
        may not use."""
        pools = self._service.settings.models
        for role, policy in named.items():
            if pool_of(policy) not in pools:
                raise invalid(
                    f"policies.{role[:64]}: there is no pool {pool_of(policy)[:64]!r}; there are:"
                    f" {', '.join(pools)}",
                    f"policies.{role[:64]}",
                )
            if not caller.allows(policy):
                raise not_allowed(policy)

    def _body(self, state: RunState) -> dict[str, Any]:
        return run_body(run_of(state), state, steps_of(state), self._priced)


def _not_found(run_id: str) -> ApiError:
    return ApiError(404, f"the bus has no run {run_id[:64]!r}", code="run_not_found")


def _error_event(error: ApiError) -> bytes:
    return event(orjson.dumps({"type": "error", **error.body}), name="error")


def _require_tools(params: CreateRun) -> None:
    """Check the option. Raises `ApiError` for tools if the workflow has no option for them."""
    if params.tools is None or params.workflow not in workflows.names():
        return  # the creation of the run reports an unknown workflow
    try:
        workflows.get(params.workflow).check_options({"tools": []})
    except AgentError as error:
        raise invalid(
            f"tools: the workflow {params.workflow!r} takes none from its caller, as `agent` does:"
            f" {error}",
            "tools",
            "unsupported_parameter",
        ) from error


def _refuse_reserved(tags: dict[str, str]) -> None:
    for tag in RESERVED_TAGS:
        if tag in tags:
            raise invalid(f"the tag {tag!r} is the gateway's own", "tags")
