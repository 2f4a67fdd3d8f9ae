"""Prompts: versioned Markdown files, each identified by the hash of its content.

A file begins with a header,

    ---
    name: planner
    version: 1
    ---

and the rest is the system text, word for word. A prompt is never a template: nothing is inserted
into it, and a question travels in a separate message, where it can't pose as an instruction of
ours. Raise the version when you change a text; its hash changes by itself and is part of every run.

Some roles have two texts under one name: one that fits any domain, and in the folder `mathematics`
the published one, which benchmarks of word problems choose by the workflow's option `prompts`.

A run may bring other files in place of shipped ones (`Run.prompt_files`), which
`parse_replacement_prompt` checks. The shipped ones that a run began with are on the bus by their
hash (`loopline.bus.contents`): a worker of another version plays the run with them.
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
    # After a letter or a brace it is LaTeX: \boxed{answer}, \frac{a}{b}.
    r"|(?<![A-Za-z}\\])\{[A-Za-z_]\w*\}"
)


class Prompt(Record):
    """One prompt file."""

    name: str
    version: int = Field(ge=1)
    text: str = Field(min_length=1)
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the whole file in UTF-8, with `\\n` as line end."""
    content: str = Field(default="", repr=False)
    """Content of the whole file, which its hash covers."""

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
        content=content,
    )


def prompt_file(name: str, version: int, text: str) -> str:
    """The content of a file with this text."""
    return f"---\nname: {name}\nversion: {version}\n---\n{text}\n"


def parse_replacement_prompt(content: str, name: str, *, origin: str) -> Prompt:
    """The content of a file that replaces the shipped prompt `name`.

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
    """Prompt set that the run's roles read.

    A run that was admitted before there was a choice does not say so; its hashes do.
    """
    match run.options.get("prompts"):
        case "general" | "mathematics" as prompt_set:
            return prompt_set
        case _:
            digests = {prompt_in("mathematics", name).hash for name in _MATHEMATICAL}
            return "general" if digests.isdisjoint(run.prompts.values()) else "mathematics"


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
            f"{prompt.hash[:12]} (version {prompt.version}), and the bus no longer has the other: "
            "start a worker of the version that admitted the run, or ask the question again",
            prompt.file,
            admitted,
        )
    return prompt.text


@lru_cache(maxsize=64)
def _cached_replacement(content: str, name: str) -> Prompt:
    """Parse a replacement prompt; cached, since every step of every run asks for it."""
    return parse_replacement_prompt(content, name, origin=f"the run's own {name}.md")
