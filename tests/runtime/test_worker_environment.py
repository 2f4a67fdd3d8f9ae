"""A worker process gets only its own keys and imports no module of the folder it starts in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopline.runtime.config.settings import Settings
from loopline.runtime.supervise.worker_environment import worker_environment
from loopline.workers.isolated_python import OWN_PYTHON
from tests.runtime.conftest import LIMIT, Deployment, changes

ENVIRONMENT = {
    "PATH": "/bin", "HOME": "/root", "OPENAI_API_KEY": "k-openai", "OTHER_KEY": "k-other",
    "WEATHER_KEY": "k-weather", "COLLECTOR_AUTH": "k-collector", "UPLOAD_KEY": "k-upload",
    "HF_TOKEN": "k-hub", "GITHUB_TOKEN": "k-github",
    "LOOPLINE_BUS__REDIS_URL": "redis://:k-redis@bus:6379/0", "MAX_TOKENS": "12",
}  # fmt: skip
PLAIN = {"PATH", "HOME", "MAX_TOKENS"}


def settings() -> Settings:
    model = {"engine": "openai", "model": "m"}
    fields: dict[str, Any] = {
        "models": {
            "llm": model,
            "slm": {**model, "base_url": "http://localhost:1/v1", "api_key_env": "OTHER_KEY"},
            "fleet": {
                "engine": "vllm", "model": "m", "base_url": "http://localhost:2/v1",
                "vllm": {"upload": {"url": "http://h/a", "folder": "/a", "key_env": "UPLOAD_KEY"}},
            },
        },
        "workers": {
            "gpu": {"models": ["slm"]}, "big": {"models": ["llm"]}, "recorder": {},
            "served": {"models": ["fleet"]},
        },
        "tracing": {"endpoint": "http://c", "headers_env": {"Authorization": "COLLECTOR_AUTH"}},
        "tools": {"weather": {"openapi": "w.yaml", "query_env": {"key": "WEATHER_KEY"}}},
    }  # fmt: skip
    return Settings.model_validate(fields)


@pytest.mark.parametrize(
    ("kind", "key_names"),
    [
        ("planner", set[str]()),
        ("recorder", {"COLLECTOR_AUTH"}),
        ("judge", set[str]()),
        ("gpu", {"OTHER_KEY", "HF_TOKEN"}),
        ("big", {"OPENAI_API_KEY", "HF_TOKEN"}),
        ("served", {"UPLOAD_KEY", "HF_TOKEN"}),
        ("tool", {"WEATHER_KEY"}),
        ("jobs", {"HF_TOKEN", "LOOPLINE_BUS__REDIS_URL"}),
    ],
)
def test_a_worker_gets_only_the_keys_that_its_kind_uses(kind: str, key_names: set[str]) -> None:
    assert set(worker_environment(settings(), kind, ENVIRONMENT)) == PLAIN | key_names


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A user's folder whose files have the names of Python's modules and of ours."""
    for name in ("platform.py", "agents/__init__.py", "workers/__init__.py", "runtime.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('a file of the user was imported')")
    return tmp_path


def test_up_in_a_folder_with_conflicting_module_names_starts_workers_without_foreign_keys(
    deployment: Deployment, hostile: Path
) -> None:
    words = changes(("planner", "gpu"))
    process = subprocess.run(
        [Path(sys.executable).with_name("runtime"), "up", "--detach", "--profile", "scripted",
         *words],
        cwd=hostile,
        env={**deployment.environ, "OPENAI_API_KEY": "k-openai", "GITHUB_TOKEN": "k-github"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    workers = [worker for kind in ("planner", "gpu") for worker in deployment.workers(kind)]
    assert len(workers) == 2
    for worker in workers:
        environment = psutil.Process(worker["pid"]).environ()
        assert "k-" not in "".join(
            value for name, value in environment.items() if name.endswith(("KEY", "TOKEN"))
        )


def test_other_processes_cannot_read_the_memory_of_a_worker() -> None:
    program = (
        "import ctypes\n"
        "from loopline.workers.self_limits import become_undumpable\n"
        "become_undumpable()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    )
    process = subprocess.run(
        [*OWN_PYTHON, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert process.stdout.strip() == "0", process.stderr
