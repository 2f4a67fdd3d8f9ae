"""Operations for all routes of the gateway: admit a run for a caller, wait for it, follow it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from loopline.agents.embedding import EmbeddingInput
from loopline.agents.records import Budget, GenerationOptions, JsonObject, Message, Run, Trajectory
from loopline.agents.roles.chat import NO_OPTIONS, ChatOptions
from loopline.bus import (
    TRACEPARENT_TAG,
    BudgetExceeded,
    BusUnavailable,
    DeploymentChanged,
    MessageTooLarge,
    Overloaded,
    pool_of,
)
from loopline.bus.canaries import CANARY_TAG, SHADOW_TAG
from loopline.bus.connection import OUTAGE
from loopline.bus.policies import split_pin
from loopline.runtime.client.client import Client, Expected
from loopline.runtime.client.run_ids import new_run_id
from loopline.runtime.client.run_records import run_of
from loopline.runtime.config.settings import Settings
from loopline.runtime.errors import InputError, UserError
from loopline.runtime.gateway.api_keys import ApiKey
from loopline.runtime.gateway.chat_stream import (
    BEGIN,
    ChatStream,
    Chunk,
    Diverged,
    StreamShape,
    place_of,
)
from loopline.runtime.gateway.content_parts import text_only
from loopline.runtime.gateway.errors import (
    ApiError,
    invalid,
    lost,
    not_allowed,
    overloaded,
    quota_exceeded,
    too_large,
    unavailable,
    unusable,
)
from loopline.runtime.gateway.idempotency import run_of_key
from loopline.runtime.gateway.models import ModelCatalogue, Target
from loopline.runtime.gateway.sessions import TAG, Session, SessionMemory
from loopline.workers.admission import TENANT_TAG

log = structlog.get_logger("loopline.runtime.gateway")

RESPONSE_TAG = "openai_response"
"""Tag with the run's record of its request, if it was requested as a response."""
RESERVED_TAGS = (TAG, RESPONSE_TAG, TRACEPARENT_TAG, TENANT_TAG, SHADOW_TAG, CANARY_TAG)
CANCELLED = "its client has gone"


@dataclass(frozen=True)
class Question:
    """A caller's question through any of the APIs."""

    caller: ApiKey
    model: str
    messages: tuple[Message, ...]
    options: ChatOptions
    generation: GenerationOptions
    tags: Mapping[str, str]
    stream: bool
    session: Session | None = None
    idempotency_key: str | None = None
    body_digest: str = ""
    """Digest of the request, which is compared when the idempotency key is used again."""
    embedding: EmbeddingInput | None = None
    """Input of an embeddings request, which wants vectors instead of an answer."""
    trace_tags: Callable[[str], Mapping[str, str]] = lambda run_id: {}
    """Returns the tags that add the run with the given id to a trace."""


@dataclass(frozen=True)
class Admitted:
    """A run that was admitted for a question."""

    run: Run
    session: Session | None
    outlives_client: bool
    """Whether the run continues without its client, since the client can return to it."""
    expected: Expected | None = None
    """The expected end of a run that this process has admitted."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer to the question, also of an error."""
        return {"x-request-id": self.run.id, "x-loopline-run": self.run.id}


Rendered = TypeVar("Rendered")
Made = TypeVar("Made")


class Rendering(Protocol[Rendered]):
    """Renders a run's log as the events of a stream, which only depend on the log."""

    def begin(self) -> list[Rendered]:
        """Return the events before the first entry."""
        ...

    def feed(self, entry: str, event: dict[str, str]) -> list[Rendered]:
        """Return the events that an entry adds. Raises `Diverged`."""
        ...

    def finish(self, trajectory: Trajectory) -> list[Rendered]:
        """Return the events after the end of the run, instead of those that its last entry adds."""
        ...


class Service:
    """The part of the gateway that is independent of HTTP."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.models = ModelCatalogue(client.bus, settings)
        self.sessions = SessionMemory(client.bus)
        self._cancelling: set[asyncio.Task[bool]] = set()

    async def admit(self, question: Question) -> Admitted:
        """Admit a question, once per idempotency key. Raises `ApiError`."""
        bus, run_id, digest = self.client.bus, new_run_id(self.client.bus.clock.now()), ""
        outlives_client = question.idempotency_key is not None
        try:
            if question.idempotency_key is not None:
                # A session's answer depends on its earlier messages.
                session = "" if question.session is None else question.session.name
                claimed = await run_of_key(
                    bus,
                    question.caller.id,
                    question.idempotency_key,
                    f"{question.body_digest}/{session}",
                )
                run_id, digest = claimed.id, claimed.digest
                state = await bus.run_state(run_id)
                if state.state != "missing":
                    return Admitted(run_of(state), question.session, outlives_client)
            run = await self._run(question, run_id)
            expected = self.client.expect(run)
            is_new = await self.client.submit(
                run, key_limits=question.caller.limits, idempotency=digest
            )
        except BudgetExceeded as error:
            raise quota_exceeded(error) from error
        except Overloaded as error:
            raise overloaded(str(error)) from error
        except MessageTooLarge as error:
            raise too_large(f"the conversation is too long: {error}") from error
        except (BusUnavailable, DeploymentChanged) as error:
            raise unavailable(str(error)) from error
        except InputError as error:
            raise unusable(error) from error
        return Admitted(run, question.session, outlives_client, expected if is_new else None)

    async def _run(self, question: Question, run_id: str) -> Run:
        target = await self.models.resolve(question.model)
        if not question.caller.allows(question.model):
            raise not_allowed(question.model)
        self._require_kind(question, target)
        if any(message.parts for message in question.messages):
            self._require_images(question, target)
        messages, options = question.messages, question.options
        if target.workflow == "chat" and question.session is not None:
            continuation = await self.sessions.continuation(question.session, messages)
            messages = continuation.messages
            if continuation.previous is not None:
                options = options.model_copy(update={"previous": continuation.previous})
        reserved = {TAG: question.session.name} if question.session is not None else {}
        return self.client.new_run(
            _prompt(messages) if question.embedding is None else question.embedding.shown,
            messages=messages,
            workflow=target.workflow,
            policies=target.policies,
            options=self._options(target.workflow, options)
            if question.embedding is None
            else question.embedding.model_dump(mode="json", exclude_defaults=True),
            generation=question.generation if question.embedding is None else None,
            seed=zlib.crc32(run_id.encode()),  # a caller that asks twice wants two samples
            budget=Budget(seconds=self.settings.gateway.run_seconds),
            stream=question.stream,
            tags={
                **question.tags,
                **reserved,
                **question.caller.tags,
                **question.trace_tags(run_id),
            },
            run_id=run_id,
            account=question.caller.id,
        )

    def _require_kind(self, question: Question, target: Target) -> None:
        """Raises `ApiError` if an embedding model is asked for an answer, or a chat model for
        vectors."""
        if (question.embedding is not None) == (target.workflow == "embeddings"):
            return
        if question.embedding is None:
            raise invalid(
                f"the model {question.model[:256]!r} computes embeddings: use POST /v1/embeddings",
                "model",
                "model_not_supported",
            )
        raise ApiError(
            404,
            f"the model {question.model[:256]!r} does not compute embeddings; these do:"
            f" {', '.join(self.models.embedding)}",
            code="embeddings_not_supported",
            param="model",
        )

    def _require_images(self, question: Question, target: Target) -> None:
        """Raises `ApiError` unless all endpoints that may answer accept images."""
        param = "input" if RESPONSE_TAG in question.tags else "messages"
        if target.workflow != "chat":
            raise text_only(f"the team {question.model[:256]!r}", param)
        models = self.settings.models
        first = pool_of(split_pin(target.policies["chat"])[0])
        pools = [first, *(models[first].fallbacks if first in models else ())]
        for pool in pools:
            if pool not in models or not models[pool].images:
                which = f"the model {question.model[:256]!r}"
                raise text_only(which if pool == first else f"{which}, by its fallback,", param)

    def _options(self, workflow: str, options: ChatOptions) -> JsonObject:
        if workflow == "chat":
            if options is NO_OPTIONS or options == NO_OPTIONS:
                return {}
            return options.model_dump(mode="json", exclude_defaults=True)
        if options.tools or options.json_schema is not None:
            raise invalid(
                f"the model 'workflow/{workflow}' is a team with tools of its own: it takes no"
                " 'tools' and no 'response_format'",
                "tools" if options.tools else "response_format",
                "unsupported_parameter",
            )
        return {}

    async def find(self, run_id: str, caller: ApiKey) -> Admitted:
        """Return a run of this caller. Raises `ApiError` 404, also for another caller's run."""
        try:
            run = run_of(await self.client.bus.run_state(run_id))
        except BusUnavailable as error:
            raise unavailable(str(error)) from error
        except UserError as error:
            raise ApiError(404, str(error), code="run_not_found") from error
        if run.account != caller.id:
            raise ApiError(404, f"the bus has no run {run_id[:64]}", code="run_not_found")
        return Admitted(run, None, outlives_client=True)

    @staticmethod
    def model_of(run: Run) -> str:
        """Return the model name that the run's caller used."""
        if run.workflow in ("chat", "embeddings"):
            return run.policies[run.workflow]
        return f"workflow/{run.workflow}"

    @staticmethod
    def offered_tools(run: Run) -> tuple[str, ...]:
        if run.workflow != "chat":
            return ()
        return tuple(tool.name for tool in ChatOptions.model_validate(run.options).tools)

    async def wait(self, admitted: Admitted, make: Callable[[Trajectory], Made]) -> Made:
        """Return `make(trajectory)` of the ended run; see `Client.wait_for`. A caller that is
        cancelled meanwhile cancels the run, unless the run outlives its client."""
        run_id, expected = admitted.run.id, admitted.expected
        with _errors_of(admitted):
            try:
                if expected is not None and admitted.session is None:
                    return await self.client.wait_for(run_id, expected, make)
                trajectory = await self.client.wait(run_id, expected)
            except asyncio.CancelledError:
                await self.abandon(admitted)
                raise
            except BusUnavailable as error:
                raise unavailable(str(error)) from error
            except UserError as error:
                raise lost(str(error)) from error
            await self._remember(admitted, trajectory)
            return make(trajectory)

    async def stream(
        self, admitted: Admitted, shape: StreamShape, last_seen: tuple[int, int, int]
    ) -> AsyncGenerator[Chunk]:
        """Yield the chunks of the answer after the one at the place `last_seen`. A caller that
        closes the generator early cancels the run, unless the run outlives its client. Raises
        `ApiError`."""
        chat = ChatStream(admitted.run.id, shape, admitted.run.workflow == "chat")
        with _errors_of(admitted):
            async with aclosing(self.render(admitted, chat)) as chunks:
                waiting: list[Chunk] = []
                async for chunk in chunks:
                    waiting.append(chunk)
                    if chunk.id.startswith(f"{BEGIN}/"):
                        continue  # wait for more: a refusal gets a status and no stream
                    for ready in waiting:
                        if place_of(ready.id) > last_seen:
                            yield ready
                    waiting.clear()

    async def render(
        self, admitted: Admitted, rendering: Rendering[Rendered]
    ) -> AsyncGenerator[Rendered]:
        """Yield the rendered log of a run from start to end. An early close and an `ApiError` have
        the same effects as in `stream`."""
        run_id, ended = admitted.run.id, False
        fresh = admitted.expected is not None
        try:
            for item in rendering.begin():
                yield item
            async with aclosing(self.client.follow(run_id, BEGIN, fresh=fresh)) as events:
                async for event in events:
                    items = rendering.feed(event.id, event.fields)
                    if event.kind == "ended":
                        ended = True
                        trajectory = await self.client.trajectory(run_id, admitted.expected)
                        await self._remember(admitted, trajectory)
                        items = rendering.finish(trajectory)
                    for item in items:
                        yield item
            if not ended:
                raise lost(f"run {run_id} is not on the bus")
        except Diverged:
            ended = True  # the run continues: its client is told to get the whole answer later
            raise
        except BusUnavailable as error:
            raise unavailable(str(error)) from error
        except UserError as error:  # its retention ended between its end and this read
            raise lost(str(error)) from error
        finally:
            if not ended:
                await self.abandon(admitted)

    async def abandon(self, admitted: Admitted) -> None:
        """Cancel a run whose client has disconnected, unless the client can return to it."""
        if not admitted.outlives_client:
            # A separate task: the waiting task is cancelled, within an anyio scope at every await.
            cancelling = asyncio.create_task(self.client.cancel(admitted.run.id, CANCELLED))
            self._cancelling.add(cancelling)
            cancelling.add_done_callback(self._cancelling.discard)
            await asyncio.shield(cancelling)

    async def _remember(self, admitted: Admitted, trajectory: Trajectory) -> None:
        if admitted.session is not None and trajectory.run.workflow == "chat":
            # Without the note the next call starts a new sample; this answer is not affected.
            with suppress(*OUTAGE):
                await self.sessions.note(admitted.session, trajectory)


@contextmanager
def _errors_of(admitted: Admitted) -> Generator[None]:
    """Give an error the headers of the run's answer: its id leads to what happened."""
    try:
        yield
    except ApiError as error:
        error.headers = admitted.headers | error.headers
        raise


def _prompt(messages: tuple[Message, ...]) -> str:
    """Return the user's last message."""
    texts = [message.content for message in messages if message.role == "user"]
    return texts[-1] if texts else ""


def seen(after: str | None) -> tuple[int, int, int]:
    """Return the place of the last event that a client has. Raises `ApiError`."""
    if not after:
        return (0, 0, 0)
    try:
        return place_of(after)
    except ValueError as error:
        message = f"{after[:64]!r} is not the id of an event"
        raise invalid(message, code="invalid_event_id") from error
