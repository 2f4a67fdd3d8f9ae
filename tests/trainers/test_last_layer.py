"""The last layer is skipped at positions that nothing reads, and nothing else changes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from loopline.trainers.core.last_layer import MODEL_TYPES, hidden_at

ROWS, LENGTH, WIDTH = 3, 17, 32


def a_model(model_type: str) -> Any:
    """A model in float64: in float32, processors round products of other sizes differently."""
    torch.manual_seed(1)
    config = AutoConfig.for_model(
        model_type, vocab_size=50, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=None,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval().double()


def with_adapter(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    with warnings.catch_warnings():
        # peft 0.21 uses the name that transformers 5 is going to drop.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        get_peft_model(model, config)
    return model.double()


def read_where(share: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.rand(ROWS, LENGTH, generator=generator) < share


def computed(model: Any, read: torch.Tensor | None, places: torch.Tensor, **inputs: Any) -> Any:
    """Hidden states at `places`, and gradients of all trained parameters."""
    ids = torch.randint(50, (ROWS, LENGTH), generator=torch.Generator().manual_seed(3))
    model.zero_grad(set_to_none=True)
    if read is None:
        output = model.model(input_ids=ids, use_cache=False, **inputs)
        hidden = output.last_hidden_state[places]
    else:
        hidden = hidden_at(model, read, input_ids=ids, **inputs)
    hidden.pow(3).sum().backward()
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return hidden.detach(), gradients


def rows_of_last_layer(model: Any, run: Any) -> int:
    """Positions that the last feed-forward part computes in `run`."""
    counts: list[int] = []
    inner = model.model.layers[-1].mlp.act_fn

    def count(module: object, arguments: tuple[torch.Tensor, ...]) -> None:
        counts.append(arguments[0].shape[:-1].numel())

    hook = inner.register_forward_pre_hook(count)
    run()
    hook.remove()
    return sum(counts)


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "an adapter"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_positions_that_are_read_and_their_gradients_equal_those_of_the_whole_layer(
    model_type: str, adapter: bool
) -> None:
    model = a_model(model_type)
    model = with_adapter(model) if adapter else model
    read = read_where(0.3)
    whole, whole_gradients = computed(model, None, read)
    hidden, gradients = computed(model, read, read)
    torch.testing.assert_close(hidden, whole, rtol=1e-9, atol=1e-12)
    assert gradients.keys() == whole_gradients.keys()
    for name, gradient in gradients.items():
        difference = (gradient - whole_gradients[name]).norm() / whole_gradients[name].norm()
        assert difference < 1e-9, name


@pytest.mark.parametrize("shared", [True, False], ids=["one for all rows", "each row its own"])
def test_a_mask_has_the_same_effect_on_the_partial_and_the_whole_layer(shared: bool) -> None:
    model, read = a_model("qwen3"), read_where(0.3)
    generator = torch.Generator().manual_seed(4)
    shape = (1 if shared else ROWS, 1, LENGTH, LENGTH)
    sees = (torch.rand(shape, generator=generator) < 0.5).tril() | torch.eye(LENGTH).bool()
    depths = sees.sum(-1).squeeze(1) - 1
    inputs = {"attention_mask": sees, "position_ids": depths}
    whole, whole_gradients = computed(model, None, read, **inputs)
    hidden, gradients = computed(model, read, read, **inputs)
    torch.testing.assert_close(hidden, whole, rtol=1e-9, atol=1e-12)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, whole_gradients[name], rtol=1e-9, atol=1e-12)


def test_the_last_layer_computes_only_the_positions_that_are_read() -> None:
    model, read = a_model("qwen2"), read_where(0.3)
    assert rows_of_last_layer(model, lambda: computed(model, read, read)) == int(read.sum())
    # Afterwards the layer computes everything again.
    assert rows_of_last_layer(model, lambda: computed(model, None, read)) == ROWS * LENGTH


def test_the_last_layer_computes_everything_if_nearly_all_positions_are_read() -> None:
    model, read = a_model("qwen2"), read_where(0.95)
    assert rows_of_last_layer(model, lambda: computed(model, read, read)) == ROWS * LENGTH


def test_the_last_layer_computes_everything_for_an_unchecked_architecture() -> None:
    model, read = a_model("qwen2"), read_where(0.3)
    model.config.model_type = "qwen9"
    assert rows_of_last_layer(model, lambda: computed(model, read, read)) == ROWS * LENGTH


def test_a_checkpointed_layer_computes_everything_in_both_passes() -> None:
    model, read = a_model("qwen2"), read_where(0.3)
    whole, _ = computed(model, None, read)
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
    model.train()
    assert rows_of_last_layer(model, lambda: computed(model, read, read)) == 2 * ROWS * LENGTH
    torch.testing.assert_close(computed(model, read, read)[0], whole)
