"""The commands of the proofs: `bench bus`, `bench engine` and so on.

The list of commands waits for no import. What a proof needs is imported when the command runs or
its own help is shown: its options are the fields of its model, with their docstrings as help.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin

import typer
from typer.core import TyperCommand


class Entry(NamedTuple):
    """What the list of commands says of a proof, and how long it takes on two cores."""

    about: str
    minutes: int
    full: str = ""
    """By `--full`, where it has that."""


PROOFS: dict[str, Entry] = {
    "bus": Entry("Measure the bus against its peers, on a Redis of its own.", 6),
    "engine": Entry("Measure the engines' tokens/s and latency against peers.", 5, "about an hour"),
    "failover": Entry("Kill a gpu worker amid 16 streams, and time the failover.", 3),
    "faults": Entry("Attack a deployment under load, and check its whole history.", 5),
    "fidelity": Entry("Compare the engines' log-probabilities with a plain pass.", 4, "about 7"),
    "gpu": Entry(
        "Take a model of 1.7B through serving, training and swapping.", 1, "about 5 on a GPU"
    ),
    "grpo-faults": Entry("Attack `train grpo loop`, and check every group.", 3),
    "grpo-speed": Entry("Measure rollouts and training steps against peers.", 9),
    "rewards": Entry("Kill who posts rewards, and the recorder; count the rewards.", 2),
    "soak": Entry("Load an engine with requests that are cancelled and late.", 3),
    "training": Entry("Measure supervised training against trl's SFTTrainer.", 8),
    "validity": Entry("Measure the validity of tool calls and of JSON answers.", 2),
}

_SHARED: dict[str, Any] = {
    "full": Annotated[bool, typer.Option("--full", help="Long form, as published values need it.")],
    "as_json": Annotated[bool, typer.Option("--json", help="End with one line of JSON.")],
    "output": Annotated[
        Path | None,
        typer.Option("--output", metavar="<path>", help="HTML page of all figures to write."),
    ],
    "record": Annotated[
        bool, typer.Option("--record", help="Add the line to the baselines of `bench history`.")
    ],
}
"""Options that every proof has."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, entry in PROOFS.items():
        app.command(name, cls=_deferred(name), short_help=entry.about)(lambda: None)


def _deferred(name: str) -> type[TyperCommand]:
    class Deferred(TyperCommand):
        """Stands in the list of commands; the rest is made when it is asked for."""

        @property
        def params(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
            return _built(name).params

        @params.setter
        def params(self, value: Any) -> None: ...  # pyright: ignore[reportIncompatibleVariableOverride]

        @property
        def callback(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
            return _built(name).callback

        @callback.setter
        def callback(self, value: Any) -> None: ...

        @property
        def help(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
            return _built(name).help

        @help.setter
        def help(self, value: Any) -> None: ...

    return Deferred


@cache
def _built(name: str) -> TyperCommand:
    """The command with its options and its help."""
    from loopline.bench.proofs.harness import Proof, conduct

    module = import_module(f"loopline.bench.proofs.{name.replace('-', '_')}.proof")
    proof: Proof[Any] = module.PROOF

    def command(**values: Any) -> None:
        shared = {key: values.pop(key) for key in _SHARED if key in values}
        written = {key: value for key, value in values.items() if value is not None}
        long = proof.full if shared.pop("full", False) else {}
        conduct(proof, {**long, **written}, **shared)

    shared = {key: kind for key, kind in _SHARED.items() if key != "full" or proof.full}
    fields = {key: _option(key, field) for key, field in proof.options.model_fields.items()}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, annotation=kind,
                default=False if get_args(kind)[0] is bool else None,
            )
            for key, kind in {**fields, **shared}.items()
        ]
    )  # fmt: skip
    entry = PROOFS[name]
    unit = "minute" if entry.minutes == 1 else "minutes"
    ending = f"Takes about {entry.minutes} {unit} on two cores"
    ending += f", with --full {entry.full}." if entry.full else "."
    ending += " Exit code 1 if a bar is missed or a rule is broken."
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    text = f"{entry.about} {inspect.getdoc(proof.options)}\n\n{ending}"
    app.command(name, help=text)(command)
    return cast(TyperCommand, typer.main.get_command(app))


def _option(key: str, field: Any) -> Any:
    """How typer reads a field: as text, for the model to check."""
    flag, kind = f"--{key.replace('_', '-')}", field.annotation
    kinds = [part for part in get_args(kind) if part is not NoneType]
    if get_origin(kind) is not Literal and kinds:
        kind = kinds[0]
    notes: list[str] = []
    if not field.default_factory and field.default not in (None, False):
        notes.append(f"default: {field.default}")
    bounds = {type(mark).__name__: mark for mark in field.metadata}
    low = f"{bounds['Ge'].ge:,}<=" if "Ge" in bounds else ""
    high = f"<={bounds['Le'].le:,}" if "Le" in bounds else ""
    if low or high:
        notes.append(f"{low}x{high}")
    text = f"{field.description}  [{'; '.join(notes)}]" if notes else field.description
    if kind is bool:
        switch = f"{flag}/--no-{flag[2:]}" if field.default else flag
        return Annotated[bool | None, typer.Option(switch, help=text, show_default=False)]
    metavar = "|".join(get_args(kind)) if get_origin(kind) is Literal else f"<{kind.__name__}>"
    option = typer.Option(flag, metavar=metavar.lower(), help=text, show_default=False)
    return Annotated[str | None, option]
