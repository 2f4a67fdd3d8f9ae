"""Configuration: layers, and errors that name the key, its source and the nearest valid one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from loopline.runtime.cli import app
from loopline.runtime.config import profile_names
from loopline.runtime.config import settings as config
from loopline.runtime.config.sources import key_paths
from loopline.runtime.errors import ConfigError

BARE: dict[str, str] = {}


def load(profile: str = "micro", *overrides: str, **environ: str) -> config.Settings:
    return config.load(profile, overrides=overrides, environ=environ)


def error_of(profile: str = "micro", *overrides: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(profile, *overrides, **environ)
    return str(caught.value)


@pytest.mark.parametrize("profile", profile_names())
def test_every_shipped_profile_is_valid(profile: str) -> None:
    assert any(worker.roles for worker in load(profile).workers.values())


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("gpu", "models.POOL.max_concurrency"),
        ("recorder", "one batch"),
        ("jobs", "jobs.max_jobs"),
    ],
)
def test_a_concurrency_without_effect_is_refused(kind: str, instead: str) -> None:
    message = error_of("micro", f"workers.{kind}.concurrency=4")
    assert f"workers.{kind}.concurrency has no effect" in message
    assert instead in message


def test_a_port_that_redis_would_not_listen_on_is_refused() -> None:
    message = error_of("micro", "redis.port=6400")
    assert 'port 6400 does nothing unless listen = "tcp" is set too' in message


def test_a_trace_collector_without_a_recorder_to_send_traces_is_refused() -> None:
    tracing = {"endpoint": "http://127.0.0.1:4318"}
    with pytest.raises(ValueError, match="without a recorder"):
        config.Settings.model_validate({"tracing": tracing})
    config.Settings.model_validate({"tracing": tracing, "workers": {"recorder": {}}})


def test_a_chat_template_option_is_read_as_json_or_refused_by_name() -> None:
    key = "models.llm.template_options"
    for word in (f"{key}.enable_thinking=false", f'{key}={{"enable_thinking": false}}'):
        assert load("micro", word).models["llm"].template_options == {"enable_thinking": False}
    message = error_of("micro", f"{key}.messages=none")
    assert key in message
    assert "'messages' is given to the chat template already" in message
    assert "has at most 100 letters" in error_of("micro", f"{key}.style=<|im_end|>")


@pytest.mark.parametrize("command", ["up", "worker", "status", "config", "doctor"])
def test_help_lists_every_shipped_profile(command: str) -> None:
    output = CliRunner().invoke(app, [command, "--help"]).output
    assert ", ".join(profile_names()) in " ".join(output.split())


def test_the_delegate_profile_differs_from_micro_only_in_models_and_options() -> None:
    micro, delegate = load("micro").model_dump(), load("delegate").model_dump()
    models = delegate.pop("models")
    assert micro.pop("models") != models
    trained: dict[str, dict[str, str]] = {
        name: {"prompts": "mathematics"} for name in ("delegate", "solo")
    }
    of_any_domain = {name: {"prompts": "general"} for name in trained}
    of_any_domain["cascade"] = {"prompts": "general", "expected_type": "text"}
    trained["cascade"] = {"prompts": "mathematics", "expected_type": "number"}
    assert micro.pop("options") == trained
    assert delegate.pop("options") == of_any_domain
    assert load("endpoint").options == of_any_domain
    assert micro == delegate
    assert models["llm"]["engine"] == "openai"
    assert models["llm"]["model"] == "gpt-4o"
    assert models["slm"]["engine"] == "torch"
    assert models["slm"]["model"] == "Qwen/Qwen2.5-Math-1.5B-Instruct"


def test_the_environment_overrides_the_profile_and_a_set_option_overrides_both() -> None:
    assert load().workers["slm"].count == 1
    environ = {"LOOPLINE_WORKERS__SLM__COUNT": "3"}
    assert load(**environ).workers["slm"].count == 3
    assert load("micro", "workers.slm.count=5", **environ).workers["slm"].count == 5


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("options.umi.tool_style=poem", "option 'tool_style' of workflow 'umi'"),
        ("options.umi.tone=kind", "known options: calculator, max_calls"),
        ("options.umy.tool_style=documents", "did you mean 'umi'"),
    ],
)
def test_options_that_a_workflow_does_not_know_are_refused(override: str, says: str) -> None:
    assert says in error_of("umi", override)


def test_a_custom_profile_extends_a_shipped_one(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text('extends = "micro"\n[workers.slm]\ncount = 7\n')
    settings = load(str(profile))
    assert settings.workers["slm"].count == 7
    assert settings.workers["slm"].roles == ("slm", "first")
    assert settings.models["llm"].model == "micro:llm"


def test_profiles_that_extend_each_other_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"')
    (tmp_path / "b.toml").write_text('extends = "a.toml"')
    assert "cycle" in error_of(str(tmp_path / "a.toml"))


def test_the_error_for_a_typo_names_the_key_its_file_and_the_nearest_key(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text('extends = "micro"\n[bus]\nlease_secnds = 3\n')
    message = error_of(str(profile))
    assert str(profile) in message
    assert "'bus.lease_secnds'" in message
    assert "did you mean bus.lease_seconds?" in message


def test_the_error_for_a_typo_in_the_environment_names_the_variable() -> None:
    message = error_of(LOOPLINE_BUS__LEASE_SECNDS="3")
    assert "'LOOPLINE_BUS__LEASE_SECNDS'" in message
    assert "did you mean LOOPLINE_BUS__LEASE_SECONDS?" in message


def test_an_environment_variable_of_an_unknown_section_is_an_error() -> None:
    message = error_of(LOOPLINE_BUSS__SHARDS="3")
    assert "LOOPLINE_BUSS__SHARDS" in message or "LOOPLINE_BUSS" in message
    assert "LOOPLINE_BUS" in message


def test_the_password_variable_of_compose_is_not_an_error() -> None:
    assert load(LOOPLINE_REDIS_PASSWORD="sesame") == load()


def test_the_error_for_a_typo_in_a_set_option_suggests_the_nearest_key() -> None:
    message = error_of("micro", "models.llm.modle=x")
    assert "--set" in message
    assert "did you mean models.llm.model?" in message


def test_the_error_for_a_key_in_the_wrong_table_suggests_the_right_one() -> None:
    assert "did you mean bus.lease_seconds?" in error_of("micro", "lease_seconds=3")


def test_every_typo_is_reported_at_once(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text('extends = "micro"\nworkfow = "solo"\n[bus]\nshrads = 2\n')
    message = error_of(str(profile))
    assert "workflow?" in message
    assert "bus.shards?" in message


def test_the_error_for_a_wrong_value_names_its_source(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text('extends = "micro"\n[bus]\nlease_seconds = "soon"\n')
    assert f"{profile}: bus.lease_seconds" in error_of(str(profile))
    assert "LOOPLINE_BUS__SHARDS" in error_of(LOOPLINE_BUS__SHARDS="many")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("models.slm.temperature=-1", "models.slm.temperature: Input should be greater than or"),
        ("models.slm.temperature=warm", "models.slm.temperature: Input should be a valid number"),
        ("models.slm.top_p=0", "models.slm.top_p: Input should be greater than 0"),
        ("models.slm.max_tokens=0", "models.slm.max_tokens: Input should be greater than or"),
        ("models.slm.max_context=-1", "models.slm.max_context: Input should be greater than or"),
        ("models.slm.dtype=float8", "models.slm.dtype: Input should be 'auto', 'float64'"),
        ("models.slm.device=gpu", "models.slm.device: String should match pattern"),
        ("models.slm.quantization=int2", "models.slm.quantization: Input should be 'none', 'int8'"),
        ("models.slm.base_url=http://here/v1", "use engine = 'openai' for an endpoint"),
    ],
)
def test_the_error_for_a_wrong_model_setting_names_its_key_and_the_rule(
    setting: str, says: str
) -> None:
    assert says in error_of("micro", setting)


@pytest.mark.parametrize(
    "url", ["user:secret@host/v1", "http://user:secret/v1", "http://host:0/v1", "http://[::1/v1"]
)
def test_an_invalid_endpoint_address_is_refused_without_showing_its_password(
    url: str,
) -> None:
    message = error_of("delegate", f"models.llm.base_url={url}")
    assert "models.llm: base_url is not the address of an endpoint" in message
    assert "secret" not in message


def test_the_error_for_a_misspelled_worker_kind_suggests_the_nearest_kind() -> None:
    message = error_of("micro", "workers.slmm.count=4")
    assert "workers.slmm" in message
    assert "did you mean workers.slm?" in message


def test_the_error_for_an_unconfigured_pool_names_it() -> None:
    assert "'big'" in error_of("micro", "policies.planner=big")


def test_the_error_for_a_misspelled_profile_suggests_the_nearest_one() -> None:
    assert "did you mean 'delegate'?" in error_of("delegat")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"bus = [", "not valid TOML"),
        (b"a = " + b"[" * 100_000, "not valid TOML"),
        (b"a = " + b"1" * 5_000, "not valid TOML"),
        (b"# \xff\xfe", "not UTF-8"),
        (b"extends = 3", "extends"),
    ],
)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, content: bytes, says: str) -> None:
    profile = tmp_path / "own.toml"
    profile.write_bytes(content)
    message = error_of(str(profile))
    assert says in message
    assert str(profile) in message


@pytest.mark.parametrize("word", ["workers.slm.count", "=3", ".=3", "bus.shards.x=[", "a..b=1"])
def test_a_set_option_that_is_not_an_assignment_is_refused(word: str) -> None:
    assert "--set" in error_of("micro", word)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "1" * 5_000 + "}", '{"hunter2secret"'])
def test_a_set_option_that_is_not_json_is_refused_without_its_text(text: str) -> None:
    message = error_of("micro", f"bus.redis_url={text}")
    assert message.startswith("--set bus.redis_url: not valid JSON")
    assert "hunter2" not in message
    assert len(message) < 200


def test_a_profile_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_bytes(b'\xef\xbb\xbfextends = "micro"\n[bus]\nprefix = "own"\n')
    assert load(str(profile)).bus.prefix == "own"


def test_a_profile_in_the_home_of_an_unknown_user_is_not_found() -> None:
    assert "not found" in error_of("~no-such-user/own.toml")


@pytest.mark.parametrize(
    "key", ["bus.retention_seconds", "bus.retry_base_seconds", "jobs.claim_seconds"]
)
def test_a_time_that_redis_cannot_count_is_refused(key: str) -> None:
    assert key in error_of("micro", f"{key}=inf")


def test_settings_survive_the_round_trip_through_json() -> None:
    settings = load("delegate").with_redis_url("unix://:pass@/tmp/x.sock?db=0")
    again = config.parse(settings.to_json())
    assert again.model_dump() == settings.model_dump()
    assert not again.own_redis


def test_without_a_redis_url_the_runtime_starts_its_own_server() -> None:
    assert load().own_redis
    assert not load(LOOPLINE_BUS__REDIS_URL="redis://elsewhere/0").own_redis


def test_every_key_is_documented() -> None:
    from loopline.runtime.config.sources import key_descriptions

    bare = [key for key, _, text in key_descriptions(config.Settings) if not text]
    assert not [key for key in bare if not key.startswith("bus.")]


def test_the_type_of_a_key_is_shown_in_plain_python_syntax() -> None:
    from loopline.runtime.config.sources import key_descriptions

    types = {key: kind for key, kind, _ in key_descriptions(config.Settings)}
    assert types["tools.<name>.headers_env"] == "dict[str, str]"
    assert types["tools.<name>.mcp.env"] == "tuple[str, ...]"
    assert types["tools.<name>.bearer_env"] == "str | None"
    assert types["logging.format"] == '"json" | "console"'
    assert types["bus.shards"] == "int"


@given(st.sampled_from(sorted(key_paths(config.Settings))), st.data())
def test_any_key_with_a_missing_letter_is_refused_by_name(key: str, data: st.DataObject) -> None:
    table, _, name = key.replace("<name>", "llm" if "models" in key else "slm").rpartition(".")
    cut = data.draw(st.integers(0, len(name) - 1))
    typo = name[:cut] + name[cut + 1 :]
    dotted = f"{table}.{typo}" if table else typo
    key_names = {k.rpartition(".")[2] for k in key_paths(config.Settings)}
    if not typo or typo in key_names or typo in config.Settings.model_fields:
        return
    message = error_of("micro", f"{dotted}=1")
    assert repr(dotted) in message


def test_a_worker_without_a_role_does_not_import_roles(tmp_path: Path) -> None:
    (tmp_path / "resolved.json").write_text(load("scripted").to_json())
    code = (
        "import pathlib, sys; import loopline.runtime.supervise.worker_process;"
        "from loopline.runtime.config.settings import load_resolved_file;"
        f"load_resolved_file(pathlib.Path({str(tmp_path / 'resolved.json')!r}));"
        "sys.exit('loopline.agents.roles' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
