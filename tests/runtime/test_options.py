"""A model of options as a command line, as a file and as a record: all three are equivalent."""

from __future__ import annotations

import json
import sys
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal

import pytest
import typer
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import Field, model_validator
from typer.testing import CliRunner

from loopline.agents.records import JsonObject
from loopline.runtime.config.options import (
    Argument,
    OnlyWith,
    Option,
    Options,
    entries,
    resolved,
    validated,
)
from loopline.runtime.config.secrets import Redactor
from loopline.runtime.errors import InputError
from loopline.runtime.program import add_command


class Loss(Options):
    panel: ClassVar[str] = "Loss"

    kind: Literal["plain", "clipped"] = "plain"
    """Which loss."""
    clip: Annotated[
        float, OnlyWith("--kind clipped", lambda options: options.loss.kind == "clipped")
    ] = Field(default=0.2, gt=0, lt=1)
    """Largest ratio."""


class Folder(Options):
    output: Annotated[Path, Argument()]
    """Folder for results."""


class Training(Folder):
    """All kinds of fields."""

    panel: ClassVar[str] = "Training"

    base: str
    """Model to begin with."""
    steps: int | None = Field(default=None, ge=1, le=1000)
    """Steps at most."""
    rate: float = Field(default=0.5, gt=0)
    """Learning rate."""
    shuffle: bool = True
    """Shuffle the rows."""
    publish: bool = False
    """Publish the result."""
    greedy: Annotated[bool, Option("greedy/--sampled")] = False
    """How it answers."""
    agents: Annotated[tuple[str, ...], Option("agent", short="-a", metavar="NAME")] = ()
    """Agent that learns; may be repeated."""
    seeds: Annotated[tuple[int, ...], Option(comma=True)] = (1, 2)
    """Seeds, separated by commas."""
    policy: Annotated[dict[str, str], Option(metavar="ROLE=POOL", example="solo=slm")] = Field(
        default_factory=dict
    )
    """Who plays a role."""
    setting: JsonObject = Field(default_factory=dict)
    """How it is played."""
    loss: Loss = Field(default_factory=Loss)

    @model_validator(mode="after")
    def _goes_together(self) -> Training:
        if self.publish and self.steps == 1:
            raise ValueError("--publish needs more than --steps 1")
        return self


ran: list[Training] = []


def training(options: Training) -> None:
    """Train something. It takes a while."""
    ran.append(options)


def preview(options: Training) -> list[str]:
    return [f"trains {options.base}"]


def program() -> typer.Typer:
    """A program with the command and another one, so that both have names."""
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    add_command(app, training, MODEL, name="training", preview=preview)
    app.command("other")(lambda: None)  # pyright: ignore[reportUnknownLambdaType]
    return app


MODEL = "testing.module_of_a_test:Training"


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command names its model by a module of the package; this one is in the tests."""

    def this_module(_: str) -> ModuleType:
        return sys.modules[__name__]

    monkeypatch.setattr("loopline.runtime.program.import_module", this_module)
    ran.clear()


def invoke(*arguments: object) -> tuple[int, str, str]:
    ended = CliRunner(env={"COLUMNS": "80"}).invoke(program(), ["training", *map(str, arguments)])
    if isinstance(ended.exception, InputError):
        return ended.exception.exit_code, ended.stdout, str(ended.exception)
    return ended.exit_code, ended.stdout, ended.stderr


def command_line(options: Training) -> list[str]:
    """Every field of the model, as a user would write it."""
    words: list[str] = []
    for entry in entries(type(options)):
        value: Any = reduce(getattr, entry.path, options)
        match value:
            case None:
                pass
            case bool():
                off = (entry.option.name or "").partition("/")[2] or f"--no-{entry.flag[2:]}"
                has_off = entry.field.default is not False or "/" in (entry.option.name or "")
                words += [entry.flag] if value else [off] if has_off else []
            case dict():
                pairs: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
                for name, item in pairs.items():
                    text = item if entry.path == ("policy",) else json.dumps(item)
                    words += [entry.flag, f"{name}={text}"]
            case tuple() if entry.option.comma:
                words.append(f"{entry.flag}={','.join(map(str, value))}")
            case tuple():
                for item in value:
                    words.append(f"{entry.flag}={item}")
            case _ if entry.mark(Argument):
                pass
            case _:
                words.append(f"{entry.flag}={value}")
    return [*words, "--", str(options.output)]


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="="),
    min_size=1, max_size=8,
)  # fmt: skip
NUMBERS = st.floats(min_value=1e-9, max_value=1e9)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**31), 2**31) | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
LOSSES = st.builds(
    Loss, kind=st.just("clipped"), clip=st.floats(0.01, 0.99)
) | st.just(Loss())  # fmt: skip
TRAININGS = st.builds(
    Training,
    output=NAMES.map(Path),
    base=NAMES,
    steps=st.none() | st.integers(2, 1000),
    rate=NUMBERS,
    shuffle=st.booleans(),
    publish=st.booleans(),
    greedy=st.booleans(),
    agents=st.lists(NAMES, max_size=3).map(tuple),
    seeds=st.lists(st.integers(0, 99), min_size=1, max_size=3).map(tuple),
    policy=st.dictionaries(NAMES, NAMES, max_size=2),
    setting=st.dictionaries(NAMES, VALUES, max_size=2),
    loss=LOSSES,
)


@given(TRAININGS)
def test_a_command_line_is_parsed_into_the_model_that_wrote_it(training: Training) -> None:
    ran.clear()
    code, _, err = invoke(*command_line(training))
    assert code == 0, err
    assert [training] == ran


@given(training=TRAININGS)
def test_a_dry_run_writes_a_file_that_is_parsed_into_the_same_model(
    training: Training, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = training.model_dump(mode="json")
    assume(Redactor().value(options) == options)  # the file shows no secret
    ran.clear()
    code, out, err = invoke("--dry-run", *command_line(training))
    assert code == 0, err
    assert ran == []
    file = tmp_path_factory.getbasetemp() / "options.toml"
    file.write_text(out, encoding="utf-8")
    assert resolved(Training, {}, file) == training
    assert out.splitlines()[-1] == f"# trains {training.base}"


@given(TRAININGS)
def test_recorded_json_is_parsed_into_the_same_model(training: Training) -> None:
    assert Training.model_validate_json(training.model_dump_json()) == training


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_command_line_overrides_the_file_and_the_file_overrides_the_defaults(
    tmp_path: Path,
) -> None:
    file = written(
        tmp_path / "a.toml",
        'base = "there"\nrate = 2\nsteps = 7\n[setting]\nturns = 4\nview = 3\n'
        '[loss]\nkind = "clipped"\n',
    )
    code, _, err = invoke(
        "out", "--config", file, "--rate", "3", "--setting", "turns=5", "--clip", "0.5"
    )
    assert code == 0, err
    assert ran == [
        Training(
            output=Path("out"), base="there", rate=3, steps=7, setting={"turns": 5, "view": 3},
            loss=Loss(kind="clipped", clip=0.5),
        )
    ]  # fmt: skip


def test_the_file_can_contain_all_required_options(tmp_path: Path) -> None:
    file = written(tmp_path / "a.toml", 'base = "there"\noutput = "out"\nagents = ["a", "b"]\n')
    code, _, err = invoke("--config", file)
    assert code == 0, err
    assert ran == [Training(output=Path("out"), base="there", agents=("a", "b"))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("out",), "--base is missing: give it, or `base = …` in the file of --config"),
        (("--base", "x"), "OUTPUT is missing: give it, or `output = …` in the file of --config"),
        (("out", "--base", "x", "--steps", 0), "--steps 0: Input should be greater than or equal"),
        (
            ("out", "--base", "x", "--steps", "many"),
            "--steps many: Input should be a valid integer",
        ),
        (("out", "--base", "x", "--rate", "inf"), "--rate inf: Input should be a finite number"),
        (
            ("out", "--base", "x", "--kind", "odd"),
            "--kind odd: Input should be 'plain' or 'clipped'",
        ),
        (("out", "--base", "x", "--seeds", "1,x"), "--seeds 1 x: Input should be a valid integer"),
        (("out", "--base", "x", "--setting", "turns"), "--setting: 'turns' is not NAME=VALUE"),
        (("out", "--base", "x", "--policy", "solo="), "--policy: 'solo=' is not ROLE=POOL"),
        (
            ("out", "--base", "x", "--clip", 0.5),
            "--clip only applies with --kind clipped: leave --clip out, or change that",
        ),
        (("out", "--base", "x", "--publish", "--steps", 1), "--publish needs more than --steps 1"),
        (("out", "--base", "x", "--config", "nowhere.toml"), "--config nowhere.toml: No such file"),
    ],
)
def test_the_error_for_a_wrong_command_line_names_the_option(
    arguments: tuple[object, ...], message: str
) -> None:
    code, _, err = invoke(*arguments)
    assert code == 2
    assert message in err
    assert ran == []


def test_all_errors_are_reported_at_once() -> None:
    _, _, err = invoke("out", "--base", "x", "--steps", "0", "--rate", "0")
    assert err.count("Input should be") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stesp = 3", "unknown key 'stesp'; did you mean steps?"),
        ("[loss]\nclipp = 0.3", "unknown key 'loss.clipp'; did you mean loss.clip?"),
        ("steps = 0", "steps 0: Input should be greater than or equal to 1"),
        ('[loss]\nkind = "odd"', "loss.kind odd: Input should be 'plain' or 'clipped'"),
        ("loss = 3", "loss: Input should be a valid dictionary"),
        ("[loss]\nclip = 0.3", "loss.clip only applies with --kind clipped"),
        ("steps = ", "not valid TOML"),
    ],
)
def test_the_error_for_a_wrong_file_names_the_file_and_the_key(
    tmp_path: Path, text: str, message: str
) -> None:
    file = written(tmp_path / "a.toml", f"{text}\n")
    with pytest.raises(Exception, match=r"a\.toml") as caught:
        resolved(Training, {"output": "out", "base": "x"}, file)
    assert message in str(caught.value)


def test_a_dry_run_shows_no_password() -> None:
    _, out, _ = invoke("out", "--base", "redis://me:secret-word@there:1", "--dry-run")
    assert "redis://me:***@there:1" in out
    assert "secret-word" not in out


def test_a_default_value_is_accepted_without_the_option_that_it_requires(tmp_path: Path) -> None:
    """A dry run writes every key, so its file must be accepted."""
    assert resolved(Training, {"output": "out", "base": "x", "loss__clip": "0.2"}).loss.clip == 0.2


def test_options_validated_in_code_get_the_same_error_message() -> None:
    with pytest.raises(InputError, match="--steps 0: Input should be greater"):
        validated(Training, {"output": Path("out"), "base": "x", "steps": 0})


def test_the_help_has_panels_with_texts_defaults_and_ranges() -> None:
    code, out, _ = invoke("--help")
    assert code == 0
    places = [out.index(f"\n{title}:\n") for title in ("Arguments", "Training", "Loss", "Options")]
    assert places == sorted(places)
    help_text = " ".join(out.split())
    assert "Train something. It takes a while." in help_text
    assert "--steps <int> Steps at most. [1<=x<=1000]" in help_text
    assert "--rate <float> Learning rate. [default: 0.5; 0<x]" in help_text
    assert "--shuffle / --no-shuffle Shuffle the rows. [default: shuffle]" in help_text
    assert "--publish Publish the result." in help_text
    assert "--greedy / --sampled How it answers." in help_text
    assert "-a, --agent NAME Agent that learns; may be repeated." in help_text
    assert "--seeds <int> Seeds, separated by commas. [default: 1,2]" in help_text
    assert "--kind plain|clipped Which loss. [default: plain]" in help_text
    assert "--base <text> Model to begin with. [required]" in help_text


def test_listing_the_commands_does_not_import_their_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} was imported")

    monkeypatch.setattr("loopline.runtime.program.import_module", refuse)
    ended = CliRunner().invoke(program(), ["--help"])
    assert ended.exit_code == 0
    assert "Train something." in ended.output
