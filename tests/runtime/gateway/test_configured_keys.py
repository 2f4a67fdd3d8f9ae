"""Keys of the gateway that are set in environment variables."""

from __future__ import annotations

import pytest

from loopline.bus import Bus
from loopline.runtime.config.sections import GatewayKey
from loopline.runtime.config.settings import Settings
from loopline.runtime.gateway.api_keys import Authentication, revoke
from loopline.runtime.gateway.configured_keys import register, webhook_secret_of
from loopline.runtime.gateway.errors import ApiError
from loopline.runtime.supervise.worker_environment import worker_environment
from loopline.testing import RedisProcess
from tests.conftest import quick_settings
from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving

KEY = "a-key-of-a-container-secret"


def test_a_configured_key_lists_only_its_models_and_is_stored_in_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CI_KEY", KEY)
    words = ("gateway.keys.ci.env=CI_KEY", 'gateway.keys.ci.models=["slm"]')
    with serving(*words, kinds=("gateway",)) as deployment, deployment.client(KEY) as client:
        listed = [model["id"] for model in client.get("/v1/models").json()["data"]]
        assert listed == ["slm"]
        _stands_nowhere(deployment)


def _stands_nowhere(deployment: ScriptedGateway) -> None:
    for path in deployment.state.path.rglob("*"):
        if path.is_file() and not path.is_socket():
            assert KEY.encode() not in path.read_bytes(), path


async def test_a_new_configuration_changes_a_key_but_does_not_restore_a_revoked_one(
    own_server: RedisProcess,
) -> None:
    async with Bus(quick_settings(own_server.url)) as bus:
        environ = {"CI_KEY": KEY, "SHORT": "guess-me"}
        keys = {
            "ci": GatewayKey(env="CI_KEY", tokens_per_day=10),
            "short": GatewayKey(env="SHORT"),
            "absent": GatewayKey(env="NOT_SET"),
        }
        await register(bus, keys, environ)
        record = await Authentication(bus).caller(f"Bearer {KEY}")
        assert (record.name, record.tokens_per_day) == ("ci", 10)
        assert record.webhook_secret == webhook_secret_of(KEY)
        await register(bus, {"ci": GatewayKey(env="CI_KEY", tokens_per_day=20)}, environ)
        changed = await Authentication(bus).caller(f"Bearer {KEY}")
        assert (changed.tokens_per_day, changed.created) == (20, record.created)
        with pytest.raises(ApiError):
            await Authentication(bus).caller("Bearer guess-me")
        await revoke(bus, record.id)
        await register(bus, keys, environ)
        with pytest.raises(ApiError):
            await Authentication(bus).caller(f"Bearer {KEY}")


def test_only_gateways_get_the_variables_of_configured_keys() -> None:
    settings = Settings.model_validate(
        {
            "gateway": {"keys": {"ci": {"env": "CI_SECRET_KEY"}}},
            "workers": {"planner": {"roles": ["planner"]}},
        }
    )
    environ = {"PATH": "/bin", "CI_SECRET_KEY": KEY}
    assert "CI_SECRET_KEY" in worker_environment(settings, "gateway", environ)
    assert "CI_SECRET_KEY" not in worker_environment(settings, "planner", environ)
    assert "CI_SECRET_KEY" in settings.secret_variables
