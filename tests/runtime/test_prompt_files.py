"""The user's own prompts: in a profile, and for one run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from loopline.agents.prompts import prompt_in
from loopline.bus import BusSettings
from loopline.runtime.client.client import Client
from loopline.runtime.config import settings as config
from loopline.runtime.config.prompt_files import parse_prompt_files
from loopline.runtime.errors import ConfigError, InputError
from tests.runtime.conftest import Deployment

TERSE = "---\nname: solo\nversion: 7\n---\nAnswer in one word.\n"
HASH = hashlib.sha256(TERSE.encode()).hexdigest()


def profile(folder: Path, line: str, content: bytes | None = TERSE.encode()) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    if content is not None:
        (folder / "terse.md").write_bytes(content)
    profile_path = folder / "own.toml"
    profile_path.write_text(f'extends = "micro"\n[prompts]\n{line}\n')
    return str(profile_path)


def error_of(path: str) -> str:
    with pytest.raises(ConfigError) as refused:
        config.load(path, environ={})
    return str(refused.value)


def test_a_run_carries_the_prompt_file_that_its_profile_names(tmp_path: Path) -> None:
    settings = config.load(profile(tmp_path / "own", 'solo = "terse.md"'), environ={})
    client = Client(BusSettings(), prompt_files=settings.prompt_files)
    run = client.new_run("2 + 2?", workflow="solo")
    assert run.prompts == {"solo.md": HASH}
    assert run.prompt_files == {"solo.md": TERSE}
    # A run of another workflow does not carry it.
    assert client.new_run("2 + 2?", workflow="umi").prompt_files == {}


def test_a_deployment_keeps_the_prompt_of_its_start_even_if_the_file_changes(
    tmp_path: Path,
) -> None:
    settings = config.load(profile(tmp_path, 'solo = "terse.md"'), environ={})
    (tmp_path / "terse.md").write_text("gone")
    assert config.parse(settings.to_json()).prompt_files == {"solo.md": TERSE}


def test_the_prompt_of_one_run_overrides_that_of_its_deployment(tmp_path: Path) -> None:
    prompt = TERSE.replace("one word", "two words")
    (tmp_path / "two.md").write_text(prompt)
    client = Client(BusSettings(), prompt_files={"solo.md": TERSE})
    files = parse_prompt_files([f"solo={tmp_path / 'two.md'}"])
    assert (
        client.new_run("?", workflow="solo", prompt_files=files).prompt_files["solo.md"] == prompt
    )


@pytest.mark.parametrize(
    ("line", "content", "says"),
    [
        ('solp = "terse.md"', TERSE.encode(), "did you mean 'solo'"),
        ('solo = "nowhere.md"', None, "nowhere.md cannot be read"),
        ('solo = "terse.md"', b"\xff\xfe", "not UTF-8 (byte 0 is 0xff)"),
        ('solo = "terse.md"', b"x" * 300_000, "more than 200,000 bytes"),
        ('solo = "terse.md"', b"x" * 60_000, "longer than 50,000 characters"),
        ('solo = "terse.md"', b"no header", "must begin with '---'"),
        ('planner = "terse.md"', TERSE.encode(), "header must say 'name: planner'"),
        ('solo = "terse.md"', TERSE.replace("one", "{n}").encode(), "the placeholder {n}"),
        ("solo = 3", TERSE.encode(), "prompts.solo"),
    ],
)
def test_the_error_for_an_unusable_file_names_the_key_and_the_cause(
    tmp_path: Path, line: str, content: bytes | None, says: str
) -> None:
    message = error_of(profile(tmp_path, line, content))
    assert says in message
    assert "own.toml: prompts" in message or "prompts." in message


@pytest.mark.parametrize(
    ("word", "says"),
    [("solo", "not NAME=FILE"), ("sol=x", "did you mean 'solo'"), ("solo=x", "x cannot be read")],
)
def test_an_unusable_prompt_of_one_run_is_refused_with_the_cause(word: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_prompt_files([word])


def test_a_file_of_another_workflow_is_refused_at_admission() -> None:
    with pytest.raises(InputError, match=r"workflow 'delegate' called 'solo\.md'"):
        Client(BusSettings()).new_run("?", workflow="delegate", prompt_files={"solo.md": TERSE})


def test_a_run_uses_the_prompt_file_of_the_command_line(shared: Deployment, tmp_path: Path) -> None:
    (tmp_path / "terse.md").write_text(TERSE)
    run = shared.ask(
        "What is 3 * 4?", "--workflow", "solo", "--prompt", f"solo={tmp_path}/terse.md"
    )
    assert run["outcome"] == "answered"
    assert run["run"]["prompts"] == {"solo.md": HASH}
    shipped = shared.ask("What is 3 * 4?", "--workflow", "solo")
    assert shipped["run"]["prompts"] == {"solo.md": prompt_in("mathematics", "solo").hash}
    [candidate], [shipped_candidate] = (
        trajectory["steps"][0]["candidates"] for trajectory in (run, shipped)
    )
    assert (
        candidate["calls"][0]["usage"]["prompt"] < shipped_candidate["calls"][0]["usage"]["prompt"]
    )
