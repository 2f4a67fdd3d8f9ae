"""Imports an app's file by its path, for `runtime up --app`.

A tool worker runs the app's tools. A command or gateway that loads the file knows the app's agents
and teams as workflows with their names. Role workers don't need the file: an agent is data in its
runs.
"""

from __future__ import annotations

import sys
import traceback
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import structlog

from loopline.agents.errors import AgentError
from loopline.agents.tools import tools
from loopline.agents.workflows import workflows
from loopline.agents.workflows.team import NamedTeam
from loopline.runtime.app.app import App, digest_of
from loopline.runtime.config.sections import AppFile
from loopline.runtime.errors import EXIT_CONFIG, UserError

log = structlog.get_logger("loopline.runtime.app")


def load_app(file: AppFile) -> list[App]:
    """Import the file and register its tools and agents in this process.

    Raises `UserError`, with the file and the line, if the file can't be imported, has no app, or
    defines a name twice.
    """
    path = Path(file.path)
    apps = apps_in(_imported(path))
    if not apps:
        raise _unusable(f"{path} has no app", "it needs a line such as `app = App()`.")
    if digest_of(path) != file.digest:
        log.warning(
            "the app's file has changed since `runtime up`: this process runs the new one, others "
            "may run the old one until `runtime down` and `runtime up`",
            file=str(path),
        )
    try:
        for app in apps:
            for tool in app.tools.values():
                if tool.name in tools.names():
                    raise _unusable(
                        f"{path}: another tool is also called {tool.name!r}", "rename one of them."
                    )
                tools.register(tool)
            for name, agent in app.agents.items():
                workflows.register(NamedTeam(name, agent))
    except AgentError as error:
        raise _unusable(f"{path}: {error}", "") from error
    return apps


def apps_in(module: ModuleType) -> list[App]:
    apps = [value for value in vars(module).values() if isinstance(value, App)]
    return list(dict.fromkeys(apps))


def _imported(path: Path) -> ModuleType:
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    if not path.is_file():
        raise _unusable(
            f"the app's file {path} is missing",
            "put it back, or run `runtime down`; until then, runs wait.",
        )
    if name in sys.modules or name in sys.stdlib_module_names or find_spec(name) is not None:
        raise _unusable(
            f"{path}: another module is called {name!r}, and other code imports it",
            "rename the file.",
        )
    # The app can import files of its folder, as a script can; installed packages take precedence.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _unusable(f"{path} is not a Python file", "its name ends in .py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _unusable(f"{_place(path, error)}: {type(error).__name__}: {error}", "") from error
    return module


def _place(path: Path, error: BaseException) -> str:
    """Return the line of the file that failed, or that called the code that failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _unusable(message: str, hint: str) -> UserError:
    return UserError(message, hint=hint, exit_code=EXIT_CONFIG)
