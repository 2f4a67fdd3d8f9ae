"""A conversation of several turns. Each turn is a run; the bus records the last one.

Turns run one after the other, even from different processes: an ask waits for the turn before it.
Later turns do not read a turn that ended without an answer (a time-out, an error). A thread lives
as long as the bus keeps its last run (`bus.retention_seconds`).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar, overload

from loopline.agents.records import GenerationOptions, Message, Outcome, Run
from loopline.agents.team_parts import Part
from loopline.bus import ThreadHead, claim
from loopline.runtime.app import asking
from loopline.runtime.app.errors import ThreadBusy
from loopline.runtime.app.session import Session
from loopline.runtime.errors import InputError

if TYPE_CHECKING:
    from loopline.runtime.app.app import App

T = TypeVar("T")
DEFAULT_SECONDS = 600.0
MAX_ID_CHARS = 200
ADMISSION_SECONDS = 30.0
"""Seconds that a caller has to get its run admitted after it claimed the thread. The thread skips a
caller that died before the admission."""
_LOOK_SECONDS = 0.1


class Thread:
    """Conversation; made by `App.thread`."""

    def __init__(self, app: App, thread_id: str) -> None:
        if not thread_id or len(thread_id) > MAX_ID_CHARS or not thread_id.isprintable():
            raise InputError(f"a thread's name has 1 to {MAX_ID_CHARS} printable characters")
        self.id = thread_id
        self._app = app

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
        generation: GenerationOptions | None = None,
    ) -> Any:
        """Ask the next question, as `App.ask` does, with all previous messages of this thread.
        Waits for the current turn; raises `ThreadBusy` if that takes longer than `timeout`."""
        from loopline.runtime.app.app import parsed

        app, give_up = self._app, time.monotonic() + timeout
        async with app.session() as session:
            team = app.checked_team(session, agent, answer)
            while True:
                head = await session.head(self.id)
                head, messages = await self._read(session, head, give_up)
                left = max(0.1, give_up - time.monotonic())
                turn = Message(role="user", content=question)
                run = asking.new_run(
                    session,
                    team,
                    question,
                    budget=asking.budget_of(left, budget_usd, budget_tokens),
                    messages=(*messages, turn),
                    generation=generation,
                )
                mine = claim(session.client.bus, run.id, self._before(head))
                if await session.advance(self.id, head, mine):
                    break
            try:
                trajectory = await asking.finish(session, run, left)
            except BaseException:
                if not await session.is_known(run.id):  # the run was never admitted
                    await session.advance(self.id, mine, head)
                raise
        return parsed(trajectory.answer or "", answer, run.id)

    async def messages(self) -> list[Message]:
        """Return the messages so far, without those of the current turn."""
        async with self._app.session() as session:
            head = await session.head(self.id)
            while head is not None:
                if not await session.is_known(head.run_id):
                    head = _previous(head)
                    continue
                run, added = await self._run_of(session, head.run_id, wait=False)
                return [*run.task.messages[:-1], *added]
            return []

    def _before(self, head: ThreadHead | None) -> str:
        return head.run_id if head else ""

    async def _read(
        self, session: Session, head: ThreadHead | None, give_up: float
    ) -> tuple[ThreadHead | None, list[Message]]:
        """Return the messages up to the thread's last run, once it has ended, with the head that
        they were read from."""
        while head is not None:
            if await session.is_known(head.run_id):
                try:
                    async with asyncio.timeout(max(0.0, give_up - time.monotonic())):
                        run, added = await self._run_of(session, head.run_id, wait=True)
                except TimeoutError as error:
                    raise self._busy(head) from error
                return head, [*run.task.messages[:-1], *added]
            # Claimed but not admitted: the caller is about to submit its run, or died.
            if session.client.bus.clock.now() - head.claimed > ADMISSION_SECONDS:
                return await self._pass_over(session, head)
            if time.monotonic() > give_up:
                raise self._busy(head)
            await asyncio.sleep(_LOOK_SECONDS)
            head = await session.head(self.id)
        return None, []

    async def _pass_over(
        self, session: Session, head: ThreadHead
    ) -> tuple[ThreadHead, list[Message]]:
        if not head.previous or not await session.is_known(head.previous):
            return head, []
        run, added = await self._run_of(session, head.previous, wait=True)
        return head, [*run.task.messages[:-1], *added]

    async def _run_of(
        self, session: Session, run_id: str, *, wait: bool
    ) -> tuple[Run, list[Message]]:
        """Return a run of the thread and the messages of its turn: question and answer, or none."""
        if not wait and not await session.has_ended(run_id):
            return await session.run(run_id), []
        trajectory = await session.wait(run_id)
        if trajectory.outcome is not Outcome.ANSWERED:
            return trajectory.run, []
        answer = Message(role="assistant", content=trajectory.answer or "")
        return trajectory.run, [trajectory.run.task.messages[-1], answer]

    def _busy(self, head: ThreadHead) -> ThreadBusy:
        return ThreadBusy(f"thread {self.id!r}: the previous turn has not ended", head.run_id)


def _previous(head: ThreadHead) -> ThreadHead | None:
    return ThreadHead(head.previous, "", head.claimed) if head.previous else None
