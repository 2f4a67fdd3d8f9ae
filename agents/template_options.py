"""Inputs of a chat template besides the conversation, such as Qwen3's `enable_thinking`: set by a
profile for all answers of a model, or by a run for one agent."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

TemplateValue = bool | int | float | str

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_TEXT = re.compile(r"[\w .,:+/-]{1,100}")
"""Nothing that a tokenizer could read as the end of a turn."""
_MOST = 16
_TAKEN = frozenset(
    [
        # Variables that engines pass to a template, and parameters of the packages that render it.
        "add_generation_prompt", "chat_template", "continue_final_message", "conversation",
        "conversations", "documents", "function_call", "functions", "kwargs", "max_length",
        "messages", "padding", "raise_exception", "return_assistant_tokens_mask", "return_dict",
        "return_tensors", "sanitize_control_tokens", "self", "strftime_now", "tokenize",
        "tokenizer_kwargs", "tool_choice", "tools", "truncation",
        # Names that the template language itself defines.
        "caller", "cycler", "dict", "joiner", "lipsum", "loop", "namespace", "range", "super",
        "varargs",
    ]
)  # fmt: skip


def read_text(value: Any) -> Any:
    """An option that was written as text (`--set`, an environment variable), parsed as JSON if
    possible: in a template, the text `false` would count as true."""
    if not isinstance(value, str):
        return value
    try:
        result: Any = json.loads(value)
    except ValueError:
        return value
    return result if isinstance(result, bool | int | float) else value


def check_options(options: dict[str, TemplateValue]) -> dict[str, TemplateValue]:
    """The options. Raises ValueError for an option that would replace something else in a template,
    or could write the markup of a turn into a prompt."""
    if len(options) > _MOST:
        raise ValueError(f"{len(options)} options for a chat template; at most {_MOST} are allowed")
    for name, value in options.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not a variable name in a chat template")
        if name in _TAKEN or name.endswith(("_token", "_tokens", "_token_id")):
            raise ValueError(
                f"{name!r} is given to the chat template already; options are its own switches, "
                "such as enable_thinking"
            )
        if isinstance(value, str) and not _TEXT.fullmatch(value):
            raise ValueError(
                f"{name} = {value[:80]!r}: a text for a chat template has at most 100 letters, "
                "digits, spaces and . , : + / - _"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} = {value}: give a finite number")
    return options


TemplateOptions = Annotated[
    dict[str, Annotated[TemplateValue, BeforeValidator(read_text)]], AfterValidator(check_options)
]
