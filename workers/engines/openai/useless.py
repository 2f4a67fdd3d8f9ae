"""Answers that were paid for and cannot be used: how many of them a request may cost."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from loopline.agents.records import Usage
from loopline.workers.engines.settings import ModelSettings, cost_micro_dollars

_REMEMBERED = 10_000
"""Requests: a step that is tried again asks under the same id."""


@dataclass
class _Spent:
    answers: int = 0
    micro_dollars: int = 0
    last: int = 0
    why: str = ""


class UselessAnswers:
    """Of one endpoint, by request, over all its attempts in this process."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._spent: OrderedDict[str, _Spent] = OrderedDict()

    def add(self, request_id: str, usage: Usage | None, why: str) -> None:
        """One more, and why it is of no use; `usage` is None where the endpoint did not say what it
        costs."""
        spent = self._spent.setdefault(request_id, _Spent())
        self._spent.move_to_end(request_id)
        spent.answers += 1
        spent.why = why
        spent.last = 0 if usage is None else cost_micro_dollars(usage, self._settings.price)
        spent.micro_dollars += spent.last
        while len(self._spent) > _REMEMBERED:
            self._spent.popitem(last=False)

    def forget(self, request_id: str) -> None:
        """It was answered in the end."""
        self._spent.pop(request_id, None)

    def exhausted(self, request_id: str) -> str | None:
        """Why the request may not be sent again; None while it may. The next answer is taken to
        cost what the last one did."""
        spent = self._spent.get(request_id)
        if spent is None:
            return None
        settings = self._settings
        if spent.answers >= settings.max_useless_answers:
            limit = f"max_useless_answers = {settings.max_useless_answers}"
        elif spent.micro_dollars + spent.last > settings.max_useless_dollars * 1_000_000:
            limit = f"max_useless_dollars = {settings.max_useless_dollars}"
        else:
            return None
        return (
            f"{spent.answers} answers to the request were paid for in vain "
            f"({spent.micro_dollars / 1e6:.6g} USD), so it is not sent again ({limit}); the last: "
            f"{spent.why}"
        )
