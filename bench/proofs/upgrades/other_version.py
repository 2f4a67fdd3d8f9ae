"""Another version of this program: a copy of the package with a change, run by the same Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import loopline
from loopline.bench.errors import BenchError
from loopline.build import RECORDED
from loopline.workers.isolated_python import OWN_PYTHON

_BOOT = (
    "import runpy, sys; sys.path.insert(0, {path!r});"
    " sys.argv = ['-', *sys.argv[1:]]; runpy.run_module({module!r}, run_name='__main__')"
)


@dataclass(frozen=True)
class Version:
    """One version of the program."""

    name: str
    root: Path
    """Folder that contains `loopline`."""

    def command(self, module: str) -> Sequence[str]:
        """Command that runs a module of this version; arguments follow."""
        return (*OWN_PYTHON, "-c", _BOOT.format(path=str(self.root), module=module))


def copy_of_this(folder: Path, name: str, change: Callable[[Path], None] | None = None) -> Version:
    """Copy the program unchanged, or with a change, to `folder/NAME`."""
    root = folder / name
    package = root / "loopline"
    # Copied with its bytecode, which Python uses for every file that the change leaves alone:
    # otherwise the first processes of each version would all compile the whole package. Bytecode
    # that another process is about to rename is not copied.
    ignored = shutil.ignore_patterns("baselines", "*.pyc.*")
    shutil.copytree(Path(loopline.__file__).parent, package, ignore=ignored)
    if change is not None:
        change(package)
    (package / RECORDED).write_text(json.dumps({"commit": name, "modified": change is not None}))
    return Version(name, root)


def _replace(path: Path, old: str, new: str) -> None:
    """Replace code. Raises `BenchError` if it no longer has the form that the change expects."""
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise BenchError(f"{path.name} has {old!r} {text.count(old)} times: fix this change")
    path.write_text(text.replace(old, new), encoding="utf-8")


def word_in_prompts(package: Path) -> None:
    """Add a word to the prompts of planner and small solver."""
    for path in sorted((package / "agents" / "prompts").rglob("*.md")):
        if path.stem in ("planner", "slm"):
            text = path.read_text(encoding="utf-8").rstrip()
            path.write_text(f"{text} Carefully.\n", encoding="utf-8")


def field_in_step(package: Path) -> None:
    """Add an optional field to `Step`, which each step fills."""
    _replace(
        package / "agents" / "records.py",
        "    timings: StepTimings\n    worker: str\n",
        '    timings: StepTimings\n    worker: str\n    remark: str = ""\n',
    )
    _replace(
        package / "agents" / "stepping.py",
        "        worker=worker,\n    )\n    return TakenStep",
        '        worker=worker,\n        remark="of the other version",\n'
        "    )\n    return TakenStep",
    )


def second_subtask(package: Path) -> None:
    """Add version 2 of the payload `subtask`: an optional field, and the conversion from version 1,
    as the workflow of this version requires."""
    _replace(
        package / "agents" / "payloads.py",
        '    type_name: ClassVar[str] = "subtask"\n',
        '    type_name: ClassVar[str] = "subtask"\n'
        "    type_version: ClassVar[int] = 2\n"
        "    readable_from: ClassVar[int] = 1\n"
        "    upcasts: ClassVar[Mapping[int, Upcaster]] = {\n"
        '        1: lambda old: {"hint": "whole", **old}\n'
        "    }\n"
        '    hint: str = ""\n',
    )
    _replace(
        package / "agents" / "workflows" / "delegate.py",
        "                    payload=SubtaskPayload(\n",
        '                    payload=SubtaskPayload(\n                        hint="whole",\n',
    )


CHANGES: dict[str, Callable[[Path], None]] = {
    "prompt": word_in_prompts,
    "step": field_in_step,
    "payload": second_subtask,
}
"""Change in the other version, by name."""
