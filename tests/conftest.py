"""Servers and buses for every test. Tests of the bus run against each available server."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
import structlog

from loopline.bus import Bus, BusSettings
from loopline.testing import RedisProcess, installed_servers, running_redis
from tests import bare
from tests.forked import start_by_copies
from tests.skips import summary

FLAVOURS = ("valkey", "redis")
SERVERS = installed_servers()
"""Values of this machine, also for tests that see none of them."""
TESTS = Path(__file__).parent

# Torch's threads spin while they wait for each other. When tests run in parallel on no more cores
# than there are tests, spinning takes as much time again as the computation.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The suite starts hundreds of processes, each of which would compile everything that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A program's output is buffered as it is for users.
os.environ.pop("PYTHONUNBUFFERED", None)
# Deployments of parallel tests would ask for the same port. A test of the gateway starts it with
# `--set workers.gateway.count=1`, on a free port.
os.environ["LOOPLINE_WORKERS__GATEWAY__COUNT"] = "0"

# Imports used to take most of the suite's time.
start_by_copies()

# A shell that starts a command in the background may make it and its children ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The time of an example depends on the machine's other load, and no test asserts it.
hypothesis.settings.register_profile(
    "suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")


SLOW_SECONDS = 900
"""Limit of a test marked `slow` without its own: on a busy machine with three other tests, one
minute of work takes several."""


DEPLOYMENTS = "runtime"
BEFORE_OTHERS = ("clients", "docs", "examples", DEPLOYMENTS, "trainers", "bench", "workers", "bus")
"""Folders of slow tests, in the order in which they start: those with the longest modules first."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests the time that they need, and start with them.

    Test processes take one module after another: with the short ones last, all processes finish at
    the same time. Modules of one folder stay together: several share one deployment, which ends
    when a process moves to another folder.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))
        if bare.is_system(item):
            item.add_marker(pytest.mark.system)

    def place(item: pytest.Item) -> tuple[bool, int]:
        folder = item.path.relative_to(TESTS).parts[0]
        rank = BEFORE_OTHERS.index(folder) if folder in BEFORE_OTHERS else len(BEFORE_OTHERS)
        return folder == DEPLOYMENTS or item.path not in slow, rank

    items.sort(key=place)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="sw-bare-")
        os.chmod(folder, 0o755)
        config.add_cleanup(lambda: shutil.rmtree(folder))
        bare.make_bare_path(Path(folder))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    with bare.shown(bare.is_system(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """Let shared fixtures see the same environment as most tests."""
    if fixturedef.scope not in ("session", "package"):
        return (yield)
    with bare.shown(False):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that was skipped for lack of something that this machine has."""
    report = yield
    if report.skipped and not bare.is_system(item) and (name := bare.hidden_by_us(_reason(report))):
        report.outcome = "failed"
        report.longrepr = f"{name} is here; mark the test `system`, or it never runs"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line about the tests that this machine could not run."""
    skipped: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    if line := summary(_reason(report) for report in skipped):
        terminalreporter.write_line(line)


def _reason(report: pytest.TestReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.fixture(autouse=True)
def unchanged_logging() -> Iterator[None]:
    """Undo what a command under test changed in the process's logging: otherwise it would affect
    the next test of this process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.captureWarnings(False)


@pytest.fixture(scope="session")
def _shared_servers() -> Iterator[dict[str, RedisProcess]]:
    """Start one server per flavour for the whole session; key prefixes separate the tests."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        started: dict[str, RedisProcess] = {}
        for flavour, binary in SERVERS.items():
            process = RedisProcess(Path(folder) / flavour, binary=binary)
            process.start()
            started[flavour] = process
        yield started
        for process in started.values():
            process.kill()


@pytest.fixture(params=FLAVOURS)
def shared_server(
    request: pytest.FixtureRequest, _shared_servers: dict[str, RedisProcess]
) -> RedisProcess:
    """A running server that other tests also use. Don't flush, stop or configure it."""
    if request.param not in _shared_servers:
        pytest.skip(f"no {request.param} server on this machine (install redis-server)")
    return _shared_servers[request.param]


@pytest.fixture
def any_server(_shared_servers: dict[str, RedisProcess]) -> RedisProcess:
    """One running server for tests that do not depend on its flavour: the package's, where
    available."""
    return _shared_servers.get("valkey") or next(iter(_shared_servers.values()))


@pytest.fixture(params=FLAVOURS)
def own_server(request: pytest.FixtureRequest) -> Iterator[RedisProcess]:
    """A separate server for one test, to kill, pause and flush."""
    if request.param not in SERVERS:
        pytest.skip(f"no {request.param} server on this machine (install redis-server)")
    with (
        tempfile.TemporaryDirectory(prefix="sw-") as folder,
        running_redis(Path(folder), binary=SERVERS[request.param]) as process,
    ):
        yield process


@pytest.fixture
def settings(shared_server: RedisProcess, request: pytest.FixtureRequest) -> BusSettings:
    """Settings with short times, so that tests see recovery, and with a separate prefix."""
    marker = request.node.get_closest_marker("bus_settings")
    return quick_settings(shared_server.url, **(marker.kwargs if marker else {}))


def quick_settings(url: str, **changes: object) -> BusSettings:
    values: dict[str, object] = {
        "redis_url": url,
        "prefix": f"t{uuid.uuid4().hex[:8]}",
        "lease_seconds": 0.6,
        "block_seconds": 0.1,
        "sweep_seconds": 0.05,
        "retry_base_seconds": 0.02,
    }
    return BusSettings.model_validate(values | changes)


@pytest.fixture
async def bus(settings: BusSettings) -> AsyncIterator[Bus]:
    async with Bus(settings) as bus:
        yield bus
