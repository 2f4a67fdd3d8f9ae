"""`bench tools` on the command line: its refusals before a deployment is needed."""

from __future__ import annotations

import pytest

from tests.bench.command_line import bench


@pytest.mark.parametrize("suite", ["bfcl", "apibench"])
@pytest.mark.parametrize("option", [["--constrained"], ["--free"], ["--tool-style", "documents"]])
def test_an_option_without_meaning_for_a_suite_is_refused_by_name(
    suite: str, option: list[str]
) -> None:
    process = bench("tools", "--suite", suite, *option)
    assert process.returncode == 2
    assert f"{option[0]}: no effect with --suite {suite}" in process.stderr
