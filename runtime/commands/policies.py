"""`runtime policies ls|publish|pin|rollback|canary|log`: which weights answer new requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.commands.canaries import register_canaries
from loopline.runtime.commands.options import AsJson, RedisUrl

if TYPE_CHECKING:
    from loopline.bus import Bus, Policy
    from loopline.bus.policies import PolicySnapshot

Name = Annotated[
    str,
    typer.Argument(metavar="POLICY", help="Policy: a pool (slm), or pool/adapter (slm/caller)."),
]
Wait = Annotated[float, typer.Option(help="Seconds to wait until the policy's workers serve it.")]


def register(app: typer.Typer) -> None:
    policies = typer.Typer(
        no_args_is_help=True,
        help="Publish, pin, try and roll back adapters without a restart.",
    )
    app.add_typer(policies, name="policies")
    register_canaries(policies)
    policies.command("ls")(ls)
    policies.command("publish")(publish)
    policies.command("pin")(pin)
    policies.command("rollback")(rollback)


def ls(redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """List policies, their versions, and what each worker serves.

    Exit code 1 if a policy can't be read; its name is printed, and no worker serves it again.
    """
    from loopline.bus import live_workers
    from loopline.bus import policies as on_the_bus
    from loopline.runtime.client.policy_changes import describe_state
    from loopline.runtime.on_bus import query_bus
    from loopline.runtime.terminal.tables import align_columns
    from loopline.runtime.terminal.unreadable import report_unreadable

    async def question(bus: Bus) -> tuple[PolicySnapshot, dict[str, dict[str, str]]]:
        workers = await live_workers(bus)
        states_by_worker = {
            worker.name: {
                name: describe_state(state)
                for name, state in worker.details.get("policies", {}).items()
            }
            for worker in workers
        }
        return await on_the_bus.load_policies(bus), states_by_worker

    stored_policies, states_by_worker = query_bus(redis_url, question)
    rows = [
        (
            policy.name,
            str(policy.current) + (f" (canary {policy.canary.version})" if policy.canary else ""),
            policy.path_of(policy.current) or "the model itself",
            "; ".join(
                f"{worker}: {states[policy.name]}"
                for worker, states in states_by_worker.items()
                if policy.name in states
            )
            or "nobody",
        )
        for policy in stored_policies.policies
    ]
    if as_json:
        typer.echo(json.dumps([policy.model_dump() for policy in stored_policies.policies]))
    elif rows:
        typer.echo("\n".join(align_columns(("policy", "version", "weights", "served by"), rows)))
    else:
        typer.echo("no policy was published: every pool serves its own model")
    report_unreadable(stored_policies.unreadable.values())


def publish(
    name: Name,
    weights: Annotated[
        str,
        typer.Argument(
            help="Folder of a LoRA (PEFT) or of a whole model that was trained from the "
            "pool's, or a LoRA's GGUF file for llama_cpp."
        ),
    ],
    redis_url: RedisUrl = None,
    wait: Wait = 30.0,
    use: Annotated[
        bool, typer.Option(help="Answer with it now; --no-use: keep it for `canary` or `pin`.")
    ] = True,
) -> None:
    """Answer new requests of a policy with these weights. Running ones keep theirs.

    Weights that name a base other than the pool's model are refused at once if the model's files
    are on this machine. The workers that serve the policy make the same check."""
    import time

    from loopline.runtime.client.policy_changes import change_and_report
    from loopline.runtime.errors import InputError

    # Path("") would be the current folder.
    if not weights or not Path(weights).exists():
        raise InputError(f"{weights!r} does not exist", hint="name a folder, or a .gguf file.")
    path = str(Path(weights).resolve())
    _require_base(name, path, redis_url)

    def published(policy: Policy) -> Policy:
        add = policy.published if use else policy.added
        return add(path, time.time())

    newest = change_and_report(name, redis_url, wait, published).newest
    if not use:
        typer.echo(
            f"  version {newest} is kept: `runtime policies canary {name}@{newest} --share 10%`"
            " tries it"
        )


def pin(
    name: Name,
    version: Annotated[
        int, typer.Argument(min=0, help="Version to pin; 0 is the model without an adapter.")
    ],
    redis_url: RedisUrl = None,
    wait: Wait = 30.0,
) -> None:
    """Answer new requests of a policy with this version."""
    from loopline.runtime.client.policy_changes import change_and_report

    change_and_report(name, redis_url, wait, lambda policy: policy.with_version_in_use(version))


def rollback(name: Name, redis_url: RedisUrl = None, wait: Wait = 30.0) -> None:
    """Answer new requests of a policy with its previous version."""
    from loopline.runtime.client.policy_changes import change_and_report

    change_and_report(name, redis_url, wait, lambda policy: policy.rolled_back())


def _require_base(name: str, path: str, redis_url: str | None) -> None:
    """Raises `InputError` for weights of another base, as far as this machine can tell."""
    from loopline.bus import pool_of
    from loopline.runtime.client.deployment import find
    from loopline.runtime.errors import InputError
    from loopline.workers.engines.local.adapter_base import require_base_on_disk
    from loopline.workers.engines.protocol import EngineError

    model = find(redis_url=redis_url).settings.models.get(pool_of(name))
    if model is None:
        return  # `change_and_report` reports it, with the existing pools
    try:
        require_base_on_disk(model, path)
    except EngineError as error:
        raise InputError(str(error), hint="nothing was published.") from error
    if Path(path).is_dir() and not any(Path(path).glob("*.safetensors")):
        raise InputError(
            f"{path} contains neither an adapter nor a model (*.safetensors)",
            hint="for a training, name the folder of one policy: OUTPUT/policies/NAME.",
        )
