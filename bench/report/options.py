"""Describes the options of a report's runs."""

from __future__ import annotations

from loopline.agents.records import JsonObject
from loopline.bench.output import Manifest


def options_sentence(manifest: Manifest) -> str:
    """Return the sentence about the options of the runs: the number of candidates, how they were
    sampled, and the limit of tokens."""
    if manifest.options is None:
        general = ", general prompts" if manifest.prompt_set == "general" else ""
        return f"Calculator {'on' if manifest.calculator else 'off'}{general}."
    if not manifest.options:
        return "No options."
    return f"Options: {options_text(manifest.options)}."


def options_text(options: JsonObject) -> str:
    """Describe options of a workflow."""
    return ", ".join(f"{name} {str(value).lower()}" for name, value in options.items())
