"""An app's file served by real processes: killed workers, timeouts, broken and deleted files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loopline import App
from loopline.agents.records import Outcome
from loopline.runtime.app import Answered, AnswerTimeout, OverBudget, TextDelta, WrongAnswer
from loopline.runtime.client.client import Client
from loopline.runtime.client.deployment import find
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import InputError
from tests.docs.fences import ROOT
from tests.runtime.conftest import Deployment, changes, until

KINDS = ("planner", "gpu", "tool")
SHOP = (ROOT / "examples/shop_app.py").read_text()
CALL = '<tool_call>\n{"name": "price", "arguments": {"sku": "%s"}}\n</tool_call>'
QUOTE = '{"sku": "A7", "price": 12.5}'
ANSWERS = [
    {"where": ["KeyError"], "says": ["It is not for sale."]},
    {"where": ["12.5"], "says": [QUOTE]},
    {"where": ["How much is A7"], "says": [CALL % "A7"]},
    {"where": ["How much is B9"], "says": [CALL % "B9"]},
    {"where": ["Say nonsense"], "says": ["nonsense"]},
    {"where": ["second turn", "first turn"], "says": ["I remember."]},
    {"where": ["first turn"], "says": ["Hello."]},
    {"where": ["Ada"], "says": ["Hello, Ada!"]},
]


def up(deployment: Deployment, file: Path, *overrides: str, **model: object) -> None:
    scripted = json.dumps({"answers": ANSWERS, **model})
    words = changes(KINDS, f"models.slm.scripted={scripted}", *overrides)
    deployment.ok("up", "--detach", "--profile", "scripted", "--app", str(file), *words)


def written(deployment: Deployment, text: str = SHOP, name: str = "shop_of_a_test.py") -> Path:
    file = deployment.state.path / name
    file.write_text(text)
    return file


@pytest.fixture
def app(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> App:
    """The shop's agent as another process defines it, without having imported the file."""
    monkeypatch.setenv("LOOPLINE_STATE", str(StateDirectory(deployment.state.path).path))
    namespace: dict[str, object] = {"__name__": "a_client_of_the_shop"}
    exec(compile(SHOP.replace("from __future__ import annotations", ""), "client.py", "exec"),
         namespace)  # fmt: skip
    shop = namespace["app"]
    assert isinstance(shop, App)
    return shop


async def test_workers_answer_with_the_tools_of_the_apps_file(
    deployment: Deployment, app: App
) -> None:
    await asyncio.to_thread(up, deployment, written(deployment))
    async with app:
        answer = await app.ask("How much is A7?", answer=dict[str, object])
        assert answer == {"sku": "A7", "price": 12.5}
        assert await app.ask("How much is B9?") == "It is not for sale."
        with pytest.raises(WrongAnswer, match="after 3 tries"):
            await app.ask("Say nonsense", answer=dict[str, object])
        with pytest.raises(OverBudget, match=r"it may take .* a limit of 1 tokens"):
            await app.ask("How much is A7?", budget_tokens=1)
        events = [event async for event in app.stream("How much is A7?", budget_tokens=100_000)]
        assert events[-1] == Answered(events[-1].run_id, QUOTE)  # pyright: ignore
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert text.endswith(QUOTE)
        assert await app.thread("t").ask("This is the first turn.") == "Hello."
    # Another connection, as from another process; then the command, with the agent's name.
    assert await app.thread("t").ask("This is the second turn.") == "I remember."
    record = await asyncio.to_thread(deployment.ask, "How much is A7?", "--workflow", "support")
    assert (record["answer"], record["run"]["workflow"]) == (QUOTE, "team")


async def test_an_ask_is_answered_exactly_once_although_its_workers_are_killed(
    deployment: Deployment, app: App
) -> None:
    slow = SHOP.replace("    return PRICES", "    import time; time.sleep(1)\n    return PRICES")
    await asyncio.to_thread(up, deployment, written(deployment, slow), latency_seconds=0.5)
    async with app, Client.connect(find().settings.bus) as client:
        asking = asyncio.create_task(app.ask("How much is A7?", timeout=90))
        for kind in ("planner", "gpu", "tool"):
            [worker] = await asyncio.to_thread(until, lambda: deployment.workers(kind), kind)  # noqa: B023
            os.kill(worker["pid"], signal.SIGKILL)
        assert await asking == QUOTE
        [run_id] = await client.bus.redis.keys("*:run:*")
        trajectory = await client.trajectory(run_id.decode().rpartition(":")[2])
        assert len(trajectory.steps) == 1
        used = [e.call_id for e in await client.usage(trajectory.run.id) if not e.discarded]
        assert sorted(used) == sorted(call.id for call in trajectory.steps[0].calls)


async def test_a_timeout_raises_its_own_error_and_cancels_the_run(
    deployment: Deployment, app: App
) -> None:
    await asyncio.to_thread(up, deployment, written(deployment), latency_seconds=60)
    async with app, Client.connect(find().settings.bus) as client:
        with pytest.raises(AnswerTimeout) as caught:
            await app.ask("How much is A7?", timeout=1)
        trajectory = await client.wait(caught.value.run_id)
    assert trajectory.outcome in (Outcome.CANCELLED, Outcome.DEADLINE)


async def test_an_error_reports_a_deployment_without_the_app_or_an_unknown_model(
    deployment: Deployment, app: App
) -> None:
    await asyncio.to_thread(deployment.up, kinds=KINDS)
    with pytest.raises(InputError, match="serves no app, so no worker runs price"):
        await app.ask("How much is A7?")
    other = App()
    other.agent("a", model="slmm")
    with pytest.raises(InputError, match="did you mean 'slm'"):
        await other.ask("Q")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("x = 1\nx = =\n", ".py:2: SyntaxError"),
        ("import os\nos.nothing\n", ".py:2: AttributeError"),
        ("x = 1\n", "has no app"),
        (f"{SHOP}\nother = App()\nother.tool(price)\n", "another tool is also called 'price'"),
        (SHOP.replace("price(", "calculate("), "another tool is also called 'calculate'"),
    ],
)
def test_a_broken_app_file_stops_up_with_one_error_and_no_traceback(
    deployment: Deployment, text: str, wrong: str
) -> None:
    text = text.replace("tools=[price]", "tools=[]") if "calculate(" in text else text
    file = written(deployment, text)
    done = deployment.run("up", "--detach", "--profile", "scripted", "--app", str(file))
    assert done.returncode == 78, done.stdout
    assert wrong in done.stderr
    assert "Traceback" not in done.stderr
    assert deployment.state.running() is None


async def test_after_the_file_is_deleted_only_a_new_tool_worker_fails(
    deployment: Deployment, app: App
) -> None:
    file = written(deployment)
    await asyncio.to_thread(up, deployment, file)
    text = file.read_text()
    file.unlink()
    assert await app.ask("How much is A7?") == QUOTE
    [worker] = await asyncio.to_thread(deployment.workers, "tool")
    os.kill(worker["pid"], signal.SIGKILL)
    [broken] = await asyncio.to_thread(
        until, lambda: deployment.workers("tool", "broken"), "broken tool worker"
    )
    assert f"the app's file {file} is missing" in json.dumps(broken)
    file.write_text(text)
    await asyncio.to_thread(deployment.ok, "scale", "tool=0")
    await asyncio.to_thread(deployment.ok, "scale", "tool=1")
    assert await app.ask("How much is A7?") == QUOTE


async def test_a_program_that_asks_is_warned_that_the_apps_file_has_changed(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(deployment)
    await asyncio.to_thread(up, deployment, file)
    file.write_text(SHOP.replace("12.5", "13.5"))
    monkeypatch.setenv("LOOPLINE_STATE", str(deployment.state.path))
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, str(file)], capture_output=True, text=True, timeout=100
    )
    assert "has changed since `runtime up`" in done.stderr
    assert done.stdout == "A7: 12.50 euros\n", done.stderr


@pytest.mark.slow
def test_the_examples_run(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    hello = ROOT / "examples/hello_app.py"
    assert len(hello.read_text().splitlines()) <= 12
    monkeypatch.setenv("LOOPLINE_STATE", str(deployment.state.path))
    up(deployment, ROOT / "examples/shop_app.py")
    for name, output in (("hello_app", "Hello, Ada!\n"), ("shop_app", "A7: 12.50 euros\n")):
        done = subprocess.run(
            [sys.executable, f"examples/{name}.py"], cwd=ROOT, capture_output=True, text=True,
            timeout=100,
        )  # fmt: skip
        assert done.stdout == output, done.stderr


def test_the_fastapi_example_answers_over_http(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi", reason="needs make install")
    monkeypatch.setenv("LOOPLINE_STATE", str(deployment.state.path))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    up(deployment, ROOT / "examples/shop_app.py")
    program = (
        "from fastapi.testclient import TestClient\n"
        "from fastapi_app import web\n"
        "with TestClient(web) as client:\n"
        "    print(client.get('/quotes/A7').json())\n"
        "    print(client.post('/chats/ada', params={'question': 'first turn'}).json())\n"
        "    print(client.post('/chats/ada', params={'question': 'second turn'}).json())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "examples", capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip
    assert done.stdout == "{'sku': 'A7', 'price': 12.5}\nHello.\nI remember.\n", done.stderr
