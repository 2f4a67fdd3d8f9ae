"""Builds the events of a request from the pieces of a server's answer.

The rows of `loopline.workers.engines.local.row` turn the tokens into text, calls and records, as
for a model in this process. A broken stream is requested again from its start, with the same seed:
the part that was already shown is compared, and only the rest is shown. A stream that another
worker started is continued in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline.workers.engines.local.row import Job, Row
from loopline.workers.engines.local.sampling import Sampled
from loopline.workers.engines.protocol import CannotContinue, Completion, Delta
from loopline.workers.engines.vllm.server import Server
from loopline.workers.engines.vllm.wire import Part, Piece


@dataclass
class Answering:
    """One request, over all its attempts. `processed`: the server's log-probabilities refer to the
    distribution that it sampled from, after temperature and filters; otherwise to the model's
    own."""

    job: Job
    vocabulary: int
    processed: bool
    counts_filters: bool = True
    """Whether processed log-probabilities also include top_p and top_k."""
    shown_ids: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Ids of each completion that were already shown."""

    def __post_init__(self) -> None:
        request = self.job.request
        self.shown_ids = {index: [] for index in range(request.sampling.n)}
        self.shown_ids[0].extend(request.resume_ids)

    @property
    def rows(self) -> list[Row]:
        return self.job.rows

    def take(self, part: Part, server: Server, model: str) -> None:
        """Process a part of the answer from `model`. Raises EngineError: `garbage` for impossible
        tokens or prompts, CannotContinue if the text differs from the one already shown."""
        server.expect(condition=part.model in (None, model), what=f"an answer from {part.model!r}")
        prompt = self.rows[0].prompt.ids
        server.expect(
            condition=part.prompt_ids is None or list(part.prompt_ids) == prompt,
            what="other prompt_token_ids than those of the request",
        )
        if part.cached is not None:
            self.rows[0].cached = min(part.cached, len(prompt))
        for piece in part.pieces:
            server.expect(
                condition=0 <= piece.index < len(self.rows), what=f"a completion {piece.index}"
            )
            self._take_piece(piece, self.rows[piece.index], server)

    def _take_piece(self, piece: Piece, row: Row, server: Server) -> None:
        count = self.job.request.top_logprobs
        for place, (token, logprob) in enumerate(zip(piece.ids, piece.logprobs, strict=True)):
            if row.finish_reason is not None:
                break  # tokens that a server adds after the end do not belong to the text
            server.expect(condition=0 <= token < self.vocabulary, what=f"the token id {token}")
            if count:
                row.alternatives.append(list(piece.likeliest[place][:count]))
            self._show(row.push(Sampled(token, logprob, logprob)), row)
        if piece.finish is not None and row.finish_reason is None:
            self._show(row.end(piece.finish), row)

    def _show(self, delta: Delta, row: Row) -> None:
        shown_ids, place = self.shown_ids[row.index], len(row.output_ids) - 1
        if delta.ids and place < len(shown_ids):
            if shown_ids[place] != delta.ids[0]:
                raise self._other_text_error()
            return
        if self.job.request.stream and (delta.ids or delta.text):
            shown_ids.extend(delta.ids)
            self.job.events.put_nowait(delta)

    def _other_text_error(self) -> CannotContinue:
        return CannotContinue(
            f"request {self.job.request.id}: when asked again from the start, the server gave "
            "another text than the one already streamed; ask again"
        )

    @property
    def is_whole(self) -> bool:
        """Whether every completion has finished."""
        return all(row.finish_reason is not None for row in self.rows)

    def completions(self) -> list[Completion]:
        """Return the completions of finished rows. Raises CannotContinue for a row that is shorter
        than its part that was already shown."""
        if any(len(row.output_ids) < len(self.shown_ids[row.index]) for row in self.rows):
            raise self._other_text_error()
        return [self._completion(row) for row in self.rows]

    def _completion(self, row: Row) -> Completion:
        """The completion, with only those log-probabilities that match the meaning of their
        fields."""
        completion = row.completion()
        if not row.sampling.shapes and row.matcher is None:
            return completion
        if self.processed:
            plain = completion.raw_logprobs if row.rescored else ()
            sampling = row.sampling
            filters = sampling.temperature > 0 and (sampling.top_p < 1 or sampling.top_k > 0)
            if filters and not self.counts_filters:
                return completion.model_copy(update={"raw_logprobs": plain, "logprobs": ()})
            return completion.model_copy(update={"raw_logprobs": plain})
        return completion.model_copy(update={"logprobs": ()})
