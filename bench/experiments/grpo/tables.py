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
from loopline.trainers.grpo.arms.kinds import DAGGER, KINDS
from loopline.trainers.grpo.arms.training import Dagger
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
        f"Published ({SOURCE}), in percent of puzzles solved: {'; '.join(parts)}. Language models, "
        "other puzzles and budgets: context, not a comparison."
    )


_BUDGET = (
    "Every arm uses the settings of its game. They were chosen in trials of the warm start and "
    "AT-GRPO on puzzles of another seed; the other arms use {}. Arms that learn from rewards draw "
    "as many completions as AT-GRPO does in its steps, and finish the step; continued SFT, and MAS "
    "+ GRPO at equal tokens, train until the same number of tokens has passed through their model, "
    "without the pass that only scores samples. "
)
_ADVANTAGE = (
    "Equal numbers of samples have different numbers of tokens: AT-GRPO reads a prompt once for "
    "its K candidates, and equal candidates once; whole runs read the prompt for each answer. With "
    "prompts of P tokens and answers of A tokens, D of K different, a sample of whole runs costs "
    "about K (P + A) (1 + w) / ((P + D A) (1 + c)) times as many tokens; w and c are the shares of "
    "whole runs and of candidates that are learned from, and so read twice. The factor is large if "
    "answers are short and often equal, as here; for 8 different answers of 500 tokens to a prompt "
    "of 1,000, all learned from, it is 2.4."
)
_INTERVALS = (
    "95 % intervals by the pigeonhole bootstrap (Owen 2007), which draws seeds and puzzles "
    "together, paired in differences, and widens the seeds' effects by Student's t because there "
    "are few. They are for the mean of other trainings on other puzzles. With one seed, the "
    "training is fixed and an interval is only for other puzzles; if every puzzle has the same "
    "result in every seed, its width comes from Wilson's interval for unseen puzzles."
)
_TRIED = (
    "them except for the tunings below, which were tried with the first seed and chosen on the "
    "validation split"
)

REWARDED: dict[Scheme, str] = {
    "paper": "the team's reward and the agent's own, as published",
    "dense": "the step rewards of the published code, without its reward for going back and forth",
    "sparse": "1 for the answer that solves the puzzle",
    "progress": "the share of the path to the solution that an answer covers, according to the "
    "solver; only in training, and not as published",
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
        "(best of K: samples of the warm start, among which the rules choose). K = "
        f"{rewarded.candidates}, {rewarded.episodes} puzzles per version, {rewarded.steps} "
        f"versions of AT-GRPO; {run_settings.supervised.steps} supervised steps of "
        f"{run_settings.supervised.batch} answers precede them. "
        f"{_BUDGET.format(_TRIED if report.trials else 'them unchanged')}{_ADVANTAGE} "
        f"{_changes_note(report)}{_scarcity_note(report)}{_seeds_note(report)}{_INTERVALS}"
    )


def _seeds_note(report: GrpoReport) -> str:
    """Describe the seeds covered by the means."""
    counts = {len(arm.by_seed) for arm in report.arms}
    if counts == {1}:
        return "One seed. "
    most = max(counts, default=1)
    if len(counts) <= 1:
        return f"Means over {most} seeds. "
    fewer = ", ".join(arm.arm for arm in report.arms if len(arm.by_seed) < most)
    return (
        f"Means over {most} seeds; over the first {min(counts)} for {fewer}. A difference uses the "
        "seeds that both arms have. "
    )


def _changes_note(report: GrpoReport) -> str:
    """Note about settings that differ from the game's own."""
    defaults = report.settings.game.training.model_dump()
    changed = changed_settings(defaults, report.settings.model_dump(include=set(defaults)))
    return f"Changes to the game's own settings: {', '.join(changed)}. " if changed else ""


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
        "Differences between arms, in points, paired by seed and puzzle": differences(report),
        "Hand-written players, on the same puzzles": by_hand(report),
        "Solved by seed": by_seed(report),
        "Tunings of the arms and their results, first seed": trials(report),
        "Trainings that ended early, measured with their last weights": stopped(report),
        "Compute since the start of each arm, mean over seeds": compute(report),
        "Failures by class, all seeds": failures(report),
        "Arms": kinds(report),
        "Settings": settings(report),
        "Most frequent answers, first seed": answer_variety(report),
    }


def solved(report: GrpoReport) -> Table:
    """Table of the claim."""
    published = report.settings.game.lessons.published.get(SMALL, {})
    head = ["arm", "solved", "95 %", "seeds", "range", "over warm start", "agreement",
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
    factor_note = "; each multiplied by the arm's own factor" if tuned else ""
    rows = [
        ["model", f"{size.layers} layers, {size.hidden} wide, {size.feed_forward} inside, "
         f"{size.heads} heads, {size.context} tokens"],
        ["warm start", f"{imitated.steps:,} steps of {imitated.batch} answers, learning rate "
         f"{imitated.learning_rate:g}"],
        ["imitated players", f"weak team: {weak}"],
        ["rewards", f"{rewarded.scheme}: {REWARDED[rewarded.scheme]}"],
        ["learning from rewards", f"{rewarded.steps:,} versions of AT-GRPO, "
         f"{rewarded.episodes} puzzles each, K = {rewarded.candidates}, at most {rewarded.limit} "
         f"tokens per answer; learning rate {rewarded.learning_rate:g}, "
         f"entropy {rewarded.entropy:g}{factor_note}"],
        ["update", f"{rewarded.minibatch} groups of answers, or {whole_runs} of whole runs, "
         "which contain as many answers"],
        ["adapters", f"rank {rewarded.rank}, {LORA_RATE:g} times the learning rate"],
    ]  # fmt: skip
    if any(arm.arm == DAGGER for arm in report.arms):
        rows.append(["DAgger", _describe_dagger(run_settings.dagger)])
    return ["", ""], rows


def _describe_dagger(training: Dagger) -> str:
    words = ", ".join(
        f"{share:.0%} of the words {what}"
        for what, share in (("spelled", training.spelled), ("left out", training.dropped))
        if share
    )
    return (
        f"{training.steps:,} steps of {training.episodes} puzzles, each answer imitated "
        f"{format_count(training.passes, 'time')} in batches of {training.batch}, learning rate "
        f"{training.learning_rate:g}, falling to 0; the expert acts in a falling share of the "
        f"states until {training.mixed:.0%} of the training"
        + (f"; in {1 - training.unchanged:.0%} of the prompts {words}" if words else "")
    )


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
    return "1, fixed" if count == 1 else str(count)


def _range(arm: ArmFigures) -> str:
    shares = [bounds.estimate for bounds in arm.by_seed.values()]
    return say.span(min(shares), max(shares))
