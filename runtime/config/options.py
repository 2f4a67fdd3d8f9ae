"""A command's options are a model: one class defines its command line, its `--config` file and what
a run records of them.

    class GroupOptions(Options):
        panel: ClassVar[str] = "Groups"

        group_size: int = Field(default=4, ge=2)
        '''Samples of a complete group (K).'''

becomes `--group-size <int>` with this help text, default and range, and `group_size = 4` in a file.
A field whose type is a model has that model's fields as options, and is a table in the file.

The command line overrides the file, and both override the defaults. Only pydantic checks values, so
a wrong value gets the same message wherever it was written, with its option or its file and key.
(pydantic-settings' `CliApp` does something similar on argparse, but without typer's commands and
panels, and its errors name fields.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from loopline.runtime.config.key_value_options import key_value_options, key_value_texts
from loopline.runtime.config.secrets import Redactor
from loopline.runtime.config.sources import (
    Layer,
    Tree,
    merge_layers,
    read_toml,
    toml_lines,
    unknown_keys,
)
from loopline.runtime.errors import InputError

COMMAND_LINE = "command line"
DEFAULT_PANEL = "Options"
MAX_SHOWN = 80
"""Maximum number of characters of a wrong value that an error quotes."""


class Options(BaseModel):
    """Base class of the models of command options."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    panel: ClassVar[str] = DEFAULT_PANEL
    """Heading of this class's own fields in the help; subclasses inherit it."""


M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Option:
    """How a field appears on the command line, where its name and type don't define it."""

    name: str | None = None
    """Name without dashes: `agent` for `--agent`. A flag may name both sides:
    `greedy/--sampled`."""
    short: str | None = None
    metavar: str | None = None
    """Placeholder for the value in the help: `POLICY=FOLDER`."""
    example: str = "turns=40"
    """Example of NAME=VALUE, shown in the error for a value in another form."""
    panel: str | None = None
    """Heading in the help, instead of the heading of the field's class."""
    comma: bool = False
    """Whether a sequence is one word with comma-separated values; otherwise the option repeats."""
    default: str | None = None
    """Default value that the help shows, if it differs from the field's."""


@dataclass(frozen=True)
class Argument:
    """Marks a field as a positional argument."""

    metavar: str | None = None


@dataclass(frozen=True)
class OnlyWith:
    """Refuses a non-default value of the field unless other options are given with it."""

    needed: str
    """The required options as the user writes them: `--weights lora`."""
    holds: Callable[[Any], bool]
    """Takes the whole model; returns whether the required options are given."""


@dataclass(frozen=True)
class Entry:
    """A field that is an option or an argument."""

    path: tuple[str, ...]
    field: FieldInfo
    panel: str

    def mark(self, kind: type[M2]) -> M2 | None:
        """Return the marker of the given kind in the field's annotation; None if there is none."""
        return next((marker for marker in self.field.metadata if isinstance(marker, kind)), None)

    @property
    def option(self) -> Option:
        return self.mark(Option) or Option()

    @property
    def type(self) -> Any:
        """The field's type without None."""
        return _without_none(self.field.annotation)

    @property
    def flag(self) -> str:
        """Name as a user writes it: `--group-size`, or `OUTPUT` for an argument."""
        if (argument := self.mark(Argument)) is not None:
            return argument.metavar or self.path[-1].upper()
        return f"--{(self.option.name or self.path[-1].replace('_', '-')).partition('/')[0]}"

    @property
    def parameter(self) -> str:
        """Name of the parameter of the command's function."""
        return "__".join(self.path)


M2 = TypeVar("M2", Option, Argument, OnlyWith)


def entries(model: type[BaseModel]) -> tuple[Entry, ...]:
    """Return every field that is an option or an argument, including those of nested models. The
    class's own fields come before those of its bases."""
    return tuple(_entries(model, (), None))


def _entries(model: type[BaseModel], path: tuple[str, ...], panel: str | None) -> Iterator[Entry]:
    for base in model.__mro__:
        field_names = [name for name in inspect.get_annotations(base) if name in model.model_fields]
        for name in field_names:
            if _declares(model, name) is base:
                own_panel: str = getattr(base, "panel", DEFAULT_PANEL)
                place = panel if panel and own_panel == DEFAULT_PANEL else own_panel
                yield from _entry(model.model_fields[name], (*path, name), place)


def _entry(field: FieldInfo, path: tuple[str, ...], panel: str) -> Iterator[Entry]:
    kind = _without_none(field.annotation)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from _entries(kind, path, panel)
    else:
        entry = Entry(path, field, panel)
        yield replace(entry, panel=entry.option.panel or panel)


def _declares(model: type[BaseModel], name: str) -> type:
    return next(base for base in model.__mro__ if name in inspect.get_annotations(base))


def resolved(model: type[M], arguments: Mapping[str, object], file: Path | None = None) -> M:
    """Build the model from a command line, which overrides a file. `arguments` are the parameters
    that the user wrote, as texts, lists of texts, and switches. Raises `InputError` with the
    option, or the file and key."""
    config_entries = entries(model)
    layers: list[Layer] = []
    if file is not None:
        layers.append(Layer(str(file), _file(file)))
        if wrong := list(unknown_keys(model, layers[0])):
            raise InputError("\n".join(wrong))
    layers.append(_command_line(config_entries, arguments))
    tree = merge_layers(layers)
    instance = validated(model, tree, layers)
    for entry in config_entries:
        only = entry.mark(OnlyWith)
        if only is not None and not only.holds(instance) and _changed(instance, entry):
            place = _place(entry, layers)
            raise InputError(
                f"{place} only applies with {only.needed}: leave {place} out, or change that"
            )
    return instance


def validated(model: type[M], values: Mapping[str, Any], layers: list[Layer] | None = None) -> M:
    """Build a model from the values of these layers. Without `layers`, the values are options, or
    values that follow from options. Raises `InputError`, worded as for every command."""
    config_entries = entries(model)
    flags = {".".join(entry.path): entry.flag for entry in config_entries}
    layers = layers or [Layer(COMMAND_LINE, dict(values), flags)]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        messages = [
            _worded(detail, config_entries, layers) for detail in error.errors(include_url=False)
        ]
        raise InputError("\n".join(messages)) from error


def _file(path: Path) -> Tree:
    try:
        return read_toml(path)
    except OSError as error:
        raise InputError(f"--config {path}: {error.strerror}") from error


def _command_line(config_entries: Iterable[Entry], arguments: Mapping[str, object]) -> Layer:
    data: Tree = {}
    for entry in config_entries:
        value = arguments.get(entry.parameter)
        if value is None:
            continue
        node = data
        for part in entry.path[:-1]:
            node = node.setdefault(part, {})
        node[entry.path[-1]] = _value(entry, value)
    return Layer(COMMAND_LINE, data, {".".join(entry.path): entry.flag for entry in config_entries})


def _value(entry: Entry, value: object) -> object:
    """Convert the user's text to the value that pydantic receives."""
    origin, option = get_origin(entry.type), entry.option
    if origin is dict:
        words = cast(list[str], value)
        if get_args(entry.type)[1] is str:
            form = option.metavar or "NAME=VALUE"
            return key_value_texts(entry.flag, words, form=form, example=option.example)
        return key_value_options(entry.flag, words, option.example)
    if origin in (tuple, list) and option.comma:
        return [part.strip() for part in str(value).split(",") if part.strip()]
    return value


def _changed(options: BaseModel, entry: Entry) -> bool:
    """Whether the field differs from its default."""
    value: Any = options
    for part in entry.path:
        value = getattr(value, part)
    return value != entry.field.get_default(call_default_factory=True, validated_data={})


def _has(tree: Tree, path: tuple[str, ...]) -> bool:
    node: Any = tree
    for part in path:
        if not isinstance(node, dict) or part not in node:
            return False
        node = cast(Tree, node)[part]
    return True


def _place(entry: Entry, layers: list[Layer]) -> str:
    """Return the place where the user wrote a value: the option, or the file and key."""
    layer = next(
        (candidate for candidate in reversed(layers) if _has(candidate.data, entry.path)),
        layers[-1],
    )
    spelled = layer.spell_key(entry.path)
    return spelled if layer.origin == COMMAND_LINE else f"{layer.origin}: {spelled}"


def _worded(error: ErrorDetails, config_entries: Iterable[Entry], layers: list[Layer]) -> str:
    where = tuple(str(part) for part in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    entry = next(
        (
            candidate
            for candidate in config_entries
            if candidate.path == where[: len(candidate.path)]
        ),
        None,
    )
    if entry is None:
        # The message of a rule about several options names them itself.
        place = "" if layers[0].origin == COMMAND_LINE else f"{layers[0].origin}: "
        return f"{place}{'.'.join(where)}: {message}" if where else message
    if error["type"] == "missing":
        key = ".".join(entry.path)
        return f"{entry.flag} is missing: give it, or `{key} = …` in the file of --config"
    within = "".join(f" {part}" for part in where[len(entry.path) :])
    value = error["input"]
    excerpt = "" if isinstance(value, dict) else f" {str(value)[:MAX_SHOWN]}"
    return f"{_place(entry, layers)}{within}{excerpt}: {message}"


def toml_of(options: BaseModel) -> list[str]:
    """Return the lines of a `--config` file with the whole model. A None value becomes a comment,
    since TOML can't express it. Passwords are hidden."""
    return toml_lines(Redactor().value(options.model_dump(mode="json")))


def signature_of(model: type[BaseModel], *, dry_run: bool) -> inspect.Signature:
    """Return the parameters with which typer reads the command line of a model. A parameter without
    a value is None (or an empty list): pydantic reports missing and wrong values."""
    parameters = [_parameter(entry) for entry in entries(model)]
    names = [parameter.name for parameter in parameters]
    config = typer.Option(
        "--config", metavar="<file.toml>", rich_help_panel=DEFAULT_PANEL,
        help="File with these options by name, as --dry-run prints them; the command line "
        "overrides it." if dry_run else "File with these options by name, as in `samples = 50`; "
        "the command line overrides it.",
    )  # fmt: skip
    parameters.append(_keyword("config", Annotated[Path | None, config]))
    if dry_run:
        preview = typer.Option(
            "--dry-run", rich_help_panel=DEFAULT_PANEL, show_default=False,
            help="Print the whole configuration and what would run, and exit.",
        )  # fmt: skip
        parameters.append(_keyword("dry_run", Annotated[bool | None, preview]))
    if clash := {parameter for parameter in names if names.count(parameter) > 1} | {
        "config",
        "dry_run",
    } & {*names}:
        raise TypeError(f"{model.__name__}: several options are called {', '.join(clash)}")
    return inspect.Signature(parameters)


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=annotation)


def _parameter(entry: Entry) -> inspect.Parameter:
    kind, option = entry.type, entry.option
    help_text = " ".join((entry.field.description or "").split())
    if notes := _notes(entry):
        help_text = f"{help_text}  [{notes}]"
    metavar = option.metavar or _metavar(kind)
    if (argument := entry.mark(Argument)) is not None:
        parameter_info: Any = typer.Argument(
            metavar=argument.metavar or entry.path[-1].upper(), help=help_text, show_default=False
        )
        annotation: Any = list[str] | None if get_origin(kind) in (tuple, list) else str | None
        return _keyword(entry.parameter, Annotated[annotation, parameter_info])
    written = [entry.flag, *([option.short] if option.short else [])]
    if kind is bool:
        side = (option.name or "").partition("/")[2] or f"--no-{entry.flag[2:]}"
        # A switch that is off by default needs no option to turn it off.
        if entry.field.default is not False or "/" in (option.name or ""):
            written[0] = f"{written[0]}/{side}"
        annotation, metavar = bool | None, None
    else:
        many = get_origin(kind) in (dict, tuple, list) and not option.comma
        annotation = list[str] | None if many else str | None
    parameter_info = typer.Option(
        *written, metavar=metavar, help=help_text, rich_help_panel=entry.panel, show_default=False
    )
    return _keyword(entry.parameter, Annotated[annotation, parameter_info])


def _metavar(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "|".join(map(str, arguments))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    if origin in (tuple, list):
        return _metavar(arguments[0])
    if origin is dict:
        return "NAME=VALUE"
    return {Path: "<path>", int: "<int>", float: "<float>"}.get(kind, "<text>")


def _notes(entry: Entry) -> str:
    """Return the default and the range for the help text."""
    field, option = entry.field, entry.option
    notes: list[str] = []
    default = option.default if option.default is not None else _default(entry)
    if default:
        notes.append(f"default: {default}")
    low, high = "", ""
    for mark in field.metadata:
        match mark:
            case Ge(ge=least):
                low = f"{least}<="
            case Gt(gt=below):
                low = f"{below}<"
            case Le(le=most):
                high = f"<={most}"
            case Lt(lt=above) if above != 2**63:  # not for the range of seeds
                high = f"<{above}"
            case _:
                pass
    if low or high:
        notes.append(f"{low}x{high}")
    if field.is_required() and entry.mark(Argument) is None:
        notes.append("required")
    return "; ".join(notes)


def _default(entry: Entry) -> str:
    value = entry.field.get_default(call_default_factory=True, validated_data={})
    if entry.field.is_required() or value in (None, (), {}, False):
        return ""
    if value is True:
        return entry.flag[2:]
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def call(
    run: Callable[[Any], None],
    model: type[BaseModel],
    preview: Callable[[Any], Iterable[str]] | None,
    arguments: dict[str, Any],
    complete: Callable[[Any], Any] | None = None,
) -> None:
    """Run a command with the arguments that typer read, or print what it would do."""
    file, dry_run = arguments.pop("config"), arguments.pop("dry_run", None)
    options = resolved(model, arguments, None if file is None else Path(file))
    if not dry_run or preview is None:
        run(options)
        return
    for line in toml_of(options if complete is None else complete(options)):
        typer.echo(line)
    for line in preview(options):
        typer.echo(Redactor().text(f"# {line}"))


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return _without_none(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return _without_none(kinds[0]) if len(kinds) == 1 else annotation
    return annotation
