"""Streams generated text from an engine to a run's followers, even if the worker changes.

A worker that takes over a request finds the text that its predecessor published. An engine that can
continue from token ids does so. Another engine generates again, and the stream withholds the text
that followers already have. Followers are told to restart this call's text if the new text differs
from the old one (a remote model without a fixed seed), or if the engine would not have generated
the old one (its weights are newer). The same applies if the ids were sampled by other weights than
those that would continue, since their log-probabilities would not match the sampling.
"""

from __future__ import annotations

import math
import time

from loopline.bus import Delivery, TokenWriter, Weights
from loopline.workers.engines.protocol import CannotContinue, Delta, GenerateRequest

FLUSH_SECONDS = 0.05
"""Shortest time between two publications of pieces. Twenty per second reads as live, and costs a
fraction of one publication per token. The first piece is published at once."""


class TokenStream:
    """Publishes one request's deltas (of its first completion)."""

    def __init__(self, delivery: Delivery, agent: str, base: str, continues: bool) -> None:
        """`base` is the engine's; `continues`: whether it can continue this request from ids."""
        self._writer = TokenWriter(delivery, agent)
        self._base = base
        self._continues = continues
        self._weights: Weights | None = None
        self._known = ""
        """Text that followers already have and that the engine generates again."""
        self._repeat = ""
        self._text: list[str] = []
        self._ids: list[int] = []
        self._restart = False
        self._flushed = -math.inf

    async def resume(self, request: GenerateRequest) -> GenerateRequest:
        """The request with the ids to continue from and the adapter version that sampled them;
        unchanged on a first delivery or if nothing is continued.

        Raises CannotContinue for ids of another or an unknown model or adapter.
        """
        published = await self._writer.published()
        if not self._continues:
            self._known = published.text
            return request
        if not published.ids:
            return request
        sampled_by = published.weights
        if sampled_by is None or sampled_by[:2] != (self._base, request.adapter):
            raise CannotContinue(
                f"request {request.id}: the ids to continue from were sampled by other or "
                "unknown weights; send the request again without them"
            )
        # Only the engine knows which version serves now.
        return request.model_copy(
            update={"resume_ids": published.ids, "resume_version": sampled_by.version}
        )

    def restart(self) -> None:
        """Withdraw the published text: the engine can't continue from its ids."""
        self._restart = True

    async def write(self, delta: Delta) -> None:
        if self._continues:
            self._weights = Weights(self._base, delta.adapter, delta.adapter_version)
        text, ids = delta.text, list(delta.ids) or [0] * bool(delta.text)
        if self._known:
            self._repeat += text
            if self._known.startswith(self._repeat) and len(self._repeat) < len(self._known):
                return
            if self._repeat.startswith(self._known):
                text = self._repeat[len(self._known) :]
                # A piece whose text followers have completely was published with its ids.
                ids = ids if text else []
            else:
                text, self._restart = self._repeat, True
            self._known = ""
        # Ids without text belong to an incomplete character: a successor needs them.
        self._text.append(text)
        self._ids += ids
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            await self.flush()

    async def finish(self) -> None:
        """Publish the rest, even if the new text ended before the old one did."""
        if self._known:
            self._text, self._ids, self._restart = [self._repeat], [0], True
            self._known = ""
        await self.flush()

    async def flush(self) -> None:
        if not self._ids and not self._restart:
            return
        self._flushed = time.monotonic()
        text, ids, restart = "".join(self._text), self._ids, self._restart
        self._text, self._ids, self._restart = [], [], False
        await self._writer.append(text, ids, weights=self._weights, restart=restart)
