"""Answers of an endpoint's `POST /embeddings`."""

from __future__ import annotations

import binascii
import time
from collections.abc import Callable, Sequence
from typing import cast

from loopline.agents.embedding import MAX_DIMENSIONS, EmbeddingInput, EmbeddingVectors, packed
from loopline.workers.engines.openai.assembly import Assembly
from loopline.workers.engines.openai.habits import Habits
from loopline.workers.engines.protocol import Completion, Delta, GenerateRequest
from loopline.workers.engines.settings import ModelSettings

MAX_FLOAT = 3.4028234663852886e38
"""Largest finite 32-bit float."""


def assembly_of(
    request: GenerateRequest,
    settings: ModelSettings,
    endpoint: str,
    habits: Habits,
    unknown_finish: Callable[[str], object],
    secrets: Sequence[str] = (),
) -> Assembly:
    """The assembly for the answers of a model of this kind."""
    kind = EmbeddingAssembly if settings.embeddings else Assembly
    return kind(request, settings, endpoint, habits, unknown_finish, secrets)


class EmbeddingAssembly(Assembly):
    """The vectors of one attempt, as the text of one completion."""

    awaited = "a list of embeddings"
    mark = b'"embedding"'
    _vectors: EmbeddingVectors | None = None

    def bill(self, payload: object) -> None:
        super().bill(payload)
        if isinstance(payload, dict):
            self.answered = self.answered or bool(cast(dict[str, object], payload).get("data"))
        if self._usage is not None:
            self._usage = {"completion_tokens": 0, **self._usage}  # nothing is generated

    def add(self, payload: object, *, streamed: bool) -> list[Delta]:
        """Raises EngineError of kind `garbage` unless there is exactly one vector per input."""
        wanted = EmbeddingInput.model_validate_json(self._request.messages[-1].content)
        data = cast(dict[str, object], payload).get("data") if isinstance(payload, dict) else None
        if not isinstance(data, list):
            raise self._malformed_error(f"it has no list 'data': {str(payload)[:80]!r}")
        places: dict[int, list[float]] = {}
        for position, item in enumerate(cast(list[object], data)):
            entry = cast(dict[str, object], item) if isinstance(item, dict) else {}
            index = entry.get("index", position)
            if not isinstance(index, int) or index in places:
                raise self._malformed_error(f"an embedding has the index {str(index)[:20]!r}")
            places[index] = self._vector(entry.get("embedding"))
        if sorted(places) != [*range(len(wanted.input))]:
            raise self._malformed_error(f"{len(places)} embeddings for {len(wanted.input)} inputs")
        lengths = {len(vector) for vector in places.values()}
        if len(lengths) > 1 or (wanted.dimensions is not None and lengths != {wanted.dimensions}):
            raise self._malformed_error(f"embeddings of {sorted(lengths)} dimensions")
        self._vectors = EmbeddingVectors(
            dimensions=lengths.pop(), vectors=tuple(packed(places[i]) for i in sorted(places))
        )
        self.end()
        return []

    def completions(self, sending: int = 0) -> list[Completion]:
        """Return one completion. Raises EngineError of kind `garbage` if the endpoint counted no
        tokens."""
        usage = self._count_usage()
        if self._vectors is None:
            raise self._malformed_error("it is empty")
        return [
            Completion(
                text=self._vectors.model_dump_json(),
                finish_reason="stop",
                usage=usage,
                decode_seconds=max(0.0, time.perf_counter() - self._started),
                sending=sending,
            )
        ]

    def _vector(self, value: object) -> list[float]:
        """Vector from a list of numbers, or from the base64 text that some servers send unasked."""
        try:
            if isinstance(value, str):
                [numbers] = EmbeddingVectors(dimensions=0, vectors=(value,)).floats()
            else:
                numbers = [float(number) for number in cast(list[float], value)]
        except (TypeError, ValueError, binascii.Error) as error:
            raise self._malformed_error(f"an embedding that is not a vector: {error}") from error
        # NaN fails both comparisons.
        finite = all(-MAX_FLOAT <= number <= MAX_FLOAT for number in numbers)
        if not 0 < len(numbers) <= MAX_DIMENSIONS or not finite:
            raise self._malformed_error("an embedding that is not a vector of finite numbers")
        return numbers
