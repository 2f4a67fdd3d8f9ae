"""Results of AT-GRPO's paper (arXiv 2510.11062), to print next to our own: context, not a
comparison. Its models have learned language, and read its puzzles in words."""

from __future__ import annotations

from loopline.agents.environments.registry import find

SOURCE = "arXiv 2510.11062"
SMALL = "Qwen3-1.7B"
"""Model of the column that is quoted."""


def published_results(game: str) -> str:
    """Return the published results in one paragraph; empty where the environment has none to
    name."""
    lessons = find(game).lessons
    if lessons is None:
        return ""
    if not lessons.published:
        return f"Published ({SOURCE}): nothing to compare with. {lessons.unpublished}".rstrip()
    parts = [
        f"{model}: {', '.join(f'{name} {value:.1f}' for name, value in shares.items())}"
        for model, shares in lessons.published.items()
    ]
    return (
        f"Published ({SOURCE}), in percent of {game.replace('_', '-')} puzzles solved: "
        f"{'; '.join(parts)}. Models of language, other puzzles and budgets: context, not a "
        "comparison."
    )
