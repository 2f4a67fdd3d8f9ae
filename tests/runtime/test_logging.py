"""Log lines: JSON, with the run's id, and without any secret."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.known_secrets import HIDDEN
from loopline.runtime.config.secrets import Redactor, is_secret_name, secret_values
from loopline.runtime.observe.logging import configure

SECRET = "hunter2-and-more"
URL = f"redis://:{SECRET}@host:6379/0"


def lines_of(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_each_line_is_json_with_time_level_worker_and_run() -> None:
    out = io.StringIO()
    configure(stream=out, worker="slm-1")
    with structlog.contextvars.bound_contextvars(run_id="run-7", turn=2):
        structlog.get_logger().info("step", role="slm")
    structlog.get_logger().info("idle")
    first, second = lines_of(out)
    assert first["run_id"] == "run-7"
    assert first["turn"] == 2
    assert first["worker"] == "slm-1"
    assert first["level"] == "info"
    assert first["event"] == "step"
    assert "timestamp" in first
    assert "run_id" not in second


def test_a_line_about_a_run_contains_its_trace_id() -> None:
    out = io.StringIO()
    configure(stream=out)
    log = structlog.get_logger()
    log.info("left to others", run_id="01a0c450-6c78-762c-82ca-3decceec41a1")
    log.info(
        "in a trace of its client", run_id="01a0c450-6c78-762c-82ca-3decceec41a1", trace_id="f"
    )
    traces = [line["trace_id"] for line in lines_of(out)]
    assert traces == ["01a0c4506c78762c82ca3decceec41a1", "f"]


def test_lines_of_other_libraries_get_the_same_format_and_redaction() -> None:
    out = io.StringIO()
    configure(stream=out, worker="slm-1", secrets=[SECRET])
    with structlog.contextvars.bound_contextvars(run_id="run-7"):
        logging.getLogger("some.library").warning("password is %s", SECRET)
    (line,) = lines_of(out)
    assert line["run_id"] == "run-7"
    assert line["logger"] == "some.library"
    assert SECRET not in json.dumps(line)


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_secret_reaches_a_log_line_in_any_way(form: str) -> None:
    out = io.StringIO()
    configure(stream=out, form=form, secrets=[SECRET])
    log = structlog.get_logger()
    log.info(f"joining {URL}", url=URL, nested={"a": [URL]}, api_key="abc", password=SECRET)
    try:
        raise RuntimeError(f"no answer from {URL}")
    except RuntimeError:
        log.exception("failed")
    log.info("odd", error=OSError(URL), errors=[OSError(URL)], places={"a": {URL}})
    log.info("header", authorization="Bearer abcdefghijklmnop", key="sk-abcdefghijklmnopqrstuv")
    output = out.getvalue()
    assert SECRET not in output
    assert "abcdefghijklmnop" not in output
    assert '"abc"' not in output
    assert "no answer from" in output


def test_a_line_with_a_value_that_is_not_json_is_still_written() -> None:
    out = io.StringIO()
    configure(stream=out)
    structlog.get_logger().info("odd", what=object, error=ValueError("x"))
    assert lines_of(out)[0]["error"] == "x"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("OPENAI_API_KEY", True),
        ("api-key", True),
        ("auth_token", True),
        ("Authorization", True),
        ("max_tokens", False),
        ("tokens", False),
        ("api_key_env", False),
        ("keys", False),
        ("lease_token_count", False),
    ],
)
def test_names_of_secrets_are_recognized(name: str, secret: bool) -> None:
    assert is_secret_name(name) == secret


def test_the_password_of_the_url_and_configured_keys_are_secrets() -> None:
    environ = {"MY_KEY": "k" * 20, "EMPTY": ""}
    values = secret_values(URL, ["MY_KEY", "EMPTY", "ABSENT"], environ)
    assert sorted(values) == sorted(["k" * 20, SECRET])


@given(st.text(min_size=6, max_size=30), st.text(max_size=60), st.text(max_size=60))
def test_a_known_secret_is_hidden_anywhere_in_a_text(secret: str, before: str, after: str) -> None:
    hidden = Redactor([secret]).text(before + secret + after)
    assert secret not in hidden or secret in HIDDEN or secret in before + after


PLAIN = st.none() | st.booleans() | st.integers() | st.text("abc 123:/", max_size=20)


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner)))
def test_a_value_without_a_secret_stays_unchanged(value: Any) -> None:
    assert Redactor().value(value) == value
