"""Typed engine errors for an endpoint's complaints, without secrets in their text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from loopline.workers.engines.openai.complaints import Complaint
from loopline.workers.engines.openai.transport import NetworkError
from loopline.workers.engines.protocol import EngineError, ErrorKind

# LiteLLM has such lists, and one of finish reasons. As a library it costs 2 s and 200 MB at each
# start, looks up prices on the network, knows half of these texts, and takes the reason "error" for
# a good end: too much for two tables.
_OVERFLOW = re.compile(
    r"context[ _]?(length|window|size)[ _]?exceeded|exceed_context_size"
    r"|max(imum)?[ _](allowed )?(context|prompt|input|sequence|model|seq)[ _]?"
    r"(length|size|window|len)\b"
    r"|exceed\w*\b.{0,60}\b(context|model|session)[ _-]?(window|size|length|limit|len)\b"
    r"|(context|prompt|input)[ _]?(length|window|size)\b.{0,40}\bexceed"
    r"|\b(prompt|inputs?|messages|conversation|context)\b.{0,40}\btoo (long|large|many)\b"
    r"|\btoo many (input |prompt )?tokens\b"
    r"|\b(longer|larger|greater) than the (model|max|context)"
    r"|max_(completion_|new_)?tokens must be .{0,40}\bgot -"
    r"|\btokens?\b.{0,60}\b(exceed|over the limit|overflow)"
    r"|\bexceed\w*\b.{0,40}\btoken limit\b|\bcannot exceed \d+ tokens\b"
    r"|\breduce (the |your )?(length|size|prompt|input|number of (input )?tokens)"
    r"|`?inputs`? (tokens \+|must have less than)"
    r"|current length is .{0,20}while limit is|range of input length should be"
    r"|more than max(imum)? tokens\b|context length is \d+\b.{0,40}\b(prompt|input) (has|is) \d+"
    r"|\bprompt exceeds max length\b|\btokens_limit_reached\b"
    r"|context the overflows|context overflow|maximum number of tokens allowed|too long to fit\b"
    r"|\bn_keep\b.{0,20}>= n_ctx\b|\blength of (the )?(input|prompt|messages)\b.{0,20}\bexceed"
    r"|超长|(上下文|输入|最大).{0,12}长度.{0,12}超|超.{0,24}(上下文|最大|限制).{0,12}长度"
)
_RATE = re.compile(
    r"\brate.?limit|\bthrottl|\bplease wait\b"
    r"|\b(tokens|requests)\b.{0,8}\bper\b|\bper (min|day|hour)|\bquota\b"
)
# A part of the request that no shorter conversation changes: an id, a name, the token limit.
_OTHER_LIMIT = re.compile(
    r"messages\[\d+\]\.(?!content)[\w.\[\]]+'?: (string|array) too long"
    r"|\bmax(imum)?.?tokens you requested exceed"
)
_CHARACTERS = re.compile(r"\bcharacters?\b")
_TOKENS = re.compile(r"token|context")
_MONEY = re.compile(
    r"insufficient.{0,20}(quota|balance|credit|funds)|exceeded your current quota|\bbilling\b"
    r"|\b(balance|credits?|free tier)\b.{0,30}\b(used up|exhausted|empty|too low|insufficient|out"
    r"|depleted)\b|\b(have any|all available) credits\b|\bspending limit\b|\boverdue\b"
    r"|out of credits?|payment required|not enough (money|balance|credit)|quota is not enough"
    r"|\bin good standing\b|\bbudget has been exceeded\b|\bspecified api usage limits\b"
    r"|\bkey limit exceeded\b|余额不足|欠费|额度.{0,8}(不足|用尽|用完)|剩余额度"
)
# Groq's and OpenAI's rate limits advertise their billing page; Gemini's speak of the quota.
_PASSES = re.compile(
    r"\b(try again|retry) (in|after) \d|\bper ?(min(ute)?|second)|retry_?delay: \d"
    r"|\brate.?limit.?(reached|exceeded)"
)
_FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation", "responsibleaipolicyviolation",
     "moderation_blocked", "data_inspection_failed", "datainspectionfailed",
     "content_moderation", "censorship_blocked", "safety"}
)  # fmt: skip
_FILTERED = re.compile(
    r"\b(input|prompt|content|messages?)\b.{0,30}\bflagged\b|\brequires moderation\b"
    r"|\bviolat\w+ .{0,30}\b(usage|content) (guidelines|polic)|content exists risk"
    r"|content (filtering|management) policy|contentpolicyviolation|敏感内容"
    r"|\bcontent (filters?|moderation)\b|sensitive ?content ?detected|\bnew_sensitive\b"
    r"|\bunsafe or sensitive\b|\bmay contain (sensitive|inappropriate)\b|\bviolated guardrail\b"
    r"|\bblocked due to (safety|prohibited|recitation)|\bfor safety reasons\b"
)
_BAD_KEY = re.compile(
    r"\b(incorrect|invalid|expired) api.?key\b"
    r"|\bapi.?key (is )?(not valid|invalid|expired|incorrect)"
)
_UNUSABLE_CODES = frozenset({"tool_use_failed", "json_validate_failed"})
"""Groq's, for a model's output that breaks the rules of a call or of a schema. Another attempt may
keep to them."""
_MAX_SEARCHED = 4000


_LOST_BEHIND_A_GATEWAY = frozenset({408, 499, 502, 504, *range(520, 525)})
_REFUSALS: frozenset[ErrorKind] = frozenset({"bad_request", "auth", "rate_limited"})


class Refused(EngineError):
    """The endpoint answered with an error."""

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind,
        retryable: bool,
        complaint: Complaint,
        status: int | None,
    ) -> None:
        super().__init__(message, kind=kind, retryable=retryable)
        self.complaint = complaint
        self.status = status
        self.retry_after = complaint.retry_after


def refusal_of(
    complaint: Complaint, status: int | None, endpoint: str, secrets: Sequence[str], key_sent: bool
) -> Refused:
    """Build the typed error. `status` is the answer's; None for an error that came with status 200,
    alone or in the middle of a stream.

    Retryable: 408, 409, 424, 425, 498, 499, 429 (unless the account is empty), 5xx, and an error in
    a stream that does not state its type. Not retryable: all errors that the same request would get
    again.
    """
    place = f"{endpoint} answered {status}" if status else f"{endpoint} sent an error"
    kind, retryable, advice = _classify(complaint, status or complaint.status, key_sent)
    message = f"{place}: {complaint.quoted(secrets)}"
    if advice:
        message += f"; {advice}"
    return Refused(message, kind=kind, retryable=retryable, complaint=complaint, status=status)


def may_be_billed(error: EngineError | TimeoutError, *, has_answer: bool) -> bool:
    """Whether an endpoint may bill a call that failed with this error; `has_answer`: a part of an
    answer had arrived. It does not if nothing reached it or if it refused: no known endpoint bills
    its own errors. A gateway's time-out or a broken connection does not tell what the model behind
    it did."""
    if has_answer:
        return True
    match error:
        case Refused():
            return error.status in _LOST_BEHIND_A_GATEWAY
        case EngineError():
            cause = error.__cause__
            never_sent = isinstance(cause, NetworkError) and cause.never_sent
            return error.kind not in _REFUSALS and not never_sent
        case _:
            return True


def is_overflow(complaint: Complaint) -> bool:
    """Whether the prompt, or prompt plus answer, is too long for the model."""
    words = _search_text(complaint)
    if _RATE.search(words) or _OTHER_LIMIT.search(words) or not _OVERFLOW.search(words):
        return False
    return not _CHARACTERS.search(words) or _TOKENS.search(words) is not None


def _classify(
    complaint: Complaint, status: int | None, key_sent: bool
) -> tuple[ErrorKind, bool, str]:
    """Return the kind, whether to retry, and advice."""
    codes, words = complaint.codes, _search_text(complaint)
    if codes & _FILTER_CODES or (status in (None, 400, 403, 422) and _FILTERED.search(words)):
        return "content_filter", False, ""
    if status not in (401, 429) and is_overflow(complaint):
        return "context_overflow", False, ""
    if "insufficient_quota" in codes or (status != 401 and _is_broke(complaint)):
        kind: ErrorKind = "bad_request" if status == 402 else "rate_limited"
        return kind, False, "the account's quota is used up: add credit, or use another key"
    if codes & _UNUSABLE_CODES:
        return "garbage", True, ""
    if status == 400 and _BAD_KEY.search(words):  # Gemini's and xAI's
        status = 401
    match status:
        case 401 | 403:
            if key_sent:
                return "auth", False, "the key was refused; check the key in api_key_env"
            return "auth", False, "no key was sent; name its variable in api_key_env"
        case 404 | 405:
            return "bad_request", False, "check the model's name and the base_url"
        case 413:
            too_fast = "rate_limit_exceeded" in codes or _RATE.search(words)
            return ("rate_limited" if too_fast else "bad_request"), False, ""
        case 408 | 409 | 424 | 425 | 498 | 499:  # Bedrock's model, Groq's capacity, Google's cancel
            return "unavailable", True, ""
        case 429:
            return "rate_limited", True, ""
        case int() if status >= 500:
            return "unavailable", True, ""
        case int():
            return "bad_request", False, ""
        case None:
            return _classify_codes(codes)


def _is_broke(complaint: Complaint) -> bool:
    """Whether the account has no money left, so that no wait helps."""
    if not _MONEY.search(_search_text(complaint)):
        return False
    return not _PASSES.search(f"{_search_text(complaint)} {complaint.rest.lower()[:_MAX_SEARCHED]}")


def _classify_codes(codes: frozenset[str]) -> tuple[ErrorKind, bool, str]:
    """Classify an error without a status: its kind, whether to retry, and advice."""
    code_text = " ".join(codes)
    if "rate_limit" in code_text:
        return "rate_limited", True, ""
    if "authentication" in code_text or "invalid_api_key" in code_text or "permission" in code_text:
        return "auth", False, "check the key in api_key_env"
    if "invalid_request" in code_text or "badrequest" in code_text or "not_found" in code_text:
        return "bad_request", False, ""
    return "unavailable", True, ""


def _search_text(complaint: Complaint) -> str:
    words = " ".join((complaint.message, *complaint.codes)).lower()
    return " ".join(words[:_MAX_SEARCHED].split())
