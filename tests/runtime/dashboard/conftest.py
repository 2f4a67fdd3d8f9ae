"""One deployment whose dashboard the tests read by HTTP and with a browser."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from loopline.agents.approvals import ApprovalRequest
from loopline.agents.payloads import QuestionPayload
from loopline.agents.workflows import Handoff
from loopline.bus import Admission, Consumer, Delivery, Outgoing, waits
from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import load_resolved_file
from loopline.workers.routing import outgoing
from tests.runtime.dashboard.written import (
    HOSTILE,
    record_runs,
    recorded_run,
    write_benchmarks,
    write_training,
)
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

PROFILE = Path(__file__).with_name("deployment.toml")
KINDS = ("planner", "gpu", "recorder", "gateway")


@dataclass(frozen=True)
class Dashboard:
    """A running deployment with its dashboard."""

    deployment: ScriptedGateway
    results: Path
    """The folder of results: two benchmarks, two trainings."""
    recorded: str
    """An old run that only the store has."""

    @property
    def url(self) -> str:
        return f"{self.deployment.root}/dashboard"

    def link(self) -> str:
        """A link that signs in once."""
        return self.deployment.ok("dashboard").strip()

    @contextmanager
    def signed_in(self, key: str | None = None) -> Generator[httpx.Client]:
        """A client with a session: of the deployment's own key, or of `key`."""
        with httpx.Client(base_url=self.url, timeout=60) as client:
            if key is None:
                client.get(self.link())
            else:
                client.post("/sign-in", data={"key": key})
            yield client

    def ask(self, question: str, model: str = "llm") -> str:
        """Ask, and return the id of the answered run."""
        with self.deployment.client() as client:
            body = {"model": model, "messages": [{"role": "user", "content": question}]}
            answer = client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            return answer.headers["x-loopline-run"]

    def hold_back(self, question: str) -> str:
        """The id of a run that waits for the approval of a call."""

        async def held_back() -> str:
            settings = load_resolved_file(self.deployment.state.resolved)
            request = ApprovalRequest(
                request="call", kind="tool", name="pay", agent="cashier",
                arguments={"euros": 500}, digest="d" * 64, seconds=600,
            )  # fmt: skip
            async with Client.of(settings) as client:
                run = client.new_run(question, workflow="solo")
                envelope = outgoing(run, Handoff("solo", 0, QuestionPayload())).envelope

                async def hold(delivery: Delivery) -> None:
                    await waits.park(delivery, "call", request.model_dump_json().encode(), 600)

                first = Outgoing("nobody", envelope)
                body = run.model_dump_json().encode()
                await client.bus.admit(Admission(run.id, body, run.deadline, (first,)))
                consumer = Consumer(client.bus, ["nobody"], hold)
                serving = asyncio.create_task(consumer.run())
                while not (await client.bus.run_state(run.id)).waits:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                consumer.drain()
                await serving
                return run.id

        # Playwright runs its own loop in this thread.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, held_back()).result()

    def begin(self, question: str, model: str = "drip") -> str:
        """The id of a run that takes half a minute."""
        with self.deployment.client() as client:
            body = {
                "workflow": "solo",
                "prompt": question,
                "policies": {"solo": model},
                "stream": True,
            }
            answer = client.post("/v1/runs", json=body)
            assert answer.status_code == 202, answer.text
            return answer.json()["id"]


@pytest.fixture(scope="package")
def dashboard() -> Iterator[Dashboard]:
    """Don't stop or break it."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        deployment = ScriptedGateway(Path(folder))
        results = Path(folder) / "results"
        old_run = recorded_run(1, f"What did {HOSTILE} say?", "the best", "the worst")
        record_runs(deployment.state.store, [old_run])
        write_benchmarks(results)
        write_training(results, "taught", old_run.run.id)
        write_training(results, "grid/seed-1")
        try:
            deployment.up(
                "workers.gateway.count=1",
                f"gateway.results={results}",
                profile=str(PROFILE),
                kinds=KINDS,
            )
            yield Dashboard(deployment, results, old_run.run.id)
        finally:
            deployment.end()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, dashboard: Dashboard) -> Iterator[Page]:
    """A signed-in page; an error in its console fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(dashboard.link())
    yield page
    context.close()
    # A refusal that a test provokes is not an error of the page.
    assert [text for text in troubles if "responded with a status of 40" not in text] == []
