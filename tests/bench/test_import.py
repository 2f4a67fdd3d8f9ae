"""`bench import`, and `bench compare` of other tools' files: which questions are paired, and which
files are refused."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from loopline.bench.comparison import ArmComparison, compare_paths
from loopline.bench.errors import BenchError, DataError, UsageError
from loopline.bench.interchange.archive import Archive
from loopline.bench.interchange.imported import import_evaluation, read_evaluation
from loopline.bench.interchange.inspect_logs import read_inspect_log
from loopline.bench.interchange.lm_eval_samples import read_lm_eval_samples
from loopline.bench.report.computation import facts_of
from loopline.trainers.data.json_files import Limits
from tests.bench.command_line import bench
from tests.bench.foreign_logs import (
    LM_EVAL,
    ONE_EPOCH,
    TWO_EPOCHS,
    inspect_log,
    inspect_sample,
    lm_eval_line,
    lm_eval_samples,
)

MATCH = ("match", "match")


def only(a: Path, b: Path, *arms: tuple[str, str]) -> ArmComparison:
    (comparison,) = compare_paths(a, b, arms).arms
    return comparison


def test_an_inspect_log_is_read_as_inspect_wrote_it() -> None:
    log = read_evaluation(TWO_EPOCHS)
    assert (log.format, log.task, log.model) == ("inspect", "sums", "mockllm/large")
    assert [(sample.id, sample.epoch) for sample in log.samples] == [
        (f"q{number}", epoch) for epoch in (1, 2) for number in range(1, 6)
    ]
    wrong = log.samples[-1]
    assert (wrong.question, wrong.target, wrong.output) == ("What is 5 + 5?", "10", "7")
    assert wrong.scores == {"match": 0.0, "f1": 0.0}


def test_epochs_count_by_their_mean_and_unmatched_questions_are_reported() -> None:
    (comparison,) = compare_paths(TWO_EPOCHS, ONE_EPOCH, scorers=MATCH).arms
    assert (comparison.questions, comparison.attempts_a, comparison.attempts_b) == (4, 8, 4)
    # In q2 to q5, A is right in both of two epochs and in one of two; B is right at odd ones.
    assert (comparison.accuracy_a, comparison.accuracy_b) == (0.75, 0.5)
    assert comparison.accuracy.estimate == 0.25
    assert comparison.p is None
    assert (comparison.unmatched_a, comparison.unmatched_b) == (("q1",), ("q6", "q7", "q8"))


def test_the_table_counts_and_lists_the_omitted_questions() -> None:
    output = bench("compare", str(TWO_EPOCHS), str(ONE_EPOCH), "--scorer", "match").stdout
    assert "1 question of A left out because B was not asked: q1" in output
    assert "3 questions of B left out because A was not asked: q6, q7, q8" in output


def test_with_several_scorers_one_must_be_chosen() -> None:
    with pytest.raises(UsageError, match=r"two-epochs.eval has several scorers; .* match; f1"):
        compare_paths(TWO_EPOCHS, ONE_EPOCH)
    with pytest.raises(UsageError, match=r"has no 'bleu'; it has: match; f1"):
        compare_paths(TWO_EPOCHS, ONE_EPOCH, scorers=("bleu", "match"))


def test_single_epochs_get_mcnemar_s_test(tmp_path: Path) -> None:
    a = inspect_log(tmp_path / "a.eval", *(inspect_sample(f"q{n}", "C") for n in range(8)))
    b = inspect_log(tmp_path / "b.eval", *(inspect_sample(f"q{n}", "CI"[n > 1]) for n in range(8)))
    comparison = only(a, b)
    assert comparison.table is not None
    assert (comparison.table.both, comparison.table.only_a, comparison.p) == (2, 6, 0.03125)
    assert comparison.only_a == tuple(f"q{n}" for n in range(2, 8))
    assert comparison.tokens is not None
    assert comparison.tokens.estimate == 0


def test_shares_are_compared_only_by_their_means(tmp_path: Path) -> None:
    a = inspect_log(tmp_path / "a.eval", inspect_sample("p", 0.8), inspect_sample("q", "C"))
    b = inspect_log(tmp_path / "b.eval", inspect_sample("p", "P"), inspect_sample("q", "0.5"))
    comparison = only(a, b)
    assert (comparison.accuracy_a, comparison.accuracy_b, comparison.p) == (0.9, 0.5, None)


def test_the_entries_of_a_score_become_separate_scorers(tmp_path: Path) -> None:
    sample = inspect_sample("p", {"tone": 1, "form": False, "note": "none"})
    log = read_evaluation(inspect_log(tmp_path / "a.eval", sample))
    assert log.samples[0].scores == {"match/tone": 1.0, "match/form": 0.0}


def test_samples_without_a_score_are_left_out_and_reported(tmp_path: Path) -> None:
    failed = inspect_sample("q", "C", scores=None, error={"message": "time is up"})
    unscored = inspect_sample("r", float("nan"))
    log = inspect_log(tmp_path / "a.eval", inspect_sample("p", "C"), failed, unscored)
    imported = import_evaluation(read_evaluation(log))
    assert [item.id for item in imported.manifest.items] == ["p"]
    (notice,) = imported.notices
    assert "match has not scored them: 2 of 3 samples (q (epoch 1), r (epoch 1))" in notice


def test_an_incomplete_evaluation_is_reported_as_such(tmp_path: Path) -> None:
    log = inspect_log(tmp_path / "a.eval", inspect_sample("p", 1), header={"status": "cancelled"})
    assert read_evaluation(log).notices == (
        f"{log}: the evaluation did not finish: its status is cancelled",
    )


def test_samples_of_lm_eval_have_a_scorer_for_each_filter() -> None:
    log = read_evaluation(LM_EVAL)
    assert (log.format, log.task, len(log.samples)) == ("lm-eval", "sums", 3)
    assert log.scorers == ("exact_match,raw", "exact_match,digits")
    assert [sample.scores["exact_match,raw"] for sample in log.samples] == [0, 0, 1]
    assert log.samples[2].output == "lol"
    assert log.created == pytest.approx(1795709720.07)


def test_lm_eval_s_samples_are_paired_by_document(tmp_path: Path) -> None:
    a = lm_eval_samples(tmp_path / "samples_a.jsonl", *(lm_eval_line(n, 1.0) for n in range(6)))
    b = lm_eval_samples(tmp_path / "samples_b.jsonl", *(lm_eval_line(n, 0.0) for n in range(1, 7)))
    comparison = only(a, b)
    assert (comparison.questions, comparison.p) == (5, 0.0625)
    assert (comparison.unmatched_a, comparison.unmatched_b) == (("0",), ("6",))
    assert comparison.tokens is None


def test_a_lower_is_better_metric_is_refused(tmp_path: Path) -> None:
    date = "2026-01-01T00-00-00.5"
    lm_eval_samples(tmp_path / f"samples_t_{date}.jsonl", lm_eval_line(0, 0.4))
    results = {"higher_is_better": {"t": {"acc": False}}, "model_name": "tiny"}
    (tmp_path / f"results_{date}.json").write_text(json.dumps(results))
    log = read_evaluation(tmp_path / f"samples_t_{date}.jsonl")
    assert log.model == "tiny"
    with pytest.raises(UsageError, match="a lower score of acc is better"):
        import_evaluation(log)


def test_scores_beyond_one_are_refused(tmp_path: Path) -> None:
    log = read_evaluation(inspect_log(tmp_path / "a.eval", inspect_sample("p", 7)))
    with pytest.raises(UsageError, match=r"gives the question p the score 7; .* from 0 to 1"):
        import_evaluation(log)


def test_other_data_under_the_same_ids_are_not_compared(tmp_path: Path) -> None:
    a = inspect_log(tmp_path / "a.eval", inspect_sample("p", 1))
    b = inspect_log(tmp_path / "b.eval", inspect_sample("p", 1, input="What?", target="9"))
    with pytest.raises(UsageError, match="p is not the same question"):
        compare_paths(a, b)


def test_different_wordings_of_the_same_target_are_compared_and_reported(tmp_path: Path) -> None:
    a = inspect_log(tmp_path / "a.eval", inspect_sample("p", 1))
    b = inspect_log(tmp_path / "b.eval", inspect_sample("p", 0, input="Say what p is."))
    assert compare_paths(a, b).notices == (
        "paired by id although the text differs: 1 of 1 questions (p)",
    )


def test_an_imported_folder_compares_like_its_file(tmp_path: Path) -> None:
    output = tmp_path / "imported"
    line = json.loads(
        bench(
            "import", str(TWO_EPOCHS), "--scorer", "match", "--output", str(output), "--json"
        ).stdout
    )
    assert line == {
        "output": str(output), "questions": 5, "samples": 10, "scorer": "match", "unscored": [],
    }  # fmt: skip
    of_folder = compare_paths(output, ONE_EPOCH, scorers=MATCH)
    assert of_folder.arms == compare_paths(TWO_EPOCHS, ONE_EPOCH, scorers=MATCH).arms
    assert (output / "report.html").is_file()


def test_an_import_without_its_manifest_is_not_a_benchmark(tmp_path: Path) -> None:
    imported = import_evaluation(read_evaluation(TWO_EPOCHS), "match")
    directory = imported.write(tmp_path / "imported")
    assert len(facts_of(directory).arms[0].results) == 10
    directory.manifest_path.unlink()
    with pytest.raises(UsageError, match="holds no benchmark"):
        facts_of(directory)


def test_a_nonempty_folder_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not an empty folder"):
        import_evaluation(read_evaluation(TWO_EPOCHS), "match").write(tmp_path)


def test_an_import_cannot_be_resumed(tmp_path: Path) -> None:
    import_evaluation(read_evaluation(ONE_EPOCH), "match").write(tmp_path / "a")
    done = bench("resume", str(tmp_path / "a"))
    assert done.returncode == 2
    assert "was imported: there is nothing to resume" in done.stderr


def _bomb(path: Path) -> Path:
    """A sample of eight megabytes in eight kilobytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "eval": {}}))
        archive.writestr("samples/p_epoch_1.json", b" " * (8 * 2**20))
    return path


def _lying(path: Path) -> Path:
    """A member with a false size in the index."""
    inspect_log(path, inspect_sample("p", 1))
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<I", 3)
    path.write_bytes(content)
    return path


def _garbage(path: Path) -> Path:
    path.write_bytes(b"not a zip" * 100)
    return path


def _cut(path: Path) -> Path:
    path.write_bytes(TWO_EPOCHS.read_bytes()[:9000])
    return path


def _flipped(path: Path) -> Path:
    content = bytearray(TWO_EPOCHS.read_bytes())
    content[2000] ^= 0xFF
    path.write_bytes(content)
    return path


def _deep(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", "[" * 100_000)
    return path


def _empty(path: Path) -> Path:
    return inspect_log(path)


def _twice(path: Path) -> Path:
    other = inspect_sample("q", 1)
    log = inspect_log(path, inspect_sample("p", 1), other)
    with zipfile.ZipFile(log, "a") as archive:
        archive.writestr("samples/again.json", json.dumps(other))
    return log


def _other_zip(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    return path


def _bzip(path: Path) -> Path:
    return inspect_log(path, inspect_sample("p", 1), method=zipfile.ZIP_BZIP2)


def _old(path: Path) -> Path:
    return inspect_log(path, inspect_sample("p", 1), header={"version": 1})


def _no_epoch(path: Path) -> Path:
    return inspect_log(path, inspect_sample("p", 1, epoch=0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_bomb, r"samples/p_epoch_1.json decompresses to more than 1,048,576 bytes"),
        (_lying, r"p_epoch_1.json is damaged"),
        (_garbage, r"not a zip archive"),
        (_cut, r"not a zip archive, or a damaged one"),
        (_flipped, r"(can't be decompressed|is damaged|is not where the index says)"),
        (_deep, r"header.json: not JSON: nested too deep"),
        (_empty, r"the file contains no samples"),
        (_twice, r"epoch 1 contains the question 'q' twice"),
        (
            _other_zip,
            r"not an inspect log: it contains neither header.json nor _journal/start.json",
        ),
        (_bzip, r"compressed by method 12"),
        (_old, r"an inspect log of version 1; .*`inspect log convert --to eval`"),
        (_no_epoch, r"`epoch` should be an integer from 1"),
    ],
)
def test_a_damaged_or_hostile_log_is_refused(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_inspect_log(make(tmp_path / "a.eval"), member_bytes=2**20)


def test_zstandard_decompression_is_bounded_too() -> None:
    with (
        Archive(TWO_EPOCHS, member_bytes=1000) as archive,
        pytest.raises(DataError, match=r"q1_epoch_1\.json decompresses to more than 1,000 bytes"),
    ):
        archive.read("samples/q1_epoch_1.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{" * 100_000, r"samples_t.jsonl:1: not JSON"),
        ("[1, 2]", r":1: expected an object with doc_id"),
        ('{"id": "p", "question": "q", "answer": "a"}', r":1: `doc_id` should be .*samples"),
        ('{"doc_id": 1}', r":1: `doc` is missing"),
        (json.dumps(lm_eval_line(1, 1)) + "\n" + "\0" * 50, r":2: not JSON"),
        ("\n".join(json.dumps(lm_eval_line(1, 1)) for _ in range(2)), r"two acc scores"),
        ("", "contains no samples"),
        (json.dumps(lm_eval_line(1, 1, doc="x" * 5000)), r":1: a line is too long"),
    ],
)
def test_a_line_that_is_not_a_sample_is_refused_with_its_location(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "samples_t.jsonl"
    path.write_text(text)
    limits = Limits(line_bytes=200_000 if "{{" in text else 4000)
    with pytest.raises(DataError, match=message):
        read_lm_eval_samples(path, limits)


def test_half_a_surrogate_pair_does_not_stop_an_import(tmp_path: Path) -> None:
    sample = inspect_sample("p\ud800", 1, input="\udfff?")
    log = tmp_path / "a.eval"
    with zipfile.ZipFile(log, "w") as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "eval": {"model": "m\ud800"}}))
        archive.writestr("samples/p.json", json.dumps(sample))
    directory = import_evaluation(read_evaluation(log)).write(tmp_path / "out")
    assert [item.question for item in directory.manifest().items] == ["??"]


def test_a_file_of_another_kind_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(BenchError, match="inspect log convert"):
        read_evaluation(tmp_path / "a.json")
    with pytest.raises(UsageError, match="there is no such file"):
        read_evaluation(tmp_path / "b.eval")
