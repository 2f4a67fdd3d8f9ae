"""The text side of a model, from its files: tokenizer, chat template, the ids that end a turn, and
the context length. It reads no weights, so an engine whose model runs in another process also uses
it to build its prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import jinja2
import transformers

from loopline.agents.records import JsonObject, Message, ToolSpec
from loopline.agents.template_options import TemplateValue
from loopline.workers.engines.local.model_files import (
    model_name,
    refuse_unreadable,
    unusable_error,
    usable_context,
)
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import (
    TextCodec,
    looks_like_control,
    template_messages,
    template_tools,
)
from loopline.workers.engines.text.template_habits import (
    EVERYTHING,
    TemplateHabits,
    TemplateRefuses,
    adapt_messages,
    habits_of,
)
from loopline.workers.engines.text.template_options import combined_options, unread_option
from loopline.workers.engines.text.tokenizer_codec import make_codec

if TYPE_CHECKING:
    from llguidance import LLTokenizer


@dataclass(frozen=True, kw_only=True)
class ModelText:
    """See `loopline.workers.engines.local.backend.Loaded`."""

    base: str
    tokenizer: Any
    codec: TextCodec
    end_ids: frozenset[int]
    max_context: int
    vocabulary: int
    control_tokens: tuple[str, ...]
    """The tokenizer's special tokens, longest first."""
    template_options: dict[str, TemplateValue] = field(default_factory=dict[str, TemplateValue])
    habits: TemplateHabits = EVERYTHING
    """What its chat template accepts."""

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        options: Mapping[str, TemplateValue] | None = None,
    ) -> str:
        """See `Loaded.render`."""
        try:
            rendered: Any = self.tokenizer.apply_chat_template(
                template_messages(adapt_messages(messages, self.habits), self.control_tokens),
                tools=template_tools(tools, self.control_tokens),
                add_generation_prompt=True,
                tokenize=False,
                **combined_options(self.template_options, options or {}, self._templates),
            )
        except jinja2.TemplateError as error:
            raise ValueError(str(error)) from error
        return str(rendered)

    @property
    def _templates(self) -> list[str]:
        return _templates_of(self.tokenizer.chat_template)

    def grammar_tokenizer(self) -> LLTokenizer:
        """See `Loaded.grammar_tokenizer`."""
        from llguidance.hf import from_tokenizer

        return from_tokenizer(
            self.tokenizer,
            # The logits may be wider or narrower than the tokenizer's count.
            n_vocab=max(self.vocabulary, len(self.tokenizer)),
            eos_token=sorted(self.end_ids) or None,
        )

    def with_habits(self, model: str) -> Self:
        """Return a copy with the template's habits, found by rendering. Raises EngineError for a
        template that accepts no conversation; `model` is the user's name for it."""
        try:
            return replace(self, habits=habits_of(self.render))
        except TemplateRefuses as error:
            raise unusable_error(model, str(error)) from error


def read_tokenizer(folder: Path) -> Any:
    """Use tokenizer.json unchanged, but cut and pad no text. AutoTokenizer would choose a class by
    the model's type and replace the pre-tokenizer that the model was trained with."""
    tokenizer: Any = transformers.PreTrainedTokenizerFast.from_pretrained(
        folder, local_files_only=True
    )
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def make_text(
    settings: ModelSettings, tokenizer: Any, *, vocabulary: int, context: int, ends: Iterable[Any]
) -> ModelText:
    """`vocabulary` is the width of the logits, `context` the model's own limit, `ends` the
    end-of-turn tokens in its configuration. Raises EngineError for a tokenizer that has no chat
    template, belongs to another model, or is not exact."""
    if not getattr(tokenizer, "chat_template", None):
        raise unusable_error(
            settings.model,
            "its tokenizer has no chat template; use an instruct model or add chat_template.jinja",
        )
    _check_template_options(tokenizer.chat_template, settings)
    _check_tokenizer(tokenizer.backend_tokenizer, vocabulary, settings.model)
    return ModelText(
        base=model_name(settings.model),
        tokenizer=tokenizer,
        codec=make_codec(tokenizer.backend_tokenizer, vocabulary, settings.model),
        end_ids=frozenset(int(t) for t in [*ends, tokenizer.eos_token_id] if t is not None),
        max_context=usable_context(context, settings),
        vocabulary=vocabulary,
        control_tokens=_control_tokens(tokenizer),
        template_options=settings.template_options,
    ).with_habits(settings.model)


def read_text_files(folder: Path, settings: ModelSettings) -> ModelText:
    """Read a model's text side from only its configuration and tokenizer; blocks for a second.
    Raises EngineError."""
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise unusable_error(settings.model, f"{name} is missing")
    with refuse_unreadable(settings.model):
        config = _read_object(folder / "config.json")
        # A multimodal model has a separate configuration for text.
        text = cast(JsonObject, config.get("text_config") or config)
        generation = folder / "generation_config.json"
        generation_configs = [_read_object(generation)] if generation.is_file() else []
        ends: list[Any] = []
        for source in (*generation_configs, text):
            value = source.get("eos_token_id")
            ends += value if isinstance(value, list) else [value]
        return make_text(
            settings,
            read_tokenizer(folder),
            vocabulary=int(cast(int, text["vocab_size"])),
            context=int(cast(int, text["max_position_embeddings"])),
            ends=ends,
        )


def _read_object(file: Path) -> JsonObject:
    value: object = json.loads(file.read_text())
    if not isinstance(value, dict):
        raise TypeError(f"{file.name} is not a JSON object")
    return cast(JsonObject, value)


def _control_tokens(tokenizer: Any) -> tuple[str, ...]:
    added = {
        str(token.content)
        for token in tokenizer.added_tokens_decoder.values()
        if token.special or looks_like_control(str(token.content))
    }
    names = added.union(map(str, tokenizer.all_special_tokens))
    return tuple(sorted((name for name in names if len(name) > 1), key=len, reverse=True))


def _check_template_options(template: str | dict[str, str], settings: ModelSettings) -> None:
    """Raises EngineError for an option that no template reads."""
    wrong = unread_option(settings.template_options, _templates_of(template))
    if wrong is not None:
        raise unusable_error(settings.model, wrong)


def _templates_of(template: str | dict[str, str]) -> list[str]:
    return [template] if isinstance(template, str) else list(template.values())


def _check_tokenizer(backend: Any, rows: int, model: str) -> None:
    """Raises EngineError for a tokenizer of another model: one that encodes text with ids that the
    model has no embedding for. Added tokens are ignored: fine-tuned models often have one for
    padding that no prompt contains."""
    ids: dict[str, int] = backend.get_vocab(with_added_tokens=False)
    added: dict[int, Any] = backend.get_added_tokens_decoder()
    excess = [token for token in ids.values() if token >= rows and token not in added]
    if excess:
        raise unusable_error(
            model,
            f"its tokenizer encodes text as ids up to {max(excess)}, but its embedding has {rows} "
            "rows (vocab_size in config.json); use the tokenizer.json that belongs to the weights",
        )
