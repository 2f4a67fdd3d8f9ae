"""Words and tables of the report.

Results of AT-GRPO's paper (arXiv 2510.11062) are printed alongside our own as context, not as a
comparison: its models know language and read the puzzles in words.
"""

from __future__ import annotations

from loopline.agents.environments.game import Scheme
from loopline.agents.environments.registry import find
from loopline.bench.experiments.document import Table
from loopline.bench.experiments.grpo.figures import ArmFigures, GrpoReport, solved_at_equal_tokens
from loopline.bench.experiments.intervals import points
from loopline.bench.report import figures as say
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.checkpoints import changed_settings
from loopline.trainers.grpo.arms.kinds import KINDS
from loopline.trainers.grpo.arms.tuning import OWN
from loopline.trainers.grpo.settings import LORA_RATE

SOURCE = "arXiv 2510.11062"
SMALL = "Qwen3-1.7B"
"""Model of the quoted column."""


def published_results(game: str) -> str:
    """Return the published results in one paragraph; empty if the environment has none."""
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


_BUDGET = (
    "Every arm has the settings of its game; these were chosen by trials of the warm start and "
    "AT-GRPO on puzzles of another seed, and the other arms take {}. Arms that learn from rewards "
    "draw as many completions as AT-GRPO in its steps, up to the end of the step; continued SFT, "
    "and MAS + GRPO at equal tokens, go on until as many tokens went through their model, the pass "
    "that only scores samples not counted. "
)
_ADVANTAGE = (
    "Tokens differ where samples are equal: AT-GRPO reads a prompt once for its K candidates, and "
    "of equal ones only one, where whole runs read a prompt for each answer. Of prompts of P "
    "tokens and answers of A, D of K different, a sample of whole runs costs about "
    "K (P + A) (1 + w) / ((P + D A) (1 + c)) times as many, w and c the shares of whole runs and "
    "of candidates that are learned from, and so read twice. That is much where answers are short "
    "and repeat themselves, as here; of 8 different answers of 500 tokens to a prompt of 1,000, "
    "all learned from, it is 2.4 times."
)
_INTERVALS = (
    "95 % intervals by the pigeonhole bootstrap (Owen 2007), which draws seeds and puzzles "
    "together, both paired in differences, and stretches the seeds' effects by Student's t as "
    "there are few: where the mean of other trainings on other puzzles is expected. Of one seed "
    "the training is held fixed, and an interval is over puzzles alone; where every puzzle came "
    "out alike in every seed it is as wide as Wilson's interval lets other puzzles be unlike."
)
_TRIED = (
    "them but for what was tried on the first seed, in ways that stand below, and chosen by "
    "puzzles of the validation split"
)

REWARDED: dict[Scheme, str] = {
    "paper": "what the team earns and what the agent does, as published",
    "dense": "the step rewards of the published code, but for what it pays for going there and "
    "back",
    "sparse": "1 for the answer that solves the puzzle",
    "progress": "the share of the way to the solution that an answer makes good, by the solver; "
    "in training alone, and not as published",
}


def title(report: GrpoReport) -> str:
    """Title of the page."""
    return f"AT-GRPO and its peers on {game_of(report)}"


def game_of(report: GrpoReport) -> str:
    """Name of the game in words, such as `plan path`."""
    return report.settings.game.name.replace("_", " ")


def about(report: GrpoReport) -> str:
    """Describe the experiment."""
    run_settings = report.settings
    size, rewarded = run_settings.network, run_settings.reinforced
    seeds = ", ".join(map(str, run_settings.seeds))
    return (
        f"From random weights ({size.layers} layers, {size.hidden} wide), seeds {seeds}; measured "
        f"by greedy play of {run_settings.held_out:,} held-out puzzles with the final weights "
        "(best "
        "of K: with the warm start, sampled, where the rules choose). K = "
        f"{rewarded.candidates}, {rewarded.episodes} puzzles per version, {rewarded.steps} "
        f"versions of AT-GRPO; {run_settings.supervised.steps} supervised steps of "
        f"{run_settings.supervised.batch} answers before. "
        f"{_BUDGET.format(_TRIED if report.trials else 'them as they are')}{_ADVANTAGE} "
        f"{_changes_note(report)}{_scarcity_note(report)}{_seeds_note(report)}{_INTERVALS}"
    )


def _seeds_note(report: GrpoReport) -> str:
    """Describe the seeds covered by the means."""
    counts = {len(arm.by_seed) for arm in report.arms}
    if counts == {1}:
        return "Of one seed. "
    most = max(counts, default=1)
    if len(counts) <= 1:
        return f"Means over {most} seeds. "
    fewer = ", ".join(arm.arm for arm in report.arms if len(arm.by_seed) < most)
    return (
        f"Means over {most} seeds; over the first {min(counts)} of {fewer}. A difference is of the "
        "seeds that both arms have. "
    )


def _changes_note(report: GrpoReport) -> str:
    """Note about settings that differ from the game's own."""
    defaults = report.settings.game.training.model_dump()
    changed = changed_settings(defaults, report.settings.model_dump(include=set(defaults)))
    return f"In place of the game's own settings: {', '.join(changed)}. " if changed else ""


def _scarcity_note(report: GrpoReport) -> str:
    """Note about arms that imitate, which have less to learn from than rewarded arms."""
    game = report.settings.game
    about = game.lessons.about(game.weak_team)
    return f"{about} " if about else ""


def ending(report: GrpoReport) -> str:
    """Describe the compute used."""
    return (
        f"{report.minutes:,.1f} minutes, {report.cpu_minutes:,.1f} CPU-minutes, "
        f"{format_count(len(report.settings.seeds), 'seed')}"
    )


def tables(report: GrpoReport) -> dict[str, Table]:
    """Tables by caption; one without rows is not printed."""
    return {
        "Solved": solved(report),
        "One arm less another, in points, paired by seed and puzzle": differences(report),
        "Players by hand, on the same puzzles": by_hand(report),
        "Solved by seed": by_seed(report),
        "Ways to tune the arms, and what these solve by them, first seed": trials(report),
        "Ended early, and measured with the weights before": stopped(report),
        "Compute, mean over seeds, since the arm's beginning": compute(report),
        "What failures are made of, all seeds": failures(report),
        "What each arm is": kinds(report),
        "Settings": settings(report),
        "Said most often, first seed": answer_variety(report),
    }


def solved(report: GrpoReport) -> Table:
    """Table of the claim."""
    published = report.settings.game.lessons.published.get(SMALL, {})
    head = ["arm", "solved", "95 %", "seeds", "their range", "over warm start", "agreement",
            "published, 1.7B"]  # fmt: skip
    rows = [
        [
            arm.arm,
            say.share(arm.success.estimate),
            say.span(arm.success.low, arm.success.high),
            _counted_seeds(len(arm.by_seed)),
            _range(arm),
            "–" if arm.gain is None else points(arm.gain),
            "–" if arm.agreement is None else f"{arm.agreement:.0%}",
            f"{published[arm.arm]:.1f} %" if arm.arm in published else "–",
        ]
        for arm in report.arms
    ]
    return head, rows


def differences(report: GrpoReport) -> Table:
    """Table of the claims with their verdicts."""
    rows = [
        [
            f"{difference.first} − {difference.second}",
            points(difference.gap),
            _counted_seeds(len(difference.by_seed)),
            ", ".join(say.points(gap) for gap in difference.by_seed.values()),
            difference.verdict,
        ]
        for difference in report.differences
    ]
    return ["arms", "points [95 %]", "seeds", "by seed", "finding"], rows


def by_hand(report: GrpoReport) -> Table:
    """Table of players without learning."""
    rows = [
        [name, say.share(bounds.estimate), say.span(bounds.low, bounds.high)]
        for name, bounds in report.baselines.items()
    ]
    return ["player", "solved", "95 %"], rows


def by_seed(report: GrpoReport) -> Table:
    """Table of the seeds."""
    seeds = report.settings.seeds
    rows = [
        [
            arm.arm,
            *(say.share(arm.by_seed[at].estimate) if at in arm.by_seed else "–" for at in seeds),
        ]
        for arm in report.arms
    ]
    return ["arm", *(f"seed {seed}" for seed in seeds)], rows


def trials(report: GrpoReport) -> Table:
    """Table of every trial: factors of the game's settings; `batch` means puzzles per version, or
    answers per supervised step."""
    tuning_by_arm = {entry.arm: entry.tuning for entry in report.arms}
    rows = [
        [
            entry.arm,
            str(entry.tuning),
            say.share(entry.validation),
            say.share(entry.held_out),
            "chosen"
            if tuning_by_arm[entry.arm] == entry.tuning
            else "ended early"
            if entry.stopped
            else "",
        ]
        for entry in report.trials
    ]
    return ["arm", "tuning", "validation, last looks", "held out", ""], rows


def stopped(report: GrpoReport) -> Table:
    """Table of trainings that stopped because the next loss or gradient was not a number."""
    return ["training", "why"], [[name, why] for name, why in report.stopped.items()]


def compute(report: GrpoReport) -> Table:
    """Compute of the trained arms, and their solved share at AT-GRPO's number of tokens."""
    equal = solved_at_equal_tokens(report.arms)
    rows = [
        [
            arm.arm,
            say.count(arm.steps),
            say.count(arm.samples),
            say.count(arm.tokens),
            f"{arm.tokens / arm.samples:.1f}" if arm.samples else "–",
            f"{arm.train_cpu_minutes:.1f}",
            say.share(equal[arm.arm]) if arm.arm in equal else "–",
        ]
        for arm in report.arms
        if arm.steps
    ]
    head = ["arm", "steps", "samples", "tokens", "tokens per sample", "CPU-minutes training",
            "validation, at AT-GRPO's tokens"]  # fmt: skip
    return head, rows


def failures(report: GrpoReport) -> Table:
    """Failures by arm."""
    rows = [
        [arm.arm, ", ".join(f"{count:,} {kind}" for kind, count in arm.failures.items()) or "–"]
        for arm in report.arms
    ]
    return ["arm", "failures"], rows


def kinds(report: GrpoReport) -> Table:
    """Descriptions of the arms."""
    return ["arm", "about"], [[arm.arm, KINDS[arm.arm].about] for arm in report.arms]


def settings(report: GrpoReport) -> Table:
    """Table of the settings, other than the seed, that determine the weights."""
    run_settings = report.settings
    size, imitated, rewarded = (
        run_settings.network,
        run_settings.supervised,
        run_settings.reinforced,
    )
    whole_runs = max(1, rewarded.minibatch // run_settings.game.turns)
    weak = ", ".join(f"{name} {value:g}" for name, value in run_settings.game.weak_team)
    tuned = any(arm.tuning != OWN for arm in report.arms)
    factor_note = "; each times the arm's own factor" if tuned else ""
    rows = [
        ["model", f"{size.layers} layers, {size.hidden} wide, {size.feed_forward} inside, "
         f"{size.heads} heads, {size.context} tokens"],
        ["warm start", f"{imitated.steps:,} steps of {imitated.batch} answers, learning rate "
         f"{imitated.learning_rate:g}"],
        ["who is imitated", f"weak team: {weak}"],
        ["rewards", f"{rewarded.scheme}: {REWARDED[rewarded.scheme]}"],
        ["from rewards", f"{rewarded.steps:,} versions of AT-GRPO, {rewarded.episodes} puzzles "
         f"each, K = {rewarded.candidates}, at most {rewarded.limit} tokens an answer; learning "
         f"rate {rewarded.learning_rate:g}, entropy {rewarded.entropy:g}{factor_note}"],
        ["an update", f"{rewarded.minibatch} groups of answers; {whole_runs} of whole runs, "
         "which have as many answers"],
        ["adapters", f"rank {rewarded.rank}, {LORA_RATE:g} times the learning rate"],
    ]  # fmt: skip
    return ["", ""], rows


def answer_variety(report: GrpoReport) -> Table:
    """Table of the variety of answers: whether success comes from reading, or from one answer that
    fits everywhere."""
    rows = [
        [
            f"{arm.arm}, {agent.replace('_', ' ')}",
            ", ".join(f"{text!r} {count:,}" for text, count in answers.items()),
        ]
        for arm in report.arms
        for agent, answers in arm.answers.items()
    ]
    return ["agent", "answers"], rows


def _counted_seeds(count: int) -> str:
    return "1, held fixed" if count == 1 else str(count)


def _range(arm: ArmFigures) -> str:
    shares = [bounds.estimate for bounds in arm.by_seed.values()]
    return say.span(min(shares), max(shares))
