"""Install hints for missing packages, in the same words in every message."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTIONS = {
    "llama_cpp": "llama-cpp-python",
    "mlflow": "mlflow-skinny",
    "mcp_types": "mcp-types",
    "yaml": "pyyaml",
}
"""Modules whose distribution has a different name, apart from `_` and `-`."""
_FIRST = ("torch", "bench", "tools", "gguf", "train")
"""Extras to suggest before others that contain the same package."""


def install_hint(extra: str) -> str:
    """Return the command that installs an extra of `pyproject.toml`: from this checkout with the
    tested versions, or from the package index."""
    if not is_checkout():
        return f"pip install 'loopline[{extra}]'"
    if extra == "gguf":  # It is compiled, which takes a while and has a separate target.
        return "in the checkout: make gguf"
    return f"in the checkout: pip install --constraint constraints.txt --editable '.[{extra}]'"


def is_checkout() -> bool:
    """Whether this code runs from a checkout of the project, not from an installed wheel."""
    return (Path(__file__).resolve().parents[1] / "pyproject.toml").is_file()


def require(*modules: str) -> None:
    """Raise ModuleNotFoundError here rather than let an import fail in a child process."""
    for module in modules:
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def missing_package_hint(error: ModuleNotFoundError) -> str | None:
    """The user's message about a missing package. None for one of our own modules or a package that
    no extra contains: both are bugs."""
    module = (error.name or "").partition(".")[0]
    name = DISTRIBUTIONS.get(module, module.replace("_", "-")).lower()
    matching = [extra for extra, names in extras().items() if name in names]
    if not matching:
        return None
    wanted = [_extra_of(error), *_FIRST, *matching]
    extra = next(requirement for requirement in wanted if requirement in matching)
    return f"this needs the package {name}, which is not installed; {install_hint(extra)}"


def extras() -> dict[str, frozenset[str]]:
    """Packages of each extra according to the installed distribution's metadata, including those of
    nested extras."""
    try:
        lines = requires("loopline") or []
    except PackageNotFoundError:
        return {}
    brought: dict[str, set[str]] = {}
    for line in lines:
        requirement = re.match(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?", line)
        marker = re.search(r"extra == ['\"]([^'\"]+)['\"]", line)
        if requirement and marker:
            is_loopline = requirement[1].lower() == "loopline"
            inner = (requirement[2] or "").split(",")
            brought.setdefault(marker[1], set()).update(
                (f"[{name.strip()}]" for name in inner) if is_loopline else [requirement[1].lower()]
            )
    return {extra: frozenset(_flatten_extra(extra, brought)) for extra in brought}


def _flatten_extra(extra: str, brought: dict[str, set[str]]) -> set[str]:
    names: set[str] = set()
    for name in brought.get(extra, ()):
        names |= _flatten_extra(name[1:-1], brought) if name.startswith("[") else {name}
    return names


def _extra_of(error: BaseException) -> str:
    """The extra of the package whose code failed: `train` for `loopline.trainers`, for example."""
    part, trace = "", error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.startswith("loopline."):
            part = module.split(".")[1]
        trace = trace.tb_next
    return {"trainers": "train"}.get(part, part)
