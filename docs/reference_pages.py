"""The reference pages that are made from the code: configuration, commands, exit codes, Python API,
and the columns of the store. None of them is stored: `make docs` makes them each time.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePath
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperGroup
from typer.main import get_command

from loopline.bench.cli import app as bench
from loopline.cli import app as loopline
from loopline.runtime import errors
from loopline.runtime.cli import app as runtime
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.sources import key_descriptions
from loopline.trainers import errors as training_errors
from loopline.trainers.cli import app as train
from loopline.workers.recorder import REWARD_SCHEMA, TRAJECTORY_SCHEMA, USAGE_SCHEMA

PROGRAMS: dict[str, typer.Typer] = {"runtime": runtime, "bench": bench, "train": train}

API: dict[str, tuple[str, ...]] = {
    "Apps": (
        "loopline.runtime.app.app",
        "loopline.runtime.app.definition",
        "loopline.runtime.app.thread",
        "loopline.runtime.app.events",
        "loopline.runtime.app.errors",
        "loopline.runtime.app.testing",
    ),
    "Ask a deployment": ("loopline.runtime.client.client", "loopline.runtime.client.deployment"),
    "Records": ("loopline.agents.records",),
    "Tools": ("loopline.agents.tools.declaration",),
    "Roles and workflows": (
        "loopline.agents.roles.protocol",
        "loopline.agents.protocols",
        "loopline.agents.workflows.routing",
        "loopline.agents.workflow_runner",
    ),
    "Environments": (
        "loopline.agents.environments.environment",
        "loopline.agents.environments.conversation",
        "loopline.agents.environments.game",
    ),
    "Benchmarks": (
        "loopline.bench.benchmark",
        "loopline.bench.datasets",
        "loopline.bench.text_answers",
        "loopline.bench.numeric_answers",
    ),
    "Engines": ("loopline.workers.engines.protocol",),
    "Recorded runs": ("loopline.trainers.data.store",),
    "Bus": ("loopline.bus.bus", "loopline.bus.settings", "loopline.bus.errors"),
    "Testing": ("loopline.testing.redis_process", "loopline.testing.worker_processes"),
}
"""Heading → modules whose public names stand below it."""


def pages() -> dict[str, str]:
    """Path below `docs/` → Markdown."""
    return {
        "reference/configuration.md": configuration(),
        "reference/loopline.md": umbrella(),
        **{f"reference/{name}.md": program(name, app) for name, app in PROGRAMS.items()},
        "reference/exit-codes.md": exit_codes(),
        "reference/python.md": python_api(),
        "reference/store.md": store_columns(),
    }


def configuration() -> str:
    """Every key of a profile, from the models that read it."""
    descriptions = list(key_descriptions(Settings))
    defaults = dict(_defaults(Settings))
    sections: dict[str, list[tuple[str, ...]]] = {}
    for key, kind, meaning in descriptions:
        top = key.partition(".")[0]
        sections.setdefault(top, []).append(
            (f"`{key}`", f"`{kind}`", defaults.get(key, ""), meaning)
        )
    lines = [
        "# Configuration",
        "",
        "A profile is a TOML file. `runtime up --profile FILE` reads it; `runtime config` prints",
        "the result with secrets hidden. Values are merged in this order, the last one wins:",
        "",
        "1. the profile that `extends` names, then the profile itself",
        "2. environment variables: `LOOPLINE_` and the key in capitals, `__` for each dot:",
        "   `LOOPLINE_MODELS__SLM__MAX_TOKENS=256`",
        "3. `--set models.slm.max_tokens=256`",
        "",
        "An unknown key is an error that names the nearest valid key. `<name>` stands for a name",
        "of your choice. Secrets never stand in a profile: a key such as `api_key_env` names the",
        "environment variable that holds the secret.",
        "",
        "`LOOPLINE_PROFILE` names the profile, `LOOPLINE_STATE` the state directory, and",
        "`LOOPLINE_DATA` the folder of data sets.",
        "",
    ]
    for top, rows in sections.items():
        described = Settings.model_fields[top].description or ""
        lines += [f"## `{top}`", "", _one_line(described), ""]
        lines += _table(("Key", "Type", "Default", "Meaning"), rows)
    return "\n".join(lines)


def _defaults(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every dotted key that has a default → that default as TOML writes it."""
    for name, field in model.model_fields.items():
        inner = _inner_model(field.annotation)
        if inner is None:
            if (default := _shown_default(field)) is not None:
                yield f"{prefix}{name}", default
        else:
            nested, is_table = inner
            below = f"{prefix}{name}.<name>." if is_table else f"{prefix}{name}."
            yield from _defaults(nested, below)


def _inner_model(annotation: Any) -> tuple[type[BaseModel], bool] | None:
    """The model within an annotation, and whether it is the value of a table."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation, False
    is_table = getattr(annotation, "__origin__", None) is dict
    for argument in getattr(annotation, "__args__", ()):
        if (inner_model := _inner_model(argument)) is not None:
            return inner_model[0], inner_model[1] or is_table
    return None


def _shown_default(field: FieldInfo) -> str | None:
    if field.is_required():
        return "*required*"
    if inspect.isfunction(field.default_factory):
        return "by the machine"
    value: object = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "not set"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, PurePath):
        value = str(value)
    try:
        return f"`{json.dumps(value)}`"
    except TypeError:
        return None


def program(name: str, app: typer.Typer) -> str:
    """One page for a program: every command with its arguments and options."""
    command = get_command(app)
    lines = [f"# `{name}`", "", *_help_text(command), ""]
    assert isinstance(command, TyperGroup)
    lines += _command_list(name, command)
    for words, inner in _leaves(command, (name,)):
        lines += _command_section(words, inner)
    return "\n".join(lines)


def umbrella() -> str:
    """`loopline` holds all of the others: a list is enough."""
    command = get_command(loopline)
    assert isinstance(command, TyperGroup)
    rows: list[tuple[str, ...]] = []
    for name in command.list_commands(typer.Context(command)):
        page = f"{name}.md" if name in PROGRAMS else "runtime.md"
        inner = command.commands[name]
        rows.append((f"[`loopline {name}`]({page})", inner.get_short_help_str(200)))
    return "\n".join(
        [
            "# `loopline`",
            "",
            *_help_text(command),
            "",
            "Every command of `runtime` stands here without that word, `bench` and `train` are",
            "groups: `loopline up` is `runtime up`, `loopline bench gsm8k` is `bench gsm8k`.",
            "",
            *_table(("Command", "What it does"), rows),
        ]
    )


def _command_list(name: str, group: TyperGroup) -> list[str]:
    panels: dict[str, list[tuple[str, ...]]] = {}
    for words, command in _leaves(group, (name,)):
        panel = getattr(group.commands[words[1]], "rich_help_panel", None)
        title = panel if isinstance(panel, str) else "Commands"
        full = " ".join(words)
        row = (f"[`{full}`](#{full.replace(' ', '-')})", command.get_short_help_str(200))
        panels.setdefault(title, []).append(row)
    lines: list[str] = []
    for title, rows in panels.items():
        heading = [] if title == "Commands" else [f"**{title}**", ""]
        lines += [*heading, *_table(("Command", "What it does"), rows)]
    return lines


def _leaves(command: TyperGroup, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in command.list_commands(typer.Context(command)):
        inner = command.commands[name]
        if inner.hidden:
            continue
        if isinstance(inner, TyperGroup):
            yield from _leaves(inner, (*words, name))
        else:
            yield (*words, name), inner


def _command_section(words: tuple[str, ...], command: Any) -> list[str]:
    context = typer.Context(command, info_name=" ".join(words))
    usage = command.get_usage(context).removeprefix("Usage: ")
    rows: list[tuple[str, ...]] = []
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            rows.append((f"`{_one_line(record[0])}`", _one_line(record[1])))
    return [
        f"## `{' '.join(words)}`",
        "",
        *_help_text(command),
        "",
        "```text",
        " ".join(usage.split()),
        "```",
        "",
        *_table(("Argument or option", "Meaning"), rows),
    ]


def _help_text(command: Any) -> list[str]:
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    return [_as_text(line) for line in text.splitlines()]


def exit_codes() -> str:
    """The constants and the error classes that carry a code of their own."""
    rows = [(f"`{code}`", meaning) for code, meaning in _exit_constants()]
    rows.append(("`141`", "Standard output was closed, as `| head` closes it."))
    special = [
        (f"`{error.exit_code}`", _one_line(inspect.getdoc(error) or ""))
        for _, error in inspect.getmembers(training_errors, inspect.isclass)
        if issubclass(error, training_errors.TrainingError)
    ]
    return "\n".join(
        [
            "# Exit codes",
            "",
            "Every program uses these. A defect of the program itself ends with a traceback and 1.",
            "",
            *_table(("Code", "Meaning"), rows),
            "## `train`",
            "",
            *_table(("Code", "Meaning"), sorted(special)),
        ]
    )


def _exit_constants() -> Iterator[tuple[int, str]]:
    """`EXIT_…` of `loopline.runtime.errors` with the docstring below each."""
    body = ast.parse(inspect.getsource(errors)).body
    for place, node in enumerate(body):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        name = node.targets[0].id
        if not name.startswith("EXIT_"):
            continue
        after = body[place + 1] if place + 1 < len(body) else None
        description = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            description = _one_line(str(after.value.value))
        yield getattr(errors, name), description or "Success."


def python_api() -> str:
    """Directives that mkdocstrings fills from the docstrings."""
    lines = [
        "# Python API",
        "",
        "Public names by subject. What a module's head says about how to use it stands above its",
        "members.",
        "",
    ]
    for heading, modules in API.items():
        lines += [f"## {heading}", ""]
        for module in modules:
            lines += [f"::: {module}", "    options:", "      heading_level: 3", ""]
    return "\n".join(lines)


def store_columns() -> str:
    """The Parquet schemas that the recorder writes."""
    lines = ["# Columns of the store", ""]
    tables = {"trajectories": TRAJECTORY_SCHEMA, "usage": USAGE_SCHEMA, "rewards": REWARD_SCHEMA}
    for folder, schema in tables.items():
        lines += [f"## `{folder}/*.parquet`", "", *_columns(schema)]
    return "\n".join(lines)


def _columns(schema: Any) -> list[str]:
    rows = [(f"`{field.name}`", f"`{field.type}`") for field in schema]
    return _table(("Column", "Type"), rows)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    body = [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body, ""]


def _cell(text: str) -> str:
    """Markdown tables take no line breaks, and outside of code no bar that isn't a border."""
    parts = _as_text(_one_line(text)).split("`")
    return "`".join(part.replace("|", "\\|") if not n % 2 else part for n, part in enumerate(parts))


def _as_text(text: str) -> str:
    """`<name>` and `[default: 1]` are not an HTML and no link, outside of code."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        part = parts[place].replace("<", "&lt;")
        parts[place] = part if part.startswith("](") else part.replace("[default", "\\[default")
    return "`".join(parts)


def _one_line(text: str) -> str:
    return " ".join(text.split())
