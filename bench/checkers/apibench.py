"""APIBench's AST evaluation: is the call an API of the hub, and of the question's domain?

A call is in the database if an entry has its function's name and all argument values of that entry
are among the call's (for Torch Hub only `repo_or_dir` and `model`, as published; a repository's
`:tag` is ignored). The call is right if such an entry has the question's domain. A call that is not
in the database is a hallucination.

The published scorer differs in four ways that make it wrong. If no call has an entry's name, it
continues with the last call that it checked. It searches for a value anywhere in the call's *text*,
so a made-up longer name passes. It never finds an API without arguments. It takes the first of
several matching entries, although a call may belong to several domains: on TensorFlow Hub it marks
27 of its own 688 references wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from loopline.bench.checkers.python_calls import PythonCall, calls
from loopline.bench.datasets.apibench import Api, Hub
from loopline.trainers.data.json_files import Skipped

_TORCH_ARGUMENTS = ("repo_or_dir", "model")


class ApiVerdict(StrEnum):
    """Verdicts from best to worst; the best of several calls counts."""

    RIGHT = "right"
    OTHER_DOMAIN = "an API of another domain"
    UNKNOWN_ARGUMENTS = "a known function with arguments of no API"
    UNKNOWN_FUNCTION = "a function that the hub does not have"
    NO_CALL = "no call"

    @property
    def hallucinated(self) -> bool:
        return self in (ApiVerdict.UNKNOWN_ARGUMENTS, ApiVerdict.UNKNOWN_FUNCTION)


_RANKS = {verdict: rank for rank, verdict in enumerate(ApiVerdict)}


@dataclass(frozen=True)
class _Entry:
    values: tuple[str, ...]
    domain: str


class ApiDatabase:
    """A hub's APIs, indexed for lookup."""

    def __init__(self, hub: Hub, apis: Iterable[Api]) -> None:
        self._hub: Hub = hub
        self._entries: defaultdict[str, list[_Entry]] = defaultdict(list)
        unusable: list[Skipped] = []
        for number, api in enumerate(apis):
            api_calls = calls(api.api_call)
            if api_calls:
                entry = _Entry(self._values(api_calls[0]), api.domain)
                self._entries[api_calls[0].name].append(entry)
            else:
                where = f"{hub}[{number}]"
                unusable.append(Skipped(where, "an API that is not a call", api.api_call[:80]))
        self.unusable = tuple(unusable)
        """Entries that no call can match: shell commands, or truncated calls."""

    def check(self, output: str, domain: str) -> ApiVerdict:
        """Return the verdict on a model's whole output."""
        verdicts = [self._check(call, domain) for call in calls(_call_section(output))]
        return min(verdicts, key=_RANKS.__getitem__, default=ApiVerdict.NO_CALL)

    def _check(self, call: PythonCall, domain: str) -> ApiVerdict:
        entries = self._entries.get(call.name)
        if entries is None:
            return ApiVerdict.UNKNOWN_FUNCTION
        argument_values = {self._strip_tag(value) for _, value in call.arguments}
        domains = {entry.domain for entry in entries if argument_values.issuperset(entry.values)}
        if not domains:
            return ApiVerdict.UNKNOWN_ARGUMENTS
        return ApiVerdict.RIGHT if domain in domains else ApiVerdict.OTHER_DOMAIN

    def _values(self, call: PythonCall) -> tuple[str, ...]:
        return tuple(
            self._strip_tag(value)
            for keyword, value in call.arguments
            if self._hub != "torchhub" or keyword in _TORCH_ARGUMENTS
        )

    def _strip_tag(self, value: str) -> str:
        if self._hub != "torchhub" or "/" not in value:
            return value
        return value.partition(":")[0]


def _call_section(output: str) -> str:
    """Return the text between `api_call` and `api_provider`, or the whole output if it lacks that
    form."""
    _, marker, rest = output.partition("api_call")
    return rest.partition("api_provider")[0] if marker else output
