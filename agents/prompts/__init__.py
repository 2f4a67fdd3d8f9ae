"""Prompts: versioned Markdown files, each identified by the hash of its content.

A file begins with a header,

    ---
    name: planner
    version: 1
    ---

and the rest is the system text, verbatim. A prompt is never a template: nothing is inserted into
it, and a question is sent in a separate message, where it can't pose as one of our instructions.
Increment the version when you change a text; its hash changes automatically and is part of every
run.

Some roles have two texts under one name: one for any domain, and the published one in the folder
`mathematics`, which benchmarks of word problems select with the workflow's option `prompts`.

A run may bring other files in place of shipped ones (`Run.prompt_files`), which
`parse_replacement_prompt` checks. The shipped prompts that a run started with are on the bus under
their hashes (`loopline.bus.contents`): a worker of another version executes the run with them.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

from pydantic import Field

from loopline.agents.errors import InvalidPrompt, PromptMismatch
from loopline.agents.records import Record, Run

MAX_PROMPT_FILE_CHARS = 50_000

PromptSet = Literal["general", "mathematics"]
_PACKAGES: dict[PromptSet, str] = {
    "general": "loopline.agents.prompts",
    "mathematics": "loopline.agents.prompts.mathematics",
}
_MATHEMATICAL = ("planner", "slm", "expert", "solo")
"""Prompts that are in both sets."""

_FILE = re.compile(r"---\nname: *(?P<name>[a-z][a-z0-9_-]*)\nversion: *(?P<version>[0-9]+)\n---\n")


_PLACEHOLDER = re.compile(
    r"\{\{ *[A-Za-z_][\w. ]*\}\}|\$\{[A-Za-z_]\w*\}|%\([A-Za-z_]\w*\)[sd]"
    # After a letter or a brace, it is LaTeX: \boxed{answer}, \frac{a}{b}.
    r"|(?<![A-Za-z}\\])\{[A-Za-z_]\w*\}"
)


class Prompt(Record):
    """One prompt file."""

    name: str
    version: int = Field(ge=1)
    text: str = Field(min_length=1)
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the whole file in UTF-8, with `\\n` line endings."""
    content: str = Field(default="", repr=False)
    """Content of the whole file, which the hash covers."""

    @property
    def file(self) -> str:
        """The key under which `Run.prompts` holds the hash."""
        return f"{self.name}.md"


def parse_prompt(content: str, *, origin: str) -> Prompt:
    """Parse the content of a prompt file. Errors (`InvalidPrompt`) mention `origin`."""
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
        content=content,
    )


def prompt_file(name: str, version: int, text: str) -> str:
    """The content of a file with this text."""
    return f"---\nname: {name}\nversion: {version}\n---\n{text}\n"


def parse_replacement_prompt(content: str, name: str, *, origin: str) -> Prompt:
    """The content of a file that replaces the shipped prompt `name`.

    Raises `InvalidPrompt` if the content is not a prompt file, belongs to another prompt, cannot be
    encoded as UTF-8, or has a placeholder, which would never be filled in.
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
            f"{origin} calls itself {prompt.name!r}: it can't replace {name!r}; its "
            f"header must say 'name: {name}'"
        )
    placeholder = _PLACEHOLDER.search(prompt.text)
    if placeholder is not None:
        raise InvalidPrompt(
            f"{origin} has the placeholder {placeholder.group()}, but a prompt is not a template: "
            "the question comes in a separate message. Remove it"
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


def prompt_in(prompt_set: PromptSet, name: str) -> Prompt:
    """The prompt of that name in one of the sets. Raises `InvalidPrompt`."""
    return load_prompt(name, _PACKAGES[prompt_set])


def prompt_set_of(run: Run) -> PromptSet:
    """Prompt set that the run's roles use.

    For a run that was admitted before this option existed, the hashes show it.
    """
    match run.options.get("prompts"):
        case "general" | "mathematics" as prompt_set:
            return prompt_set
        case _:
            digests = {prompt_in("mathematics", name).hash for name in _MATHEMATICAL}
            return "general" if digests.isdisjoint(run.prompts.values()) else "mathematics"


def prompt_for(run: Run, prompt: Prompt) -> str:
    """The text of the run's own file if it has one, else of the shipped `prompt`.

    Raises `PromptMismatch` if it differs from the text at admission; a run that records no hash for
    this prompt uses the text as it is.
    """
    override = run.prompt_files.get(prompt.file)
    if override is not None:
        prompt = _cached_replacement(override, prompt.name)
    admitted = run.prompts.get(prompt.file)
    if admitted is not None and admitted != prompt.hash:
        raise PromptMismatch(
            f"run {run.id} was admitted with {prompt.file} {admitted[:12]}, but this process has "
            f"{prompt.hash[:12]} (version {prompt.version}), and the bus no longer has the first: "
            "start a worker of the version that admitted the run, or ask the question again",
            prompt.file,
            admitted,
        )
    return prompt.text


@lru_cache(maxsize=64)
def _cached_replacement(content: str, name: str) -> Prompt:
    """Parse a replacement prompt; cached, since every step of every run needs it."""
    return parse_replacement_prompt(content, name, origin=f"the run's own {name}.md")
