"""A real worker process for tests: serves a stream in a given way, and reports by lines.

Run as `python -m tests.bus.worker_process SETTINGS STREAM BEHAVIOUR`, with the settings as JSON. It
drains on SIGTERM. `WorkerProcess` is the test's side of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator

from loopline.bus import (
    Bus,
    BusSettings,
    Consumer,
    Delivery,
    Finish,
    LeaseLost,
    Retry,
    RunEnded,
    StepCommit,
)
from loopline.bus.dead_letters import error_reply
from tests.bus.payloads import Note


def say(*words: object) -> None:
    print(*words, flush=True)


async def told() -> None:
    """Wait until the test writes a line, while the event loop runs on."""
    line = await asyncio.to_thread(sys.stdin.readline)
    if not line:
        await asyncio.Event().wait()


async def finish(delivery: Delivery) -> None:
    await delivery.commit(StepCommit(b'"process"', finish=Finish("answered", "process")))
    say("committed")


async def hold(delivery: Delivery) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        say("cancelled")
        raise


async def gate(delivery: Delivery) -> None:
    await told()
    await finish(delivery)


async def stubborn(delivery: Delivery) -> None:
    """A handler that tries to commit whatever happens to its task: only the bus can refuse."""

    async def insist() -> None:
        await told()
        try:
            await finish(delivery)
        except (LeaseLost, RunEnded) as error:
            say("refused", type(error).__name__)

    task = asyncio.create_task(insist())
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.shield(task)
    await task


async def die(delivery: Delivery) -> None:
    os._exit(3)


async def again(delivery: Delivery) -> None:
    raise Retry("later", 0.01)


async def answer(delivery: Delivery) -> None:
    await delivery.reply(b'"from a process"', store=True)
    say("replied")


async def fail_request(delivery: Delivery) -> None:
    await delivery.reply(error_reply("busy", "not now", retryable=True), store=False)
    say("replied")


BEHAVIOURS = {
    handler.__name__: handler
    for handler in (finish, hold, gate, stubborn, die, again, answer, fail_request)
}


async def main(settings: str, stream: str, behaviour: str) -> None:
    async with Bus(BusSettings.model_validate_json(settings)) as bus:
        bus.registry.register("note", Note)

        async def handler(delivery: Delivery) -> None:
            say("took", delivery.lease.entry, delivery.lease.count, delivery.envelope.attempt)
            await BEHAVIOURS[behaviour](delivery)

        consumer = Consumer(bus, [stream], handler, concurrency=4, worker=f"process-{os.getpid()}")

        def drain() -> None:
            say("draining")
            consumer.drain()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drain)
        say("ready", consumer.name)
        await consumer.run()
    say("left")


class WorkerProcess:
    """The test's side of the process."""

    def __init__(self, settings: BusSettings, stream: str, behaviour: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.bus.worker_process", settings.model_dump_json(), stream,
             behaviour],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    async def heard(self, word: str) -> list[str]:
        """Return the rest of the next line that starts with a word, or raise AssertionError if it
        never comes."""
        assert self.process.stdout is not None
        while True:
            line = await asyncio.wait_for(asyncio.to_thread(self.process.stdout.readline), 20)
            assert line, f"the process ended ({self.process.wait(10)}) before it said {word!r}"
            if line.split()[0] == word:
                return line.split()[1:]

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def send(self, what: signal.Signals) -> None:
        self.process.send_signal(what)

    async def gone(self) -> int:
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), 20)


@contextlib.contextmanager
def worker_process(
    settings: BusSettings, stream: str = "planner", behaviour: str = "finish"
) -> Generator[WorkerProcess]:
    worker = WorkerProcess(settings, stream, behaviour)
    try:
        yield worker
    finally:
        with contextlib.suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGCONT)
        worker.process.kill()
        worker.process.wait(10)
        for pipe in (worker.process.stdin, worker.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
