"""K completions of each of many prompts at once, in this process, with the weights that are being
trained.

Candidates with identical tokens so far are one row: their next tokens are drawn from one
distribution. The keys and values of a prompt are computed once for all of its candidates.

It is for small models: only the serving engines and `Learner` use a GPU at full speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DEVICE = "cpu"
"""Device of the model that a `Sampler` draws from, regardless of the machine's other devices."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One candidate, as it was sampled."""

    ids: tuple[int, ...]
    """Ids including the token that ends the turn, unless the completion was truncated."""
    logprobs: tuple[float, ...]
    """Natural log-probability of each id, under the whole softmax at the temperature."""
    truncated: bool
    """Whether it reached the limit."""


@dataclass
class _Branch:
    """Candidates of one prompt that are identical so far."""

    prompt: int
    count: int
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    row: int = 0
    """Row of the branch that it grew from."""

    def grow_branch(
        self, row: int, tokens: Sequence[int], logprobs: Sequence[float]
    ) -> list[_Branch]:
        """One branch for each different token with which its candidates, in `row`, continue."""
        scores = dict(zip(tokens, logprobs, strict=True))
        return [
            _Branch(self.prompt, count, (*self.ids, token), (*self.logprobs, scores[token]), row)
            for token, count in Counter(tokens).items()
        ]


class Sampler:
    """Draws from a causal model of transformers, on any device; a `generator` must be on that
    device. `tokens` counts the tokens that went through the model, padding included."""

    def __init__(self, model: Any, end_ids: frozenset[int], padding: int) -> None:
        self._model = model
        self._ends = end_ids
        self._padding = padding
        self.tokens = 0

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        count: int,
        limit: int,
        temperature: float,
        generator: torch.Generator,
    ) -> list[list[Completion]]:
        """`count` completions of each prompt, each of at most `limit` tokens, from the full
        distribution; shorter ones come first."""
        import torch

        def draw(scores: torch.Tensor) -> torch.Tensor:
            return torch.multinomial(scores.exp(), count, replacement=True, generator=generator)

        return self._complete_prompts(prompts, count, limit, temperature, draw)

    def greedy(self, prompts: Sequence[Sequence[int]], *, limit: int) -> list[Completion]:
        """The most probable completion of each prompt, token by token."""

        def take(scores: torch.Tensor) -> torch.Tensor:
            return scores.argmax(-1)[:, None]

        return [
            completion for (completion,) in self._complete_prompts(prompts, 1, limit, 1.0, take)
        ]

    def _complete_prompts(
        self,
        prompts: Sequence[Sequence[int]],
        count: int,
        limit: int,
        temperature: float,
        draw: Callable[[torch.Tensor], torch.Tensor],
    ) -> list[list[Completion]]:
        import torch
        from transformers import DynamicCache

        completions: list[list[Completion]] = [[] for _ in prompts]
        branches = [_Branch(at, count) for at in range(len(prompts))]
        longest = max(len(prompt) for prompt in prompts)
        # Padding on the left puts every row's next token in the same column.
        padded = [[self._padding] * (longest - len(p)) + list(p) for p in prompts]
        ids = torch.tensor(padded, device=self._model.device)
        read = [[0] * (longest - len(p)) + [1] * len(p) for p in prompts]
        mask = torch.tensor(read, device=self._model.device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        cache = DynamicCache()
        with torch.inference_mode():
            for length in range(1, limit + 1):
                scores = self._scores(ids, mask, positions, cache) / temperature
                scores = scores.log_softmax(-1)  # [rows, vocabulary]
                drawn = draw(scores)  # [rows, count]
                grown = _grow_all(branches, drawn.tolist(), scores.gather(1, drawn).tolist())
                branches = []
                for branch in grown:
                    ended = branch.ids[-1] in self._ends
                    if ended or length == limit:
                        completion = Completion(branch.ids, branch.logprobs, truncated=not ended)
                        completions[branch.prompt] += [completion] * branch.count
                    else:
                        branches.append(branch)
                if not branches:
                    break
                rows = torch.tensor([branch.row for branch in branches], device=ids.device)
                ids = torch.tensor([branch.ids[-1:] for branch in branches], device=ids.device)
                positions = positions[rows, -1:] + 1
                mask = torch.cat([mask[rows], mask.new_ones(len(rows), 1)], dim=1)
                cache.batch_select_indices(rows)
        return completions

    def _scores(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: object
    ) -> torch.Tensor:
        """Logits of each row's next token [rows, vocabulary]."""
        self.tokens += ids.numel()
        output = self._model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        return output.logits[:, -1].float()


def _grow_all(
    branches: Sequence[_Branch], drawn: list[list[int]], logprobs: list[list[float]]
) -> list[_Branch]:
    """Grow each branch by one drawn token per candidate."""
    return [
        grown
        for row, branch in enumerate(branches)
        for grown in branch.grow_branch(
            row, drawn[row][: branch.count], logprobs[row][: branch.count]
        )
    ]
