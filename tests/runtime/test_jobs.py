"""Offline jobs: a queued benchmark outlives its terminal and its worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import redis

from loopline.bus.connection import OUTAGE
from loopline.runtime.config.settings import Settings, load_resolved_file
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import InputError
from loopline.runtime.jobs import queue as jobs
from loopline.runtime.jobs.requests import JobRequest, require_allowed
from loopline.testing import RedisProcess
from tests.runtime.conftest import Deployment, changes, until

pytestmark = pytest.mark.timeout(400)

WORKING = ("planner", "gpu", "tool", "jobs")
"""The kinds of workers that run a queued benchmark of only the big model."""
SLOW = "models.llm.scripted.latency_seconds=0.5"


def queue(deployment: Deployment, output: Path, samples: int) -> str:
    """Run `runtime jobs add bench wordproblems …`; returns the job's id."""
    reply = deployment.ok(
        *("jobs", "add", "bench", "wordproblems", "--arms", "llm", "--samples", str(samples)),
        *("--concurrency", "2", "--output", str(output)),
    )
    return reply.split()[1]


def all_listed(deployment: Deployment) -> list[jobs.JobView]:
    """The output of `runtime jobs ls --json`, without starting a process each time."""
    settings = load_resolved_file(deployment.state.resolved)
    listed, unreadable = asyncio.run(jobs.list_jobs(settings))
    assert unreadable == []
    return listed


def listed(deployment: Deployment, job_id: str) -> jobs.JobView:
    return next(job for job in all_listed(deployment) if job.id == job_id)


def benches(deployment: Deployment) -> list[psutil.Process]:
    processes: list[psutil.Process] = []
    for process in deployment.processes():
        # A process that has exited since it was listed does not count.
        with suppress(psutil.NoSuchProcess):
            if any("loopline.bench.cli" in word for word in process.cmdline()):
                processes.append(process)
    return processes


def test_a_queued_benchmark_runs_and_is_listed_with_its_results(
    shared: Deployment, tmp_path: Path
) -> None:
    output = tmp_path / "results"
    job_id = queue(shared, output, samples=4)
    job = until(lambda: (j := listed(shared, job_id)).state in ("done", "failed") and j, "end")
    assert job.state == "done", shared.ok("jobs", "log", job_id)
    assert job.output == str(output)
    assert (output / "report.html").exists()
    (entry,) = [j for j in json.loads(shared.ok("jobs", "ls", "--json")) if j["id"] == job_id]
    assert (entry["state"], entry["output"]) == ("done", str(output))
    listing = shared.ok("jobs")
    assert f"{job_id}  done" in listing
    assert f"results: {output}" in listing


def test_the_jobs_worker_survives_the_death_of_redis(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.up("supervisor.crash_loop_deaths=2", kinds=WORKING)
    [before] = deployment.workers("jobs")
    os.kill(deployment.status()["redis"]["pid"], signal.SIGKILL)
    until(lambda: deployment.status()["redis"]["restarts"] == 1, "Redis again")
    job_id = queue(deployment, tmp_path / "results", samples=2)
    until(lambda: listed(deployment, job_id).state == "done", "end of the job")
    [after] = deployment.workers("jobs")
    assert after["pid"] == before["pid"]


def test_a_command_of_bench_or_train_can_be_queued_but_no_other_program(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.up(kinds=("jobs",))
    wrong = deployment.run("jobs", "add", "rm", "-rf", "nothing")
    assert "'rm' is not a program that jobs run; those are bench, train" in wrong.stderr
    folder = tmp_path / "worlds"
    output = deployment.ok("jobs", "add", "train", "worlds", str(folder), "--samples", "2")
    job_id = output.split()[1]
    job = until(lambda: (j := listed(deployment, job_id)).state in ("done", "failed") and j, "end")
    assert job.state == "done", deployment.ok("jobs", "log", job_id)
    assert job.command == f"train worlds {folder} --samples 2"
    assert list(folder.iterdir())


def test_a_benchmark_cannot_be_queued_into_the_results_of_another(
    shared: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "manifest.json").write_text("{}")
    with pytest.raises(AssertionError, match="already holds a benchmark"):
        queue(shared, tmp_path / "results", samples=2)


@pytest.mark.slow
def test_a_job_whose_worker_is_killed_is_resumed_by_the_next_worker(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.up(SLOW, "jobs.claim_seconds=1", kinds=WORKING)
    output = tmp_path / "results"
    job_id = queue(deployment, output, samples=12)
    items = output / "items.jsonl"
    until(lambda: items.exists() and '"answer' in items.read_text(), "first stored answer")
    (worker,) = deployment.workers("jobs")
    os.kill(worker["pid"], signal.SIGKILL)
    job = until(lambda: (j := listed(deployment, job_id)).state in ("done", "failed") and j, "end")
    assert job.state == "done", deployment.ok("jobs", "log", job_id)
    report = json.loads((output / "report.json").read_text())
    assert (report["results"]["complete"], len(report["results"]["items"])) == (True, 12)


def test_a_job_whose_claim_expired_in_an_outage_is_left_to_the_worker_that_renews_it() -> None:
    unclaimed = jobs.UnclaimedJobs(claim_seconds=30)
    looks = [unclaimed.gone({"job"}, now) for now in (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)]
    assert looks == [[]] * 6, "a worker renews its claim every ten seconds"
    assert unclaimed.gone((), 11.0) == []
    assert unclaimed.gone({"job"}, 20.0) == [], "another time, counted from its beginning"
    assert unclaimed.gone({"job"}, 34.0) == []


def test_a_job_without_a_claim_for_half_a_claims_lifetime_is_released_once() -> None:
    unclaimed = jobs.UnclaimedJobs(claim_seconds=30)
    assert unclaimed.gone({"left", "late"}, 0.0) == []
    assert unclaimed.gone({"left"}, 15.0) == ["left"]
    assert unclaimed.gone({"left"}, 15.1) == [], "another worker has it, and claims it in a moment"


def test_observations_from_before_an_outage_release_no_job_after_it() -> None:
    unclaimed = jobs.UnclaimedJobs(claim_seconds=30)
    assert unclaimed.gone({"job"}, 0.0) == []
    unclaimed.forget()
    assert unclaimed.gone({"job"}, 60.0) == []


@pytest.mark.slow
def test_cancelling_a_running_job_stops_it(deployment: Deployment, tmp_path: Path) -> None:
    deployment.up(kinds=("jobs",))  # no worker answers, so runs in flight stay
    job_id = queue(deployment, tmp_path / "results", samples=12)
    until(lambda: (tmp_path / "results" / "manifest.json").exists(), "begun benchmark")
    assert f"{job_id}: cancelling" in deployment.ok("jobs", "cancel", job_id)
    states: list[str] = []

    def over() -> bool:
        running = bool(benches(deployment))  # before the state, which may only lag
        states.append(listed(deployment, job_id).state)
        return states[-1] == "cancelled" and not running

    until(over, "cancelled job")
    assert set(states) <= {"cancelling", "cancelled"}
    process = deployment.run("jobs", "cancel", job_id)
    assert "has ended" in process.stderr


@pytest.mark.slow
def test_a_job_continues_after_an_outage_of_redis_and_can_be_cancelled(
    deployment: Deployment, own_server: RedisProcess, tmp_path: Path
) -> None:
    redis_options = ("--set", f"bus.redis_url={own_server.url}")
    deployment.ok("up", "--detach", "--profile", "scripted", *changes(("jobs",)), *redis_options)
    job_id = queue(deployment, tmp_path / "results", samples=12)
    until(lambda: deployment.status()["runs_in_flight"] > 0, "a benchmark on the bus")
    [before] = deployment.workers("jobs")
    [running] = benches(deployment)
    own_server.stop()
    log = deployment.state.logs / f"{before['name'].partition('.')[0]}.log"
    until(lambda: "waiting for the bus" in log.read_text(), "the worker has noticed")
    own_server.start()
    # At first, Redis still has what was announced before the job started.
    until(lambda: any(worker["busy"] for worker in deployment.workers("jobs")), "it is there again")
    [after] = deployment.workers("jobs")
    assert after["pid"] == before["pid"]
    assert benches(deployment) == [running]
    deployment.ok("jobs", "cancel", job_id)
    until(lambda: listed(deployment, job_id).state == "cancelled", "cancelled job")
    assert benches(deployment) == []


def test_a_cancelled_job_in_the_queue_is_shown_as_cancelling_until_a_worker_drops_it(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.up(kinds=())
    job_id = queue(deployment, tmp_path / "results", samples=1)
    deployment.ok("jobs", "cancel", job_id)
    assert listed(deployment, job_id).state == "cancelling"
    narrow = deployment.ok("jobs", env={"COLUMNS": "60"}).splitlines()[1]
    assert narrow.startswith(f"{job_id}  cancelling")
    assert (len(narrow), narrow[-1]) == (60, "…")
    deployment.ok("scale", "jobs=1")
    until(lambda: listed(deployment, job_id).state == "cancelled", "cancelled job")
    assert not (tmp_path / "results").exists()


def test_a_job_that_ends_during_a_listing_is_listed_as_ended(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.up(kinds=())
    ended = queue(deployment, tmp_path / "ended", samples=1)
    waiting = queue(deployment, tmp_path / "waiting", samples=1)
    run = deployment.state.running()
    assert run is not None
    with redis.Redis.from_url(run.redis_url) as connection:
        # As if a listing read the queue before the job ended, and its request afterwards.
        connection.delete(f"arq:job:{ended}")
    assert listed(deployment, waiting).state == "queued"
    deployment.ok("scale", "jobs=1")
    job = until(
        lambda: next((j for j in all_listed(deployment) if j.id == ended), None), "ended job"
    )
    assert (job.state, job.command) == ("failed", "")
    assert "expired" in job.reason


def test_results_of_other_programs_on_the_same_redis_are_not_listed(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.up(kinds=())
    job_id = queue(deployment, tmp_path / "results", samples=1)
    run = deployment.state.running()
    assert run is not None
    with redis.Redis.from_url(run.redis_url) as connection:
        connection.set("arq:result:another", b"\x80\x04\x95 as pickle begins", ex=3600)
    assert [job.id for job in all_listed(deployment)] == [job_id]


def test_a_job_uses_the_bus_of_its_deployment_even_if_the_environment_sets_another(
    deployment: Deployment, any_server: RedisProcess, tmp_path: Path
) -> None:
    redis_options = ("--set", f"bus.redis_url={any_server.url}", "--set", "bus.prefix=job-bus")
    elsewhere = {"LOOPLINE_BUS__REDIS_URL": "redis://127.0.0.1:1/0"}
    words = (*changes(WORKING), *redis_options)
    deployment.ok("up", "--detach", "--profile", "scripted", *words, env=elsewhere)
    job_id = queue(deployment, tmp_path / "results", samples=1)
    job = until(lambda: (j := listed(deployment, job_id)).state in ("done", "failed") and j, "end")
    assert job.state == "done", deployment.ok("jobs", "log", job_id)


def test_the_queue_contains_json_and_never_pickle(deployment: Deployment, tmp_path: Path) -> None:
    deployment.up(kinds=())
    job_id = queue(deployment, tmp_path / "results", samples=1)
    assert listed(deployment, job_id).state == "queued"
    run = deployment.state.running()
    assert run is not None
    with redis.Redis.from_url(run.redis_url) as connection:
        raw = connection.get(f"arq:job:{job_id}")
        assert isinstance(raw, bytes)
        assert json.loads(raw)["f"] == jobs.FUNCTION
        for key in connection.scan_iter("*job*"):
            assert connection.ttl(key) != -1, f"{key} would live for ever"


def test_an_error_of_a_job_is_stored_on_the_queue_as_text() -> None:
    written = json.loads(jobs.to_json({"r": ValueError("x"), "c": asyncio.CancelledError()}))
    assert written == {"r": "ValueError: x", "c": "cancelled"}


def test_a_foreign_program_is_refused_as_a_job() -> None:
    with pytest.raises(ValueError, match="program"):
        JobRequest.model_validate({"program": "sh", "argv": ["-c", "true"], "cwd": "/"})


def test_a_job_for_a_folder_outside_the_deployment_is_refused(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Anyone who can write to Redis can queue one without the check of `runtime jobs add`."""
    deployment.up(kinds=("jobs",))
    settings = load_resolved_file(deployment.state.resolved)
    request = JobRequest(program="bench", argv=["--help"], cwd=str(tmp_path))
    job_id = asyncio.run(jobs.enqueue(settings, request))
    ended = until(lambda: (job := listed(deployment, job_id)).state == "failed" and job, "refusal")
    assert "must run in a folder of the deployment" in ended.reason
    assert not (deployment.state.jobs / job_id).exists()


@pytest.mark.parametrize(
    "option", ["--unsafe-exec", "--batched-bench=/bin/sh", "--redis-url=redis://:secret@bus/0"]
)
def test_a_job_that_disables_isolation_runs_a_program_or_shows_a_password_is_refused(
    tmp_path: Path, option: str
) -> None:
    request = JobRequest(program="bench", argv=["code", option], cwd=str(Path.cwd()))
    with pytest.raises(InputError, match=option.partition("=")[0]):
        require_allowed(request, StateDirectory(tmp_path / "state"))
    require_allowed(
        request.model_copy(update={"argv": ["code"], "cwd": str(Path.cwd())}),
        StateDirectory(tmp_path / "state"),
    )


async def test_a_server_that_accepts_a_command_but_never_answers_is_unavailable(
    own_server: RedisProcess,
) -> None:
    """As on a network that drops packets: a claim is renewed over a new connection in time."""
    settings = Settings.model_validate(
        {"bus": {"redis_url": own_server.url}, "jobs": {"claim_seconds": 0.5}}
    )
    pool = await jobs.connect(settings)
    own_server.pause()
    with pytest.raises(OUTAGE, match="Timeout reading"):
        await pool.ping()
    own_server.resume()
    await pool.ping()
    await pool.aclose(close_connection_pool=True)


async def test_cancelling_an_unknown_job_is_one_clear_error(shared: Deployment) -> None:
    run = shared.state.running()
    assert run is not None
    with pytest.raises(InputError, match="not known"):
        await jobs.cancel(load_resolved_file(shared.state.resolved), "nothing")
