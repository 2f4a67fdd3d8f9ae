"""Texts of single tokens, which the journal lacks, from a tokenizer that fits the journal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loopline.agents.records import Call
from loopline.runtime.errors import InputError
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.text.chat_prompt import TextCodec
from loopline.workers.engines.text.text_stream import TextStream

TOKENIZER = "tokenizer.json"


class Tokenizers:
    """Finds, for each model that wrote something, a tokenizer that decodes its ids to its text.

    `models` are places to search: folders, hub ids, and names of shipped models. Nothing is
    downloaded; the hub's models are searched in the hub's cache.
    """

    def __init__(self, models: Sequence[str] = ()) -> None:
        self._models = tuple(models)
        self._codecs: dict[str, tuple[TextCodec, int] | None] = {}
        self._fitting: dict[str, str | None] = {}
        """Model with a fitting tokenizer, by the name of the recorded model."""

    def codec(self, call: Call) -> TextCodec | None:
        """Return the codec of a completion's model; None if no available tokenizer fits."""
        base = call.policy.base
        if base not in self._fitting and call.output_ids and call.text:
            places = dict.fromkeys((base, *self._models))
            self._fitting[base] = next((item for item in places if self._fits(item, call)), None)
        model = self._fitting.get(base)
        codec_entry = self._codec(model) if model is not None else None
        if codec_entry is None or not all(0 <= item < codec_entry[1] for item in _ids(call)):
            return None
        return codec_entry[0]

    @property
    def missing(self) -> tuple[str, ...]:
        """Models that wrote completions but whose tokenizers were not found."""
        return tuple(base for base, model in self._fitting.items() if model is None)

    def _fits(self, model: str, call: Call) -> bool:
        codec_entry = self._codec(model)
        if codec_entry is None or not all(
            0 <= token_id < codec_entry[1] for token_id in _ids(call)
        ):
            return False
        return pieces_of(call, codec_entry[0], len(call.output_ids)) is not None

    def _codec(self, model: str) -> tuple[TextCodec, int] | None:
        if model not in self._codecs:
            path = _file(model)
            self._codecs[model] = None if path is None else _read(path)
        return self._codecs[model]


def pieces_of(call: Call, codec: TextCodec, count: int) -> list[str] | None:
    """Return the text of each of a completion's first `count` tokens; a character that several
    tokens form belongs to the last of them. None if the tokens don't decode to the completion's
    text."""
    stream = TextStream(codec, after=call.prompt_ids[-1] if call.prompt_ids else None)
    pieces = [stream.push(token) for token in call.output_ids[:count]]
    if count >= len(pieces) == len(call.output_ids) and pieces:
        pieces[-1] += stream.finish()
    text = "".join(pieces)
    # Neither an end-of-turn token nor text after a stop string is part of the text.
    return pieces if text.startswith(call.text) or call.text.startswith(text) else None


def require_tokenizer(model: str) -> None:
    """Check that the tokenizer of a folder, hub id or shipped model exists here. Raises
    `InputError`."""
    if _file(model) is None:
        raise InputError(
            f"--tokenizer {model}: no {TOKENIZER} of it on this machine",
            hint="Name the folder of the model that wrote the run, or micro:NAME.",
        )


def _ids(call: Call) -> Sequence[int]:
    return (*call.prompt_ids, *call.output_ids)


def _file(model: str) -> Path | None:
    """Return the path of a model's tokenizer on this machine; None if there is none."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    from loopline.workers.engines.local.model_files import local_folder

    try:
        path = local_folder(model) / TOKENIZER
        if path.is_file():
            return path
        cached = try_to_load_from_cache(model, TOKENIZER)
    except (EngineError, HFValidationError):
        return None
    return Path(cached) if isinstance(cached, str) else None


def _read(path: Path) -> tuple[TextCodec, int]:
    """Return the codec and the number of ids that it knows. Raises `InputError` for a damaged
    file."""
    from tokenizers import Tokenizer

    from loopline.workers.engines.local.model_files import refuse_unreadable
    from loopline.workers.engines.text.tokenizer_codec import make_codec

    try:
        with refuse_unreadable(str(path)):
            backend: Any = Tokenizer.from_file(str(path))
            size = int(backend.get_vocab_size())
            return make_codec(backend, size, str(path)), size
    except EngineError as error:
        raise InputError(str(error), hint="Name another one with --tokenizer FOLDER.") from error
