"""Makes `images/dashboard-runs.png`: `python docs/dashboard_picture.py`, with Chromium and
playwright. It starts a deployment of its own with the models that `runtime up` takes by itself,
asks it something and ends it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGE = Path(__file__).parent / "images" / "dashboard-runs.png"
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
WIDTH, HEIGHT = 1200, 640


def main() -> None:
    """Raises CalledProcessError where a command of the deployment fails."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("no chromium on PATH: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:

        def runtime(*arguments: str) -> str:
            command = [sys.executable, "-m", "loopline.runtime", *arguments]
            done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
            return done.stdout.decode().strip()

        settings = [word for value in ("gateway.port=0", *PRICES) for word in ("--set", value)]
        runtime("up", "--detach", *settings)
        try:
            for question in QUESTIONS:
                for workflow in WORKFLOWS:
                    runtime("ask", question, "--workflow", workflow)
            _picture(program, runtime("dashboard"))
        finally:
            runtime("down")


def _picture(program: str, link: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(link)
        page.screenshot(path=IMAGE)
        browser.close()


if __name__ == "__main__":
    main()
