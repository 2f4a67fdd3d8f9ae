"""Users' prompt files that replace shipped prompts: in a profile (`[prompts]`), for one run
(`runtime ask --prompt`), or tried by `train prompts`.

This module reads a file; `loopline.agents.prompts.parse_replacement_prompt` checks it.
"""

from __future__ import annotations

from pathlib import Path

from loopline.agents.errors import InvalidPrompt, UnknownName
from loopline.agents.prompts import MAX_PROMPT_FILE_CHARS, Prompt, parse_replacement_prompt
from loopline.runtime.config.key_value_options import key_value_texts
from loopline.runtime.errors import InputError
from loopline.workers.bounded_file import FileTooLarge, read_bounded_file

MAX_BYTES_PER_CHAR = 4


def prompt_content(path: Path) -> str:
    """Read the text of a file. Raises `InvalidPrompt`, a ValueError, if the file is missing, is not
    UTF-8 or exceeds the maximum length of a prompt. A huge file is not read to its end."""
    limit = MAX_PROMPT_FILE_CHARS * MAX_BYTES_PER_CHAR
    try:
        raw = read_bounded_file(path, limit)
    except OSError as error:
        raise InvalidPrompt(f"{path} cannot be read: {error.strerror or error}") from error
    except FileTooLarge as error:
        raise InvalidPrompt(
            f"{error}; the limit is {MAX_PROMPT_FILE_CHARS:,} characters: shorten it"
        ) from error
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidPrompt(
            f"{path} is not UTF-8 (byte {error.start} is 0x{raw[error.start]:02x}): convert it, "
            "for example with `iconv -t UTF-8`"
        ) from error


def shipped_prompt(name: str) -> Prompt:
    """Raises `UnknownName` with the closest name."""
    # Imported here, since it loads every role, which few processes need.
    from loopline.agents.roles import all_prompts

    prompts_by_name = {prompt.name: prompt for prompt in all_prompts().values()}
    if name not in prompts_by_name:
        raise UnknownName("prompt", name, prompts_by_name)
    return prompts_by_name[name]


def parse_prompt_files(words: list[str]) -> dict[str, str]:
    """Parse `--prompt NAME=FILE` options to `Run.prompt_files`. Raises `InputError`."""
    files: dict[str, str] = {}
    paths = key_value_texts("--prompt", words, form="NAME=FILE", example="solo=terse.md")
    for name, path in paths.items():
        try:
            shipped = shipped_prompt(name)
            content = prompt_content(Path(path))
            parse_replacement_prompt(content, name, origin=path)
        except (InvalidPrompt, UnknownName) as error:
            raise InputError(f"--prompt {name}={path}: {error}") from error
        files[shipped.file] = content
    return files
