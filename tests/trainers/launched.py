"""Trainings in several processes of this machine, joined as by a launcher."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from loopline.trainers.glpft.settings import GlpftSettings

# A server that has imported everything forks each process in no time.
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["accelerate", "peft", "loopline.trainers.glpft.pipeline", "tests.trainers.tiny_glpft",
     "torch.utils.tensorboard.writer", "transformers"]
)  # fmt: skip

SHARDED = {
    "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
}  # fmt: skip


@contextmanager
def launched(
    trainings: Sequence[tuple[GlpftSettings, Path]],
    log_folder: Path,
    *,
    count: int = 2,
    sharded: bool = False,
    checkpoint_every: int = 200,
    held_at: int | None = None,
    changed: Mapping[str, str] | None = None,
) -> Generator[list[BaseProcess]]:
    """Processes that together train each of `trainings` into its folder, one after the other; each
    writes to `said/<its number>`. The first one waits at the checkpoint of step `held_at` until the
    file `said/go` exists. `changed` are settings of the launcher. They are killed when the block
    ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log_folder.mkdir(parents=True, exist_ok=True)
    jobs = [(settings.model_dump_json(), output) for settings, output in trainings]
    started: list[BaseProcess] = [
        _FORKS.Process(
            target=_train,
            args=(
                {
                    "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(count),
                    "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true",
                    # As `accelerate launch --use_fsdp --fsdp_version 2` sets them.
                    **(SHARDED if sharded else {}), **(changed or {}),
                },
                jobs, log_folder / str(number), checkpoint_every, held_at,
            ),
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        for process in started:
            process.start()
        yield started
    finally:
        for process in started:
            process.kill()
            process.join()


def _train(
    environment: dict[str, str],
    jobs: list[tuple[str, Path]],
    log_path: Path,
    checkpoint_every: int,
    held_at: int | None,
) -> None:
    from loopline.trainers.core.processes import join_processes
    from loopline.trainers.errors import TrainingError
    from loopline.trainers.glpft.pipeline import StageListener, train

    from .tiny_glpft import DATA

    os.environ.update(environment)
    with log_path.open("w", buffering=1) as file:

        def tell(stage: str, step: int) -> None:
            file.write(f"checkpoint {stage} {step}\n")
            while step == held_at and not log_path.with_name("go").exists():
                time.sleep(0.005)

        try:
            with join_processes() as processes:
                for settings, output in jobs:
                    train(
                        GlpftSettings.model_validate_json(settings), DATA, output,
                        checkpoint_every=checkpoint_every, watch=StageListener(checkpoint=tell),
                        processes=processes,
                    )  # fmt: skip
        except TrainingError as error:
            file.write(f"{error}\n")
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            file.write("stopped\n")
            sys.exit(130)
