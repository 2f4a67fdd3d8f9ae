"""The core, installed without an extra, serves, records and reports; only models need more."""

from __future__ import annotations

import re
import subprocess
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMIT = 120
IMPORT_ALL = """
import importlib, pkgutil
for part in ("agents", "bus", "runtime"):
    package = importlib.import_module(f"loopline.{part}")
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def core_distributions() -> list[metadata.Distribution]:
    """The core's dependencies, those of dependencies included, as far as this platform has them."""
    text = (ROOT / "requirements-core.txt").read_text()
    names = re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)
    assert len(names) > 20
    installed = {
        re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower(): distribution
        for distribution in metadata.distributions()
    }
    return [installed[name] for name in names if name in installed]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with this checkout and the core's dependencies, as links."""
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for distribution in core_distributions():
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    (site / "checkout.pth").write_text(f"{ROOT}\n")
    return folder / "bin"


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT
    )


def test_agents_bus_and_runtime_import_with_the_core_alone(core: Path, tmp_path: Path) -> None:
    process = run([core / "python", "-P", "-c", IMPORT_ALL], tmp_path)
    assert process.returncode == 0, process.stderr


def test_doctor_runs_in_the_core_alone_and_reports_what_is_missing(
    core: Path, tmp_path: Path
) -> None:
    process = run([core / "python", "-P", "-m", "loopline", "doctor"], tmp_path)
    assert "torch is not installed" in process.stdout
    assert "delegation" in process.stdout
    assert "Traceback" not in process.stderr


def test_bench_gsm8k_in_the_core_alone_asks_for_its_data(core: Path, tmp_path: Path) -> None:
    process = run([core / "python", "-P", "-m", "loopline", "bench", "gsm8k"], tmp_path)
    assert process.returncode != 0
    assert "--data" in process.stderr
    assert "not installed" not in process.stderr
