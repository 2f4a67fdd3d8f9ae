"""The folder of results: its contents, and the curves of its trainings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from loopline.runtime.errors import UserError
from loopline.runtime.observe import result_folders
from loopline.runtime.observe.result_folders import BenchmarkReader, scan
from loopline.runtime.observe.training_curves import (
    CurveReader,
    groups_of,
    rounds_of,
    smooth,
    stamp_of,
)

pytest.importorskip("tensorboard")

MANIFEST = {"benchmark": "sums", "split": "test", "created": 5.0, "items": [{}, {}]}


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def draw(folder: Path, values: dict[int, float], begin: int | None = None) -> None:
    """Write one more file of events; `begin` discards what was drawn from that step on."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    events, summaries = vars(event_pb2), vars(summary_pb2)
    writer = EventFileWriter(str(folder), filename_suffix=f".{begin or 0}")
    if begin is not None:
        log = events["SessionLog"](status=events["SessionLog"].START)
        writer.add_event(events["Event"](step=begin, session_log=log))
    for step, value in values.items():
        summary = summaries["Summary"](
            value=[summaries["Summary"].Value(tag="loss", simple_value=value)]
        )
        writer.add_event(events["Event"](step=step, summary=summary))
    writer.close()


def test_benchmarks_and_trainings_are_distinguished_in_any_folder(tmp_path: Path) -> None:
    write(tmp_path / "a" / "manifest.json", MANIFEST)
    write(tmp_path / "grid" / "b" / "manifest.json", MANIFEST)
    (tmp_path / "grid" / "seed-1" / "curves").mkdir(parents=True)
    (tmp_path / ".hidden" / "curves").mkdir(parents=True)
    (tmp_path / "round").symlink_to(tmp_path)
    folders = scan(tmp_path)
    assert folders.benchmarks == ["a", "grid/b"]
    assert folders.trainings == ["grid/seed-1"]
    assert not folders.truncated


def test_a_scan_of_too_many_folders_reports_that_it_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_folders, "MAX_FOLDERS", 3)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    assert scan(tmp_path).truncated
    assert scan(tmp_path / "nowhere") == scan(tmp_path / "nowhere either")


def test_a_benchmark_without_a_report_and_a_damaged_one_are_listed(tmp_path: Path) -> None:
    write(tmp_path / "begun" / "manifest.json", MANIFEST)
    write(tmp_path / "damaged" / "manifest.json", [])
    write(tmp_path / "older" / "manifest.json", {**MANIFEST, "created": 1.0})
    score = {"right": 1, "estimate": 0.5, "low": 0.1, "high": 0.9}
    arm = {"n": 2, "accuracy": {"solved": score}, "micro_dollars_per_question": 0.0}
    write(tmp_path / "older" / "report.json", {"results": {"arms": {"pair": arm}}})
    reader = BenchmarkReader(tmp_path)
    begun, older, damaged = reader.read(scan(tmp_path).benchmarks)
    assert (begun.questions, begun.arms, begun.complete) == (2, [], False)
    assert (older.checker, older.arms[0].accuracy) == ("solved", 0.5)
    assert older.arms[0].micro_dollars is None, "nothing had a price"
    assert "does not contain a JSON object" in damaged.problem
    assert reader.read(["begun"])[0] is begun, "an unchanged one is not read again"


def test_values_drawn_after_a_checkpoint_are_discarded_on_resumption(tmp_path: Path) -> None:
    draw(tmp_path / "curves" / "shared", {1: 1.0, 2: 2.0, 3: 3.0})
    draw(tmp_path / "curves" / "shared", {2: 20.0}, begin=2)
    assert CurveReader(tmp_path).read() == {"shared": {"loss": [(1, 1.0), (2, 20.0)]}}


def test_the_tenth_event_file_of_a_process_is_read_after_its_ninth(tmp_path: Path) -> None:
    folder = tmp_path / "curves"
    draw(folder, {1: 1.0, 2: 2.0, 3: 3.0})
    (first,) = folder.iterdir()
    first.rename(folder / "events.out.tfevents.1790000000.host-1.77.9.0")
    draw(folder, {2: 20.0}, begin=2)
    (second,) = (path for path in folder.iterdir() if not path.name.endswith(".9.0"))
    second.rename(folder / "events.out.tfevents.1790000000.host-1.77.10.2")
    assert CurveReader(tmp_path).read() == {"": {"loss": [(1, 1.0), (2, 20.0)]}}


def test_curves_end_where_their_file_is_truncated(tmp_path: Path) -> None:
    draw(tmp_path / "curves", {1: 1.0, 2: 2.0})
    (path,) = (tmp_path / "curves").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert CurveReader(tmp_path).read() == {"": {"loss": [(1, 1.0)]}}


def test_curves_of_a_running_training_are_read_incrementally(
    tmp_path: Path,
) -> None:
    reader = CurveReader(tmp_path)
    assert reader.read() == {}
    folder = tmp_path / "curves"
    draw(folder, {1: 1.0, 2: 2.0})
    (path,) = folder.iterdir()
    whole, stamp = path.read_bytes(), stamp_of([tmp_path])
    path.write_bytes(whole[:-5])
    assert reader.read() == {"": {"loss": [(1, 1.0)]}}
    assert stamp_of([tmp_path]) != stamp
    path.write_bytes(whole)
    assert reader.read() == {"": {"loss": [(1, 1.0), (2, 2.0)]}}
    assert stamp_of([tmp_path]) == stamp
    draw(folder, {2: 20.0}, begin=2)
    assert reader.read() == {"": {"loss": [(1, 1.0), (2, 20.0)]}}
    shutil.rmtree(folder)
    draw(folder, {1: 5.0}, begin=1)
    assert reader.read() == {"": {"loss": [(1, 5.0)]}}, "a training that was begun anew"


def test_smoothing_is_a_moving_average_corrected_for_its_start() -> None:
    values = [(1, 4.0), (2, 0.0), (3, float("nan")), (4, 2.0)]
    points = smooth(values, 0.5)
    assert [point.x for point in points] == [1.0, 2.0, 4.0]
    assert [point.y for point in points] == pytest.approx([4.0, 4 / 3, (0.5 + 0 + 1) / 0.875])
    assert [point.y for point in smooth(values, 0.0)] == [4.0, 0.0, 2.0]


def test_groups_of_a_round_identify_their_candidates(tmp_path: Path) -> None:
    group = {
        "key": "k", "policy": "p", "version": 3, "fate": "trained", "rewards": [0.5],
        "origins": ["01a2-b/2.1/plan agent#4"],
    }  # fmt: skip
    write(tmp_path / "rounds" / "0007" / "groups.json", {"groups": [group]})
    write(tmp_path / "rounds" / "0008" / "groups.json", {"groups": [{**group, "origins": ["x"]}]})
    assert rounds_of(tmp_path) == [7, 8]
    (member,) = groups_of(tmp_path, 7)[0].members
    assert (member.run_id, member.turn, member.branch) == ("01a2-b", 2, 1)
    assert (member.agent, member.candidate, member.reward) == ("plan agent", 4, 0.5)
    with pytest.raises(UserError, match="does not name a candidate"):
        groups_of(tmp_path, 8)
