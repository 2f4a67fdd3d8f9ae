"""Prompts: versioned Markdown files, each known by the hash of its content.

A file begins with a header,

    ---
    name: planner
    version: 1
    ---

and the rest is the system text, word for word. A prompt is never a template: nothing is put into
it, and a question travels in a message of its own, where it can't pose as an instruction of ours.
Raise the version when you change a text; its hash changes by itself and is part of every run.

A run may bring other files in place of shipped ones (`Run.prompt_files`).
`parse_replacement_prompt` is the border that they pass.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache, lru_cache
from importlib.resources import files

from pydantic import Field

from loopline.agents.errors import InvalidPrompt, PromptMismatch
from loopline.agents.records import Record, Run

MAX_PROMPT_FILE_CHARS = 50_000

_FILE = re.compile(r"---\nname: *(?P<name>[a-z][a-z0-9_-]*)\nversion: *(?P<version>[0-9]+)\n---\n")


_PLACEHOLDER = re.compile(
    r"\{\{ *[A-Za-z_][\w. ]*\}\}|\$\{[A-Za-z_]\w*\}|%\([A-Za-z_]\w*\)[sd]"
    # Behind a letter or a brace it is LaTeX: \boxed{answer}, \frac{a}{b}.
    r"|(?<![A-Za-z}\\])\{[A-Za-z_]\w*\}"
)


class Prompt(Record):
    """One prompt file."""

    name: str
    version: int = Field(ge=1)
    text: str = Field(min_length=1)
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the whole file in UTF-8, with `\\n` as line end."""

    @property
    def file(self) -> str:
        """The key under which `Run.prompts` holds the hash."""
        return f"{self.name}.md"


def parse_prompt(content: str, *, origin: str) -> Prompt:
    """Read the content of a prompt file. `origin` is named in the errors (`InvalidPrompt`)."""
    content = content.replace("\r\n", "\n")
    if len(content) > MAX_PROMPT_FILE_CHARS:
        raise InvalidPrompt(f"{origin} is longer than {MAX_PROMPT_FILE_CHARS:,} characters")
    header = _FILE.match(content)
    if header is None:
        raise InvalidPrompt(f"{origin} must begin with '---', 'name: …', 'version: …', '---'")
    text = content[header.end() :].strip()
    if not text:
        raise InvalidPrompt(f"{origin} has a header but no text")
    return Prompt(
        name=header["name"],
        version=int(header["version"]),
        text=text,
        hash=hashlib.sha256(content.encode()).hexdigest(),
    )


def prompt_file(name: str, version: int, text: str) -> str:
    """The content of a file with this text."""
    return f"---\nname: {name}\nversion: {version}\n---\n{text}\n"


def parse_replacement_prompt(content: str, name: str, *, origin: str) -> Prompt:
    """The content of a file that is to stand in place of the shipped prompt `name`.

    Raises `InvalidPrompt` for what is not a prompt file, is another prompt's, cannot be written as
    UTF-8, or has a placeholder: nobody would fill it in.
    """
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise InvalidPrompt(
            f"{origin} cannot be written as UTF-8 (character {error.start}): remove it"
        ) from error
    prompt = parse_prompt(content, origin=origin)
    if prompt.name != name:
        raise InvalidPrompt(
            f"{origin} calls itself {prompt.name!r}: it can't stand in place of {name!r}; its "
            f"header must say 'name: {name}'"
        )
    placeholder = _PLACEHOLDER.search(prompt.text)
    if placeholder is not None:
        raise InvalidPrompt(
            f"{origin} has the placeholder {placeholder.group()}, but a prompt is no template: the "
            "question comes in a message of its own. Remove it"
        )
    return prompt


@cache
def load_prompt(name: str, package: str = "loopline.agents.prompts") -> Prompt:
    """The prompt `name.md` of a package; read once per process. Raises `InvalidPrompt`."""
    origin = f"the prompt {name}.md of {package}"
    try:
        content = (files(package) / f"{name}.md").read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise InvalidPrompt(f"{origin} cannot be read: {error}") from error
    prompt = parse_prompt(content, origin=origin)
    if prompt.name != name:
        raise InvalidPrompt(f"{origin} calls itself {prompt.name!r}")
    return prompt


def prompt_for(run: Run, prompt: Prompt) -> str:
    """The text of the run's own file if it brings one, else of the shipped `prompt`.

    Raises `PromptMismatch` if it is not what the run was admitted with; a run that names no hash
    for this prompt takes the text as it is.
    """
    override = run.prompt_files.get(prompt.file)
    if override is not None:
        prompt = _cached_replacement(override, prompt.name)
    admitted = run.prompts.get(prompt.file)
    if admitted is not None and admitted != prompt.hash:
        raise PromptMismatch(
            f"run {run.id} was admitted with {prompt.file} {admitted[:12]}, this process has "
            f"{prompt.hash[:12]} (version {prompt.version}): run client and workers from the same "
            "installation, or ask the question again"
        )
    return prompt.text


@lru_cache(maxsize=64)
def _cached_replacement(content: str, name: str) -> Prompt:
    """Cached: every step of every run asks for it."""
    return parse_replacement_prompt(content, name, origin=f"the run's own {name}.md")
