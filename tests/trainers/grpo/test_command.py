"""`train grpo` from the user's point of view."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.agents.records import Trajectory
from loopline.trainers.cli import app

from .recorded import record
from .tiny_grpo import load, rollouts, write_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("command") / "base")


@pytest.fixture(scope="module")
def store(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    runs = rollouts(load(base), 3, count=4, agents=("coder", "tester"))
    newer = runs[-1].model_copy(update={"run": runs[-1].run.model_copy(update={"version": 2})})
    asyncio.run(record(folder, [*runs[:-1], newer]))
    return folder


def command(mode: str, *arguments: object) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, ["grpo", mode, *map(str, arguments)])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return 1, ended.stdout, str(ended.exception)
    return ended.exit_code, ended.stdout, ended.stderr


def test_the_command_reports_what_it_leaves_out_and_ends_with_a_table_and_a_json_line(
    base: Path, store: Path, tmp_path: Path
) -> None:
    arguments = (
        tmp_path / "out", "--from-store", store, "--base", base, "--policies", "per-role",
        "--batch", 2, "--learning-rate", 1e-3, "--checkpoint-every", 2, "--keep-ratios", 1000,
        "--json",
    )  # fmt: skip
    code, out, err = command("offline", *arguments)
    assert code == 0, err
    assert "6 groups of 4 runs" in err
    assert "left out: 1 × records of another schema version, such as 00000000-" in err
    assert "(version 2; this program reads 1)" in err
    assert "step 1/3" in err
    assert "checkpoint at step 2" in err
    assert "version 3 → 6; 6 groups of 4 runs, 0 with equal rewards, 0 too old" in out
    summary = json.loads(out.splitlines()[-1])
    assert (summary["version"], summary["steps"], summary["groups"]) == (6, 3, 6)
    assert summary["skipped"] == {"records of another schema version": 1}
    assert {row["groups"] for row in summary["policies"].values()} == {3}
    assert (tmp_path / "out/policies/coder/model.safetensors").is_file()
    assert f"curves in {tmp_path / 'out/report.html'}" in out
    assert len(list((tmp_path / "out/learned-tokens").iterdir())) == 3
    code, again, err = command("offline", *arguments)
    assert code == 0
    assert "is finished; --restart trains again" in err
    assert again == out


def test_the_command_warns_of_policies_that_start_at_different_versions(
    base: Path, tmp_path: Path
) -> None:
    """A deployment counts each policy's versions separately; a training has one number."""
    loaded = load(base)
    runs = [
        by_policy(run, agent)
        for agent, version in (("coder", 3), ("tester", 5))
        for run in rollouts(loaded, version, count=2, agents=(agent,))
    ]
    asyncio.run(record(tmp_path / "store", runs))
    arguments = ("--from-store", tmp_path / "store", "--base", base, "--steps", 1)
    code, _, err = command("offline", tmp_path / "both", *arguments)
    assert code == 0, err
    assert "warning: the groups start at different versions of their policies (coder 3, " in err
    code, _, err = command("offline", tmp_path / "one", *arguments, "--agent", "tester")
    assert code == 0, err
    assert "warning" not in err


def test_a_pool_and_the_adapter_published_to_it_later_are_one_policy(
    base: Path, tmp_path: Path
) -> None:
    loaded = load(base)
    adapted = [by_policy(run, "llm/shop") for run in rollouts(loaded, 1, count=2)]
    asyncio.run(record(tmp_path / "store", [*rollouts(loaded, 0, count=2), *adapted]))
    arguments = ("--from-store", tmp_path / "store", "--base", base, "--steps", 1)
    code, _, err = command("offline", tmp_path / "out", *arguments)
    assert code == 0, err
    assert "warning" not in err


def test_the_command_warns_of_samples_from_several_base_models(base: Path, tmp_path: Path) -> None:
    """They share a tokenizer, which is all that their token ids reveal."""
    *runs, last_run = rollouts(load(base), 0, count=3)
    asyncio.run(record(tmp_path / "store", [*runs, sampled_by(last_run, base="larger")]))
    code, _, err = command(
        "offline",
        tmp_path / "out",
        "--from-store",
        tmp_path / "store",
        "--base",
        base,
        "--steps",
        1,
    )
    assert code == 0, err
    warning = "warning: the groups were sampled by several base models"
    assert f"{warning} (2 groups of micro, 1 group of larger)" in err


def by_policy(run: Trajectory, name: str) -> Trajectory:
    """The same run, sampled by the adapter of that name."""
    return sampled_by(run, adapter=name)


def sampled_by(run: Trajectory, **policy: str) -> Trajectory:
    """The same run, by another policy."""
    document = json.loads(run.model_dump_json())
    for step in document["steps"]:
        for candidate in step["candidates"]:
            for call in candidate["calls"]:
                call["policy"].update(policy)
    return Trajectory.model_validate_json(json.dumps(document))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--grouping", "poem"), "--grouping poem: Input should be 'at-grpo'"),
        (("--group-size", 1), "--group-size 1: Input should be greater than or equal to 2"),
        (("--policies", "none"), "--policies none: Input should be 'shared'"),
        (("--correction", "magic"), "--correction magic: Input should be 'none', 'clip'"),
        (("--clip-low", 1.5), "--clip-low 1.5: Input should be less than 1"),
        (("--learning-rate", 0), "--learning-rate 0: Input should be greater than 0"),
        (("--learning-rate", "inf"), "--learning-rate inf: Input should be a finite number"),
        (("--kl", "inf"), "--kl inf: Input should be a finite number"),
        (("--seed", 2**64), "--seed 18446744073709551616: Input should be less than"),
        (("--threads", 10**8), "--threads 100000000: Input should be less than or equal to 1024"),
        (("--weights", "lora", "--rank", 10**8), "--rank 100000000: Input should be less than"),
        (("--scheme", "best"), "--scheme best: Input should be 'paper'"),
        (("--scheme", "dense"), "24 × candidate without the rewards of that scheme"),
        (("--alpha", "nan"), "--alpha nan: Input should be a finite number"),
        (("--base", "/nowhere/at/all"), "there is no such folder"),
        (("--init-from", "coder"), "--init-from: 'coder' is not POLICY=FOLDER"),
        (("--init-from", "coder=/nowhere/at/all"), "there is no such folder"),
        (("--from-store", "/nowhere/at/all"), "holds no recorded runs"),
        (("--workflow", "other"), "has no readable run of the workflow 'other'"),
        (("--group-size", 5), "have no complete group of 5 (at-grpo); 6 × incomplete group"),
        (("--init-from", "critic=micro:slm"), "--init-from critic: no such policy is trained"),
        (("--base-version", 9, "--staleness", 2), "the newest is of version 3"),
        (("--agent", "nobody"), "--agent nobody: no such agent acted in the runs of"),
        (
            ("--agent", "coder", "--agent", "testr"),
            "--agent testr: no such agent acted in the runs of",
        ),
        (("--agent", "coder", "--agent", "testr"), "agents: coder, tester"),
        (
            ("--publish", "--profile", "petting"),
            "--profile only applies with --redis-url, or with LOOPLINE_",
        ),
        (("--rank", 8), "--rank only applies with --weights lora: leave --rank out, or"),
        (("--scheme", "dense", "--alpha", 0.5), "--alpha only applies with --scheme paper"),
        (
            ("--completion-limit", 9),
            "--completion-limit only applies with --normalisation constant",
        ),
        (
            ("--correction", "clip", "--cap", 3),
            "--cap only applies with --correction truncated, token or",
        ),
        (("--correction", "truncated", "--dual-clip", 3), "with every --correction except"),
        (("--pool", "pair"), "--pool only applies with --publish: leave"),
    ],
)
def test_bad_input_is_reported_before_any_training(
    base: Path, store: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, _, answer = command(
        "offline", tmp_path / "out", "--from-store", store, "--base", base, *arguments
    )
    assert code != 0
    assert message in answer
    assert not (tmp_path / "out").exists()


def test_the_folder_of_another_command_is_never_touched(
    base: Path, store: Path, tmp_path: Path
) -> None:
    """`bench grpo`, `train glpft` and others have a settings.json of their own."""
    foreign_path = tmp_path / "settings.json"
    foreign_path.write_text('{"game": "sokoban"}')
    (tmp_path / "report.json").write_text("{}")
    for option in ((), ("--restart",)):
        code, _, err = command("offline", tmp_path, "--from-store", store, "--base", base, *option)
        assert code == 1
        assert "settings.json belongs to another command or version, or is damaged" in err
        assert {path.name for path in tmp_path.iterdir()} == {foreign_path.name, "report.json"}


def test_an_impossible_folder_is_reported(base: Path, store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = command("offline", tmp_path / "file", "--from-store", store, "--base", base)
    assert code == 1
    assert "file can't be created (File exists): choose another one" in err


def test_unpublishable_policies_are_reported_before_any_training(
    base: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing pool, and one that serves another base."""
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    arguments = (tmp_path / "out", "--from-store", store, "--base", base, "--publish",
                 "--redis-url", "redis://127.0.0.1:1", "--weights", "lora", "--policies",
                 "per-role", "--profile", "petting")  # fmt: skip
    for pool, message in (("nosuch", "there is no pool 'nosuch'"), ("pair", "of another base")):
        code, _, err = command("offline", *arguments, "--pool", pool)
        assert code == 1
        assert message in err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("mode", "option"),
    [
        ("loop", "--from-store"),
        ("loop", "--epochs"),
        ("loop", "--steps"),
        ("loop", "--base-version"),
        ("loop", "--checkpoint-every"),
        ("loop", "--publish"),
        ("offline", "--game"),
        ("offline", "--tasks"),
        ("offline", "--rounds"),
        ("offline", "--keep-published"),
        ("demo", "--batch"),
        ("demo", "--from-store"),
    ],
)
def test_a_mode_refuses_options_that_have_no_meaning_in_it(
    tmp_path: Path, mode: str, option: str
) -> None:
    code, _, err = command(mode, tmp_path / "out", option, 1)
    assert code == 2
    assert f"No such option: {option}" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--base", "micro:slm"), "--from-store is missing: give it, or `from_store = …` in the"),
        (("--from-store", "runs"), "--base is missing: give it, or `base = …` in the file of"),
    ],
)
def test_a_missing_option_is_reported(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = command("offline", tmp_path / "out", *arguments)
    assert code != 0
    assert message in err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_what_would_run_and_touches_nothing(
    base: Path, store: Path, tmp_path: Path
) -> None:
    """The command prints a file that `--config` reads."""
    output = tmp_path / "out"
    arguments = (output, "--from-store", store, "--base", base, "--batch", 2, "--steps", 1)
    code, out, err = command("offline", *arguments, "--dry-run")
    assert code == 0, err
    assert "\nbatch = 2\n" in out
    assert f"# writes to {output}, a new folder" in out
    assert not output.exists()
    file = tmp_path / "all.toml"
    file.write_text(out)
    code, again, err = command("offline", "--config", file, "--dry-run")
    assert code == 0, err
    assert again == out
    code, _, err = command("offline", "--config", file)
    assert code == 0, err
    code, out, err = command("offline", "--config", output / "options.toml", "--dry-run")
    assert f"# {output} is finished: nothing would be repeated" in out
    code, out, err = command("offline", "--config", file, "--restart", "--dry-run")
    assert f"# discards the progress in {output} and starts over" in out
    code, _, err = command("offline", "--config", file, "--batch", 3)
    assert code == 1
    assert f"{output} was started with other settings: batch (2 → 3)" in err
