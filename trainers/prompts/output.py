"""The output folder of a search.

OUTPUT/search.json            everything that determines the result
OUTPUT/runs.jsonl             the runs: admitted, then ended
OUTPUT/candidates/<prompt>/   every candidate, including those that a model wrote
OUTPUT/prompts/<prompt>.md    the adopted prompt
OUTPUT/profile.toml           a profile with it, for `runtime up --profile`
OUTPUT/report.json            the results
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from loopline.trainers.core.checkpoints import require_same_recipe, require_unused
from loopline.trainers.core.json_records import write_record
from loopline.trainers.errors import UnreadableData
from loopline.trainers.prompts.candidates import Candidate
from loopline.trainers.prompts.playing import LOG
from loopline.trainers.prompts.report import REPORT
from loopline.trainers.prompts.search import SearchResult
from loopline.trainers.prompts.settings import SearchSettings
from loopline.workers.atomic_files import write_atomic

SETTINGS = "search.json"
CANDIDATES = "candidates"
PROMPTS = "prompts"
PROFILE = "profile.toml"


def claim(
    output: Path,
    settings: SearchSettings,
    candidates: Mapping[str, Sequence[Candidate]],
    *,
    restart: bool,
) -> None:
    """Mark the folder as belonging to this search. Raises `TrainingError` if it belongs to another
    one."""
    path = output / SETTINGS
    if path.exists() and not restart:
        try:
            existing_settings = SearchSettings.model_validate_json(path.read_bytes())
        except ValidationError as error:
            why = error.errors(include_url=False)[0]["msg"]
            raise UnreadableData(f"{path} is damaged ({why}); --restart searches again") from error
        except OSError as error:
            raise UnreadableData(
                f"{path} can't be read ({error.strerror}): remove it, or search in another folder"
            ) from error
        require_same_recipe(existing_settings, settings, output)
        return
    if path.exists():
        for folder in (CANDIDATES, PROMPTS):
            shutil.rmtree(output / folder, ignore_errors=True)
        for name in (REPORT, PROFILE, LOG):
            (output / name).unlink(missing_ok=True)
    else:
        # The candidates are written first: after a kill they may be the only files.
        require_unused(output, but=(CANDIDATES,))
    write_candidates(output, candidates)
    write_record(path, settings)


def write_candidates(output: Path, candidates: Mapping[str, Sequence[Candidate]]) -> None:
    """Write the candidates' files, except for shipped prompts."""
    for name, prompt_candidates in candidates.items():
        folder = output / CANDIDATES / name
        folder.mkdir(parents=True, exist_ok=True)
        for candidate in prompt_candidates:
            if candidate.content is not None:
                write_atomic(folder / f"{candidate.label}.md", candidate.content)


def write_found(output: Path, result: SearchResult, extends: str) -> None:
    """Write all results of a search; the report, which marks it as finished, comes last.

    `extends` is the profile of the deployment on which the search ran.
    """
    write_candidates(output, result.proposed)
    if result.adopted:
        (output / PROMPTS).mkdir(exist_ok=True)
        for name, candidate in result.adopted.items():
            assert candidate.content is not None
            write_atomic(output / PROMPTS / f"{name}.md", candidate.content)
        write_atomic(output / PROFILE, _profile(result.adopted, extends))
    write_record(output / REPORT, result.report)


def _profile(adopted: Mapping[str, Candidate], extends: str) -> str:
    lines = ["# What `train prompts` adopted, over the profile that it was measured on."]
    lines += [f"extends = {json.dumps(extends)}", "\n[prompts]"]
    lines += [f'{name} = "{PROMPTS}/{name}.md"' for name in adopted]
    return "\n".join(lines) + "\n"
