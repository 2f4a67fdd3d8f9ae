"""A deployment of real processes: started, killed in every way, drained, and stopped for good."""

from __future__ import annotations

import json
import os
import re
import signal
import socket

import psutil
import pytest

from loopline.runtime.errors import EXIT_UNREACHABLE
from loopline.runtime.observe.recorded_runs import from_store
from loopline.testing import RedisProcess
from tests.runtime.conftest import ASKED, LIMIT, Deployment, changes, until

pytestmark = pytest.mark.timeout(400)

QUESTION = "Tom has 3 boxes of 12 apples and gives away 7. How many are left?"
SLOW = "models.llm.scripted.latency_seconds"


@pytest.mark.system
def test_down_after_up_and_ask_leaves_no_process(deployment: Deployment) -> None:
    output = deployment.up()
    assert "6 of 6 workers ready" in output
    assert "appendfsync everysec" in output
    answer = deployment.ask(QUESTION)
    assert answer["answer"] == "29"
    assert [step["agent"] for step in answer["steps"]] == ["planner", "slm", "planner"]
    deployment.ok("down")
    assert deployment.processes() == []
    assert deployment.state.running() is None


def test_after_down_a_run_can_be_shown_and_replayed_from_the_store_by_its_full_id(
    deployment: Deployment,
) -> None:
    deployment.up(kinds=(*ASKED, "recorder"))
    run_id = deployment.ask(QUESTION)["run"]["id"]
    deployment.ok("down")
    assert "answer  29" in deployment.ok("runs", "show", run_id)
    assert json.loads(deployment.ok("runs", "show", run_id, "--json"))["answer"] == "29"
    assert "3 of 3 steps came out as recorded" in deployment.ok("runs", "replay", run_id)
    for command in ("show", "replay"):
        unknown = deployment.run("runs", command, run_id[:-1])
        assert unknown.returncode == EXIT_UNREACHABLE
        assert f"no run with the full id {run_id[:-1]}" in unknown.stderr


def test_a_second_up_in_the_same_directory_fails_and_names_the_first(
    deployment: Deployment,
) -> None:
    deployment.up(kinds=())
    pid = deployment.supervisor_pid()
    for options in (["--detach"], []):
        second = deployment.run("up", "--profile", "scripted", *options)
        assert second.returncode != 0
        assert f"already runs in {deployment.state.path} (pid {pid})" in second.stderr
    assert deployment.supervisor_pid() == pid


def test_a_killed_worker_is_restarted_and_its_work_continues(deployment: Deployment) -> None:
    deployment.up(f"{SLOW}=0.5", kinds=ASKED)
    asking = deployment.start("ask", "--json", QUESTION)
    until(lambda: deployment.status()["runs_in_flight"] == 1, "run in flight")
    for kind in ("planner", "gpu"):
        (worker,) = deployment.workers(kind)
        os.kill(worker["pid"], signal.SIGKILL)
    output, _ = asking.communicate(timeout=LIMIT)
    assert asking.returncode == 0, output
    assert '"answer":"29"' in output
    until(lambda: deployment.workers("gpu") and deployment.workers("planner"), "new workers")
    assert deployment.workers("planner")[0]["restarts"] == 1


def test_a_worker_that_keeps_dying_is_given_up_reported_and_restarted_on_request(
    deployment: Deployment,
) -> None:
    deployment.up("supervisor.crash_loop_deaths=2", kinds=("planner", "slm"))
    (worker,) = deployment.workers("slm")
    os.kill(worker["pid"], signal.SIGKILL)
    again = until(
        lambda: [w for w in deployment.workers("slm") if w["pid"] != worker["pid"]],
        "second slm worker",
    )
    os.kill(again[0]["pid"], signal.SIGKILL)
    (broken,) = until(lambda: deployment.workers("slm", "broken"), "broken worker")
    assert "killed by SIGKILL: 2 deaths within" in broken["reason"]
    assert any("ready" in line for line in broken["last_lines"])
    assert deployment.workers("planner"), "the others go on"
    deployment.ok("scale", "slm=1")
    until(lambda: deployment.workers("slm"), "slm worker after another try")


def test_a_worker_with_a_wrong_configuration_is_given_up_immediately(
    deployment: Deployment,
) -> None:
    words = changes(("planner", "gpu"))
    process = deployment.run(
        *("up", "--detach", "--profile", "scripted", *words),
        *("--set", "models.llm.engine=scriptd"),
    )
    assert process.returncode == 1
    assert re.search(
        r"gpu-1\.\S+: broken: exit code 78: its configuration is wrong", process.stdout
    )
    assert "scriptd" in process.stdout
    assert "runtime logs" in process.stderr
    assert deployment.workers("planner")


@pytest.mark.system
def test_a_killed_redis_is_restarted_and_the_workers_survive(deployment: Deployment) -> None:
    deployment.up(f"{SLOW}=0.3")
    before = {worker["name"] for worker in deployment.status()["workers"]}
    asking = deployment.start("ask", "--json", QUESTION)
    until(lambda: deployment.status()["runs_in_flight"] == 1, "run in flight")
    os.kill(deployment.status()["redis"]["pid"], signal.SIGKILL)
    output, _ = asking.communicate(timeout=LIMIT)
    assert asking.returncode == 0, output
    after = until(
        lambda: (s := deployment.status())["redis"]["restarts"] == 1 and not s["bus_error"] and s,
        "restarted Redis",
    )
    same = {w["name"] for w in after["workers"] if w["kind"] != "jobs"}
    assert same == {name for name in before if not name.startswith("jobs")}
    assert deployment.ask("What is 6 * 7?", "--workflow", "solo")["answer"] == "42"


@pytest.mark.system
def test_a_redis_whose_restart_fails_is_restarted_later_with_its_data(
    deployment: Deployment,
) -> None:
    changes = ("supervisor.crash_loop_deaths=1000", "supervisor.backoff_max_seconds=0.5")
    deployment.up(*changes, kinds=ASKED)
    run_id = deployment.ask(QUESTION)["run"]["id"]
    redis = deployment.status()["redis"]["pid"]
    data = deployment.state.redis / "appendonlydir"
    aside = data.rename(data.with_name("aside"))
    data.write_text("not a directory")
    os.kill(redis, signal.SIGKILL)
    log = deployment.state.logs / "supervisor.log"
    until(lambda: log.read_text().count("redis did not start") >= 2, "two failed restarts")
    data.unlink()
    aside.rename(data)
    until(
        lambda: (s := deployment.status())["redis"]["restarts"] == 1 and not s["bus_error"],
        "restarted Redis",
    )
    assert json.loads(deployment.ok("runs", "show", run_id, "--json"))["answer"] == "29"


@pytest.mark.slow
def test_nothing_outlives_a_killed_supervisor_and_the_next_one_continues_the_work(
    deployment: Deployment,
) -> None:
    deployment.up(f"{SLOW}=0.6")
    asking = deployment.start("ask", "--json", QUESTION)
    until(lambda: deployment.status()["runs_in_flight"] == 1, "run in flight")
    own_pids = {asking.pid}
    os.kill(deployment.supervisor_pid(), signal.SIGKILL)
    until(lambda: {p.pid for p in deployment.processes()} <= own_pids, "end of all its children")
    # An exiting process loses its environment some time before it closes its files.
    until(lambda: deployment.state.holder() is None, "release of its lock")
    deployment.up(kinds=ASKED)
    output, _ = asking.communicate(timeout=LIMIT)
    assert asking.returncode == 0, output
    assert '"answer":"29"' in output


def test_workers_can_be_scaled_up_and_down_while_the_deployment_runs(
    deployment: Deployment,
) -> None:
    deployment.up(kinds=ASKED)
    assert "slm: 1 → 3" in deployment.ok("scale", "slm=3")
    until(lambda: len(deployment.workers("slm")) == 3, "three slm workers")
    deployment.ok("scale", "slm=1", "tool=2")
    until(
        lambda: len(deployment.workers("slm")) == 1 and len(deployment.workers("tool")) == 2,
        "one slm and two tool workers",
    )
    assert deployment.ask(QUESTION)["answer"] == "29"


def test_down_drains_and_unfinished_runs_continue_after_the_next_up(
    deployment: Deployment,
) -> None:
    deployment.up(f"{SLOW}=0.4")
    asking = deployment.start("ask", "--json", QUESTION)
    until(lambda: deployment.status()["runs_in_flight"] == 1, "run in flight")
    deployment.ok("down")
    log = (deployment.state.logs / "supervisor.log").read_text()
    assert "drained" in log
    assert "did not drain" not in log
    deployment.up(kinds=ASKED)
    output, _ = asking.communicate(timeout=LIMIT)
    assert asking.returncode == 0, output
    assert '"outcome":"answered"' in output


def test_down_now_kills_workers_that_would_not_drain(deployment: Deployment) -> None:
    # A drain would outlast the limit of `down` itself.
    deployment.up(f"{SLOW}=600", "supervisor.drain_seconds=600", kinds=ASKED)
    asking = deployment.start("ask", "--json", QUESTION)
    until(lambda: deployment.status()["runs_in_flight"] == 1, "run in flight")
    until(lambda: any(w["busy"] for w in deployment.workers("gpu")), "a call that will not end")
    deployment.ok("down", "--now")
    assert {p.pid for p in deployment.processes()} <= {asking.pid}


def test_one_or_two_ctrl_c_stop_a_deployment_in_the_foreground(deployment: Deployment) -> None:
    words = changes(("planner", "gpu", "recorder"))
    for signals in (1, 2):
        process = deployment.start("up", "--profile", "scripted", *words)
        assert process.stdout is not None
        until(
            lambda: (
                (run := deployment.state.running()) is not None
                and run.pid == process.pid  # noqa: B023 - looked at within this turn of the loop
                and deployment.status()["phase"] == "ready"
            ),
            "deployment in the foreground",
        )
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, output
        assert "Traceback" not in output
        assert deployment.processes() == []


def test_a_run_interrupted_by_a_second_ctrl_c_continues_after_the_next_up(
    deployment: Deployment,
) -> None:
    words = changes(ASKED)
    process = deployment.start("up", "--profile", "scripted", *words, "--set", f"{SLOW}=600")
    until(
        lambda: deployment.state.running() is not None and deployment.status()["phase"] == "ready",
        "deployment in the foreground",
    )
    asking = deployment.start("ask", "--json", QUESTION)
    until(lambda: any(w["busy"] for w in deployment.workers("gpu")), "a call that will not end")
    process.send_signal(signal.SIGINT)
    # The kernel delivers only one of two equal pending signals.
    until(lambda: deployment.status()["phase"] == "draining", "first Ctrl-C")
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, text
    assert text.count("leave their work to others") == 1
    assert "Traceback" not in text
    assert {p.pid for p in deployment.processes()} <= {asking.pid}
    deployment.up(kinds=ASKED)
    output, _ = asking.communicate(timeout=LIMIT)
    assert asking.returncode == 0, output
    assert '"answer":"29"' in output


def test_a_recorder_on_a_full_disk_reports_the_place_and_records_everything_later(
    deployment: Deployment,
) -> None:
    deployment.up(kinds=(*ASKED, "recorder"))
    recorder = psutil.Process(deployment.workers("recorder")[0]["pid"])
    soft, hard = recorder.rlimit(psutil.RLIMIT_FSIZE)
    recorder.rlimit(psutil.RLIMIT_FSIZE, (1, hard))
    run_id = deployment.ask(QUESTION)["run"]["id"]
    log = deployment.state.logs / "recorder-1.log"
    full = rf"{deployment.state.store}/\w+ can't be written to \(File too"
    until(lambda: re.search(full, log.read_text()), "word of the full disk")
    assert list(deployment.state.store.glob("*/*.parquet")) == []
    recorder.rlimit(psutil.RLIMIT_FSIZE, (soft, hard))
    trajectory = until(lambda: from_store(deployment.state.store, run_id), "recorded run")
    assert trajectory.answer == "29"
    assert "free some space" in log.read_text()
    assert recorder.is_running()


def test_a_frozen_worker_is_shown_as_silent_until_it_wakes(
    deployment: Deployment,
) -> None:
    deployment.up(kinds=("tool",))
    (worker,) = deployment.workers("tool")
    os.kill(worker["pid"], signal.SIGSTOP)
    until(lambda: deployment.workers("tool", "silent"), "word of its silence")
    os.kill(worker["pid"], signal.SIGCONT)
    until(lambda: deployment.workers("tool"), "tool worker that is back")


def test_a_port_in_use_stops_up_with_one_clear_error(deployment: Deployment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = deployment.run(
            *("up", "--detach", "--profile", "scripted"),
            *("--set", "redis.listen=tcp", "--set", f"redis.port={port}"),
        )
    assert process.returncode == 1
    assert f"port {port} on 127.0.0.1 can't be used" in process.stderr
    assert "Traceback" not in process.stderr
    assert deployment.processes() == []


def test_no_accepted_run_is_lost_if_the_port_is_taken_before_the_next_up(
    deployment: Deployment,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = ("redis.listen=tcp", f"redis.port={port}")
    deployment.up(*listen, kinds=ASKED)
    run_id = deployment.ask(QUESTION)["run"]["id"]
    deployment.ok("down")
    with socket.create_server(("127.0.0.1", port)):
        words = [word for item in listen for word in ("--set", item)]
        process = deployment.run("up", "--detach", "--profile", "scripted", *words)
        assert process.returncode == 1
        assert process.stderr.count("error: ") == 1
        assert "set redis.port to another one" in process.stderr
    deployment.up(*listen, kinds=())
    assert run_id in deployment.ok("runs", "ls")


def test_a_missing_api_key_stops_the_gpu_worker_with_one_clear_error(
    deployment: Deployment,
) -> None:
    words = changes(("planner", "gpu"))
    process = deployment.run(
        *("up", "--detach", "--profile", "scripted", *words),
        *("--set", "models.llm.engine=openai", "--set", "models.llm.model=gpt-4o"),
        env={"OPENAI_API_KEY": ""},
    )
    assert process.returncode == 1
    assert (
        process.stdout.count("the environment variable OPENAI_API_KEY is not set; set it to") == 1
    )
    assert "`runtime doctor` checks models and keys of this deployment (profile scripted)" in (
        process.stdout
    )
    assert process.stderr.count("error: ") == 1
    assert deployment.workers("planner"), "what needs no key goes on"


def test_a_worker_started_by_hand_joins_and_drains(deployment: Deployment) -> None:
    deployment.up(kinds=("planner", "gpu", "tool"))
    by_hand = deployment.start("worker", "slm")
    until(lambda: deployment.workers("slm"), "worker started by hand")
    assert deployment.ask(QUESTION)["answer"] == "29"
    by_hand.send_signal(signal.SIGTERM)
    output, _ = by_hand.communicate(timeout=LIMIT)
    assert by_hand.returncode == 0, output


def test_a_deployment_joins_an_external_server_and_leaves_it_running(
    deployment: Deployment, any_server: RedisProcess
) -> None:
    words = [*changes(ASKED), "--set", "bus.prefix=joined"]
    url = any_server.url
    output = deployment.ok("up", "-d", "--profile", "scripted", "--redis-url", url, *words)
    assert "bus: joined" in output
    assert "appendonly yes, appendfsync no: a power failure can lose what the kernel" in output
    assert deployment.ask(QUESTION)["answer"] == "29"
    elsewhere = deployment.ok(
        *("ask", "-q", "What is 6 * 7?", "--redis-url", url),
        env={"LOOPLINE_BUS__PREFIX": "joined", "LOOPLINE_PROFILE": "scripted"},
    )
    assert elsewhere.strip() == "42"
    deployment.ok("down")
    assert psutil.pid_exists(any_server.pid)


def test_without_an_installed_server_the_packaged_one_is_used(deployment: Deployment) -> None:
    """It also serves all tests of this module that are not marked `system`."""
    assert "bus: Valkey" in deployment.up(kinds=())


def test_the_command_line_of_a_worker_has_its_name_and_kind_but_no_redis_url(
    shared: Deployment,
) -> None:
    for worker in shared.status()["workers"]:
        command = psutil.Process(worker["pid"]).cmdline()
        assert worker["name"] in command
        assert worker["kind"] in command
        assert not any("redis://" in word or "unix://" in word for word in command)


@pytest.mark.parametrize("kind", ["slm", "recorder"])
def test_the_health_check_reports_whether_a_worker_of_this_host_is_ready(
    deployment: Deployment, kind: str
) -> None:
    deployment.up(kinds=())
    assert deployment.run("status", "--worker", kind).returncode == 1
    deployment.ok("scale", f"{kind}=1")
    until(lambda: deployment.run("status", "--worker", kind).returncode == 0, "health")
