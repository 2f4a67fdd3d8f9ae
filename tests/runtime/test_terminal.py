"""Names that others chose reach a terminal only as text, whichever command prints them."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from rich.console import Console

from loopline.bus import Bus, BusSettings, WorkerPresence, announce, tasks
from loopline.runtime.terminal.safe_text import guard_output
from loopline.runtime.terminal.tables import align_columns, new_table
from loopline.testing import RedisProcess
from tests.runtime.conftest import Deployment

EVIL = "evil\x1b[2J\x1b]0;owned\x07\u202e"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@asynccontextmanager
async def haunted(url: str, prefix: str) -> AsyncGenerator[None]:
    """A bus on which everything has a name with control codes for a terminal."""
    details = {"models": {EVIL: EVIL}, "sources": {EVIL: {"trouble": EVIL, "tools": 0}}}
    presence = WorkerPresence(
        name=f"slm-{EVIL}", kind=EVIL, version=EVIL, state=EVIL, details=details
    )
    async with Bus(BusSettings(redis_url=url, prefix=prefix)) as bus:
        shard = bus.keys.shard(0)
        letter = {"stream": EVIL, "run_id": EVIL, "reason": EVIL, "e": EVIL, "trace": EVIL}
        for key, fields in ((shard.dead, letter), (bus.keys.policy_changes, {"name": EVIL})):
            await bus.redis.xadd(key, fields)  # pyright: ignore[reportArgumentType]
            await bus.redis.pexpire(key, 60_000)
        policy = {"name": "slm", "versions": [{"version": 1, "path": EVIL, "published": 0}]}
        mapping = {"slm": json.dumps(policy | {"current": 1}), EVIL: EVIL}
        await bus.redis.hset(bus.keys.policies, mapping=mapping)  # pyright: ignore
        await bus.redis.pexpire(bus.keys.policies, 60_000)
        beating = asyncio.create_task(announce(bus, lambda: presence))
        try:
            yield
        finally:
            await tasks.end([beating])


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["policies", "ls"],
        ["dead", "ls"],
        ["dead", "show", EVIL],
        ["runs", "show", f"{EVIL}{EVIL}"],
        ["policies", "pin", EVIL, "1"],
        ["ask", EVIL, "--policy", f"{EVIL}=slm"],
        ["scale", EVIL],
        ["jobs", "cancel", EVIL],
        ["logs", EVIL],
        [EVIL],
    ],
    ids=" ".join,
)
async def test_a_name_with_escape_codes_is_shown_as_text(
    deployment: Deployment, any_server: RedisProcess, command: list[str]
) -> None:
    joined = {
        "LOOPLINE_BUS__PREFIX": "haunted",
        "LOOPLINE_BUS__REDIS_URL": any_server.url,
        "LOOPLINE_PROFILE": "scripted",
    }
    async with haunted(any_server.url, "haunted"):
        process = await asyncio.to_thread(deployment.run, *command, env=joined)
    output = process.stdout + process.stderr
    assert "Traceback" not in output
    assert "evil" in output or command[0] == "ask"
    assert OBEYED.findall(output) == []


def test_printed_text_is_made_harmless_but_the_styles_of_rich_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with guard_output():
        print(EVIL, end="")
        Console(force_terminal=True, width=80).print("drawn", style="red", end="")
    assert out.getvalue() == (
        "evil\\u001b[2J\\u001b]0;owned\\u0007\\u202e" + "\x1b[31mdrawn\x1b[0m"
    )
    assert sys.stdout is out


def test_a_character_that_the_output_cannot_encode_is_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    with guard_output():
        print("größer: λ \ud800", flush=True)
    assert raw.getvalue() == b"gr\xf6\xdfer: \\u03bb \\ud800\n"


def test_output_is_dropped_if_it_was_closed_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with guard_output():
        print("dropped", flush=True)
    assert sys.stdout is None


def test_a_cell_of_a_table_is_made_harmless_and_stays_in_its_row() -> None:
    out = io.StringIO()
    table = new_table("name", EVIL, words=("name",), title=EVIL)
    table.add_row(EVIL, "1")
    Console(file=out, width=200).print(table)
    assert OBEYED.findall(out.getvalue()) == []
    assert len(align_columns(("name",), [("two\nlines\x1b[2J",)])) == 2
