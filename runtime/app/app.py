"""An application in one file:

    from loopline import App

    app = App()

    @app.tool
    def price(sku: str) -> float:
        '''The price of an article in euros.'''
        return PRICES[sku]

    support = app.agent("support", instructions="You sell things.", tools=[price], model="slm")

`runtime up --app shop.py` serves it; `await app.ask("How much is A7?")` asks it from any process
that can reach the deployment, `app.sync.ask(…)` where there is no event loop. Each ask is a run
like any other: it is journalled, other workers can resume it, and `runtime runs show` shows it.

Each ask opens its own connection. A server keeps one connection for all asks with `async with app:`
or `FastAPI(lifespan=app.lifespan)`.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import warnings
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

import pydantic

from loopline.agents.records import GenerationOptions, Message, ToolSpec
from loopline.agents.team_parts import Part, agents_of_team
from loopline.runtime.app import asking
from loopline.runtime.app.definition import Definition, schema_of
from loopline.runtime.app.errors import WrongAnswer
from loopline.runtime.app.events import Event
from loopline.runtime.app.session import Session, bus_session
from loopline.runtime.app.sync import SyncApp
from loopline.runtime.app.testing import Model, local_session
from loopline.runtime.app.thread import Thread
from loopline.runtime.errors import InputError

T = TypeVar("T")
DEFAULT_SECONDS = 600.0


class App(Definition):
    """An application; see the module's docstring."""

    def __init__(self, *, redis_url: str | None = None) -> None:
        """Create an app. Without a `redis_url`, the app finds its deployment as commands do: in the
        folder `.loopline` here, in `LOOPLINE_STATE`, or on the bus at `LOOPLINE_BUS__REDIS_URL`."""
        super().__init__()
        caller = inspect.currentframe()
        outer = caller.f_back if caller else None
        self._file = Path(outer.f_code.co_filename).resolve() if outer else None
        self._redis_url = redis_url
        self._shared: Session | None = None
        self._shared_loop: asyncio.AbstractEventLoop | None = None
        self._users = 0
        self._stack = AsyncExitStack()
        self._joining = asyncio.Lock()
        self._local: Session | None = None
        self._warned = False

    @overload
    async def ask(
        self,
        question: str,
        *,
        answer: type[T],
        agent: Part | str | None = None,
        timeout: float = DEFAULT_SECONDS,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        messages: Sequence[Message] = (),
        generation: GenerationOptions | None = None,
    ) -> T: ...

    @overload
    async def ask(
        self,
        question: str,
        *,
        answer: None = None,
        agent: Part | str | None = None,
        timeout: float = DEFAULT_SECONDS,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        messages: Sequence[Message] = (),
        generation: GenerationOptions | None = None,
    ) -> str: ...

    async def ask(
        self,
        question: str,
        *,
        answer: Any = None,
        agent: Part | str | None = None,
        timeout: float = DEFAULT_SECONDS,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        messages: Sequence[Message] = (),
        generation: GenerationOptions | None = None,
    ) -> Any:
        """Ask a question and return the answer: the model's text, or an instance of `answer`.
        `agent` selects the agent to ask if the app has several. `budget_usd` and `budget_tokens`
        limit what the run may spend: a call that doesn't fit in the budget is not made. `messages`
        contains the previous messages and the system message. `generation` overrides the sampling
        settings of the agents' author and the pool: `temperature`, `top_p` and penalties for all
        agents, `max_tokens`, `stop` and `seed` for the agent that answers.

        Raises `AnswerTimeout` after `timeout` seconds (the run is cancelled), `WrongAnswer` if the
        model never gave an answer of this type, `OverBudget` if a call didn't fit in a budget,
        another `AskError` for a run that ended without an answer, `InputError`, `Overloaded`, and
        `BusUnavailable` or `Unreachable` without a deployment. A caller that is cancelled cancels
        the run.
        """
        async with self.session() as session:
            team = self.checked_team(session, agent, answer)
            run = asking.new_run(
                session,
                team,
                question,
                budget=asking.budget_of(timeout, budget_usd, budget_tokens),
                messages=whole(messages, question),
                generation=generation,
            )
            trajectory = await asking.finish(session, run, timeout)
        return parsed(trajectory.answer or "", answer, run.id)

    async def stream(
        self,
        question: str,
        *,
        agent: Part | str | None = None,
        timeout: float = DEFAULT_SECONDS,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        messages: Sequence[Message] = (),
        generation: GenerationOptions | None = None,
    ) -> AsyncGenerator[Event]:
        """Yield the events of a run up to its answer, the event `Answered`. Raises the same errors
        as `ask`. A reader that closes the generator early cancels the run."""
        async with self.session() as session:
            team = self.checked_team(session, agent, None)
            run = asking.new_run(
                session,
                team,
                question,
                budget=asking.budget_of(timeout, budget_usd, budget_tokens),
                messages=whole(messages, question),
                generation=generation,
                stream=True,
            )
            async with aclosing(asking.events(session, run, timeout)) as events:
                async for event in events:
                    yield event

    def thread(self, thread_id: str) -> Thread:
        """Return a conversation of several turns under the given name; any process can continue it.
        Raises `InputError` for a name that is empty or too long."""
        return Thread(self, thread_id)

    @cached_property
    def sync(self) -> SyncApp:
        """The same app for code without an event loop, or for calls that may block the loop."""
        return SyncApp(self)

    def testing(self, **models: Model) -> AbstractAsyncContextManager[None]:
        """Within this block the app runs in this process, without a deployment. Pass each pool that
        the agents use as a list of texts and tool calls (its model returns them one after the
        other), as a function of the messages, or as `ModelSettings`.

            async with app.testing(slm=[call("price", sku="A7"), "12 euros"]):
                assert await app.ask("How much is A7?") == "12 euros"
        """
        return self._testing(models)

    @asynccontextmanager
    async def _testing(self, models: Mapping[str, Model]) -> AsyncGenerator[None]:
        async with local_session(models, self.call_tool) as session:
            before, self._local = self._local, session
            try:
                yield
            finally:
                self._local = before

    # -- connections --------------------------------------------------------------------------

    async def __aenter__(self) -> App:
        async with self._joining:
            if self._shared is None and self._local is None:
                self._shared = await self._stack.enter_async_context(bus_session(self._redis_url))
                self._shared_loop = asyncio.get_running_loop()
            self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._joining:
            self._users -= 1
            if self._users == 0:
                self._shared = self._shared_loop = None
                await self._stack.aclose()

    @asynccontextmanager
    async def lifespan(self, server: object = None) -> AsyncGenerator[None]:
        """Keep one connection while a server runs: `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[Session]:
        """Yield the shared connection of this event loop, or a new one."""
        if self._local is not None:
            yield self._local
        elif self._shared is not None and self._shared_loop is asyncio.get_running_loop():
            yield self._shared
        else:
            async with bus_session(self._redis_url) as session:
                yield session

    @property
    def is_local(self) -> bool:
        """Whether the app runs in this process (`testing`)."""
        return self._local is not None

    def checked_team(self, session: Session, agent: Part | str | None, answer: Any) -> Part:
        """Return the team to ask, with the type of the answer. Raises `InputError`, also if the
        deployment does not serve this app's tools."""
        team = self.part(agent)
        if answer is not None:
            team = asking.with_answer(team, schema_of(answer))
        if session.needs_app:
            names = {
                tool.name
                for part in agents_of_team(team).values()
                for tool in part.tools
                if isinstance(tool, ToolSpec) and tool.name in self.tools
            }
            if names and session.app is None:
                raise InputError(
                    f"the deployment serves no app, so no worker runs {', '.join(sorted(names))}",
                    hint=f"start it with `runtime up --app {self._file or 'FILE'}`.",
                )
            self._warn_of_change(session)
        return team

    def _warn_of_change(self, session: Session) -> None:
        app, file = session.app, self._file
        if self._warned or app is None or file is None or str(file) != app.path:
            return
        try:
            digest = digest_of(file)
        except OSError:
            return
        if digest != app.digest:
            self._warned = True
            warnings.warn(
                f"{file} has changed since `runtime up`: workers run the old tools until "
                "`runtime down` and `runtime up`",
                RuntimeWarning,
                stacklevel=4,
            )


def whole(messages: Sequence[Message], question: str) -> tuple[Message, ...]:
    """Return the conversation with the question at its end; empty if there is only the question."""
    return (*messages, Message(role="user", content=question)) if messages else ()


def parsed(text: str, answer: Any, run_id: str) -> Any:
    """Parse the answer as its type. Raises `WrongAnswer` for an answer that the schema accepts but
    the type refuses."""
    if answer is None or isinstance(answer, dict):
        return text
    try:
        return pydantic.TypeAdapter(answer).validate_json(text)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        wrong = WrongAnswer(
            f"the answer has the wrong type: {where or 'it'}: {first['msg']}", run_id
        )
        wrong.answer = text
        raise wrong from error


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
