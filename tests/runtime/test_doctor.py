"""The doctor's findings about models in a hub cache, endpoints, proxies and costs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import struct
import time
from pathlib import Path

import pytest

from loopline.runtime.config.settings import load
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import EXIT_FAILED
from loopline.runtime.observe.doctor import examine
from loopline.testing import RedisProcess
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from tests.runtime.conftest import Deployment, changes

MODEL = "someone/some-model"
WHOLE = "1" * 40
BROKEN = "2" * 40
"""Two commits: the first was downloaded completely, the second without weights."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub cache with two revisions of one model, of which the default one is complete."""
    cache = tmp_path_factory.mktemp("hub")
    folder = cache / f"models--{MODEL.replace('/', '--')}"
    for commit, names in (
        (WHOLE, ("config.json", "model.safetensors")),
        (BROKEN, ("config.json",)),
    ):
        (folder / "snapshots" / commit).mkdir(parents=True)
        for name in names:
            (folder / "snapshots" / commit / name).write_text("{}")
    (folder / "refs").mkdir()
    for name, commit in (("main", WHOLE), ("v1", WHOLE), ("v2", BROKEN)):
        (folder / "refs" / name).write_text(commit)
    return cache


@pytest.mark.parametrize(
    ("revision", "says"),
    [
        ("", "in the hub cache"),
        ("v1", "in the hub cache"),
        (WHOLE, "in the hub cache"),
        ("v2", "not in the hub cache"),
        (BROKEN, "not in the hub cache"),
        ("v3", "not in the hub cache"),
    ],
    ids=["default", "tag", "commit", "broken download", "its commit", "never loaded"],
)
def test_a_model_is_present_only_if_the_revision_of_its_pool_is_complete(
    nowhere: Deployment, cache: Path, revision: str, says: str
) -> None:
    options = ["--set", f"models.llm.revision={revision}"] if revision else []
    process = nowhere.run(
        *("doctor", "--json", "--profile", "scripted", "--set", "models.llm.engine=torch"),
        *("--set", f"models.llm.model={MODEL}", *options),
        env={"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"},
    )
    findings = {
        finding["subject"]: finding["says"] for finding in json.loads(process.stdout)["findings"]
    }
    assert says in findings["model llm"]


@pytest.mark.timeout(300)
def test_doctor_examines_the_running_deployment_unless_a_profile_is_given(
    deployment: Deployment,
) -> None:
    without_key = {"OPENAI_API_KEY": ""}
    deployment.ok(
        *("up", "--detach", "--profile", "scripted", *changes(("planner",))),
        *("--set", "models.llm.engine=openai", "--set", "models.llm.model=gpt-4o"),
        env=without_key,
    )
    running = deployment.run("doctor", env=without_key)
    assert running.stdout.splitlines()[0] == "profile scripted"
    assert "gpt-4o at OpenAI needs a key in OPENAI_API_KEY" in running.stdout
    assert running.returncode == EXIT_FAILED
    named = json.loads(deployment.ok("doctor", "--json", "--profile", "micro", env=without_key))
    assert named["profile"] == "micro"


@pytest.mark.parametrize(
    ("ahead", "says"),
    [(0, None), (90, "90 s ahead of that of Redis's"), (-90, "90 s behind that of Redis's")],
)
def test_a_clock_that_differs_from_that_of_redis_is_reported(
    shared_server: RedisProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: int,
    says: str | None,
) -> None:
    real = time.time
    monkeypatch.setattr("loopline.bus.clock.time.time", lambda: real() + ahead)
    settings = load("scripted", redis_url=shared_server.url, environ={})
    findings = {finding.subject: finding for finding in examine(settings, StateDirectory(tmp_path))}
    assert findings["redis"].level in ("ok", "warn")
    assert ("clock" in findings) == (says is not None)
    if says is not None:
        assert findings["clock"].level == "warn"
        assert says in findings["clock"].says


KEY_VARIABLE = "TEST_ENDPOINT_KEY"


@pytest.mark.parametrize(
    ("key", "online", "level", "says"),
    [
        ("", False, "warn", "(no key): not tried"),
        ("", True, "ok", "answers, asked without a key"),
        ("sesame", False, "warn", f"(key from {KEY_VARIABLE}): not tried"),
        ("sesame", True, "ok", "answers, key accepted"),
        ("sesame\n", True, "ok", "answers, key accepted"),
    ],
)
async def test_an_endpoint_is_reported_as_ok_only_after_a_request(
    nowhere: Deployment, key: str, online: bool, level: str, says: str
) -> None:
    async with ScriptedServer(ServerOptions(models=("llm", "slm"))) as api:
        overrides = [f"models.llm.base_url={api.url}"]
        if key:
            overrides.append(f"models.llm.api_key_env={KEY_VARIABLE}")
        words = [word for assignment in overrides for word in ("--set", assignment)]
        process = await asyncio.to_thread(
            nowhere.run,
            *("doctor", "--json", "--profile", "endpoint", *words),
            *(["--online"] if online else []),
            env={KEY_VARIABLE: key},
        )
    finding = {
        candidate["subject"]: candidate for candidate in json.loads(process.stdout)["findings"]
    }["model llm"]
    assert finding["level"] == level
    assert says in finding["says"]
    assert ("--online asks it" in finding["do"]) == (not online)


@pytest.mark.parametrize(
    ("url", "key", "says", "do"),
    [
        ("http://127.0.0.1:1/v1", "sesame…", "contains a character that no", KEY_VARIABLE),
        ("http://127.0.0.1:1/v1", " \n", "needs a key in", f"export {KEY_VARIABLE}"),
    ],
    ids=["a key with an ellipsis", "a blank key"],
)
def test_an_endpoint_with_an_unusable_key_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, key: str, says: str, do: str
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, key)
    overrides = [f"models.llm.base_url={url}", f"models.llm.api_key_env={KEY_VARIABLE}"]
    overrides.append("models.slm.base_url=http://127.0.0.1:1/v1")
    settings = load("endpoint", overrides=overrides, environ={})
    findings = examine(settings, StateDirectory(tmp_path / "state"), online=True)
    (finding,) = (candidate for candidate in findings if candidate.subject == "model llm")
    assert finding.level == "missing"
    assert says in finding.says
    assert do in finding.do


async def test_a_model_that_an_endpoint_does_not_list_is_reported_with_the_listed_ones(
    nowhere: Deployment,
) -> None:
    async with ScriptedServer(ServerOptions(models=("gp\x1bt", "qwen"))) as api:
        words = ("--set", f"models.llm.base_url={api.url}", "--set", "models.llm.model=gpt")
        process = await asyncio.to_thread(
            nowhere.run, "doctor", "--json", "--online", "--profile", "endpoint", *words
        )
    finding = {
        candidate["subject"]: candidate for candidate in json.loads(process.stdout)["findings"]
    }["model llm"]
    assert finding["level"] == "warn"
    assert finding["says"] == f"{api.url} does not list 'gpt'; it lists: gp\\u001bt, qwen"
    assert finding["do"].startswith("set models.llm.model to one of them")


async def test_doctor_asks_the_same_url_as_the_engine_and_shows_no_password(
    nowhere: Deployment,
) -> None:
    async with ScriptedServer(ServerOptions(models=("llm", "slm"))) as api:
        url = api.url.replace("://", "://me:hunter22@") + "/chat/completions?key=sesame-opens"
        words = ("--set", f"models.llm.base_url={url}")
        process = await asyncio.to_thread(
            nowhere.run, "doctor", "--json", "--online", "--profile", "endpoint", *words
        )
    finding = {
        candidate["subject"]: candidate for candidate in json.loads(process.stdout)["findings"]
    }["model llm"]
    assert (finding["level"], finding["says"]) == (
        "ok",
        f"llm at {api.url}: answers, asked without a key",
    )
    assert "hunter22" not in process.stdout
    assert "sesame" not in process.stdout


@pytest.mark.parametrize(
    ("engine", "model", "level", "says"),
    [
        ("torhc", "m", "missing", "there is no engine 'torhc'; known: llama_cpp, openai"),
        ("llama_cpp", "cut.gguf", "missing", "cut.gguf' cannot be loaded: its header is damaged"),
        ("llama_cpp", "nowhere.gguf", "missing", "there is no such file"),
        ("llama_cpp", "whole.gguf", "ok", "MB on this machine"),
    ],
)
def test_a_model_that_no_worker_could_load_is_reported(
    tmp_path: Path, engine: str, model: str, level: str, says: str
) -> None:
    if engine == "llama_cpp":
        pytest.importorskip("llama_cpp", reason="needs make gguf")
    key = b"general.architecture"
    whole = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + struct.pack("<IQ", 8, 5)
    (tmp_path / "whole.gguf").write_bytes(whole + b"qwen2")
    (tmp_path / "cut.gguf").write_bytes(whole)
    name = str(tmp_path / model) if engine == "llama_cpp" else model
    overrides = [f"models.llm.engine={engine}", f"models.llm.model={name}"]
    settings = load("scripted", overrides=overrides, environ={})
    findings = examine(settings, StateDirectory(tmp_path / "state"))
    (finding,) = (candidate for candidate in findings if candidate.subject == "model llm")
    assert (finding.level, says in finding.says) == (level, True), finding


def test_the_parts_of_the_cost_add_up_to_the_total(nowhere: Deployment) -> None:
    output = nowhere.run("doctor", "--profile", "delegate", env={"OPENAI_API_KEY": ""}).stdout
    matches = re.findall(r"about (\S+) USD .* questions \((.*?)\)", output)
    assert len(matches) == 2
    for whole, parts in matches:
        cents = [int(part.rpartition(" ")[2].replace(".", "")) for part in parts.split(", ")]
        assert sum(cents) == int(whole.replace(".", ""))


@pytest.mark.parametrize(
    ("variable", "value", "level", "says"),
    [
        ("NO_PROXY", "localhost,::1/128", "ok", "answers"),
        ("ALL_PROXY", "ftp://proxy:1", "missing", "ALL_PROXY"),
        ("HTTP_PROXY", "garbage", "missing", "HTTP_PROXY"),
        ("HTTP_PROXY", "http://[bad", "missing", "HTTP_PROXY"),
        ("ALL_PROXY", "socks5://127.0.0.1:1", "missing", "ALL_PROXY"),
    ],
)
async def test_an_unusable_proxy_is_reported_with_the_name_of_its_variable(
    nowhere: Deployment, variable: str, value: str, level: str, says: str
) -> None:
    async with ScriptedServer(ServerOptions(models=("llm", "slm"))) as api:
        words = ("--set", f"models.llm.base_url={api.url}")
        cleared = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
        process = await asyncio.to_thread(
            nowhere.run,
            *("doctor", "--json", "--online", "--profile", "endpoint", *words),
            env={**cleared, variable: value},
        )
    assert "Traceback" not in process.stderr
    finding = {
        candidate["subject"]: candidate for candidate in json.loads(process.stdout)["findings"]
    }["model llm"]
    assert finding["level"] == level
    assert says in finding["says"]


def test_doctor_reports_a_missing_key_its_remedy_and_the_expected_cost(
    nowhere: Deployment,
) -> None:
    process = nowhere.run("doctor", "--profile", "delegate", env={"OPENAI_API_KEY": ""})
    assert process.returncode == EXIT_FAILED
    assert "needs a key in OPENAI_API_KEY" in process.stdout
    assert "export OPENAI_API_KEY" in process.stdout
    assert "USD for bench gsm8k on 1319 questions" in process.stdout
    report = json.loads(nowhere.run("doctor", "-p", "delegate", "--json").stdout)
    assert {"python", "redis", "disk", "model llm", "model slm"} <= {
        finding["subject"] for finding in report["findings"]
    }


def test_doctor_finds_nothing_missing_for_the_scripted_profile(nowhere: Deployment) -> None:
    assert "nothing: no pool" in nowhere.ok("doctor", "--profile", "scripted")
