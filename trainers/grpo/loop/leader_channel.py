"""Channel between the first process of a loop, the only one that talks to the deployment and writes
files, and the processes that a launcher has started with it.

    first    rollouts, which may take hours    batch   its share of the step   checkpoint, rollouts
    others   wait                              batch   their share of it       wait

While the others wait, all processes meet many times a second. So no process waits longer than one
meeting, and a time-out cannot end healthy processes. The next meeting detects a process that is
gone, since its connections are closed. A request to stop one process stops all. For a checkpoint of
sharded weights, the others contribute their parts.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, TypeAdapter

from loopline.trainers.core.processes import SILENCE, Processes
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.stream import StepBatch

if TYPE_CHECKING:
    from loopline.trainers.core.interruption import Interruption


@dataclass(frozen=True)
class Start:
    """Message: the folder is claimed; load the base."""

    training: str
    """Id of the loop that the folder belongs to."""


@dataclass(frozen=True)
class Step:
    """Message: compute your share of a round's step."""

    round: int
    batch: StepBatch


@dataclass(frozen=True)
class Gather:
    """Message: contribute your part of sharded weights."""

    what: Literal["policies", "checkpoint"]
    """The files that the first process writes with them."""


@dataclass(frozen=True)
class End:
    """Message: the first process has ended."""

    exit_code: int = 0


Word = Start | Step | Gather | End
# As JSON and not by pickle, torch's way of passing objects: anyone who can reach the port could run
# code here.
_WORDS: TypeAdapter[Word] = TypeAdapter(Word, config=ConfigDict(ser_json_inf_nan="constants"))


class LeaderFailed(TrainingError):
    """Error of another process after the first one has failed."""

    def __init__(self, processes: Processes, exit_code: int) -> None:
        super().__init__(
            f"process {processes.index + 1} of {processes.count} exits with the first one, whose "
            "message states why"
        )
        self.exit_code = exit_code


class _Sign(IntEnum):
    """A process's contribution to a meeting; the largest one decides for all. A word of the first
    process takes precedence over a stop, which waits for the end of a step."""

    WAITING = 0
    STOP = 1
    WORD = 2


class LeaderChannel:
    """One end of the channel. As a context manager, it reports to the others how the first process
    ended. A process that trains alone reports to no other."""

    def __init__(self, processes: Processes) -> None:
        """Open the channel; all processes must do this."""
        self.processes = processes
        self._group: Any = None
        self._others_listen = processes.count > 1
        if processes.count > 1:
            import torch

            # On the CPU, however gradients are summed: a GPU would be busy waiting.
            self._group = torch.distributed.new_group(backend="gloo", timeout=SILENCE)

    def __enter__(self) -> LeaderChannel:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if not self._others_listen:
            # They stop as well, or notice in their current step that this process is missing.
            return
        if error is None:
            self.say(End())
            return
        code = error.exit_code if isinstance(error, TrainingError) else 1
        # Even if others are gone too, this process's own error is what the user must know.
        with suppress(RuntimeError):
            self.say(End(130 if isinstance(error, KeyboardInterrupt) else code))

    def say(self, word: Word) -> None:
        """Send a word from the first process, for which the others wait."""
        if self._group is not None:
            self._reduce_sign(_Sign.WORD)
            self._broadcast_word(word)

    @contextmanager
    def hand_over_step(self, number: int, batch: StepBatch) -> Generator[None]:
        """Send a step from the first process, which computes its own share in the block."""
        self.say(Step(number, batch))
        self._others_listen = False
        yield
        self._others_listen = self._group is not None

    @contextmanager
    def gather(self, what: Literal["policies", "checkpoint"]) -> Generator[None]:
        """Gather the weights of all processes while the first process, the caller, writes in the
        block. Weights that are not sharded need no gathering."""
        if not self.processes.sharded:
            yield
            return
        self.say(Gather(what))
        self._others_listen = False
        yield
        self._others_listen = self._group is not None

    def stopped(self, should_stop: bool) -> bool:
        """Whether any process was asked to stop, in which case all of them end. The first process
        calls this while it has nothing to send."""
        sign = self._reduce_sign(_Sign.STOP if should_stop else _Sign.WAITING)
        if sign == _Sign.STOP:
            self._others_listen = False
        return sign == _Sign.STOP

    def wait_for_word(self, interruption: Interruption) -> Word:
        """Wait for the first process's next word; the others call this. Raises KeyboardInterrupt if
        any process was asked to stop."""
        while True:
            sign = self._reduce_sign(_Sign.STOP if interruption.requested else _Sign.WAITING)
            if sign == _Sign.STOP:
                raise KeyboardInterrupt
            if sign == _Sign.WORD:
                return self._broadcast_word(None)

    def _reduce_sign(self, sign: _Sign) -> _Sign:
        if self._group is None:
            return sign
        import torch

        # A failed meeting leaves this false.
        self._others_listen = False
        highest = torch.tensor(sign.value)
        torch.distributed.all_reduce(highest, torch.distributed.ReduceOp.MAX, group=self._group)
        self._others_listen = True
        return _Sign(int(highest))

    def _broadcast_word(self, word: Word | None) -> Word:
        """The first process's word; the others pass None."""
        import torch

        self._others_listen = False
        payload = b"" if word is None else _WORDS.dump_json(word)
        length = torch.tensor(len(payload))
        torch.distributed.broadcast(length, src=0, group=self._group)
        content = torch.frombuffer(bytearray(payload.ljust(int(length))), dtype=torch.uint8)
        torch.distributed.broadcast(content, src=0, group=self._group)
        self._others_listen = True
        return _WORDS.validate_json(content.numpy().tobytes())
