"""The commands of the proofs: `bench bus`, `bench engine` and so on.

Listing the commands needs no import. The modules of a proof are imported only when its command runs
or its help is shown: its options are the fields of its model, with their docstrings as help.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.proofs.harness import Options, Proof


class Entry(NamedTuple):
    """Description of a proof in the list of commands, and its duration on two cores."""

    about: str
    minutes: int
    full: str = ""
    """Duration with `--full`, if the proof has that option."""


PROOFS: dict[str, Entry] = {
    "budgets": Entry("Attack runs under a budget, and compare their bills with it.", 1),
    "bus": Entry("Measure the bus against its peers, on a Redis of its own.", 6),
    "effects": Entry("Kill workers in tool calls, and count the effects.", 7),
    "engine": Entry("Measure the engines' tokens/s and latency against peers.", 5, "about an hour"),
    "failover": Entry("Kill a gpu worker with 16 streams, and time the failover.", 3),
    "faults": Entry("Attack a deployment under load, and check its whole history.", 5),
    "fidelity": Entry("Compare the engines' log-probabilities with a plain pass.", 4, "about 7"),
    "flow": Entry("Measure shared rate limits, and tenants next to each other.", 7),
    "gateway": Entry("Measure the cost of a call through our gateway and LiteLLM's.", 4),
    "gateway-faults": Entry("Attack gateways with open streams, and check the clients.", 8),
    "gateway-fuzz": Entry("Send hostile requests to a gateway.", 4),
    "gpu": Entry(
        "Take a model of 1.7B through serving, training and swapping.", 1, "about 5 on a GPU"
    ),
    "grpo-faults": Entry("Attack `train grpo loop`, and check every group.", 3),
    "grpo-speed": Entry("Measure rollouts and training steps against peers.", 9),
    "rewards": Entry("Kill senders of rewards, and the recorder; count the rewards.", 2),
    "soak": Entry("Load an engine with cancelled and late requests.", 3),
    "store": Entry("Show and read many recorded runs, compacted and not.", 1),
    "training": Entry("Measure supervised training against trl's SFTTrainer.", 8),
    "upgrades": Entry("Change a deployment's version while runs are in flight.", 6),
    "validity": Entry("Measure the validity of tool calls and of JSON answers.", 2),
    "vllm-faults": Entry("Kill vLLM servers and gpu workers while an adapter changes.", 10),
    "waits": Entry("Let runs wait seven days, while all processes and Redis die.", 1),
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, entry in PROOFS.items():
        _add(app, name, entry)


def _add(app: typer.Typer, name: str, entry: Entry) -> None:
    def proof() -> Proof[Any]:
        return import_module(f"loopline.bench.proofs.{name.replace('-', '_')}.proof").PROOF

    def run(options: Options) -> None:
        from loopline.bench.proofs.harness import conduct

        conduct(proof(), options)

    def details() -> str:
        unit = "minute" if entry.minutes == 1 else "minutes"
        ending = f"Takes about {entry.minutes} {unit} on two cores"
        ending += f", with --full {entry.full}." if entry.full else "."
        ending += " Exit code 1 if a bar is missed or a rule is broken."
        return f"{inspect.getdoc(proof().options)}\n\n{ending}"

    def complete(options: Options) -> Options:
        from loopline.bench.proofs.harness import with_full

        return with_full(proof(), options)

    def preview(options: Options) -> list[str]:
        from loopline.bench.proofs.harness import duration

        minutes = proof().minutes(complete(options))
        return [f"{proof().title}: would take {duration(minutes)} on 2 cores"]

    add_command(
        app, run, lambda: proof().options,
        name=name, about=entry.about, details=details, preview=preview,
        complete=complete,
    )  # fmt: skip
