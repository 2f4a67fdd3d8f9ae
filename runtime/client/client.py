"""The client of a deployment: admit runs, follow them, get their trajectories and costs.

    async with Client.connect(settings) as client:
        run = client.new_run("What is 17 * 23?")
        await client.submit(run)
        trajectory = await client.wait(run.id)

One client serves any number of runs at once. They share two connections and one inbox, which
receives a notice when a run ends, so waiting costs Redis nothing.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pydantic

from loopline.agents.errors import AgentError
from loopline.agents.generation import is_nothing, require_honoured
from loopline.agents.records import (
    MAX_PROMPT_CHARS,
    Budget,
    GenerationOptions,
    JsonObject,
    Message,
    Run,
    Step,
    Task,
    Trajectory,
)
from loopline.agents.replay import fork as forked
from loopline.agents.tools import tools
from loopline.agents.tools.offered import attach_specs, unregistered_names, unregistered_tools
from loopline.agents.usage import UsageEntry
from loopline.agents.versions import versions_of
from loopline.agents.workflows import (
    Handoff,
    NamedTeam,
    NamingTools,
    TeamWorkflow,
    agents_of,
    capability,
    policies_for,
    prompt_hashes,
    prompts_of,
    workflows,
)
from loopline.bus import (
    CLIENT_PATIENCE,
    Bus,
    BusSettings,
    ContentWriter,
    Inbox,
    Join,
    Limits,
    RunEnd,
)
from loopline.runtime.client.rewards import PostedReward, new_reward, post_reward
from loopline.runtime.client.run_ids import new_run_id
from loopline.runtime.client.run_records import steps_of, trajectory_of, without_own_trace
from loopline.runtime.client.spending import require_prices, tenant_of
from loopline.runtime.client.waiting import WaitingCalls
from loopline.runtime.errors import InputError, UserError
from loopline.workers.admission import NO_LIMITS, admission_of, publish_prompts
from loopline.workers.messages import offered_tools_on, registry
from loopline.workers.routing import outgoing

if TYPE_CHECKING:
    from loopline.runtime.config.settings import Settings

T = TypeVar("T")

TOLD_SECONDS = 0.05
"""Seconds to wait for the notice of an end that is already in the run's log."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One entry of a run's log. `id` resumes `follow` after it."""

    id: str
    kind: str
    """Kind of the entry: `tokens`, `restart`, `step` or `ended`."""
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class Expected:
    """The end of a run that this process admits."""

    end: RunEnd
    """Reference that keeps the run's waiter alive in this process's inbox."""
    deadline: float
    """Deadline in Unix seconds."""


@dataclass
class Client(WaitingCalls):
    """Connect with `Client.connect`; use as an async context manager."""

    settings: BusSettings
    policies: Mapping[str, str] = field(default_factory=dict[str, str])
    """Policies that override the workflow's defaults, by role."""
    prompt_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Prompts that replace the shipped ones: content by prompt file."""
    options: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """Options by workflow; a run's own options override them."""
    writes: bool = False
    """Whether the client writes many runs. If so, it refuses a server that accepts no writes now
    (its memory or disk is full) when it joins, instead of letting each admission wait for space."""
    deployment: Settings | None = None
    """Settings of the deployment, if known; they contain prices."""

    def __post_init__(self) -> None:
        self.bus = Bus(self.settings, registry(), patience=CLIENT_PATIENCE)
        self._inbox = Inbox(self.bus)
        self._contents = ContentWriter()
        self._stack = AsyncExitStack()

    @classmethod
    def connect(
        cls,
        settings: BusSettings,
        policies: Mapping[str, str] | None = None,
        prompt_files: Mapping[str, str] | None = None,
        *,
        writes: bool = False,
    ) -> Client:
        return cls(settings, dict(policies or {}), dict(prompt_files or {}), writes=writes)

    @classmethod
    def of(cls, settings: Settings) -> Client:
        """Return a client of the deployment with these settings. Their `[policies]`, `[prompts]`
        and `[options]` apply to the runs that it creates."""
        options = dict(settings.options)
        policies, files = dict(settings.policies), dict(settings.prompt_files)
        return cls(settings.bus, policies, files, options, deployment=settings)

    @classmethod
    def on(
        cls,
        bus: Bus,
        inbox: Inbox,
        settings: Settings,
    ) -> Client:
        """Return a client like `of` for a process that has already joined the bus and closes it
        itself."""
        client = cls.of(settings)
        client.bus, client._inbox = bus, inbox
        return client

    async def __aenter__(self) -> Client:
        """Raises `BusUnavailable`, which states what is wrong and what to do."""
        await self._stack.enter_async_context(self.bus)
        try:
            if self.writes:
                await self.bus.check_writable()
            await self._stack.enter_async_context(self._inbox)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def new_run(
        self,
        prompt: str,
        *,
        messages: Sequence[Message] = (),
        workflow: str = "delegate",
        policies: Mapping[str, str] | None = None,
        options: JsonObject | None = None,
        generation: GenerationOptions | None = None,
        stream: bool = False,
        seed: int = 0,
        budget: Budget | None = None,
        tags: Mapping[str, str] | None = None,
        environment: str = "question",
        instance: JsonObject | None = None,
        run_id: str | None = None,
        account: str = "",
        webhook: str | None = None,
        prompt_files: Mapping[str, str] | None = None,
    ) -> Run:
        """Return a run that is ready to be submitted: options checked, prompts pinned by their
        hashes. `messages` is the conversation whose last user message is the prompt. `prompt_files`
        replaces the shipped prompts; `options` and `policies` override those of the client; the
        seed of `generation` (`loopline.agents.generation`) overrides `seed`.

        Raises `InputError` for a question, workflow, role, option or prompt that can't be used, and
        for settings in `generation` that the workflow can't apply.
        """
        try:
            all_options = {**self.options.get(workflow, {}), **(options or {})}
            checked = workflows.get(workflow).check_options(all_options)
            choices = None if generation is None or is_nothing(generation) else generation
            if choices is not None:
                require_honoured(workflow, checked, choices)
                seed = seed if choices.seed is None else choices.seed
            agents = agents_of(workflow, environment, checked)
            role_policies = {
                agent: pool for agent, pool in self.policies.items() if agent in agents
            }
            of_deployment = {
                file: content
                for file, content in self.prompt_files.items()
                if file in prompts_of(workflow, environment, checked)
            }
            files = {**of_deployment, **(prompt_files or {})}
            version, role_versions = versions_of(workflow)
            budget = budget or Budget()
            now = self.bus.clock.now()
            return Run(
                id=run_id or new_run_id(now),
                task=Task(
                    environment=environment,
                    instance=instance or {},
                    prompt=prompt,
                    messages=tuple(messages),
                ),
                workflow=TeamWorkflow.name
                if isinstance(workflows.get(workflow), NamedTeam)
                else workflow,
                options=checked,
                policies=policies_for(
                    workflow, {**role_policies, **(policies or {})}, environment, checked
                ),
                prompts=prompt_hashes(workflow, files, environment, checked),
                prompt_files=files,
                role_versions=role_versions,
                workflow_version=version,
                generation=choices,
                seed=seed,
                budget=budget,
                created=now,
                deadline=now + budget.seconds,
                stream=stream,
                tags=dict(tags or {}),
                account=account,
                webhook=webhook,
            )
        except AgentError as error:
            raise InputError(str(error)) from error
        except pydantic.ValidationError as error:
            raise InputError(_prompt_error_message(error, prompt)) from None

    async def submit(
        self, run: Run, *, delay: float = 0.0, key_limits: Limits = NO_LIMITS, idempotency: str = ""
    ) -> bool:
        """Admit a run, which starts after `delay` seconds. Returns True if it is new, False if the
        same run was admitted before. `key_limits`: the daily limits of its account. `idempotency`:
        the digest of its caller's key. Raises `Overloaded` (nothing was accepted, ask again later),
        `BudgetExceeded` (a shared budget has nothing left for the run), `MessageTooLarge`, or
        `BusUnavailable` (the run may have been accepted: submitting the same run again is safe).

        A tool of an MCP server or HTTP API that the task or an agent names is looked up among the
        tools that the tool workers offer now, and its full definition is admitted with the run.
        Raises `InputError` if no worker offers it, for a task that the workflow can't start, or for
        a budget in dollars if a price is not known.
        """
        if self.deployment is not None:
            require_prices(run, self.deployment)
        try:
            run = await self.with_offered_tools(run)
            handoffs = workflows.get(run.workflow).first(run)
        except AgentError as error:
            raise InputError(str(error)) from error
        return await self._admit(
            run, handoffs, delay=delay, key_limits=key_limits, idempotency=idempotency
        )

    async def with_offered_tools(self, run: Run) -> Run:
        """Return the run with the full definition of each tool that it names and no package has.
        Raises `InputError`."""
        workflow = workflows.get(run.workflow)
        naming = capability(workflow, NamingTools)
        of_agents = naming.tools_in(run.options) if naming else ()
        missing = (*unregistered_tools(run.task), *unregistered_names(of_agents))
        if not missing:
            return run
        offered = await offered_tools_on(self.bus)
        for name in missing:
            if name not in offered:
                near = difflib.get_close_matches(name, [*offered, *tools.names()], n=1)
                raise InputError(
                    f"no tool worker offers {name!r}",
                    hint=(f"did you mean {near[0]!r}? " if near else "")
                    + "`runtime status --json` lists the tool sources.",
                )
        task = attach_specs(run.task, offered) if "tools" in run.task.instance else run.task
        options = naming.with_tools(run.options, offered) if naming else run.options
        return run.model_copy(update={"task": task, "options": options})

    async def fork(
        self,
        parent: Trajectory,
        at_turn: int,
        *,
        seed: int | None = None,
        policies: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        prompt_files: Mapping[str, str] | None = None,
        question: str | None = None,
        run_id: str | None = None,
        key_limits: Limits = NO_LIMITS,
        idempotency: str = "",
    ) -> Run:
        """Admit a run that keeps the parent's journal before `at_turn` and continues from there.
        The other arguments are those of `loopline.agents.replay.fork`. Raises `InputError` if the
        parent never reached that turn or its workflow lacks the role, and what `submit` raises."""
        now = self.bus.clock.now()
        try:
            new_fork = forked(
                without_own_trace(parent),
                at_turn,
                run_id=run_id or new_run_id(now),
                created=now,
                seed=seed,
                policies=dict(policies or {}),
                tags=dict(tags or {}),
                prompt_files=dict(prompt_files or {}),
                question=question,
            )
        except AgentError as error:
            raise InputError(str(error)) from error
        joins = tuple(
            Join(join_id, join.remaining, outgoing(new_fork.run, join.continuation))
            for join_id, join in new_fork.joins.items()
        )
        run, first, journal = new_fork.run, new_fork.handoffs, new_fork.journal
        await self._admit(
            run, first, journal=journal, joins=joins, key_limits=key_limits, idempotency=idempotency
        )
        return run

    async def _admit(
        self,
        run: Run,
        handoffs: Sequence[Handoff],
        *,
        journal: Sequence[Step] = (),
        joins: tuple[Join, ...] = (),
        delay: float = 0.0,
        key_limits: Limits = NO_LIMITS,
        idempotency: str = "",
    ) -> bool:
        await publish_prompts(self.bus, self._contents, run)
        return await self.bus.admit(
            admission_of(
                run,
                handoffs,
                key_limits=key_limits,
                tenant=tenant_of(run, self.deployment),
                notify=self._inbox.key(self.bus.keys.shard_of(run.id)),
                journal=journal,
                joins=joins,
                delay=delay,
                idempotency=idempotency,
            )
        )

    def expect(self, run: Run) -> Expected:
        """Register for the end of a run; call this before `submit` to learn of the end
        immediately."""
        return Expected(self._inbox.expect_end(run.id), run.deadline)

    async def wait(self, run_id: str, expected: Expected | None = None) -> Trajectory:
        """Wait for the run's end and return its trajectory. The run ends at its deadline even if no
        worker is left. `expected` saves a lookup of a run that was admitted a moment ago.

        Raises `RunUnknown`, or `BusUnavailable` if Redis is down for `CLIENT_PATIENCE`. The run
        then continues without this client, which may wait for it again.
        """
        left = 0.0 if expected is None else self.bus.clock.left(expected.deadline)
        await self._inbox.wait_ended(run_id, within=left)
        return await self.trajectory(run_id, expected)

    async def wait_for(self, run_id: str, expected: Expected, make: Callable[[Trajectory], T]) -> T:
        """Return `make(trajectory)` as soon as the run has ended; raises what `wait` and `make`
        raise. If this process ends the run, `make` is called while the last commit is still in
        flight and may fail, so `make` must have no side effects."""
        with expected.end.preparing(lambda state: make(trajectory_of(state))):
            await self._inbox.wait_ended(run_id, within=self.bus.clock.left(expected.deadline))
        if (prepared := expected.end.prepared) is not None:
            return prepared[0]
        return make(await self.trajectory(run_id, expected))

    async def trajectory(self, run_id: str, expected: Expected | None = None) -> Trajectory:
        """Return an ended run, from the bus or, if this process ended it, from this process. Raises
        `RunUnknown`, or `UserError` while the run is active."""
        if expected is not None:
            # The log contains the end a moment before the process that ended the run announces it.
            with suppress(TimeoutError):
                async with asyncio.timeout(TOLD_SECONDS):
                    await expected.end.wait()
            if expected.end.state is not None:
                return trajectory_of(expected.end.state)
        state = await self.bus.run_state(run_id)
        if state.active:
            raise UserError(f"run {run_id} has not ended yet")
        return trajectory_of(state)

    async def follow(
        self, run_id: str, after: str = "0-0", *, fresh: bool = False
    ) -> AsyncGenerator[RunEvent]:
        """Yield a run's events after `after` until it has ended, without gaps or repeats, also for
        a follower that was disconnected. Resume with the `id` of the last event seen. `fresh`: the
        run was admitted a moment ago."""
        async with aclosing(self.bus.follow(run_id, after, fresh=fresh)) as events:
            async for event_id, fields in events:
                yield RunEvent(event_id, fields["type"], fields)

    async def usage(self, run_id: str) -> list[UsageEntry]:
        """Return every paid model call of the run, used or discarded."""
        return [UsageEntry.model_validate_json(line) for line in await self.bus.usage(run_id)]

    async def cancel(self, run_id: str, reason: str = "cancelled by its user") -> bool:
        """Cancel a run. Returns False if it had ended or is unknown."""
        return await self.bus.cancel(run_id, reason)

    async def reward(
        self,
        run_id: str | Run,
        value: float,
        *,
        agent: str | None = None,
        turn: int | None = None,
        source: str = "user",
        reward_id: str | None = None,
        comment: str = "",
        account: str = "",
    ) -> PostedReward:
        """Reward a run, given itself or its id: the whole run, one agent, one turn, or an agent's
        turn. The run may be active, ended, or gone from the bus: the reward is joined to it when
        the store is read. A later reward for the same target from the same `source` is a new
        version that replaces it. With an `account`, the reward only applies to runs of that
        account.

        A caller that may be killed chooses `reward_id`: a reward that is sent again counts once.
        Raises `InputError`, and what `loopline.bus.publish_reward` raises.
        """
        return await self._post_reward(
            reward_id, run_id=run_id.id if isinstance(run_id, Run) else run_id, value=value,
            agent=agent, turn=turn, source=source, comment=comment, account=account,
        )  # fmt: skip

    async def reward_session(
        self,
        session: str,
        value: float,
        *,
        agent: str | None = None,
        source: str = "user",
        reward_id: str | None = None,
        comment: str = "",
        account: str = "",
    ) -> PostedReward:
        """Post a reward as `reward` does for every trajectory of a session, that is, for all runs
        with the tag `session=<session>`."""
        return await self._post_reward(
            reward_id, session=session, value=value, agent=agent, source=source, comment=comment,
            account=account,
        )  # fmt: skip

    async def _post_reward(self, reward_id: str | None, **fields: Any) -> PostedReward:
        reward = new_reward(self.bus.clock.now(), reward_id=reward_id, **fields)
        return await post_reward(self.bus, reward)

    async def steps(self, run_id: str) -> tuple[Step, ...]:
        """Return the journal so far. Raises `RunUnknown`."""
        return steps_of(await self.bus.run_state(run_id))


def _prompt_error_message(error: pydantic.ValidationError, prompt: str) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if where == "prompt":
        if not prompt:
            return "the question is empty"
        if len(prompt) > MAX_PROMPT_CHARS:
            return f"the question has {len(prompt):,} characters; the limit is {MAX_PROMPT_CHARS:,}"
    return f"{where}: {first['msg']}"


async def ask(client: Client, run: Run) -> Trajectory:
    """Submit the run and wait for its end. A caller that is cancelled meanwhile cancels the run."""
    try:
        await client.submit(run)
        return await client.wait(run.id)
    except asyncio.CancelledError:
        await client.cancel(run.id)
        raise
