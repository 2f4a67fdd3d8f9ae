"""Generated text on its way from an engine to a run's followers, over changes of worker.

A worker that takes a request over finds what its predecessor published. An engine that can go
on from ids does so; another generates again, and what followers have already is held back. If
its new text differs from the old one (a remote model without a fixed seed), or an engine finds
that it would never have said the old one (its weights are newer), followers are told to begin
this call's text again. So they are where the ids were drawn by other weights than those that
would go on: their log-probabilities are not what was sampled from.
"""

from __future__ import annotations

import time

from loopline.bus import Delivery, TokenWriter, Weights
from loopline.workers.engines.protocol import CannotContinue, Delta, GenerateRequest

FLUSH_SECONDS = 0.05
"""Pieces are published together at most this often: twenty times a second reads as live, and
costs a fraction of a publication per token."""


class TokenStream:
    """Publishes one request's deltas (of its first completion)."""

    def __init__(self, delivery: Delivery, agent: str, base: str, continues: bool) -> None:
        """`base` is the engine's; `continues`: it can go on from ids of this request."""
        self._writer = TokenWriter(delivery, agent)
        self._base = base
        self._continues = continues
        self._weights: Weights | None = None
        self._owed = ""
        """Text that followers already have and the engine generates again."""
        self._again = ""
        self._text: list[str] = []
        self._ids: list[int] = []
        self._restart = False
        self._flushed = time.monotonic()

    async def resume(self, request: GenerateRequest) -> GenerateRequest:
        """The request with the ids to go on from, and the version of its adapter that drew them;
        as it is on a first delivery or where nothing is continued.

        Raises CannotContinue for ids of another model or adapter, or of nobody knows which."""
        published = await self._writer.published()
        if not self._continues:
            self._owed = published.text
            return request
        if not published.ids:
            return request
        drawn_by = published.weights
        if drawn_by is None or drawn_by[:2] != (self._base, request.adapter):
            raise CannotContinue(
                f"request {request.id}: the ids to continue from were drawn by other weights or "
                "by unknown ones; ask again from the start"
            )
        # Which version serves now, only the engine can say.
        return request.model_copy(
            update={"resume_ids": published.ids, "resume_version": drawn_by.version}
        )

    def begin_anew(self) -> None:
        """Withdraw the published text: the engine can't continue from its ids."""
        self._restart = True

    async def write(self, delta: Delta) -> None:
        if self._continues:
            self._weights = Weights(self._base, delta.adapter, delta.adapter_version)
        text, ids = delta.text, list(delta.ids) or [0] * bool(delta.text)
        if self._owed:
            self._again += text
            if self._owed.startswith(self._again) and len(self._again) < len(self._owed):
                return
            if self._again.startswith(self._owed):
                text = self._again[len(self._owed) :]
                # A piece that followers have whole was published with its ids.
                ids = ids if text else []
            else:
                text, self._restart = self._again, True
            self._owed = ""
        # Ids without text are part of a character that is not whole yet: a successor needs them.
        self._text.append(text)
        self._ids += ids
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            await self.flush()

    async def finish(self) -> None:
        """Publish what is left, also when the new text ended before the old one did."""
        if self._owed:
            self._text, self._ids, self._restart = [self._again], [0], True
            self._owed = ""
        await self.flush()

    async def flush(self) -> None:
        self._flushed = time.monotonic()
        if not self._ids and not self._restart:
            return
        text, ids, restart = "".join(self._text), self._ids, self._restart
        self._text, self._ids, self._restart = [], [], False
        await self._writer.append(text, ids, weights=self._weights, restart=restart)
