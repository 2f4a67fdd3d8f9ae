"""What one endpoint takes: as its settings say, and as its refusals teach.

A field that an endpoint refuses is left out from then on, for as long as this process lives, and
said once in the log. What it samples with is then the endpoint's default. Only fields whose
absence leaves the answer an answer are left out so: never the tools, the schema, the limit of
tokens, or what the ledger relies on (`stream_options`: it asks for the usage).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import cast

from loopline.bus.bounded import Remembered
from loopline.workers.engines.openai.complaints import Complaint
from loopline.workers.engines.openai.errors import Refused
from loopline.workers.engines.settings import ModelSettings

_STATUSES = frozenset({400, 422, 500, 501})
_LEFT_OUT_IN_ORDER = ("top_logprobs", "seed", "n", "top_p", "stop", "temperature", "stream")
"""The least loss first: where an endpoint takes only one of two, the first is left out."""
_LIMITS = ("max_tokens", "max_completion_tokens")
_REFUSES = re.compile(
    r"unsupported|not (\w+ )?(support|permit|allow|accept|recogni|available|applicable|implemented)"
    r"|(un|not )(known|recogni[sz]ed|expected)|unknown|unrecogni|unexpected|\bextra\b"
    r"|cannot find field|no such (field|parameter)|only the default|deprecated|isn't supported"
    r"|\bonly\b.{0,30}\b(support|allow|accept)|cannot (both )?be (used|specified|set)"
    r"|does ?n[o']t (support|accept|allow)|must be 1\b|(strictly positive|greater than 0\b)"
    r"|not both|no longer"
)
_SHORT_IDS = re.compile(r"\btool[ _]?call[ _]?ids?\b.{0,200}\blength(?: of)? 9\b")
_SYSTEM_FIRST = re.compile(r"\bsystem message must be (?:at the beginning|first|the first)\b")
_SETTINGS = {
    "response_format": "json_schema = false",
    "top_k": "top_k = false",
    "return_token_ids": "token_ids = false",
    "logprobs": 'logprobs = "none"',
    "chat_template_kwargs": "template_options = {}",
    "stream_options": 'leave_out = ["stream_options"] (where streams report their usage all the '
    'same) or leave_out = ["stream"]',
    "max_tokens": "max_tokens_field",
    "max_completion_tokens": "max_tokens_field",
}


class Habits:
    """Request format that one endpoint accepts for one model, learnt from its refusals."""

    def __init__(self, settings: ModelSettings) -> None:
        self.left_out: set[str] = set(settings.leave_out)
        self.limit_field = _limit_field(settings)
        self.no_content: str | None = ""
        """Content of an assistant's turn that has calls alone. Most servers take the empty text;
        some refuse null, some the empty text."""
        self.long_ids = True
        """Whether a call may have any id; Mistral takes nine letters and digits alone."""
        self.late_system = True
        """Whether a system turn may stand behind others; the template of Qwen3.5 refuses it."""
        self.answers_n = True
        """Whether the endpoint returns more than one completion per request when asked."""
        self.counts_streams = False
        """Whether a stream has reported its usage."""
        self._can_leave_out = _LEFT_OUT_IN_ORDER
        if settings.logprobs == "none":
            # They are asked for their tokens' texts alone, without which an answer is whole.
            self._can_leave_out += ("logprobs",)
        self._other_limit_tried = settings.max_tokens_field != "auto"

    def learn(self, refusal: Refused, body: Mapping[str, object]) -> str | None:
        """Learn from a refusal what to send from now on. Returns what that is, None if nothing can
        be learnt."""
        if refusal.kind not in ("bad_request", "unavailable") or refusal.status not in _STATUSES:
            return None
        complaint, words = refusal.complaint, _words(refusal.complaint)
        form = self._learn_form(words)
        if form is not None:
            return form
        if not _REFUSES.search(words):
            return self._learn_content(words, body)
        for name in _LIMITS:
            if name in body and _mentions(name, complaint, words):
                return self._learn_limit(name)
        named = [
            name
            for name in self._can_leave_out
            if name in body and _mentions(name, complaint, words)
        ]
        by_name = [name for name in named if name in complaint.fields]
        for name in (*by_name, *named):
            self.left_out.add(name)
            return f"{name} is left out from now on (always: leave_out = [{name!r}])"
        return self._learn_content(words, body)

    def _learn_form(self, words: str) -> str | None:
        if self.long_ids and _SHORT_IDS.search(words):
            self.long_ids = False
            return "ids of calls have nine letters and digits from now on"
        if self.late_system and _SYSTEM_FIRST.search(words):
            self.late_system = False
            return "the texts of all system turns are sent as the first one from now on"
        return None

    def learn_missing_usage(self) -> str | None:
        """Take from a stream that came to its end without a usage, as those of llama-cpp-python's
        server do, to ask for whole answers; not where an earlier one had it."""
        if self.counts_streams or "stream" in self.left_out:
            return None
        self.left_out.add("stream")
        return 'whole answers are asked for from now on (always: leave_out = ["stream"])'

    def _learn_limit(self, name: str) -> str | None:
        if self._other_limit_tried:
            return None
        self._other_limit_tried = True
        self.limit_field = _LIMITS[1 - _LIMITS.index(name)]
        return f"{self.limit_field} is sent in its place (always: max_tokens_field)"

    def _learn_content(self, words: str, body: Mapping[str, object]) -> str | None:
        if self.no_content is None or "content" not in words or not _sends_no_content(body):
            return None
        if not re.search(r"\b(non-?)?empty\b|\bblank\b|\bnull\b|\bat least\b", words):
            return None
        self.no_content = None
        return "the content of turns with tool calls alone is sent as null"


def advice(refusal: Refused, body: Mapping[str, object]) -> str | None:
    """The setting that keeps an endpoint from being asked for what it refuses."""
    words = _words(refusal.complaint)
    if refusal.kind != "bad_request" or not _REFUSES.search(words):
        return None
    for name, setting in _SETTINGS.items():
        if name in body and _mentions(name, refusal.complaint, words):
            return f"if the endpoint has no {name}, set {setting} in its [models] table"
    return None


def _limit_field(settings: ModelSettings) -> str:
    if settings.max_tokens_field != "auto":
        return settings.max_tokens_field
    return "max_completion_tokens" if settings.base_url is None else "max_tokens"


def _words(complaint: Complaint) -> str:
    return " ".join((complaint.message, *complaint.codes)).lower()[:4000]


def _mentions(name: str, complaint: Complaint, words: str) -> bool:
    if name in complaint.fields:
        return True
    if name in ("n", "stop", "stream"):  # words of their own: only as a field's name
        return (
            re.search(rf"['\"`]{name}['\"`]|\b{name} ?(>|=|must|parameter|is not)", words)
            is not None
        )
    return re.search(rf"(?<![\w]){name}(?![\w])", words) is not None


def _sends_no_content(body: Mapping[str, object]) -> bool:
    turns = cast(list[Mapping[str, object]], body.get("messages", []))
    return any("tool_calls" in turn and turn["content"] == "" for turn in turns)


MAX_NOTICES = 256
"""An endpoint that has more peculiarities is told of the oldest again."""


class Notices:
    """Peculiarities of one endpoint, as warnings."""

    def __init__(self, endpoint: str, log: logging.Logger) -> None:
        """`endpoint` names it in each warning."""
        self._endpoint = endpoint
        self._log = log
        self._said: Remembered[str, None] = Remembered(MAX_NOTICES)

    def log_once(self, what: str) -> None:
        if what not in self._said:
            self._said.set(what, None)
            self._log.warning("%s %s", self._endpoint, what)
