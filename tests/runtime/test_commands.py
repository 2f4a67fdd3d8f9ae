"""The commands on one running deployment, and their errors for input that can't be used."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from loopline.runtime.config.settings import load_resolved_file
from loopline.runtime.errors import EXIT_CONFIG, EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE
from loopline.testing import RedisProcess
from tests.runtime.conftest import ASKED, LIMIT, Deployment, until, without_planners

pytestmark = pytest.mark.timeout(300)

QUESTION = "Tom has 3 boxes of 12 apples and gives away 7. How many are left?"


@pytest.fixture(scope="module")
def run_id(shared: Deployment) -> str:
    """A run that has ended."""
    return shared.ask(QUESTION)["run"]["id"]


def one_error(process: object) -> str:
    """The message of a command that failed with one clear error."""
    stderr: str = getattr(process, "stderr", "")
    assert "Traceback" not in stderr
    assert stderr.count("error: ") == 1, stderr
    return stderr


# -- asking --------------------------------------------------------------------------------------


def test_ask_shows_the_dialogue_with_tokens_and_milliseconds(shared: Deployment) -> None:
    output = shared.ok("ask", QUESTION)
    assert "delegates 1 problem" in output
    assert "answers 36" in output
    assert "answers 29" in output
    assert " tokens" in output
    assert " ms" in output
    assert "answer  29" in output
    assert "\x1b" not in output, "plain where the output is not a terminal"


def test_a_streamed_dialogue_shows_each_text_once(shared: Deployment) -> None:
    output = shared.ok("ask", "--stream", QUESTION)
    assert output.count("36 - 7 = 29.") == 1
    assert "<tool_call>" not in output, "the call is shown as what it hands over"


def test_ask_reads_a_question_from_stdin_and_can_answer_tersely(shared: Deployment) -> None:
    assert shared.ok("ask", "-q", "-", stdin=QUESTION.encode()).strip() == "29"


def test_ask_accepts_another_workflow_and_another_model(shared: Deployment) -> None:
    answer = shared.ask("What is 6 * 7?", "--workflow", "solo", "--policy", "solo=slm")
    assert answer["answer"] == "42"
    assert answer["steps"][0]["candidates"][0]["calls"][0]["policy"]["name"] == "slm"


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (b"x" * 10_000_000, "200,000 characters"),
        (b"x" * 200_001, "200,001 characters; the limit is 200,000"),
        (b"caf\xe9?", "not UTF-8 (byte 3 is 0xe9)"),
        (b" \n ", "empty"),
    ],
    ids=["ten megabytes", "one too many", "latin-1", "blank"],
)
def test_a_question_that_cannot_be_used_is_one_clear_error(
    shared: Deployment, stdin: bytes, says: str
) -> None:
    process = shared.run("ask", "-", stdin=stdin)
    assert process.returncode == EXIT_USAGE
    assert says in one_error(process)


def test_a_question_on_the_command_line_that_is_not_utf8_is_one_clear_error(
    shared: Deployment,
) -> None:
    process = shared.run("ask", os.fsdecode(b"caf\xe9?"))
    assert process.returncode == EXIT_USAGE
    assert "not UTF-8 (at character 3)" in one_error(process)
    assert "iconv" in process.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--workflow", "delegat"], "did you mean 'delegate'?"),
        (["--policy", "solo=big"], "no pool 'big'"),
        (["--policy", "solo"], "not ROLE=POOL"),
        (["--policy", "plannr=llm"], "did you mean 'planner'?"),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(
    shared: Deployment, options: list[str], says: str
) -> None:
    process = shared.run("ask", QUESTION, *options)
    assert process.returncode == EXIT_USAGE
    assert says in one_error(process)


@pytest.mark.parametrize("options", [[], ["--workflow", "solo"]])
def test_a_tool_for_a_workflow_that_offers_none_is_an_error(
    shared: Deployment, options: list[str]
) -> None:
    process = shared.run("ask", QUESTION, "--tool", "calculate", *options)
    assert process.returncode == EXIT_USAGE
    workflow = options[-1] if options else "delegate"
    assert f"the workflow {workflow!r} offers its models no tools" in one_error(process)
    assert "--workflow umi" in process.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "there is no question"),
        ([QUESTION, "--world", "1"], "or --world, not both"),
        (["--world", "1"], "offers its models no tools"),
        (["--world", "1", "--workflow", "umi", "--tool", "calculate"], "leave out --tool"),
        (["--world", "1", "--workflow", "umi", "--option", "calls=3"], "known options: calculator"),
        ([QUESTION, "--option", "calls"], "not NAME=VALUE"),
    ],
)
def test_options_of_ask_that_cannot_be_used_are_one_error(
    shared: Deployment, words: list[str], says: str
) -> None:
    process = shared.run("ask", *words)
    assert process.returncode == EXIT_USAGE
    assert says in one_error(process)


def test_a_run_past_its_deadline_fails_with_the_reason(shared: Deployment) -> None:
    without_planners(shared)
    process = shared.run("ask", QUESTION, "--seconds", "0.3")
    shared.ok("scale", "planner=1")
    until(lambda: shared.workers("planner"), "planner")
    assert process.returncode == EXIT_FAILED
    assert "no worker serves planner, expert" in process.stderr
    assert "deadline" in process.stdout


# -- runs ----------------------------------------------------------------------------------------


def test_runs_are_listed_shown_and_replayed_from_the_journal(
    shared: Deployment, run_id: str
) -> None:
    heading, *lines = shared.ok("runs", "ls").splitlines()
    line = next(line for line in lines if line.startswith(run_id))
    assert line.split()[1:3] == ["answered", "delegate"]
    assert line[heading.index("answer") :].startswith("29 ")
    assert line[heading.index("question") :].startswith("Tom")
    listed = json.loads(shared.ok("runs", "ls", "--json"))
    assert next(line for line in listed if line["id"] == run_id)["answer"] == "29"
    assert "answer  29" in shared.ok("runs", "show", run_id[9:])
    assert "3 of 3 steps came out as recorded" in shared.ok("runs", "replay", run_id)


def test_a_run_on_the_bus_can_be_written_as_a_page(
    shared: Deployment, run_id: str, tmp_path: Path
) -> None:
    output = shared.ok("runs", "show", run_id[9:], "--html", str(tmp_path / "run.html"))
    assert f"the page of run {run_id}" in output
    page = (tmp_path / "run.html").read_text()
    assert run_id in page
    assert page.count('<section class="step') == 3
    process = shared.run("runs", "show", run_id, "--html", str(tmp_path / "nowhere" / "run.html"))
    assert process.returncode == EXIT_USAGE
    assert "can't be written: No such file" in one_error(process)


@pytest.mark.parametrize("turn", [0, 1, 3])
def test_a_fork_keeps_the_journal_before_its_turn_and_continues_on_its_own(
    shared: Deployment, run_id: str, turn: int
) -> None:
    forked = json.loads(shared.ok("runs", "fork", run_id, "--at", str(turn), "--json"))
    parent = json.loads(shared.ok("runs", "show", run_id, "--json"))
    early_steps = [step for step in parent["steps"] if step["turn"] < turn]
    assert forked["run"]["parent"] == run_id
    assert forked["answer"] == "29"
    assert [step["candidates"] for step in forked["steps"][: len(early_steps)]] == [
        step["candidates"] for step in early_steps
    ]
    assert "as recorded" in shared.ok("runs", "replay", forked["run"]["id"])


def test_a_fork_beyond_the_end_is_refused(shared: Deployment, run_id: str) -> None:
    process = shared.run("runs", "fork", run_id, "--at", "9")
    assert process.returncode == EXIT_USAGE
    assert "turns 0 to 3" in one_error(process)


@pytest.mark.parametrize("unknown", ["ffffffff-ffff-7fff-bfff-ffffffffffff", "zzzz", "a"])
def test_an_unknown_run_is_one_clear_error(shared: Deployment, unknown: str) -> None:
    process = shared.run("runs", "show", unknown)
    assert process.returncode != 0
    assert unknown in one_error(process)


def test_an_old_run_is_found_in_the_store(shared: Deployment, run_id: str) -> None:
    from loopline.runtime.observe.recorded_runs import from_store

    trajectory = until(lambda: from_store(shared.state.store, run_id), "recorded trajectory")
    assert trajectory.answer == "29"


def test_a_run_can_be_cancelled_while_it_waits(shared: Deployment) -> None:
    without_planners(shared)
    asking = shared.start("ask", "--json", QUESTION)
    active = until(
        lambda: json.loads(shared.ok("runs", "ls", "--active", "--json")), "run in flight"
    )
    assert shared.ok("runs", "ls", "--active").count("active") == 1
    shared.ok("runs", "cancel", active[0]["id"])
    output, _ = asking.communicate(timeout=60)
    shared.ok("scale", "planner=1")
    until(lambda: shared.workers("planner"), "planner")
    assert asking.returncode == EXIT_FAILED
    assert '"outcome":"cancelled"' in output
    assert shared.ok("runs", "show", active[0]["id"]).count("cancelled") == 1
    process = shared.run("runs", "cancel", active[0]["id"])
    assert "has ended" in one_error(process)


def test_ctrl_c_cancels_the_run_and_says_so(shared: Deployment) -> None:
    without_planners(shared)
    asking = shared.start("ask", QUESTION)
    active = until(
        lambda: json.loads(shared.ok("runs", "ls", "--active", "--json")), "run in flight"
    )
    asking.send_signal(signal.SIGINT)
    output, _ = asking.communicate(timeout=LIMIT)
    shared.ok("scale", "planner=1")
    until(lambda: shared.workers("planner"), "planner")
    assert asking.returncode == 130
    assert f"cancelled (run {active[0]['id']})" in output


# -- watching ------------------------------------------------------------------------------------


def test_status_shows_every_worker_with_its_version_and_the_lag(shared: Deployment) -> None:
    status = json.loads(shared.ok("status", "--json"))
    assert status["phase"] == "ready"
    kinds = {worker["kind"] for worker in status["workers"]}
    assert kinds == {"planner", "slm", "gpu", "tool", "recorder", "jobs"}
    assert all(worker["version"] for worker in status["workers"])
    assert {"role:planner", "role:slm", "infer:llm", "tools"} <= {
        stream["name"] for stream in status["streams"]
    }
    output = shared.ok("status")
    assert "gpu-1." in output
    assert "llm: scripted-llm" in output
    assert status["redis"]["memory_bytes"] > 0
    assert " MiB\n" in output


def test_top_repeats_the_status_until_it_is_interrupted(shared: Deployment) -> None:
    process = shared.start("top", "--every", "0.1")
    assert process.stdout is not None
    heads = 0
    while heads < 2:
        heads += "runs in flight" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 0


def test_the_password_is_in_no_output_and_in_no_log(shared: Deployment, run_id: str) -> None:
    run = shared.state.running()
    assert run is not None
    password = run.redis_url.split(":")[2].partition("@")[0]
    outputs = [
        shared.ok("status", "--json"),
        shared.ok("status"),
        shared.ok("config"),
        shared.ok("doctor", "-p", "scripted"),
        shared.ok("runs", "show", run_id, "--json"),
        *(log.read_text() for log in shared.state.logs.glob("*.log")),
    ]
    assert not any(password in output for output in outputs)


def test_logs_are_shown_for_one_kind_or_for_all(shared: Deployment, run_id: str) -> None:
    steps = [json.loads(line) for line in shared.ok("logs", "planner", "-n", "1000").splitlines()]
    assert any(line.get("run_id") == run_id and line["event"] == "step" for line in steps)
    assert "slm-1 " in shared.ok("logs")
    process = shared.run("logs", "plannr")
    assert "planner" in one_error(process)


def test_an_empty_list_of_dead_letters_is_reported_and_an_unknown_letter_is_an_error(
    shared: Deployment,
) -> None:
    assert "no dead letters" in shared.ok("dead", "ls")
    assert shared.ok("dead", "ls", "--json") == "[]\n"
    for command in ("show", "replay"):
        process = shared.run("dead", command, "0/1-1")
        assert process.returncode == EXIT_USAGE
        assert "no dead letter" in one_error(process)
    assert "give the ID of a letter, or --all" in one_error(shared.run("dead", "purge"))


@pytest.mark.parametrize(("body", "expected_envelope"), [
    (b"caf\xe9", "caf\ufffd"), (b'{"caf\xc3\xa9": 1}', {"café": 1}),
    (b"\xc2\x9b2J\x1b[2J", "\x9b2J\x1b[2J"),
])  # fmt: skip
def test_a_malformed_message_is_listed_with_its_reason_and_shown_whole(
    shared: Deployment, body: bytes, expected_envelope: object
) -> None:
    run = shared.state.running()
    assert run is not None
    prefix = load_resolved_file(shared.state.resolved).bus.prefix
    with redis.Redis.from_url(run.redis_url) as admin:
        admin.xadd(f"{{{prefix}:0}}:work:role:planner", {"e": body})
    [letter] = until(lambda: json.loads(shared.ok("dead", "ls", "--json")), "dead letter")
    heading, listed = shared.ok("dead", "ls").splitlines()
    assert heading.split() == ["letter", "stream", "run", "reason"]
    assert listed.index("MalformedEnvelope: not an envelope: ") == heading.index("reason")
    output = shared.ok("dead", "show", letter["id"])
    assert json.loads(output)["envelope"] == expected_envelope
    assert not set(output + listed) & {"\x9b", "\x1b"}, "a terminal would obey these"
    refused = one_error(shared.run("dead", "replay", letter["id"]))
    assert f"dead letter {letter['id']} can't be replayed: not an envelope" in refused
    assert f"`runtime dead purge {letter['id']}` deletes it" in refused
    shared.ok("dead", "purge", letter["id"])


# -- without a deployment ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["ask", "hi"], ["status"], ["runs", "ls"], ["dead", "ls"], ["jobs"], ["down"]]
)
def test_without_a_deployment_every_command_says_how_to_start_one(
    nowhere: Deployment, command: list[str]
) -> None:
    process = nowhere.run(*command)
    assert process.returncode == EXIT_UNREACHABLE
    assert "runtime up" in one_error(process)


@pytest.mark.parametrize("command", [["ask", "hi"], ["status"], ["worker", "slm"], ["up"]])
def test_a_redis_that_does_not_answer_is_one_clear_error_without_its_password(
    nowhere: Deployment, command: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = f"redis://:the-password@127.0.0.1:{port}/0"
    process = nowhere.run(
        *command, env={"LOOPLINE_BUS__REDIS_URL": url, "LOOPLINE_PROFILE": "scripted"}
    )
    assert process.returncode == EXIT_UNREACHABLE
    assert f"127.0.0.1:{port}" in one_error(process)
    assert "the-password" not in process.stdout + process.stderr


def test_a_wrong_password_is_distinguished_from_an_unreachable_server(
    nowhere: Deployment, any_server: RedisProcess
) -> None:
    with redis.Redis.from_url(any_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "guarded", "on", ">right", "~*", "+@all")
    wrong = any_server.url.replace("unix://", "unix://guarded:wrong@")
    process = nowhere.run("status", "--redis-url", wrong, "--profile", "scripted")
    assert process.returncode == EXIT_UNREACHABLE
    assert "refused the password" in one_error(process)
    assert "wrong@" not in process.stderr


@pytest.mark.parametrize("command", ["up", "doctor"])
def test_a_full_redis_is_one_clear_error(
    nowhere: Deployment, own_server: RedisProcess, command: str
) -> None:
    with redis.Redis.from_url(own_server.url) as admin:
        admin.config_set("maxmemory", "1")
    process = nowhere.run(command, "--redis-url", own_server.url, "--profile", "scripted")
    assert process.returncode == (EXIT_UNREACHABLE if command == "up" else EXIT_FAILED)
    message = one_error(process) if command == "up" else process.stdout
    assert own_server.url in message
    assert "it is full: raise its maxmemory" in message


def test_a_redis_replica_is_one_clear_error(nowhere: Deployment, own_server: RedisProcess) -> None:
    with redis.Redis.from_url(own_server.url) as admin:
        admin.replicaof("127.0.0.1", "1")
    process = nowhere.run("up", "--redis-url", own_server.url, "--profile", "scripted")
    assert process.returncode == EXIT_UNREACHABLE
    assert "put the address of its primary into redis_url" in one_error(process)


def test_ask_waits_until_a_full_redis_has_room_and_keeps_stdout_json(
    deployment: Deployment,
) -> None:
    deployment.up(kinds=ASKED)
    run = deployment.state.running()
    assert run is not None
    with redis.Redis.from_url(run.redis_url) as admin:
        admin.config_set("maxmemory", "1")
        command = [sys.executable, "-m", "loopline.runtime", "ask", "--json", QUESTION]
        with subprocess.Popen(
            command, env=deployment.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as asking:
            assert asking.stderr is not None
            assert b"redis away" in asking.stderr.readline()
            admin.config_set("maxmemory", "0")
            output, errors = asking.communicate(timeout=LIMIT)
    assert asking.returncode == 0, errors
    assert json.loads(output)["answer"] == "29"


def test_a_typo_in_the_configuration_ends_every_command_with_its_own_exit_code(
    nowhere: Deployment,
) -> None:
    for command in ("up", "config", "doctor"):
        process = nowhere.run(command, "--set", "bus.lease_secnds=3")
        assert process.returncode == EXIT_CONFIG
        assert "did you mean bus.lease_seconds?" in one_error(process)


def test_help_does_not_wait_for_heavy_imports(nowhere: Deployment) -> None:
    nowhere.ok("--help")  # compiles
    began = time.process_time()
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    nowhere.ok("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert spent < 0.4, f"{spent:.2f} s of CPU (parent {time.process_time() - began:.2f} s)"
