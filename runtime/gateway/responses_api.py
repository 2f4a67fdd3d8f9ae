"""`/v1/responses`: OpenAI's Responses API, as Open Responses specifies it. Each response is a run.

A response that its caller deleted, or asked not to store, stays on the bus as long as any run,
since it is journalled. But this API no longer returns it, and no response can continue it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.agents.records import (
    Call,
    GenerationOptions,
    Message,
    SamplingParams,
    Trajectory,
)
from loopline.agents.roles.chat import ChatOptions
from loopline.bus import RunState
from loopline.runtime.client.run_records import run_of, steps_of, trajectory_of
from loopline.runtime.gateway import idempotency, sessions
from loopline.runtime.gateway.api_keys import ApiKey
from loopline.runtime.gateway.chat_response import answer_of, content_of
from loopline.runtime.gateway.compaction import CompactRequest, compacted, summary_request
from loopline.runtime.gateway.errors import ApiError, invalid, validated
from loopline.runtime.gateway.event_stream import event, event_stream
from loopline.runtime.gateway.http import (
    Http,
    check_query,
    flag_in,
    json_response,
    number_in,
    run_headers,
    while_connected,
)
from loopline.runtime.gateway.http_spans import note_joined, trace_tags
from loopline.runtime.gateway.models import WORKFLOW
from loopline.runtime.gateway.responses_body import (
    ResponseView,
    record_of,
    response_id,
    response_usage,
)
from loopline.runtime.gateway.responses_items import (
    Item,
    ItemReference,
    check_calls,
    forms_of,
    input_items,
    items_of,
    messages_of,
    outputs_after_calls,
    run_of_item,
    stored_item,
)
from loopline.runtime.gateway.responses_request import ResponseRecord, ResponseRequest
from loopline.runtime.gateway.responses_stream import Event, ResponseStream, error_event
from loopline.runtime.gateway.responses_tools import ToolForm
from loopline.runtime.gateway.service import (
    RESERVED_TAGS,
    RESPONSE_TAG,
    Admitted,
    Question,
    Service,
)

CANCELLED = "its caller cancelled the response"
MAX_REFERENCES = 64
"""Maximum references in one input: each item is read from the bus with its run."""
MAX_PAGE = 100


@dataclass(frozen=True)
class Asked:
    """An admitted response."""

    admitted: Admitted
    view: ResponseView
    params: ResponseRequest


class _Conversation(NamedTuple):
    messages: tuple[Message, ...]
    previous: Call | None
    """Call whose token ids the messages continue."""
    tool_forms: dict[str, ToolForm]
    """Forms of the tools that were called."""


class ResponsesApi:
    """Handlers of the routes."""

    def __init__(self, service: Service, http: Http) -> None:
        self._service = service
        self._http = http

    def routes(self) -> list[Route]:
        routes: list[Route] = []
        for prefix in ("/v1", "/sessions/{session}/v1"):
            whole = f"{prefix}/responses/{{id}}"
            routes += [
                Route(f"{prefix}/responses", self.create, methods=["POST"]),
                Route(f"{prefix}/responses/compact", self.compact, methods=["POST"]),
                Route(whole, self.get, methods=["GET"]),
                Route(whole, self.delete, methods=["DELETE"]),
                Route(f"{whole}/cancel", self.cancel, methods=["POST"]),
                Route(f"{whole}/input_items", self.list_input, methods=["GET"]),
            ]
        return routes

    async def create(self, request: Request) -> Response:
        caller = await self._http.caller(request)
        body = await self._http.body(request)
        key = request.headers.get(idempotency.HEADER)
        last_seen = _last_seen(request)  # refused before the run is admitted, and paid for
        if last_seen >= 0 and body.get("stream"):
            idempotency.check_continued(key)
        question = await self.admit(request, caller, body, key=key)
        admitted, view, params = question.admitted, question.view, question.params
        if params.background:
            admitted = replace(admitted, outlives_client=True)
        if params.stream:
            return self._stream(admitted, view, last_seen)
        if params.background:
            return await self._present(admitted, view)

        def response_of(trajectory: Trajectory) -> Response:
            answer_of(trajectory, view.model)  # raises if there is no answer
            return json_response(view.ended(trajectory), headers=run_headers(admitted))

        response = await while_connected(request, self._service.wait(admitted, response_of))
        return Response(status_code=499) if response is None else response  # 499: client gone

    async def admit(
        self,
        request: HTTPConnection,
        caller: ApiKey,
        body: dict[str, Any],
        *,
        key: str | None = None,
        unstored: frozenset[str] = frozenset(),
    ) -> Asked:
        """Admit a response. `unstored`: ids of responses that the caller may continue although they
        are not stored. Raises `ApiError`."""
        params = validated(ResponseRequest, body, strict=True)
        _check(params)
        conversation = await self._conversation(params, caller, unstored)
        options = params.options.model_copy(update={"previous": conversation.previous})
        record = params.record
        forms = {**conversation.tool_forms, **record.tool_forms}
        record = record.model_copy(update={"tool_forms": forms})
        admitted = await self._service.admit(
            Question(
                caller=caller,
                model=params.model,
                messages=conversation.messages,
                options=options,
                generation=params.generation,
                tags={**(params.metadata or {}), RESPONSE_TAG: _json(record)},
                stream=bool(params.stream),
                session=self._session(request, caller),
                idempotency_key=key,
                body_digest=idempotency.digest_of("responses", body),
                trace_tags=partial(trace_tags, request),
            )
        )
        note_joined(request, admitted.run.id)
        return Asked(admitted, self._view(admitted, record), params)

    def events(self, admitted: Admitted, view: ResponseView) -> AsyncGenerator[Event]:
        """Yield the events of a response from its start. Raises `ApiError`."""
        return self._service.render(admitted, ResponseStream(view))

    async def compact(self, request: Request) -> Response:
        """Replace everything in a conversation except its user's messages with a model's summary.
        This is a normal run but not a response: no response can continue from its id."""
        caller = await self._http.caller(request)
        body = await self._http.body(request)
        params = validated(CompactRequest, body, strict=True)
        if params.model.startswith(WORKFLOW):
            raise invalid("a conversation is compacted by a model, not by a team", "model")
        messages = (await self._conversation(params, caller)).messages
        admitted = await self._service.admit(
            Question(
                caller=caller,
                model=params.model,
                messages=summary_request(messages),
                options=ChatOptions(),
                generation=GenerationOptions(),
                tags={},
                stream=False,
                session=self._session(request, caller),
                idempotency_key=request.headers.get(idempotency.HEADER),
                body_digest=idempotency.digest_of("compact", body),
                trace_tags=partial(trace_tags, request),
            )
        )

        def response_of(trajectory: Trajectory) -> Response:
            run, answer = admitted.run, answer_of(trajectory, params.model)
            summary = content_of(answer.choices[0].message)
            if not summary:
                raise ApiError(
                    502, f"the model '{params.model}' wrote no summary", code="no_summary"
                )
            return json_response(
                compacted(run.id, int(run.created), messages, summary, response_usage(trajectory)),
                headers=run_headers(admitted),
            )

        response = await while_connected(request, self._service.wait(admitted, response_of))
        return Response(status_code=499) if response is None else response  # 499: client gone

    async def get(self, request: Request) -> Response:
        """Return a response in its current state, or its events after a given event."""
        admitted, view = await self._stored(request)
        if flag_in(request, "stream"):
            return self._stream(admitted, view, _last_seen(request))
        return await self._present(admitted, view)

    async def delete(self, request: Request) -> Response:
        """Cancel the response if it is in progress, and never return it again."""
        admitted, view = await self._stored(request)
        bus, run_id = self._service.client.bus, view.run.id
        life = int(bus.settings.retention_seconds * 1000)
        await bus.redis.set(bus.keys.deleted(run_id), 1, px=life)
        await self._service.client.cancel(run_id, CANCELLED)
        return json_response(
            {"id": response_id(run_id), "object": "response", "deleted": True},
            headers=run_headers(admitted),
        )

    async def cancel(self, request: Request) -> Response:
        """Cancel the response if it is in progress, and return it."""
        admitted, view = await self._stored(request)
        await self._service.client.cancel(admitted.run.id, CANCELLED)
        return await self._present(admitted, view)

    async def list_input(self, request: Request) -> Response:
        """Return the model's input conversation without the instructions; last item first unless
        the order is `asc`."""
        _, view = await self._stored(request)
        # `include` names parts of items that are always included.
        check_query(request, "limit", "order", "after", "include", "include[]")
        items = _input_of(view)
        query = request.query_params
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise invalid("order: 'asc' or 'desc'", "order", "invalid_value")
        count = number_in(query.get("limit", "20"), "limit", 1, MAX_PAGE)
        if order == "desc":
            items.reverse()
        if after := query.get("after"):
            ids = [item["id"] for item in items]
            if after not in ids:
                raise invalid(f"after: no item has the id {after[:128]!r}", "after")
            items = items[ids.index(after) + 1 :]
        page = items[:count]
        return json_response(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": len(items) > len(page),
            }
        )

    def _session(self, request: HTTPConnection, caller: ApiKey) -> sessions.Session | None:
        return sessions.session_of(
            request.path_params.get("session"), request.headers.get(sessions.HEADER), caller.id
        )

    async def _conversation(
        self,
        params: ResponseRequest | CompactRequest,
        caller: ApiKey,
        unstored: frozenset[str] = frozenset(),
    ) -> _Conversation:
        items = await self._with_references(items_of(params.input or []), caller)
        instructions = (
            (Message(role="system", content=params.instructions),) if params.instructions else ()
        )
        earlier: tuple[Message, ...] = ()
        call: Call | None = None
        forms = forms_of(items)
        if params.previous_response_id is not None:
            view, answer, call = await self._earlier(params.previous_response_id, caller, unstored)
            earlier = (*_without_instructions(view), answer)
            forms = {**view.record.tool_forms, **forms}
            begins_alike = (*instructions, *earlier) == (*view.run.task.messages, answer)
            if not begins_alike or view.model != params.model.partition("@")[0]:
                call = None
        messages = outputs_after_calls((*instructions, *earlier, *messages_of(items)))
        check_calls(messages)
        return _Conversation(messages, call and sessions.ids_of(call), forms)

    async def _earlier(
        self, earlier_id: str, caller: ApiKey, unstored: frozenset[str]
    ) -> tuple[ResponseView, Message, Call | None]:
        """Return the response that another one continues, its answer, and the call that produced
        it."""
        param = "previous_response_id"
        missing = ApiError(
            404,
            f"Previous response with id '{earlier_id}' not found.",
            code="previous_response_not_found",
            param=param,
        )
        try:
            admitted, view = await self._find(earlier_id, caller, unstored)
        except ApiError as error:
            raise (missing if error.status == 404 else error) from error
        state = await self._state(admitted)
        if state.state == "missing":
            raise missing
        if state.active:
            raise invalid(f"response '{earlier_id}' is not completed yet", param)
        try:
            choice = answer_of(trajectory_of(state), view.model).choices[0]
        except ApiError as error:
            raise invalid(
                f"response '{earlier_id}' has no answer to continue from: {error.message}", param
            ) from error
        return view, choice.message, choice.call

    async def _with_references(self, items: list[Item], caller: ApiKey) -> list[Item]:
        """Return the items with references replaced by the referenced items. Raises `ApiError`."""
        names = [item.id for item in items if isinstance(item, ItemReference)]
        if len(names) > MAX_REFERENCES:
            raise invalid(f"input has {len(names)} references; the limit is {MAX_REFERENCES}")
        runs = {run_id for name in names if (run_id := run_of_item(name)) is not None}
        stored: list[dict[str, Any]] = []
        for run_id in runs:
            stored += await self._items_of(run_id, caller)
        return [
            stored_item(item.id, stored, f"input[{index}]")
            if isinstance(item, ItemReference)
            else item
            for index, item in enumerate(items)
        ]

    async def _items_of(self, run_id: str, caller: ApiKey) -> Sequence[dict[str, Any]]:
        """Return a response's input and output; empty if it is not this caller's or not stored."""
        try:
            admitted, view = await self._find(response_id(run_id), caller)
        except ApiError as error:
            if error.status == 404:
                return ()
            raise
        state = await self._state(admitted)
        output: list[dict[str, Any]] = []
        if state.state == "ended":
            output = view.ended(trajectory_of(state))["output"]
        return [*_input_of(view), *output]

    async def _stored(self, request: Request) -> tuple[Admitted, ResponseView]:
        caller = await self._http.caller(request)
        return await self._find(request.path_params["id"], caller)

    async def _find(
        self, name: str, caller: ApiKey, unstored: frozenset[str] = frozenset()
    ) -> tuple[Admitted, ResponseView]:
        """Return a response of this caller that is stored or in `unstored`. Raises `ApiError` 404
        for any other."""
        missing = ApiError(
            404, f"Response with id '{name[:256]}' not found.", code="response_not_found"
        )
        if not name.startswith("resp_"):
            raise missing
        try:
            admitted = await self._service.find(name.removeprefix("resp_"), caller)
        except ApiError as error:
            raise (missing if error.status == 404 else error) from error
        record = record_of(admitted.run)
        bus = self._service.client.bus
        if record is None or not (record.store or name in unstored):
            raise missing
        if await bus.redis.exists(bus.keys.deleted(name[5:])):
            raise missing
        return admitted, self._view(admitted, record)

    def _view(self, admitted: Admitted, record: ResponseRecord) -> ResponseView:
        model = self._service.model_of(admitted.run)
        pool = self._service.settings.models.get(model.partition("/")[0])
        usual = pool.sampling(endpoint_defaults=True) if pool else SamplingParams(temperature=1.0)
        return ResponseView(admitted.run, record, model, usual.temperature, usual.top_p)

    async def _state(self, admitted: Admitted) -> RunState:
        return await self._service.client.bus.run_state(admitted.run.id)

    async def _present(self, admitted: Admitted, view: ResponseView) -> Response:
        """Return the response in its current state."""
        state = await self._state(admitted)
        run_of(state)
        if not state.active:
            body = view.ended(trajectory_of(state))
        elif view.record.background and not steps_of(state) and not await self._has_begun(view):
            body = view.body("queued")
        else:
            body = view.body("in_progress")
        return json_response(body, headers=run_headers(admitted))

    async def _has_begun(self, view: ResponseView) -> bool:
        bus = self._service.client.bus
        return bool(await bus.redis.exists(bus.keys.shard_of(view.run.id).log(view.run.id)))

    def _stream(self, admitted: Admitted, view: ResponseView, after: int) -> Response:
        sent = _Frames(self.events(admitted, view), after)
        return event_stream(sent.all(), sent.error, run_headers(admitted))


class _Frames:
    """Encodes the events after a given event."""

    def __init__(self, events: AsyncGenerator[Event], after: int) -> None:
        self._events = events
        self._last = after

    async def all(self) -> AsyncGenerator[bytes]:
        after = self._last
        async with aclosing(self._events) as events:
            async for item in events:
                if item["sequence_number"] > after:
                    self._last = item["sequence_number"]
                    yield event(orjson.dumps(item), id=str(self._last), name=item["type"])
        yield event(b"[DONE]")

    def error(self, error: ApiError) -> bytes:
        item = error_event(error, self._last)
        return event(orjson.dumps(item), name=item["type"])


def _last_seen(request: Request) -> int:
    """Return the number of the last event that the client has; -1 if the client has none."""
    text = request.headers.get("last-event-id") or request.query_params.get("starting_after")
    if not text:
        return -1
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise invalid(
            f"{text[:64]!r} is not an event's sequence number", "starting_after", "invalid_event_id"
        )
    return int(text)


def _check(params: ResponseRequest) -> None:
    """Check rules beyond the request's model. Raises `ApiError`."""
    if params.metadata and any(tag in RESERVED_TAGS for tag in params.metadata):
        raise invalid(f"metadata: {', '.join(RESERVED_TAGS)} are the gateway's own", "metadata")
    if params.model.startswith(WORKFLOW):
        parameter = "tools" if params.tools else "text.format"
        if params.tools or params.format.type != "text":
            raise invalid(
                f"the model '{params.model[:256]}' is a team with tools of its own: it takes no"
                f" '{parameter}'",
                parameter,
                "unsupported_parameter",
            )


def _json(record: ResponseRecord) -> str:
    return record.model_dump_json(by_alias=True, exclude_defaults=True)


def _input_of(view: ResponseView) -> list[dict[str, Any]]:
    return input_items(view.run.id, _without_instructions(view), view.record.tool_forms)


def _without_instructions(view: ResponseView) -> tuple[Message, ...]:
    """Return the messages without instructions, which are not carried over from one response to the
    next."""
    return view.run.task.messages[view.record.has_instructions :]
