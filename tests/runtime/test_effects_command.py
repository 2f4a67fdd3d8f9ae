"""`runtime effects`: calls of tools whose outcome nobody knows."""

from __future__ import annotations

from loopline.runtime.errors import EXIT_USAGE
from tests.runtime.conftest import Deployment


def test_no_unknown_effect_is_said_and_a_call_that_is_not_listed_is_an_error(
    shared: Deployment,
) -> None:
    assert "no call has an unknown outcome" in shared.ok("effects", "ls")
    assert shared.ok("effects", "ls", "--json") == "[]\n"
    process = shared.run("effects", "resolve", "k", "--again")
    assert process.returncode == EXIT_USAGE
    assert "no call 'k' has an unknown outcome" in process.stderr
    assert "give one of" in shared.run("effects", "resolve", "k").stderr
    assert "JSON" in shared.run("effects", "resolve", "k", "--result", "paid").stderr
