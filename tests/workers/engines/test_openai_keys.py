"""Keys of the openai engine's endpoints: missing ones, refused ones, and none that is shown."""

from __future__ import annotations

import json
import logging

import pytest

from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.asking import ask, failure, request
from tests.workers.engines.endpoints import replying
from tests.workers.engines.test_openai_engine import KEY, endpoint


async def test_the_error_for_a_missing_key_names_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    engine = OpenAIEngine(ModelSettings(engine="openai", model="gpt-4o"))
    with pytest.raises(EngineError, match="OPENAI_API_KEY") as caught:
        await engine.start()
    assert caught.value.kind == "auth"


async def test_the_error_for_a_key_that_no_header_can_carry_names_only_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame…")
    engine = OpenAIEngine(ModelSettings(engine="openai", model="gpt-4o"))
    with pytest.raises(EngineError, match="OPENAI_API_KEY contains a character that no") as caught:
        await engine.start()
    assert (caught.value.kind, "sesame" in str(caught.value)) == ("auth", False)


async def test_a_refused_key_is_an_auth_error_that_does_not_reveal_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("SOME_KEY", KEY)
    fields: dict[str, object] = {"api_key_env": "SOME_KEY"}
    async with endpoint(require_key="another", settings=fields) as (engine, _):
        error = await failure(engine, request())
        assert (error.kind, error.retryable) == ("auth", False)
        assert KEY not in str(error)
    assert KEY not in caplog.text


@pytest.mark.parametrize("text", ["", "an answer"])
async def test_a_key_in_a_finish_reason_is_hidden(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("SOME_KEY", KEY)
    choice = {"index": 0, "message": {"content": text}, "finish_reason": f"odd {KEY}"}
    body = {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    async with replying(json.dumps(body).encode()) as url:
        engine = OpenAIEngine(
            ModelSettings(
                engine="openai", model="m", base_url=url, api_key_env="SOME_KEY", max_attempts=1
            )
        )
        await engine.start()
        if text:
            assert KEY not in repr(await ask(engine))
            assert "odd ***" in caplog.text
        else:
            error = await failure(engine, request())
            assert "odd ***" in str(error)
        await engine.close()
    assert KEY not in caplog.text


async def test_the_right_key_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    fields: dict[str, object] = {"api_key_env": "SOME_KEY"}
    async with endpoint("rate_limited", require_key=KEY, settings=fields) as (engine, _):
        assert "89" in (await ask(engine)).text
