"""`python -m loopline.bench.proofs.gateway_process PROFILE STATE WORKER.json`: a gateway as a
process of a bench, at an address that its successor reuses; the supervisor writes PROFILE in the
same format."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from loopline.runtime.config.settings import Settings, load, load_resolved_file
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.gateway.api_keys import key_file
from loopline.runtime.supervise.listener import Listener
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.settings import TracingSettings

_STATE = "state"


@dataclass(frozen=True)
class Gateway:
    """A gateway that can be started."""

    url: str
    """URL in the form of `OPENAI_BASE_URL`."""
    command: Sequence[str]
    """Command without its last argument, the file with the settings of the role worker."""
    settings: Settings


def gateway_in(
    folder: Path,
    name: str,
    models: Mapping[str, ModelSettings],
    tracing: TracingSettings | None = None,
    **limits: float,
) -> Gateway:
    """Return a gateway with these models, on a free port, whose settings are written to `folder`;
    `limits` are settings of the gateway."""
    deployment = load("scripted", environ={})
    probe = Listener.open(deployment.gateway.model_copy(update={"port": 0}))
    port, url = probe.socket.getsockname()[1], probe.url
    probe.close()
    gateway_settings = deployment.gateway.model_copy(update={"port": port, **limits})
    settings = deployment.model_copy(
        update={
            "models": dict(models),
            "gateway": gateway_settings,
            "tracing": tracing or deployment.tracing,
        }
    )
    profile = folder / f"{name}.settings"
    profile.write_text(settings.to_json())
    program = (*OWN_PYTHON, "-m", "loopline.bench.proofs.gateway_process")
    return Gateway(url, (*program, str(profile), str(folder / _STATE)), settings)


def state_of(folder: Path) -> StateDirectory:
    """Return the state directory of the gateways in a folder."""
    return StateDirectory(folder / _STATE)


def api_key(folder: Path) -> str:
    """Return the key of the gateways in a folder."""
    return key_file(state_of(folder))


def _main(profile: Path, state: Path, worker: Path) -> None:
    # Imported here, since a bench that only starts such a process needs no worker.
    from loopline.runtime.gateway.front import GatewayFront
    from loopline.runtime.observe.logging import configure
    from loopline.workers.__main__ import JOIN_SECONDS
    from loopline.workers.gc_tuning import skip_final_collection
    from loopline.workers.process import Worker
    from loopline.workers.settings import worker_settings

    skip_final_collection()
    deployment = load_resolved_file(profile)
    configure(level=deployment.logging.level, form=deployment.logging.format)  # as its workers do
    front = GatewayFront(deployment, StateDirectory(state))
    settings = worker_settings.validate_json(worker.read_text("utf-8"))
    uvloop.run(Worker(settings, join_seconds=JOIN_SECONDS, front=front).run())


if __name__ == "__main__":
    _main(*map(Path, sys.argv[1:]))
