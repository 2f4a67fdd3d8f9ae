"""Trainings in separate processes: a single one, or several joined as by a launcher."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from loopline.trainers.grpo.settings import GrpoSettings
from tests.trainers.launched import SHARDED

# A server that has imported everything forks each process in no time.
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    ["accelerate", "peft", "loopline.trainers.glpft.pipeline", "tests.trainers.grpo.tiny_grpo",
     "loopline.trainers.grpo.arms.arm", "loopline.trainers.grpo.pipeline",
     "torch.utils.tensorboard.writer", "transformers"]
)  # fmt: skip


@contextmanager
def launched(
    settings: GrpoSettings,
    store: Path,
    base: Path,
    output: Path,
    *,
    count: int = 1,
    held_at: int | None = None,
    keep_ratios: int = 0,
    sharded: bool = False,
) -> Generator[list[BaseProcess]]:
    """Processes that train together and keep a checkpoint of every step; `sharded`: with FSDP. With
    `held_at` they have made that many updates of weights when the block starts, and stop there.
    They are killed when the block ends; their errors are in files named `output`, `.said` and the
    number of the process."""
    joined_by = [
        {**environment, **(SHARDED if sharded else {})} for environment in _environments(count)
    ]
    ends = [FORKS.Pipe() for _ in range(count)]
    started: list[BaseProcess] = [
        FORKS.Process(
            target=_train,
            args=(
                joined_by[number],
                settings.model_dump_json(), store, base, output, held_at, keep_ratios,
                ends[number][1],
            ),
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        for process in started:
            process.start()
        if held_at is not None:
            for connection, _ in ends:
                assert connection.recv() == held_at
        yield started
    finally:
        for process in started:
            process.kill()
            process.join()


@contextmanager
def launched_commands(
    commands: Sequence[Sequence[object]], log_path: Path, **environment: str
) -> Generator[list[BaseProcess]]:
    """A process for each of the command lines of `train grpo`, which start with the mode; they run
    together and write to files named `log_path`, `.` and the number of the process. They are killed
    when the block ends."""
    started: list[BaseProcess] = [
        FORKS.Process(
            target=_command,
            args=(
                {**joined_by, **environment}, [*map(str, arguments)],
                log_path.with_suffix(f".{joined_by['RANK']}"),
            ),
        )
        for joined_by, arguments in zip(_environments(len(commands)), commands, strict=True)
    ]  # fmt: skip
    try:
        for process in started:
            process.start()
        yield started
    finally:
        for process in started:
            process.kill()
            process.join()


def _environments(count: int) -> list[dict[str, str]]:
    """The environment that a launcher gives to each of `count` processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    joined_by = {
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true",
    }  # fmt: skip
    return [
        {**joined_by, "RANK": str(number), "LOCAL_RANK": str(number)} for number in range(count)
    ]


def _command(environment: dict[str, str], arguments: list[str], log_path: Path) -> None:
    os.environ.update(environment)
    from loopline.trainers.cli import main

    sys.argv = ["train", "grpo", *arguments]
    with log_path.open("w", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        main()


def _train(
    environment: dict[str, str],
    settings: str,
    store: Path,
    base: Path,
    output: Path,
    held_at: int | None,
    keep_ratios: int,
    end: Connection,
) -> None:
    os.environ.update(environment)
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from loopline.trainers.core.processes import join_processes
    from loopline.trainers.errors import TrainingError
    from loopline.trainers.grpo.pipeline import train

    from .tiny_grpo import chance_at_updates, data_in, load

    torch.set_num_threads(1)
    updates = 0

    def hold(*_: Any) -> None:
        nonlocal updates
        updates += 1
        if updates == held_at:
            end.send(updates)
            end.recv()

    register_optimizer_step_post_hook(hold)
    error_path = output.with_suffix(f".said{environment['RANK']}")
    try:
        with join_processes() as processes, chance_at_updates():
            loaded = load(base)
            train(
                GrpoSettings.model_validate_json(settings), data_in(store, loaded), loaded, output,
                checkpoint_every=1, keep_ratios=keep_ratios, processes=processes,
            )  # fmt: skip
    except TrainingError as error:
        error_path.write_text(str(error))
        raise SystemExit(error.exit_code) from None
