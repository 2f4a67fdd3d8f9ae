"""The bus compared with a small pure model of its rules, with crashes between any two commands.

The scripts run on a real server. Time is a move: a lease expires when the entry's age is set, a
retry is due and a deadline has passed when their times are set back. After every move the server
must contain exactly the state of the model.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from loopline.bus import (
    Admission,
    BusError,
    Finish,
    Join,
    LeaseLost,
    RunEnded,
    StepCommit,
    dead_letters,
    scripts,
)
from loopline.bus.dead_letters import add_dead_letter
from loopline.bus.envelope import FIELD
from loopline.bus.keys import GROUP
from loopline.testing import RedisProcess
from tests.bus.bus_model import STREAMS, Message, Run, Token, assert_same, outgoing
from tests.bus.driven_bus import DrivenBus

LEASE_MS = 15_000


def _has_tokens(machine: BusMachine) -> bool:
    return bool(machine.tokens)


WHICH = st.tuples(st.integers(0, 7), st.integers(0, 3))


class BusMachine(DrivenBus):
    """Moves of clients, workers, sweepers, operators and failures."""

    runs = Bundle("runs")
    letters = Bundle("letters")

    # Clients.

    @rule(target=runs)
    @precondition(lambda self: sum(run.state == "active" for run in self.model) < 4)
    def a_client_admits_a_run(self) -> Run:
        run = Run(f"run-{len(self.model)}")
        message = Message(run, "planner", 0)
        assert self.do(self.bus.admit(self.admission(run, message)))
        self.model.append(run)
        self.messages.append(message)
        self.publish(message)
        return run

    @rule(run=runs)
    def a_client_that_heard_no_answer_admits_it_again(self, run: Run) -> None:
        again = self.admission(run, Message(run, "planner", 0))
        assert not self.do(self.bus.admit(again))

    def admission(self, run: Run, message: Message) -> Admission:
        return Admission(run.id, b"{}", time.time() + 3600, (outgoing(message),))

    @rule(run=runs, rarely=st.integers(0, 3), how=st.sampled_from(["cancel", "deadline"]))
    def a_run_is_ended_from_outside(self, run: Run, rarely: int, how: str) -> None:
        if rarely == 3 and how == "cancel":
            self.a_user_cancels(run)
        elif rarely == 3:
            self.a_deadline_passes(run)

    def a_user_cancels(self, run: Run) -> None:
        assert self.do(self.bus.cancel(run.id)) == (run.state == "active")
        if run.state == "active":
            self.end(run, "cancelled")

    def a_deadline_passes(self, run: Run) -> None:
        assert not self.do(self.bus.end_run(run.id, "deadline", "", only_if_overdue=True))
        if run.state == "active":
            past = int(time.time() * 1000) - 1

            async def set_back() -> bool:
                await self.bus.redis.hset(self.shard.run(run.id), "deadline", past)  # pyright: ignore
                return await self.bus.end_run(run.id, "deadline", "", only_if_overdue=True)

            assert self.do(set_back())
            self.end(run, "deadline")

    # Workers.

    @rule(worker=st.sampled_from("ab"), many=st.integers(1, 3))
    def a_worker_reads(self, worker: str, many: int) -> None:
        keys: dict[Any, Any] = dict.fromkeys(map(self.shard.work, STREAMS), ">")
        response = self.do(self.bus.redis.xreadgroup(GROUP, worker, keys, count=many))
        entries = {key.decode(): entries for key, entries in response}
        for stream in STREAMS:
            mine = entries.get(self.shard.work(stream), [])
            assert len(mine) == min(many, len(self.queues[stream]))
            for entry, fields in mine:
                message = self.queues[stream].pop(0)
                self.token(message, worker, entry.decode(), 1, fields[FIELD.encode()])

    @precondition(_has_tokens)
    @rule(
        which=WHICH,
        what=st.sampled_from(["next", "fan out", "fan out", "finish", "error"]),
        branches=st.integers(1, 3),
        answer_lost=st.booleans(),
    )
    def a_worker_commits(
        self, which: tuple[int, int], what: str, branches: int, answer_lost: bool
    ) -> None:
        self.work(self.pick(which), what, branches, answer_lost)

    def work(self, token: Token, what: str, branches: int, answer_lost: bool) -> None:
        """Commit with a valid or a stale token; with `answer_lost` the same commit is sent
        again."""
        message, run = token.message, token.message.run
        step = f"{message.guard}#{len(run.journal)}"
        published: list[Message] = []
        join: tuple[str, int, Message] | None = None
        arrives, finish = message.arrives, None
        if arrives:
            if what == "error":  # hand over to an expert, who arrives in its place
                published = [Message(run, "planner", run.turns, message.branch, arrives)]
                arrives = ""
        elif what == "next":
            published = [Message(run, "slm", run.turns)]
        elif what == "fan out":
            name = str(run.turns)
            published = [Message(run, "slm", run.turns, branch, name) for branch in range(branches)]
            join = (name, branches, Message(run, "planner", run.turns + 1))
        else:
            finish = Finish("answered" if what == "finish" else "error")
        commit = StepCommit(
            json.dumps(step).encode(),
            publish=tuple(outgoing(next_message) for next_message in published),
            join=Join(join[0], join[1], outgoing(join[2])) if join else None,
            arrive=arrives,
            finish=finish,
        )
        got = self.commit(token, commit)
        if not token.valid:
            mine = run.guards.get(message.guard) == token.key
            assert got == ("ok" if mine else "lost")
            return
        if run.state == "ended":
            assert got == "refused"
            self.settle_ended(message)
        elif message.guard in run.guards:
            assert got == "refused"
            message.place, message.holder = "gone", None
        else:
            assert got == "ok"
            run.guards[message.guard] = token.key
            run.journal.append(step)
            message.place, message.holder = "gone", None
            if finish is not None:
                self.end(run, finish.outcome)
            else:
                run.failure = ""
            run.turns += 2
            if join is not None:
                run.joins[join[0]] = (join[1], join[2])
            for next_message in published:
                self.messages.append(next_message)
                self.publish(next_message)
            if arrives:
                remaining, after = run.joins[arrives]
                run.joins[arrives] = (remaining - 1, after)
                if remaining == 1:
                    del run.joins[arrives]
                    self.messages.append(after)
                    self.publish(after)
            if answer_lost:
                self.check()
                assert self.commit(token, commit) == "ok"

    def commit(self, token: Token, commit: StepCommit) -> str:
        try:
            assert self.do(token.delivery.commit(commit)) is False
        except LeaseLost:
            return "lost"
        except RunEnded:
            return "refused"
        return "ok"

    @precondition(_has_tokens)
    @rule(which=WHICH)
    def a_worker_renews(self, which: tuple[int, int]) -> None:
        self.renew(self.pick(which))

    def renew(self, token: Token) -> None:
        lease, run = token.delivery.lease, token.message.run
        [verdict] = self.do(
            scripts.call(
                self.bus.redis, "renew", [lease.stream, self.shard.run(run.id)],
                [GROUP, lease.consumer, lease.entry, lease.count],
            )
        )  # fmt: skip
        assert verdict == (0 if not token.valid else 2 if run.state == "ended" else 1)

    @precondition(_has_tokens)
    @rule(which=WHICH)
    def a_worker_begins_to_handle_it(self, which: tuple[int, int]) -> None:
        token = self.pick(which)
        lease, message = token.delivery.lease, token.message
        got = self.do(
            scripts.call(
                self.bus.redis, "begin",
                [lease.stream, self.shard.begun(message.stream)],
                [GROUP, lease.entry, lease.consumer, lease.count],
            )
        )  # fmt: skip
        assert got == (len(message.begun - {lease.count}) if token.valid else -1)
        if token.valid:
            message.begun |= {lease.count}

    @precondition(_has_tokens)
    @rule(which=WHICH, release=st.booleans())
    def a_worker_says_that_a_delivery_was_no_failure(
        self, which: tuple[int, int], release: bool
    ) -> None:
        """A drained or cut-off worker excuses itself while it holds the message; a frozen one does
        so later."""
        token = self.pick(which)
        lease, message = token.delivery.lease, token.message
        got = self.do(
            scripts.call(
                self.bus.redis, "give_back",
                [lease.stream, self.shard.begun(message.stream)],
                [GROUP, lease.consumer, LEASE_MS, int(release), lease.entry, lease.count],
            )
        )  # fmt: skip
        unfinished = message.holder is not None and message.holder[2] == lease.entry
        assert got == int(unfinished)
        if unfinished:
            message.begun -= {lease.count}

    @precondition(_has_tokens)
    @rule(which=WHICH)
    def a_worker_puts_it_off(self, which: tuple[int, int]) -> None:
        token = self.pick(which)
        lease, message = token.delivery.lease, token.message
        # Its own handling fails; earlier ones count if their end was never reported.
        attempt = message.attempt + len(message.begun - {lease.count}) + 1
        again = token.delivery.envelope.model_copy(update={"attempt": attempt})
        got = self.do(
            scripts.call(
                self.bus.redis, "retry",
                [lease.stream, self.shard.delayed(message.stream), self.shard.run(message.run.id)],
                [GROUP, lease.entry, lease.consumer, lease.count, 60_000, again.to_json(),
                 message.guard],
            )
        )  # fmt: skip
        assert got == (b"ok" if token.valid else b"lost")
        if token.valid:
            message.place, message.holder, message.attempt = "delayed", None, attempt
            if message.run.state == "active":
                message.run.failure = message.guard

    @precondition(_has_tokens)
    @rule(which=WHICH)
    def a_worker_that_finds_the_run_over_drops_it(self, which: tuple[int, int]) -> None:
        token = self.pick(which)
        if token.valid and token.message.run.state == "active":
            return  # workers drop only what belongs to an ended run
        self.do(token.delivery.drop())
        if token.valid:
            self.settle_ended(token.message)

    @precondition(_has_tokens)
    @rule(target=letters, which=WHICH)
    def a_worker_buries_it(self, which: tuple[int, int]) -> Any:
        token = self.pick(which)
        message, run = token.message, token.message.run
        delivery = token.delivery
        self.do(
            add_dead_letter(
                self.bus, self.shard, message.stream, delivery.lease, token.body, "no luck"
            )
        )
        if not token.valid:
            return multiple()
        message.place, message.holder = "dead", None
        if run.state == "active":
            self.end(run, "error")
        newest = self.do(self.bus.redis.xrevrange(self.shard.dead, count=1))[0][0].decode()
        message.letter = f"0/{newest}"
        return (message, message.letter)

    @precondition(_has_tokens)
    @rule(which=WHICH, swept_by=st.sampled_from(["", "a", "b"]), wakes=st.booleans())
    def a_worker_dies_or_sleeps_past_its_lease(
        self, which: tuple[int, int], swept_by: str, wakes: bool
    ) -> None:
        """A worker stops renewing its lease. A sleeping one may wake later and act on its old
        lease; it may even be the one that takes it over, with an old token and a new one."""
        token = self.pick(which)
        lease = token.delivery.lease
        if token.valid:
            self.do(
                self.bus.redis.xclaim(
                    lease.stream, GROUP, lease.consumer, 0, [lease.entry], idle=LEASE_MS + 1000,
                    justid=True,
                )
            )  # fmt: skip
        if swept_by:
            self.sweep(swept_by, token.message.stream, 3)
        if wakes:
            self.renew(token)  # the first thing that its keeper does

    # Sweepers and operators.

    @rule(worker=st.sampled_from("ab"), stream=st.sampled_from(STREAMS),
          free=st.integers(0, 3))  # fmt: skip
    def a_worker_sweeps(self, worker: str, stream: str, free: int) -> None:
        self.sweep(worker, stream, free)

    def sweep(self, worker: str, stream: str, free: int) -> None:
        """A sweep takes over exactly the expired entries, in their order; it counts those beyond
        its places."""
        key = self.shard.work(stream)
        old: list[Any] = [
            candidate["message_id"].decode()
            for candidate in self.do(
                self.bus.redis.xpending_range(key, GROUP, "-", "+", 1000, idle=LEASE_MS)
            )
        ]

        async def look() -> list[Any]:
            response = await scripts.call(
                self.bus.redis, "sweep",
                [key, self.shard.delayed(stream), self.shard.lock(stream), self.shard.active,
                 self.shard.history],
                [GROUP, worker, LEASE_MS, free, "0-0", 1000, 1, 5000,
                 self.bus.clock.now_ms()],
            )  # fmt: skip
            await self.bus.redis.delete(self.shard.lock(stream))
            return response

        _, promoted, takeovers, overdue, late = self.do(look())
        assert (promoted, overdue, late) == (0, [], max(0, len(old) - free))
        assert [entry.decode() for entry, _, _ in takeovers] == old[:free]
        for entry, body, count in takeovers:
            [message] = [
                candidate
                for candidate in self.messages
                if candidate.holder is not None
                and (candidate.stream, candidate.holder[2]) == (stream, entry.decode())
            ]
            assert count == message.deliveries + 1
            self.token(message, worker, entry.decode(), count, body)

    @rule(stream=st.sampled_from(STREAMS))
    def retries_fall_due(self, stream: str) -> None:
        waiting = [
            candidate
            for candidate in self.messages
            if (candidate.stream, candidate.place) == (stream, "delayed")
        ]
        key = self.shard.delayed(stream)

        async def promote() -> list[Any]:
            members = await self.bus.redis.zrange(key, 0, -1)
            if members:
                await self.bus.redis.zadd(key, dict.fromkeys(members, 1))
            result = await scripts.call(
                self.bus.redis, "sweep",
                [self.shard.work(stream), key, self.shard.lock(stream), self.shard.active,
                 self.shard.history],
                [GROUP, "sweeper", LEASE_MS, 0, "0-0", 1000, 1, 5000,
                 self.bus.clock.now_ms()],
            )  # fmt: skip
            await self.bus.redis.delete(self.shard.lock(stream))
            assert result[1] == len(members)
            return sorted(members)  # entries due at the same moment come in byte order

        for member in self.do(promote()):
            result = json.loads(member)
            [message] = [
                candidate
                for candidate in waiting
                if (candidate.run.id, candidate.text)
                == (result["run_id"], result["payload"]["text"])
            ]
            waiting.remove(message)
            self.publish(message)
        assert waiting == []

    @rule(letter=letters)
    def an_operator_replays(self, letter: tuple[Message, str]) -> None:
        message, letter_id = letter
        run = message.run
        try:
            self.do(dead_letters.replay(self.bus, letter_id))
            got = "ok"
        except BusError as error:
            got = str(error)
        if message.letter != letter_id:
            assert "no dead letter" in got
            return
        if run.state == "ended" and run.outcome != "error":
            assert "ended in another way" in got
            return
        assert got == "ok"
        message.letter = ""
        message.attempt = 0
        if run.state == "ended":
            run.state, run.outcome, run.failure = "active", "", ""
            run.generation += 1
            self.adopt_kept(run)
        self.publish(message)

    # Invariants after every move.

    @invariant()
    def the_server_holds_what_the_model_says(self) -> None:
        if hasattr(self, "bus"):
            self.check()

    def check(self) -> None:
        self.do(assert_same(self.bus, self.model, self.messages, self.published))


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_the_bus_keeps_the_rules_of_its_model(shared_server: RedisProcess) -> None:
    class Machine(BusMachine):
        url = shared_server.url

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=150, stateful_step_count=50, deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )  # fmt: skip
