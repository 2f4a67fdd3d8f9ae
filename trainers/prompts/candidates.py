"""The candidates of a search: the current prompt, and the user's files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.errors import InvalidPrompt
from loopline.agents.prompts import Prompt, parse_prompt, parse_replacement_prompt
from loopline.runtime.config.prompt_files import prompt_content
from loopline.trainers.errors import TrainingError, UnreadableData

CURRENT = "current"
"""The label of the current prompt."""

MAX_CANDIDATES = 64


@dataclass(frozen=True)
class Candidate:
    """One text for a prompt."""

    label: str
    origin: str
    """Origin of the text: `shipped`, `profile`, a file's name, or the model that proposed it."""
    prompt: Prompt
    content: str | None
    """Content of the file; None for the shipped one, which a run need not contain."""

    @property
    def hash(self) -> str:
        return self.prompt.hash


def current_candidate(shipped: Prompt, override: str | None) -> Candidate:
    """The prompt that runs have without this search; `override` is the prompt that the deployment's
    profile sets instead."""
    if override is None:
        return Candidate(CURRENT, "shipped", shipped, None)
    prompt = parse_replacement_prompt(override, shipped.name, origin="the deployment's prompt")
    return Candidate(CURRENT, "profile", prompt, override)


def read_variants(paths: Sequence[Path], names: Collection[str]) -> dict[str, list[Candidate]]:
    """The prompt files at these paths, by the prompt that they would replace; for a folder, all
    `*.md` in it. Among files with the same text, only the first counts.

    Raises `UnreadableData` for a file that is not a prompt, or whose prompt is not in `names`.
    """
    candidates_by_prompt: dict[str, list[Candidate]] = {}
    for path in _files(paths):
        try:
            content = prompt_content(path)
            name = parse_prompt(content, origin=str(path)).name
            if name not in names:
                raise UnreadableData(
                    f"{path} is for the prompt {name!r}, which the search does not cover; it "
                    f"covers: {', '.join(sorted(names))}"
                )
            prompt = parse_replacement_prompt(content, name, origin=str(path))
        except InvalidPrompt as error:
            raise UnreadableData(str(error)) from error
        candidates = candidates_by_prompt.setdefault(name, [])
        if any(prompt.text == candidate.prompt.text for candidate in candidates):
            continue
        label = path.stem
        if label == CURRENT or any(label == candidate.label for candidate in candidates):
            label = f"{path.stem}-{prompt.hash[:8]}"
        candidates.append(Candidate(label, path.name, prompt, content))
    return candidates_by_prompt


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.md")) if path.is_dir() else [path]
        if not inside:
            raise UnreadableData(f"{path} has no prompt files (*.md)")
        files += inside
    if len(files) > MAX_CANDIDATES:
        raise TrainingError(
            f"--variants: {len(files)} files are more than {MAX_CANDIDATES}; a search over so "
            "large a number would only measure noise. Leave out the unlikely ones"
        )
    return files
