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
    "What is 17 * 23?",
    "Tom has 3 apples and buys 5 more. How many apples has he?",
    "Anna has 12 pens and gives away 5. How many pens are left?",
)
ROUNDS = 3
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

        runtime("up", "--detach", "--set", "gateway.port=0")
        try:
            for question in ROUNDS * QUESTIONS:
                runtime("ask", question)
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
