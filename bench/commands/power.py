"""`bench power`: how many questions a comparison needs, or what a given number can show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.commands.options import PowerOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, power, "bench.commands.options:PowerOptions")


def power(options: PowerOptions) -> None:
    """Plan a paired comparison by the exact McNemar test.

    With --difference, prints the number of questions needed (and, with --samples, the power of that
    number). With only --samples, prints the smallest detectable difference.
    """
    from loopline.bench.errors import UsageError
    from loopline.bench.statistics import detectable_difference, mcnemar_power, pairs_needed
    from loopline.runtime.terminal.pluralize import format_count

    difference, samples = options.difference, options.samples
    discordant, target, alpha = options.discordant, options.target, options.alpha
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
                f"{format_count(needed, 'question')} to show a difference of {gap:.1%} with a "
                f"power of {target:.0%} (two-sided, level {alpha}, {discordant:.0%} discordant)"
            )
        if samples is not None:
            reached = mcnemar_power(samples, only_a, only_b, alpha)
            result |= {"samples": samples, "power": reached}
            print(f"with {format_count(samples, 'question')} the power is {reached:.1%}")
    elif samples is not None:
        smallest = detectable_difference(samples, discordant, power=target, alpha=alpha)
        result |= {"samples": samples, "detectable_difference": smallest}
        if smallest is None:
            print(
                f"{format_count(samples, 'question')}: no difference is shown with a power of "
                f"{target:.0%}"
            )
        else:
            print(
                f"{format_count(samples, 'question')}: a difference of {smallest:.1%} or more is "
                f"shown with a power of {target:.0%} (two-sided, level {alpha}, "
                f"{discordant:.0%} discordant)"
            )
    if options.as_json:
        print(json.dumps(result))
