"""What one endpoint accepts, learnt from its settings and its refusals.

A field that an endpoint refuses is left out for the rest of this process, and logged once. The
endpoint then samples with its default. Only fields that an answer can do without are left out:
never the tools, the schema, the token limit, or fields that the ledger relies on (`stream_options`:
it requests the usage).
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
_LEFT_OUT_IN_ORDER = (
    "top_logprobs", "seed", "n", "frequency_penalty", "presence_penalty", "top_p", "stop",
    "temperature", "stream",
)  # fmt: skip
"""Least important first: where an endpoint accepts only one of two fields, the first is left
out."""
_LIMITS = ("max_tokens", "max_completion_tokens")
_REFUSES = re.compile(
    r"unsupported|not (\w+ )?(support|permit|allow|accept|recogni|available|applicable|implemented)"
    r"|(un|not )(known|recogni[sz]ed|expected)|unknown|unrecogni|unexpected|\bextra\b"
    r"|cannot find field|no such (field|parameter)|only the default|deprecated|isn't supported"
    r"|\bonly\b.{0,30}\b(support|allow|accept)|cannot (both )?be (used|specified|set)"
    r"|does ?n[o']t (support|accept|allow)|must be 1\b|(strictly positive|greater than 0\b)"
    r"|not both|no longer"
)
_ONE_ANSWER = re.compile(r"\bonly one (completion )?choice\b|'n' ?: number must be at most 1\b")
"""Refusals of `n` by llama-server and Groq."""
_SHORT_IDS = re.compile(
    r"\btool[ _]?call[ _]?ids?\b.{0,200}\blength(?: of)? 9\b"
    r"|\btool_call(?:s\[\d+\]\.|_)id\b.{0,20}\bstring too long\b"
)
_SYSTEM_FIRST = re.compile(r"\bsystem message must be (?:at the beginning|first|the first)\b")
_THOUGHTS = re.compile(
    r"\breasoning[_ ]content\b.{0,60}\b(missing|required|passed back)\b"
    r"|\bmissing\b.{0,20}\breasoning[_ ]content\b"
)
_SIGNATURE = re.compile(r"\bthought[_ ]?signature\b")
_NO_JSON_MODE = re.compile(r"^(?!.*\bmust contain\b).*(response_format|json_object)", re.DOTALL)
"""OpenAI demands the word JSON in a message: that refusal is meant for the caller."""
_SETTINGS = {
    "response_format": "json_schema = false",
    "top_k": "top_k = false",
    "return_token_ids": "token_ids = false",
    "logprobs": 'logprobs = "none"',
    "chat_template_kwargs": "template_options = {}",
    "stream_options": 'leave_out = ["stream_options"] (if streams report their usage '
    'anyway) or leave_out = ["stream"]',
    "max_tokens": "max_tokens_field",
    "max_completion_tokens": "max_tokens_field",
}


class Habits:
    """Request format that one endpoint accepts for one model, learnt from its refusals."""

    def __init__(self, settings: ModelSettings) -> None:
        self.left_out: set[str] = set(settings.leave_out)
        self.limit_field = _limit_field(settings)
        self.no_content: str | None = ""
        """Content of an assistant's turn with only tool calls. Most servers accept the empty text;
        some refuse null, some the empty text, also that of a tool."""
        self.long_ids = True
        """Whether a call may have any id; Mistral accepts only nine letters and digits."""
        self.late_system = True
        """Whether a system turn may follow other turns; the template of Qwen3.5 refuses that."""
        self.sends_thoughts = False
        """Whether each turn of an assistant has thoughts, at least a blank: Kimi, DeepSeek 4 and
        MiMo refuse turns without them while they think."""
        self.signs_calls = False
        """Whether the first call of a turn always has a signature: Gemini 3 refuses turns without
        one, and many clients don't send it back."""
        self.sends_extras = True
        """Whether calls have the `extra_content` that they came with, maybe from another
        endpoint."""
        self.json_mode = True
        """Whether any JSON object is requested by the type `json_object`, which DeepSeek only
        accepts; LM Studio accepts only `json_schema`."""
        self.answers_n = True
        """Whether the endpoint returns more than one completion per request when asked."""
        self.counts_streams = False
        """Whether a stream has reported its usage."""
        self._can_leave_out = _LEFT_OUT_IN_ORDER
        if settings.logprobs == "none":
            # They are requested only for their token texts, and an answer is complete without them.
            self._can_leave_out += ("logprobs",)
        self._by_schema = settings.json_schema
        self._other_limit_tried = settings.max_tokens_field != "auto"

    def learn(self, refusal: Refused, body: Mapping[str, object]) -> str | None:
        """Learn from a refusal how to send requests from now on. Returns the change in words; None
        if nothing can be learnt."""
        if refusal.kind not in ("bad_request", "unavailable") or refusal.status not in _STATUSES:
            return None
        complaint, words = refusal.complaint, _words(refusal.complaint)
        form = (
            self._learn_form(words)
            or self._learn_thoughts(words, complaint)
            or self._learn_json_mode(words, body)
        )
        if form is not None:
            return form
        if "n" in body and _ONE_ANSWER.search(words):
            return self._leave_out("n")
        if not _REFUSES.search(words):
            return self._learn_content(words, body)
        if self.sends_extras and "extra_content" in words:
            self.sends_extras = False
            return "calls are sent without extra_content from now on"
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
            return self._leave_out(name)
        return self._learn_content(words, body)

    def _leave_out(self, name: str) -> str:
        self.left_out.add(name)
        return f"{name} is left out from now on (always: leave_out = [{name!r}])"

    def _learn_form(self, words: str) -> str | None:
        if self.long_ids and _SHORT_IDS.search(words):
            self.long_ids = False
            return "call ids have nine letters and digits from now on"
        if not self.signs_calls and _SIGNATURE.search(words):
            self.signs_calls = True
            return "calls have a signature from now on"
        if self.late_system and _SYSTEM_FIRST.search(words):
            self.late_system = False
            return "all system texts are sent in one first turn from now on"
        return None

    def _learn_thoughts(self, words: str, complaint: Complaint) -> str | None:
        # MiMo's sentence is in `param`.
        if self.sends_thoughts or not _THOUGHTS.search(
            " ".join((words, *complaint.fields)).lower()
        ):
            return None
        self.sends_thoughts = True
        return "an assistant's turns have reasoning_content from now on"

    def _learn_json_mode(self, words: str, body: Mapping[str, object]) -> str | None:
        sent = body.get("response_format") == {"type": "json_object"}
        if not (sent and self.json_mode and self._by_schema and _NO_JSON_MODE.search(words)):
            return None
        self.json_mode = False
        return "JSON objects are requested by a schema from now on"

    def learn_missing_usage(self) -> str | None:
        """After a complete stream without usage (llama-cpp-python's server sends such streams),
        switch to whole answers, unless an earlier stream reported its usage."""
        if self.counts_streams or "stream" in self.left_out:
            return None
        self.left_out.add("stream")
        return 'whole answers are requested from now on (always: leave_out = ["stream"])'

    def _learn_limit(self, name: str) -> str | None:
        if self._other_limit_tried:
            return None
        self._other_limit_tried = True
        self.limit_field = _LIMITS[1 - _LIMITS.index(name)]
        return f"{self.limit_field} is sent instead from now on (always: max_tokens_field)"

    def _learn_content(self, words: str, body: Mapping[str, object]) -> str | None:
        if self.no_content is None or "content" not in words or not _sends_no_content(body):
            return None
        if not re.search(r"\b(non-?)?empty\b|\bblank\b|\bnull\b|\bat least\b", words):
            return None
        self.no_content = None
        return "empty texts of calls and of tools are not sent from now on"


def advice(refusal: Refused, body: Mapping[str, object]) -> str | None:
    """The setting that stops requests for the field that an endpoint refuses."""
    words = _words(refusal.complaint)
    if refusal.kind != "bad_request" or not _REFUSES.search(words):
        return None
    for name, setting in _SETTINGS.items():
        if name in body and _mentions(name, refusal.complaint, words):
            return f"if the endpoint does not support {name}, set {setting} in its [models] table"
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
    if name in ("n", "stop", "stream"):  # also ordinary words: match them only as a field's name
        pattern = (
            rf"['\"`]{name}['\"`]|\b{name} ?(>|=|must|parameter|is not)|\binvalid {name}:"
            rf"|\b(supported|unknown|unexpected|unrecogni[sz]ed)\b[^:.]{{0,30}}: {name}\b"
        )
    else:  # xAI writes presencePenalty; "seed-oss" is a model
        pattern = rf"(?<![\w-]){name.replace('_', '_?')}(?![\w-])"
    return re.search(pattern, words) is not None


def _sends_no_content(body: Mapping[str, object]) -> bool:
    turns = cast(list[Mapping[str, object]], body.get("messages", []))
    return any(
        turn["content"] == "" and ("tool_calls" in turn or turn["role"] == "tool") for turn in turns
    )


MAX_NOTICES = 256
"""If an endpoint has more peculiarities than this, the oldest may be logged again."""


class Notices:
    """Logs the peculiarities of one endpoint as warnings, each once."""

    def __init__(self, endpoint: str, log: logging.Logger) -> None:
        """`endpoint` is its name in each warning."""
        self._endpoint = endpoint
        self._log = log
        self._logged: Remembered[str, None] = Remembered(MAX_NOTICES)

    def log_once(self, what: str) -> None:
        if what not in self._logged:
            self._logged.set(what, None)
            self._log.warning("%s %s", self._endpoint, what)
