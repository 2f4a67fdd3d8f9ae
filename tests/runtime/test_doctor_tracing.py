"""The doctor's findings about the collector of traces."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.proto", reason="needs make install")

from loopline.runtime.config.settings import Settings
from loopline.runtime.observe.check_results import Finding
from loopline.runtime.observe.doctor_tracing import tracing_findings
from tests.workers.tracing.collector import collecting


def finding(online: bool = True, **tracing: object) -> Finding:
    settings = Settings.model_validate({"tracing": tracing, "workers": {"recorder": {}}})
    [only] = tracing_findings(settings, online=online)
    return only


def test_a_deployment_without_tracing_has_no_finding() -> None:
    assert not [*tracing_findings(Settings(), online=True)]


def test_doctor_asks_a_collector_only_online_whether_it_accepts_spans() -> None:
    with collecting() as collector:
        assert finding(endpoint=collector.url).level == "ok"
        collector.status = 401
        refused = finding(endpoint=collector.url)
        assert collector.requests == 2
        assert "not tried" in finding(online=False, endpoint=collector.url).says
        assert collector.requests == 2
    assert (refused.level, "HTTP 401" in refused.says) == ("warn", True)
    assert "ConnectError" in finding(endpoint=collector.url).says


@pytest.mark.parametrize("value", ["ftp://proxy.example:1", "http://proxy.example\x7f:1"])
def test_an_unusable_proxy_is_reported_by_name(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    result = finding(endpoint="http://127.0.0.1:9")
    assert (result.level, "ALL_PROXY is" in result.says) == ("warn", True)


def test_a_collector_outside_of_the_proxies_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.2:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,::1/128")
    with collecting() as collector:
        assert finding(endpoint=collector.url).level == "ok"


def test_a_key_that_is_not_set_is_reported_by_name() -> None:
    key = {"Authorization": "NOBODY_SETS_THIS"}
    unset = finding(endpoint="http://127.0.0.1:9", headers_env=key)
    assert "NOBODY_SETS_THIS" in unset.says
