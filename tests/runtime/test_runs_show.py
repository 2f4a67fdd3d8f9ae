"""`runtime runs show` on a store: pages of recorded runs, and errors."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.runtime.cli import app
from loopline.runtime.errors import InputError, UserError
from loopline.runtime.observe.learned_tokens import LEARNED_TOKENS, write_learned
from loopline.workers.engines.local.model_files import MICRO_MODELS
from tests.runtime.parsed_page import ParsedPage
from tests.runtime.test_learned_tokens import a_sequence
from tests.trainers.grpo.recorded import a_call, a_candidate, a_run, a_step, record

RUN = a_run(7, a_step([a_candidate(0.0), a_candidate(1.0, a_call(text="second"))], selected=1))
ID = RUN.run.id


@pytest.fixture
def store(tmp_path: Path) -> Path:
    asyncio.run(record(tmp_path / "store", [RUN, a_run(8)]))
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))


def show(*arguments: object) -> str:
    """The printed output. Raises the error that a user would see."""
    result = CliRunner().invoke(app, ["runs", "show", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_a_recorded_run_becomes_a_page_without_a_deployment(store: Path, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    assert str(page) in show(ID, "--store", store, "--html", page)
    parsed = ParsedPage(page.read_text())
    parsed.require_harmless()
    assert ID in parsed.text
    assert "second" in parsed.text
    assert len(parsed.of("details", "candidate")) == 2


def test_the_dialogue_and_the_record_of_a_recorded_run_are_shown(store: Path) -> None:
    assert "question  What is it?" in show(ID, "--store", store)
    assert json.loads(show(ID, "--store", store, "--json"))["run"]["id"] == ID


def test_the_record_can_be_shown_in_addition_to_a_page(store: Path, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    assert json.loads(show(ID, "--store", store, "--html", page, "--json"))["run"]["id"] == ID
    assert ID in page.read_text()


def test_the_page_shows_what_a_training_learned_from_the_run(store: Path, tmp_path: Path) -> None:
    sequence = a_sequence(
        ID, ids=(1, 2, 3, 4, 5), learned=(False, False, False, True, True),
        sample=f"{ID}/0.0/solo#1",
    )  # fmt: skip
    write_learned(tmp_path / "out" / LEARNED_TOKENS / "00000001-0.parquet", [sequence])
    page = tmp_path / "run.html"
    show(ID, "--store", store, "--html", page, "--training", tmp_path / "out")
    text = ParsedPage(page.read_text()).text
    assert "step 1, shared v3, advantage −0.5" in text


def test_a_tokenizer_from_a_folder_shows_single_tokens(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(MICRO_MODELS / "slm" / "tokenizer.json")).encode("sum").ids
    call = a_call((5, 6), ids, text="sum")
    call = call.model_copy(update={"policy": call.policy.model_copy(update={"base": "mine"})})
    asyncio.run(record(tmp_path / "store", [a_run(1, a_step([a_candidate(1.0, call)]))]))
    page, arguments = tmp_path / "run.html", (a_run(1).run.id, "--store", tmp_path / "store")
    show(*arguments, "--html", page)
    assert "single tokens of mine is not known" in page.read_text()
    show(*arguments, "--html", page, "--tokenizer", MICRO_MODELS / "slm")
    parsed = ParsedPage(page.read_text())
    assert "is not known" not in parsed.text
    assert len(
        [attributes for attributes in parsed.of("span", "t") if "title" in attributes]
    ) == len(ids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--store", "STORE", "--html", "PAGE"), "no run with the full id"),
        (("--store", "NOWHERE", "--html", "PAGE"), "no run with the full id"),
        (("--training", "NOWHERE", "--store", "STORE"), "need --html FILE"),
        (("--tokenizer", "NOWHERE", "--store", "STORE"), "need --html FILE"),
        (
            ("--tokenizer", "NOWHERE", "--store", "STORE", "--html", "PAGE"),
            r"--tokenizer .*nowhere: no tokenizer.json of it on this machine",
        ),
    ],
)
def test_a_run_that_cannot_be_shown_is_one_error_and_leaves_no_page(
    store: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    places = {"STORE": store, "NOWHERE": tmp_path / "nowhere", "PAGE": tmp_path / "run.html"}
    run = ID if "--training" in arguments or "--tokenizer" in arguments else ID[:-1] + "f"
    with pytest.raises(InputError, match=message):
        show(run, *(places.get(argument, argument) for argument in arguments))
    assert not (tmp_path / "run.html").exists()


def test_a_page_that_cannot_be_written_leaves_the_old_one(store: Path, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    page.write_text("old")
    with pytest.raises(InputError, match="has no record of learned tokens"):
        show(ID, "--store", store, "--html", page, "--training", tmp_path)
    for folder in (tmp_path, "."):
        with pytest.raises(InputError, match="is a folder"):
            show(ID, "--store", store, "--html", folder)
    with pytest.raises(InputError, match="can't be written: No such file"):
        show(ID, "--store", store, "--html", tmp_path / "nowhere" / "run.html")
    assert page.read_text() == "old"
    assert not list(tmp_path.glob(".*partial"))


def test_a_damaged_file_is_reported_only_if_it_may_contain_the_run(
    store: Path, tmp_path: Path
) -> None:
    asyncio.run(record(store, [a_run(9)], batch=2))
    first, second = sorted((store / "trajectories").glob("*.parquet"))
    second.write_bytes(b"PAR1" + b"\0" * 40)
    page = tmp_path / "run.html"
    show(ID, "--store", store, "--html", page)
    assert ID in page.read_text()
    with pytest.raises(InputError, match=second.name):
        show(a_run(9).run.id, "--store", store, "--html", page)
    first.unlink()
    with pytest.raises(UserError, match="can't be read"):
        show(ID, "--store", store)
