"""`[tools.<name>]` in a profile: the allowed entries, and the protection of its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.agents.known_secrets import HIDDEN
from loopline.runtime.config.secrets import Redactor, secret_values
from loopline.runtime.config.settings import load
from loopline.runtime.errors import ConfigError

PROFILE = """
[tools.github]
mcp = { command = ["github-mcp-server", "stdio"], env = ["GITHUB_TOKEN"] }
allow = ["get_*"]

[tools.search]
mcp = { url = "https://search.example/mcp" }
bearer_env = "SEARCH_TOKEN"

[tools.weather]
openapi = "weather.yaml"
query_env = { key = "WEATHER_KEY" }
headers_env = { "X-Team" = "WEATHER_TEAM" }
"""


def loaded(folder: Path, text: str) -> None:
    path = folder / "mine.toml"
    path.write_text(text)
    load(str(path), environ={})


def test_a_profile_names_servers_documents_and_their_secrets_variables(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE)
    settings = load(str(path), environ={})
    assert list(settings.tools) == ["github", "search", "weather"]
    assert settings.secret_variables == (
        "GITHUB_TOKEN", "SEARCH_TOKEN", "WEATHER_TEAM", "WEATHER_KEY",
    )  # fmt: skip
    values = secret_values(None, settings.secret_variables, {"WEATHER_KEY": "k-4711"})
    assert values == ["k-4711"]


def test_the_names_of_secret_variables_are_shown_and_their_values_are_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[tools.x]\nopenapi = "x.yaml"\nbearer_env = "X_BEARER"\n'
        'headers_env = { Authorization = "X_AUTH", "X-Token" = "X_TOKEN" }\n'
        'query_env = { api_key = "X_KEY" }\n'
    )
    redactor = Redactor(["k-4711"])
    fields = redactor.value(load(str(path), environ={}).model_dump(mode="json"))["tools"]["x"]
    assert fields["headers_env"] == {"Authorization": "X_AUTH", "X-Token": "X_TOKEN"}
    assert (fields["query_env"], fields["bearer_env"]) == ({"api_key": "X_KEY"}, "X_BEARER")
    assert redactor.value({"headers_env": {"Authorization": "k-4711"}}) == {
        "headers_env": {"Authorization": HIDDEN}
    }
    assert redactor.value({"headers": {"Authorization": "any"}}) == {
        "headers": {"Authorization": HIDDEN}
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tools.x]", "tools.x: a table of [tools] needs either mcp or openapi"),
        ("[tools.x]\nmcp = {}", "mcp needs a command or a url, not both"),
        ('[tools.x]\nmcp = {url = "ftp://x"}', "tools.x.mcp.url: String should match"),
        ('[tools.x]\nmcp = {url = "https://me:secret@x"}', "tools.x.mcp.url: String should match"),
        ('[tools.x]\nopenapi = "a"\nbearer = "b"', "unknown key 'tools.x.bearer'"),
        ('[tools.a_b]\nopenapi = "a"', "tools.a_b"),
        (
            '[tools.x]\nmcp = {command = ["a"]}\nbearer_env = "B"',
            "bearer_env and headers_env are for http; for a command, use mcp.env",
        ),
    ],
)
def test_a_contradictory_table_is_reported_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)
