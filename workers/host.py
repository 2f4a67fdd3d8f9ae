"""The host of a role: its completions and tool calls become requests on the bus."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from loopline.agents.approvals import (
    APPROVAL_ERROR,
    ApprovalNeeded,
    ApprovalRequest,
    digest_of,
    read_decision,
)
from loopline.agents.errors import RequestFailed
from loopline.agents.generation import generation_of
from loopline.agents.judging import JUDGE_TOOLS
from loopline.agents.protocols import Host
from loopline.agents.records import (
    Approval,
    Call,
    GenerationOptions,
    JsonObject,
    Message,
    RequestTiming,
    Run,
    SamplingParams,
    ToolSpec,
)
from loopline.agents.workflows import policy_of
from loopline.bus import (
    TRACEPARENT_TAG,
    BudgetExceeded,
    DeadlineExceeded,
    Envelope,
    Inbox,
    MessageTooLarge,
    Reply,
    RequestError,
    pool_of,
    traceparent_of,
)
from loopline.workers.completions import agent_seed, request_key
from loopline.workers.messages import (
    JUDGE_STREAM,
    TOOL_STREAM,
    CompletionPayload,
    ToolPayload,
    answered,
    calls,
    inference_stream,
    tool_result,
)


@dataclass
class _Count:
    """Number of requests that a step has made so far, including those for other agents."""

    number: int = 0


class BusHost:
    """The host of one step. Its requests are numbered in the order in which the role makes them.

    A role is deterministic given its journal and the answers it receives. A retried step therefore
    makes the same requests in the same order and finds the stored answers under the same keys:
    nothing is paid for twice.
    """

    def __init__(
        self,
        inbox: Inbox,
        run: Run,
        agent: str,
        turn: int,
        branch: int,
        clock: Callable[[], float] = time.time,
        decisions: Mapping[str, bytes] | None = None,
    ) -> None:
        """`clock` returns Unix seconds; `decisions` are those of `RunState`."""
        self.approvals: list[Approval] = []
        """Decisions about the step's calls and answers."""
        self._decisions = decisions or {}
        self.timings: list[RequestTiming] = []
        """Timings of the finished requests."""
        self._clock = clock
        self._inbox = inbox
        self._run = run
        self._agent = agent
        self._turn = turn
        self._branch = branch
        self._requests = _Count()
        self._publishes = True

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: SamplingParams | None = None,
        previous: Call | None = None,
        json_schema: JsonObject | None = None,
        options: GenerationOptions | None = None,
    ) -> tuple[Call, ...]:
        """See `loopline.agents.protocols.Host.complete`."""
        policy = policy_of(self._run, self._agent)
        pool = pool_of(policy)
        payload = CompletionPayload(
            agent=self._agent,
            pool=pool,
            policy=policy,
            messages=tuple(messages),
            tools=tuple(tools),
            sampling=sampling,
            seed=agent_seed(self._run, self._agent),
            previous_ids=(*previous.prompt_ids, *previous.output_ids) if previous else (),
            json_schema=json_schema,
            options=generation_of(self._run, self._agent, options),
            stream=self._run.stream and self._publishes,
        )
        reply = await self._ask(inference_stream(pool), "completion", policy, payload)
        return calls.validate_json(reply.body) if reply.record is None else answered(reply.record)

    def of_agent(self, agent: str) -> Host:
        """See `loopline.agents.roles.escalation.SecondHost`."""
        twin = copy.copy(self)
        twin._agent = agent
        return twin

    def unpublished(self) -> Host:
        """See `loopline.agents.held_back.PublishingHost`."""
        twin = copy.copy(self)
        twin._publishes = False
        return twin

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """See `loopline.agents.protocols.Host.call_tool`."""
        payload = ToolPayload(agent=self._agent, name=name, arguments=arguments)
        key = request_key(self._run, self._turn, self._branch, self._requests.number)
        stream = JUDGE_STREAM if name in JUDGE_TOOLS else TOOL_STREAM
        try:
            reply = await self._ask(stream, "tool", name, payload)
        except RequestFailed as error:
            if error.retryable:
                raise
            return {"error": error.message}
        finally:
            self._decision_of(key, "tool", name, arguments)
        return tool_result.validate_json(reply.body)

    async def approve(self, agent: str, answer: JsonObject, seconds: float) -> Approval:
        """See `loopline.agents.approvals.ApprovingHost.approve`."""
        key = request_key(self._run, self._turn, self._branch, self._requests.number)
        self._requests.number += 1
        approval = self._decision_of(key, "answer", agent, answer)
        if approval is None:
            raise ApprovalNeeded(
                ApprovalRequest(
                    request=key,
                    kind="answer",
                    name=agent,
                    agent=agent,
                    arguments=answer,
                    digest=digest_of("answer", agent, answer),
                    seconds=seconds,
                )
            )
        return approval

    def _decision_of(
        self, key: str, kind: str, name: str, arguments: JsonObject
    ) -> Approval | None:
        decision = self._decisions.get(key)
        if decision is None:
            return None
        approval = read_decision(decision, key, name, digest_of(kind, name, arguments))
        if approval is not None:
            self.approvals.append(approval)
        return approval

    async def _ask(
        self, stream: str, kind: Literal["completion", "tool"], name: str, payload: BaseModel
    ) -> Reply:
        number, started = self._requests.number, self._clock()
        self._requests.number += 1
        error = ""
        try:
            return await self._request(stream, kind, number, payload)
        except RequestFailed as failure:
            error = failure.kind
            raise
        finally:
            ended = max(started, self._clock())
            timing = RequestTiming(
                number=number, kind=kind, name=name, started=started, ended=ended, error=error
            )
            self.timings.append(timing)

    async def _request(self, stream: str, kind: str, number: int, payload: BaseModel) -> Reply:
        run = self._run
        key = request_key(run, self._turn, self._branch, number)
        envelope = Envelope(
            type=kind,
            run_id=run.id,
            turn=self._turn,
            branch=self._branch,
            deadline=run.deadline,
            traceparent=traceparent_of(run.id, key, run.tags.get(TRACEPARENT_TAG, "")),
            reply_key=key,
            payload=payload.model_dump(mode="json"),
        )
        try:
            return await self._inbox.ask(stream, envelope, committed_with=True, record=payload)
        except RequestError as error:
            if error.kind == APPROVAL_ERROR:
                raise ApprovalNeeded(ApprovalRequest.model_validate_json(str(error))) from None
            if error.kind == "budget":
                # No role may continue without the answer to its request: its run ends.
                raise BudgetExceeded(str(error)) from error
            raise RequestFailed(error.kind, str(error), retryable=error.retryable) from error
        except DeadlineExceeded as error:
            raise RequestFailed("deadline", str(error)) from error
        except MessageTooLarge as error:
            raise RequestFailed("context_overflow", str(error)) from error
