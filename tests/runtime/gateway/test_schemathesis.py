"""schemathesis sends requests that the OpenAPI document allows: every answer conforms to the
document, and none is a failure of the gateway."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest

from loopline.runtime.gateway.openapi import openapi_document
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

schemathesis: Any = pytest.importorskip(
    "schemathesis", reason="schemathesis is not installed: pip install '.[dev]'"
)
EXAMPLES = 20
"""Requests to each operation. `bench gateway-fuzz` sends a million."""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
OPERATIONS: list[Any] = [
    result.ok()
    for result in schemathesis.openapi.from_dict(openapi_document()).get_all_operations()
]


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_answer_conforms_to_the_openapi_document(
    operation: Any, scripted: ScriptedGateway
) -> None:
    checks = [getattr(schemathesis.checks, name) for name in CHECKS]
    headers = {"authorization": f"Bearer {scripted.key}"}

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.filter_too_much,
        ],
    )
    @hypothesis.given(case=operation.as_strategy())
    def send(case: Any) -> None:
        response = case.call(base_url=scripted.root, headers=headers, timeout=60)
        case.validate_response(response, checks=checks)

    send()
