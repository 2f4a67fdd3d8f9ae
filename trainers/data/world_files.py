"""Instructions of the API simulator with their oracle's solutions, as ToolBench's files.

| file | contents |
|---|---|
| `instruction/<split>_query.json` | each instruction with its offered APIs |
| `answer/<split>_answer/<number>_oracle.json` | the oracle's solution |
| `toolenv/tools/<category>/<tool>.json` | description of each API that an instruction is offered |
| `test_query_ids/<split>_instruction.json` | the numbers of all, if the split is held out |

So a reader of ToolBench can read them, and excluding its test queries from training excludes the
questions of the benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from loopline.agents.environments.api_worlds import HELD_OUT
from loopline.agents.environments.api_worlds.toolbench import CATEGORY, answer, documentation, query
from loopline.agents.records import JsonObject
from loopline.trainers.data.datasets import require_free
from loopline.trainers.data.sources import TEST_QUERIES, first_instances
from loopline.workers.atomic_files import atomic_folder


def write_worlds(
    folder: Path,
    split: str,
    samples: int,
    seed: int,
    on_progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Write `samples` different instructions into a new folder, complete or not at all; returns the
    number of instructions with a solution. Raises `UnreadableData` if the folder exists or the
    split is unknown, OSError if the disk refuses."""
    require_free(folder)
    queries: list[JsonObject] = []
    offered: set[str] = set()
    solved = 0
    with atomic_folder(folder) as part:
        answers, instructions = part / "answer" / f"{split}_answer", part / "instruction"
        tools = part / "toolenv" / "tools" / CATEGORY
        answers.mkdir(parents=True)
        for number, instance in enumerate(first_instances(split, samples, seed)):
            _write(answers / f"{number}_oracle.json", answer(instance))
            queries.append(query(instance, number))
            offered.update(tool.name for tool in instance.tools)
            solved += instance.oracle.answer is not None
            on_progress(len(queries))
        instructions.mkdir()
        _write(instructions / f"{split}_query.json", queries)
        tools.mkdir(parents=True)
        for tool, description in documentation(offered).items():
            _write(tools / f"{tool}.json", description)
        if split in HELD_OUT:
            (part / TEST_QUERIES).mkdir()
            _write(part / TEST_QUERIES / f"{split}_instruction.json", [*range(len(queries))])
    return solved


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
