"""The summary of skipped tests at the end of a test run."""

from __future__ import annotations

from tests.skips import summary


def test_a_run_without_skips_prints_no_summary() -> None:
    assert summary([]) == ""


def test_missing_system_packages_are_combined_into_one_command() -> None:
    reasons = [
        "Skipped: no redis server on this machine (install redis-server)",
        "Skipped: no redis server on this machine (install redis-server)",
        "Skipped: no `bwrap` on PATH: install it",
    ]
    assert summary(reasons) == (
        "not run here: 3 run after `apt-get install bubblewrap redis-server`"
    )


def test_skips_for_data_a_gpu_and_other_reasons_are_counted_separately() -> None:
    reasons = [
        "Skipped: LOOPLINE_DATA is not set",
        "Skipped: needs a CUDA GPU",
        "Skipped: the scripted engine declares no adapters",
    ]
    assert summary(reasons) == (
        "not run here: 1 by `LOOPLINE_DATA=FOLDER make test`, 1 on a machine with a CUDA GPU, "
        "1 for reasons of their own (`pytest -rs` lists them)"
    )
