"""How a proof becomes a command: the options that it declares, and those that every proof has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="End with one line of JSON.")]
Page = Annotated[Path | None, typer.Option("--output", help="HTML page with all figures to write.")]
RecordLine = Annotated[
    bool,
    typer.Option("--record", help="Add the JSON line to the baselines that `bench history` reads."),
]
Full = Annotated[bool, typer.Option("--full", help="Long form, for values that are published.")]


def add_proof(
    app: typer.Typer, name: str, declare: Callable[..., None], *, minutes: str, full: str = ""
) -> None:
    """Add `bench NAME`. The parameters of `declare` are the options of the proof, and its docstring
    is the help; `PROOF` of the module `proof` beside it does the work, imported when it is called.
    `minutes` says how long it takes by default, `full` by `--full`, where it has that.
    """
    shared: dict[str, tuple[Any, object]] = {
        "full": (Full, False), "as_json": (AsJson, False), "output": (Page, None),
        "record": (RecordLine, False),
    }  # fmt: skip
    if not full:
        del shared["full"]

    def command(**values: Any) -> None:
        from loopline.bench.proofs.harness import Proof, conduct

        package = declare.__module__
        proof: Proof[Any] = import_module(f"{package}.proof").PROOF
        given = {key: values.pop(key) for key in shared}
        if given.pop("full", False):
            values |= {key: value for key, value in proof.full.items() if not _typed(key)}
        conduct(proof, values, **given)

    declared = inspect.signature(declare, eval_str=True)
    extra = [
        inspect.Parameter(
            key, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
        )
        for key, (annotation, default) in shared.items()
    ]
    command.__signature__ = declared.replace(  # type: ignore[attr-defined]
        parameters=[
            *(
                parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                for parameter in declared.parameters.values()
            ),
            *extra,
        ]
    )
    ending = f"Takes about {minutes} on two cores{f', --full {full}' if full else ''}. Exit code 1 "
    ending += "if a bar is missed or a rule is broken."
    app.command(name, help=f"{inspect.getdoc(declare)}\n\n{ending}")(command)


def _typed(option: str) -> bool:
    """Whether the user gave the option on the command line."""
    import click
    from click.core import ParameterSource

    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE
