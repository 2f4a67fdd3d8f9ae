"""Makes the pictures of the dashboard in `images/`: `python docs/dashboard_picture.py`, with
Chromium and playwright. It starts a deployment of its own with the models that `runtime up` takes
by itself, asks it something, measures and trains a little, and ends it: a few minutes on two cores.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
QUESTIONS = (
    "Lucas sits 7 hours in a train. How many minutes does it take in all?",
    "Alice has lived twice as long as Ravi, who is 6 years old. How old does that make Alice?",
    "Hugo is 27, and Ivan is 30 years older than that. 7 years go by. Say how old Ivan is.",
)
WORKFLOWS = ("delegate", "cascade", "solo")
PRICES = (
    "models.llm.price.prompt=2.50", "models.llm.price.completion=10.00",
    "models.slm.price.prompt=0.15", "models.slm.price.completion=0.60",
)  # fmt: skip
"""US dollars per million tokens, as a large and a small model of an API cost."""
SEEDS = (1, 2)


def main() -> None:
    """Raises CalledProcessError where a command fails."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("no chromium on PATH: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:

        def call(module: str, *arguments: str) -> str:
            command = [sys.executable, "-m", f"loopline.{module}", *arguments]
            done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
            return done.stdout.decode().strip()

        train(folder, call)
        settings = [word for value in ("gateway.port=0", *PRICES) for word in ("--set", value)]
        call("runtime", "up", "--detach", *settings)
        try:
            for name in ("before", "after"):
                call("bench.cli", "wordproblems", "--samples", "20", "--arms", "llm,router,slm",
                     "--output", f"results/{name}")  # fmt: skip
            for question in QUESTIONS:
                for workflow in WORKFLOWS:
                    call("runtime", "ask", question, "--workflow", workflow)
            take_pictures(program, call("runtime", "dashboard"), Path(folder))
        finally:
            call("runtime", "down")


def train(folder: str, call: Callable[..., str]) -> None:
    """Two short trainings of sums."""
    numbers = random.Random(1)
    lines: list[str] = []
    for _ in range(200):
        a, b = numbers.randint(1, 20), numbers.randint(1, 20)
        lines.append(
            f'{{"question": "What is {a} + {b}?", "answer": "{a} + {b} = {a + b}, so '
            f'\\\\boxed{{{a + b}}}"}}'
        )
    (Path(folder) / "sums.jsonl").write_text("\n".join(lines))
    for seed in SEEDS:
        call("trainers.cli", "sft", "micro:slm", "--output", f"results/sums/seed-{seed}", "--data",
             "sums.jsonl", "--schedules", "micro", "--validation", "0", "--weights", "lora",
             "--tokens", "60000", "--batch", "2", "--seed", str(seed))  # fmt: skip


def take_pictures(program: str, link: str, folder: Path) -> None:
    root = link.partition("/dashboard")[0]
    key = (folder / ".loopline" / "gateway.key").read_text().strip()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 640})
        page.goto(link)
        picture(page, "runs")
        run_id = converse(root, key)
        page.goto(f"{root}/dashboard/runs/{run_id}")
        page.get_by_text("the conversation").click()
        picture(page, "run", whole=True)
        page.get_by_text("Fork this run").click()
        page.get_by_label("Question").fill("What is 6 + 6?")
        page.get_by_role("button", name="Fork and compare").click()
        page.locator("#compare:not([data-refresh])").wait_for()
        picture(page, "compare")
        page.set_viewport_size({"width": 1100, "height": 900})
        page.goto(f"{root}/dashboard/benchmarks")
        picture(page, "benchmarks")
        trainings = "&".join(f"run=sums/seed-{seed}" for seed in SEEDS)
        for name, place in (
            ("trainings", f"trainings?{trainings}&smoothing=0.6"),
            ("cost", "cost"),
        ):
            page.goto(f"{root}/dashboard/{place}")
            page.locator("[data-chart]").first.focus()
            page.keyboard.press("End")
            picture(page, name)
        browser.close()


def converse(root: str, key: str) -> str:
    """Return the id of a run that goes on with a conversation."""
    messages = [
        {"role": "system", "content": "Put the answer in a box."},
        {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": "The answer is \\boxed{5}."},
        {"role": "user", "content": "What is 3 + 4?"},
    ]
    answer = httpx.post(
        f"{root}/v1/chat/completions",
        headers={"authorization": f"Bearer {key}"},
        json={"model": "llm", "messages": messages},
        timeout=60,
    )
    answer.raise_for_status()
    return answer.headers["x-loopline-run"]


def picture(page: Page, name: str, *, whole: bool = False) -> None:
    page.screenshot(path=IMAGES / f"dashboard-{name}.png", full_page=whole)


if __name__ == "__main__":
    main()
