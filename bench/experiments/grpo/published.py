"""What the paper of AT-GRPO reports (arXiv 2510.11062), to stand next to our own: context, not a
comparison. Its models have learned language, its puzzles are given to them in words."""

from __future__ import annotations

from loopline.trainers.grpo.arms.kinds import MAS_GRPO, PER_ROLE, SINGLE, SWAPPED, ArmName

SOURCE = "arXiv 2510.11062"
QWEN3_SMALL: dict[str, dict[ArmName, float]] = {
    "plan_path": {SINGLE: 5.0, PER_ROLE: 97.0},
    "sudoku": {SINGLE: 7.0, PER_ROLE: 99.0},
    "sokoban": {SINGLE: 0.0, PER_ROLE: 11.5},
}
"""Percent of the puzzles that Qwen3-1.7B solves."""
QWEN3_LARGE: dict[str, dict[ArmName, float]] = {
    "plan_path": {SINGLE: 12.0, MAS_GRPO: 96.0, PER_ROLE: 96.0},
    "sudoku": {SINGLE: 48.0, MAS_GRPO: 99.0, PER_ROLE: 99.0},
    "sokoban": {SINGLE: 9.0, PER_ROLE: 98.0},
}
"""The same of Qwen3-8B."""
ABLATION: dict[str, dict[ArmName, float]] = {"plan_path": {PER_ROLE: 96.0, SWAPPED: 6.0}}
"""Of its ablation: the trained policies in each other's place."""
NONE = {
    "word_problems": f"Published ({SOURCE}): nothing to compare with. Its mathematics is that of "
    "competitions (AIME, OlympiadBench); generated word problems are not in it."
}
"""Games that the paper does not have."""


def said(game: str) -> str:
    """In one paragraph."""
    if game not in QWEN3_SMALL:
        return NONE.get(game, "")
    parts = [
        f"{model}: {', '.join(f'{name} {value:.1f}' for name, value in found[game].items())}"
        for model, found in (
            ("Qwen3-1.7B", QWEN3_SMALL),
            ("Qwen3-8B", QWEN3_LARGE),
            ("ablation", ABLATION),
        )
        if game in found
    ]
    return (
        f"Published ({SOURCE}), in percent of {game.replace('_', '-')} puzzles solved: "
        f"{'; '.join(parts)}. Models of language, other puzzles and budgets: context, not a "
        "comparison."
    )
