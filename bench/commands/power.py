"""`bench power`: how many questions a comparison needs, or what a given number can show."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("power")(power)


def power(
    difference: Annotated[
        float | None,
        typer.Option(help="Difference of accuracies to be shown, for example 0.02."),
    ] = None,
    discordant: Annotated[
        float,
        typer.Option(help="Share of questions that exactly one of the two arms solves."),
    ] = 0.10,
    samples: Annotated[int | None, typer.Option(help="Number of questions.")] = None,
    target: Annotated[float, typer.Option(help="Power that is wanted.")] = 0.80,
    alpha: Annotated[float, typer.Option(help="Level of the two-sided test.")] = 0.05,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Plan a paired comparison by the exact McNemar test.

    With --difference: the number of questions it takes (and, with --samples, the power that this
    many have). With --samples alone: the smallest difference that they show.
    """
    from loopline.bench.errors import UsageError
    from loopline.bench.statistics import detectable_difference, mcnemar_power, pairs_needed

    if difference is None and samples is None:
        raise UsageError("give --difference, or --samples, or both")
    for name, value in (("--discordant", discordant), ("--target", target), ("--alpha", alpha)):
        if not 0 < value < 1:
            raise UsageError(f"{name} must lie between 0 and 1, exclusive; got {value}")
    if samples is not None and not 1 <= samples <= 1_000_000:
        raise UsageError(f"--samples must lie between 1 and 1000000; got {samples}")
    result: dict[str, float | int | None] = {
        "discordant": discordant,
        "alpha": alpha,
        "target_power": target,
    }
    if difference is not None:
        gap = abs(difference)
        if not 0 < gap <= discordant:
            raise UsageError(
                f"--difference {difference} cannot be: two arms that differ on a share of "
                f"{discordant} of the questions differ in accuracy by more than 0 and at most "
                f"{discordant}; raise --discordant or lower --difference"
            )
        only_a, only_b = (discordant + gap) / 2, (discordant - gap) / 2
        needed = pairs_needed(only_a, only_b, power=target, alpha=alpha)
        result |= {"difference": difference, "samples_needed": needed}
        if needed is None:
            print("more than 200,000 questions would be needed")
        else:
            print(
                f"{needed:,} questions show a difference of {gap:.1%} with a power of {target:.0%} "
                f"(two-sided, level {alpha}, {discordant:.0%} discordant)"
            )
        if samples is not None:
            reached = mcnemar_power(samples, only_a, only_b, alpha)
            result |= {"samples": samples, "power": reached}
            print(f"{samples:,} questions have a power of {reached:.1%}")
    elif samples is not None:
        smallest = detectable_difference(samples, discordant, power=target, alpha=alpha)
        result |= {"samples": samples, "detectable_difference": smallest}
        if smallest is None:
            print(f"{samples:,} questions show no difference with a power of {target:.0%}")
        else:
            print(
                f"{samples:,} questions show a difference of {smallest:.1%} or more with a power "
                f"of {target:.0%} (two-sided, level {alpha}, {discordant:.0%} discordant)"
            )
    if as_json:
        print(json.dumps(result))
