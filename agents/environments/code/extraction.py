"""Extracts the program from a model's text."""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from loopline.agents.thinking import text_without_thoughts


def parse_program(source: str) -> ast.Module:
    """Return the program's syntax tree. Raises ValueError for any text that is not a program;
    warnings about dubious code (such as an invalid escape) are suppressed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


# Possessive, so that a long line of spaces can't be split among the groups in many ways.
_FENCE = re.compile(
    r"^(?P<indent>[ \t>]*+)(?P<marks>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^\n]*+)$", re.MULTILINE
)
_LANGUAGE = re.compile(r"\{?\s?\.?(?P<name>[A-Za-z0-9_+#-]*+)")
_PYTHON = re.compile(r"(?:i?python|py)[23]?(?:\.\d+)?", re.IGNORECASE)
_PYTHON_FILE = re.compile(r"[\w./-]{1,100}\.py(?!\w)", re.IGNORECASE)
_OPENS_IN_LINE = re.compile(
    r"^([^\n`]{0,500}[^\s>`])[ \t]{0,9}(```(?:python|py)[23]?[ \t]{0,9})$",
    re.MULTILINE | re.IGNORECASE,
)
_ENDS_LINE = re.compile(r"^([^\n`]{0,2000}[^\s>`])(```[ \t]{0,9})$", re.MULTILINE)
_TAGGED = re.compile(
    r"\[PYTHON\]\n?(?P<python>.*?)(?:\[/PYTHON\]|\Z)|<code>\n?(?P<code>.*?)(?:</code>|\Z)"
    r"|\[BEGIN\]\n?(?P<begun>.*?)(?:\[DONE\]|\Z)|<answer>\n?(?P<answer>.*?)(?:</answer>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_OMISSION = re.compile(r"(?:#\s?)?(?:\.\.\.|\u2026)")
MAX_PROGRAM_CHARS = 60_000
"""Maximum length of a text without a fence that is parsed, in characters: a longer one could take
seconds and hundreds of megabytes. A tool agent's longer program is ignored. The longest golden
program in the code team's data sets has 20 kB, and a step with its candidates must fit into a
message."""
_MAX_CLOSINGS = 8
"""Maximum number of fences tried as the end of a block: a fence within a program's own text does
not end it."""

_MAX_PROGRAMS = 20
"""Maximum number of earlier programs in which an excerpt is searched."""


@dataclass(frozen=True)
class _Block:
    source: str
    labelled: bool


def extract_code(completion: str, function: str | None = None) -> str:
    """Return the program: the last fenced block of Python that defines the requested function; else
    the last labelled block that isn't only a usage example of an earlier one. An unclosed block
    counts (the model ran out of tokens). Without a fence, return the whole text if it is a program
    of at most `MAX_PROGRAM_CHARS` and not only an expression. Otherwise empty."""
    text = text_without_thoughts(completion.replace("\r\n", "\n").removeprefix("\ufeff"))
    # Models also open a block on the line of a sentence, and close it on the line of the code.
    text = _ENDS_LINE.sub(r"\1\n\2", _OPENS_IN_LINE.sub(r"\1\n\2", text))
    blocks, fenced = _blocks(text)
    if not fenced:
        sources = ["".join(match.groups("")) for match in _TAGGED.finditer(text)]
        blocks = [_Block(source, labelled=True) for source in sources if _is_program(source)]
        if not sources:
            return text.strip("\n") if _is_program(text) else ""
    return _choose_program(_without_excerpts(blocks), function)


def _without_excerpts(blocks: Sequence[_Block]) -> list[_Block]:
    """Return the blocks without empty ones and those that repeat lines of an earlier program."""
    remaining: list[_Block] = []
    programs: deque[str] = deque(maxlen=_MAX_PROGRAMS)
    for block in blocks:
        parts = _shown_parts(block.source)
        if not any(all(part in program for part in parts) for program in programs) and parts:
            remaining.append(block)
            if _is_program(block.source):
                programs.append("".join(parts))
    return remaining


def _shown_parts(source: str) -> list[str]:
    """Return the parts between lines that stand for omitted code, each as lines without indentation
    between two line breaks."""
    lines = [line.strip() for line in source.strip().splitlines()]
    groups = itertools.groupby(lines, lambda line: _OMISSION.match(line) is None)
    return ["\n" + "".join(f"{line}\n" for line in group) for is_code, group in groups if is_code]


def _choose_program(blocks: Sequence[_Block], function: str | None) -> str:
    block_names = [_names(block.source) for block in blocks]
    if function is not None:
        for block, (defined, _) in reversed(list(zip(blocks, block_names, strict=True))):
            if function in defined:
                return block.source
        for block in reversed(blocks):
            if function in _bound_names(block.source):
                return block.source
    candidates: list[_Block] = []
    before: set[str] = set()
    for block, (defined, used) in zip(blocks, block_names, strict=True):
        if not (used - defined) & before:
            candidates.append(block)
        before |= defined
    labelled = [block for block in candidates if block.labelled and not _is_output(block.source)]
    programs = (
        labelled or [block for block in candidates if _is_program(block.source)] or candidates
    )
    return programs[-1].source if programs else ""


def _names(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the functions and classes that a block defines, including methods, and the names that
    it uses."""
    if len(source) > MAX_PROGRAM_CHARS:
        return frozenset(), frozenset()
    try:
        nodes = list(ast.walk(parse_program(source)))
    except ValueError:
        return frozenset(), frozenset()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = {node.name for node in nodes if isinstance(node, kinds)}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(defined), frozenset(used)


def _bound_names(source: str) -> frozenset[str]:
    """Return the names that a block assigns or imports, outside of its functions: a function may
    also be bound by `g = solve` or `from math import gcd as g`."""
    if len(source) > MAX_PROGRAM_CHARS:
        return frozenset()
    try:
        tree = parse_program(source)
    except ValueError:
        return frozenset()
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname}
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) and node.value else targets
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(names)


_SESSION = re.compile(r"\s*>>> ")


def _is_output(source: str) -> bool:
    """Whether a block shows a session or a printed value, although it is labelled as Python."""
    if _SESSION.match(source):
        return True
    return _parses(source) and not _is_program(source)


def _blocks(text: str) -> tuple[list[_Block], bool]:
    """Return the contents of the fenced Python blocks, in order, each with its last newline, and
    whether there is any fence."""
    fences = [fence for fence in _FENCE.finditer(text) if _is_fence(fence)]
    blocks: list[_Block] = []
    at = 0
    while at < len(fences):
        opening = fences[at]
        following = at + 1
        closing = _find_closing_fence(text, fences, at)
        end = len(text)
        if closing is not None:
            end = fences[closing].start()
            # A fence with a language opens a block even if the previous block is not closed.
            following = closing if fences[closing]["info"].strip() else closing + 1
        language = _LANGUAGE.match(opening["info"].strip())
        name = language["name"] if language else ""
        if not name or _is_python(opening["info"]):
            blocks.append(
                _Block(_unindent_block(text[opening.end() + 1 : end], opening), labelled=bool(name))
            )
        at = following if closing is not None else len(fences)
    return blocks, bool(fences)


def _is_fence(fence: re.Match[str]) -> bool:
    return fence["marks"][0] == "~" or "`" not in fence["info"]


def _is_python(info: str) -> bool:
    language = _LANGUAGE.match(info.strip())
    name = language["name"] if language else ""
    # Handles `python3.11`, whose dot is not part of a name, and a file's name.
    return _PYTHON.fullmatch(name) is not None or _PYTHON_FILE.match(info.strip()) is not None


def _find_closing_fence(text: str, fences: Sequence[re.Match[str]], at: int) -> int | None:
    """Return the index of the fence that closes a block: the first possible one, or a later one if
    only that makes the block a program. None without one."""
    opening = fences[at]
    first: int | None = None
    for attempt, place in enumerate(range(at + 1, len(fences))):
        fence = fences[place]
        if not fence["marks"].startswith(opening["marks"]):
            continue
        if fence["info"].strip():
            return place if first is None else first
        if first is None:
            first = place
        content = _unindent_block(text[opening.end() + 1 : fence.start()], opening)
        if attempt >= _MAX_CLOSINGS or len(content) > MAX_PROGRAM_CHARS or _parses(content):
            return place if _parses(content) else first
    return first


def _parses(source: str) -> bool:
    if len(source) > MAX_PROGRAM_CHARS:
        return False
    try:
        parse_program(source)
    except ValueError:
        return False
    return True


def _unindent_block(source: str, opening: re.Match[str]) -> str:
    """Return the source of a block in a list or a quotation, without the prefix of each line."""
    if ">" in opening["indent"]:
        source = re.sub(r"^[ \t]{0,3}> ?", "", source, flags=re.MULTILINE)
    return textwrap.dedent(source) if opening["indent"] else source


def _is_program(text: str) -> bool:
    if len(text) > MAX_PROGRAM_CHARS:
        return False
    try:
        tree = parse_program(text.strip("\n"))
    except ValueError:
        return False
    calls = [node for node in tree.body if isinstance(node, ast.Expr)]
    return len(calls) < len(tree.body) or any(isinstance(node.value, ast.Call) for node in calls)
