"""Further ways of telling the links of a story, by scheme: a file a subject."""

from __future__ import annotations

from loopline.agents.environments.word_problems.wordings import (
    costs,
    distances,
    money,
    pages_and_scores,
    things_asked,
    things_changing,
    things_opening,
    time_and_age,
)

WORDINGS: dict[str, str] = {
    **costs.WORDINGS,
    **distances.WORDINGS,
    **money.WORDINGS,
    **pages_and_scores.WORDINGS,
    **things_asked.WORDINGS,
    **things_changing.WORDINGS,
    **things_opening.WORDINGS,
    **time_and_age.WORDINGS,
}
