"""What follows from a profile and an error alone, with no endpoint asked."""

from __future__ import annotations

import pytest

from loopline.agents.records import SamplingParams
from loopline.workers.engines.openai.address import Address
from loopline.workers.engines.openai.complaints import complaint_of
from loopline.workers.engines.openai.errors import refusal_of
from loopline.workers.engines.openai.wire import request_body
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.asking import request


def test_openai_itself_is_asked_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert Address.of(None).url() == "https://api.openai.com/v1/chat/completions"


def test_the_default_limit_field_fits_the_endpoint() -> None:
    generate_request = request(sampling={"max_tokens": 7})
    local_settings = ModelSettings(engine="openai", model="m", base_url="http://localhost:8000/v1")
    assert request_body(generate_request, local_settings)["max_tokens"] == 7
    assert (
        request_body(generate_request, ModelSettings(engine="openai", model="m"))[
            "max_completion_tokens"
        ]
        == 7
    )
    assert SamplingParams().max_tokens == local_settings.sampling().max_tokens


def test_a_refusal_by_a_content_filter_is_about_the_problem_and_not_the_deployment() -> None:
    complaint = complaint_of({"error": {"code": "content_filter", "message": "no"}})
    assert refusal_of(complaint, 400, "endpoint", (), False).kind == "content_filter"
