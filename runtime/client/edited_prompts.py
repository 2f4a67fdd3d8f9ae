"""The prompts of a run with edited texts, for a fork that tries them."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.errors import AgentError
from loopline.agents.prompts import Prompt, parse_prompt, prompt_file
from loopline.agents.records import Run
from loopline.agents.workflows import prompts_of
from loopline.runtime.errors import InputError


def prompts_of_run(run: Run) -> dict[str, Prompt]:
    """Return the prompt texts of the run by prompt file; empty for a workflow that this process
    does not know."""
    try:
        prompts = prompts_of(run.workflow, run.task.environment, run.options)
    except AgentError:
        return {}
    for file, content in run.prompt_files.items():
        if file in prompts:
            prompts[file] = parse_prompt(content, origin=f"the run's own {file}")
    return prompts


def changed_prompts(run: Run, texts: Mapping[str, str]) -> dict[str, str]:
    """Return, by prompt file, the whole content of each prompt whose text differs from the run's.
    `texts`: text by prompt file. Raises `InputError` for a file that the run does not use."""
    prompts = prompts_of_run(run)
    changed: dict[str, str] = {}
    for file, words in texts.items():
        if file not in prompts:
            raise InputError(
                f"the workflow {run.workflow} has no prompt {file[:80]!r}; its prompts: "
                f"{', '.join(sorted(prompts)) or 'none'}"
            )
        prompt, text = prompts[file], words.replace("\r\n", "\n").strip()
        if text != prompt.text:
            changed[file] = prompt_file(prompt.name, prompt.version, text)
    return changed
