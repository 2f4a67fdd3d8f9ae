"""`runtime effects`: tool calls with an unknown outcome."""

from __future__ import annotations

from loopline.runtime.errors import EXIT_USAGE
from tests.runtime.conftest import Deployment


def test_an_empty_list_of_effects_is_reported_and_an_unknown_call_is_an_error(
    shared: Deployment,
) -> None:
    assert "no call has an unknown outcome" in shared.ok("effects", "ls")
    assert shared.ok("effects", "ls", "--json") == "[]\n"
    process = shared.run("effects", "resolve", "k", "--again")
    assert process.returncode == EXIT_USAGE
    assert "no call 'k' has an unknown outcome" in process.stderr
    assert "give one of" in shared.run("effects", "resolve", "k").stderr
    assert "JSON" in shared.run("effects", "resolve", "k", "--result", "paid").stderr
