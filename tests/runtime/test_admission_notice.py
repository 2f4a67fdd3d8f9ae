"""A full bus is reported only if it stays full."""

from __future__ import annotations

import pytest

from loopline.bus import Overloaded
from loopline.runtime.run_driver import AdmissionNotice

FULL = Overloaded("100 runs, the limit is 100: try again later")


def test_refusals_are_reported_after_ten_seconds_without_admission_and_then_each_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, lines = [0.0], list[str]()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    notice = AdmissionNotice(lines.append)

    def refused_at(*moments: float) -> int:
        for now[0] in moments:
            notice.refused(FULL)
        return len(lines)

    assert refused_at(0, 5, 9.9) == 0
    notice.admitted()
    assert refused_at(10, 19.9) == 0
    assert refused_at(20, 21, 79.9) == 1
    assert refused_at(80) == 2
    assert lines[0].startswith("waiting for room on the bus: 100 runs, the limit is 100")
