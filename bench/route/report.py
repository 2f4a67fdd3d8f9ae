"""Report of `bench route`: its figures, its verdict and its page."""

from __future__ import annotations

from typing import Any

from loopline.agents.records import Record
from loopline.bench.experiments.document import Document, Section, Table
from loopline.bench.report.figures import count, dollars, share, span
from loopline.bench.route.comparison import TITLES, Comparison, Estimate
from loopline.bench.route.plot import accuracy_against_dollars
from loopline.bench.route.splits import ENTROPY, LOGPROB


class Signal(Record):
    """Whether the evidence separates right from wrong answers of the small model, for routers that
    had not seen the question."""

    auc: float
    """Probability that a right answer scores higher than a wrong one."""
    low: float
    high: float
    """99 % interval."""
    significant: bool
    """Whether the interval lies above one half."""


class RouteReport(Record):
    """Figures of the report. Shares refer to all questions of a test; costs are US dollars per
    question."""

    questions: int
    source: str
    """Note about the labels; may be empty."""
    estimated_costs: int
    """Number of questions whose cost was estimated from the length of a text."""
    alpha: float
    delta: float
    splits: int
    delta_of_a_split: float
    calibration: int
    test: int
    allowed_errors: int
    risk_held_share: float
    """Share of splits in whose test at most a share alpha of the questions was accepted and
    wrong."""
    mean_risk: float
    greatest_risk: float
    accepted_share: float
    paying_share: float
    """Share of splits whose router expected to pay off; the others ask only the big model."""
    sampling_share: float
    """Share of splits whose router draws further samples."""
    signal: Signal
    has_logprobs: bool
    has_samples: bool
    comparison: Comparison

    @property
    def pays(self) -> bool:
        """Whether it is cheaper than every baseline at equal accuracy, beyond the interval."""
        return self.signal.significant and self.comparison.cost_vs_best_baseline.high < 1

    def as_json(self) -> dict[str, Any]:
        """Return the line of `--json`."""
        ratio = self.comparison.cost_vs_best_baseline
        return {
            "risk_held_share": self.risk_held_share,
            "cost_vs_best_baseline": ratio.estimate,
            "cost_vs_best_baseline_low": ratio.low,
            "cost_vs_best_baseline_high": ratio.high,
            "pays": self.pays,
            "verdict": verdict(self),
            **self.model_dump(mode="json"),
        }


def verdict(report: RouteReport) -> str:
    """Return the verdict in one sentence."""
    ratio = report.comparison.cost_vs_best_baseline
    best = TITLES[report.comparison.best_baseline]
    within = share(report.risk_held_share)
    if report.allowed_errors < 0:
        return (
            f"A router cannot guarantee {share(report.alpha)} here: {count(report.calibration)} "
            "calibration questions are too few even without a single error; label more questions, "
            "or raise --alpha."
        )
    if not report.signal.significant:
        return (
            "A router does not pay off here: the evidence does not separate right from wrong "
            f"answers of the small model (area under the curve {report.signal.auc:.2f}, 99 % "
            f"interval {report.signal.low:.2f} to {report.signal.high:.2f}), so nothing is "
            "guaranteed."
        )
    interval = f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}"
    if report.pays:
        return (
            f"A router pays off: at equal accuracy it costs {ratio.estimate:.2f} × as much as "
            f"{best}, the cheapest baseline ({interval}), and {within} of {count(report.splits)} "
            f"splits kept the bound of {share(report.alpha)}."
        )
    return (
        f"It is not certain that a router pays off here: at equal accuracy it costs "
        f"{ratio.estimate:.2f} × as much as {best}, the cheapest baseline ({interval}); {within} "
        f"of {count(report.splits)} splits kept the bound of {share(report.alpha)}."
    )


def document(report: RouteReport) -> Document:
    """Document for a terminal, Markdown and HTML."""
    return Document(
        title="Does a router pay off?",
        about=(
            f"{count(report.questions)} questions that both models answered, split at random "
            f"{count(report.splits)} times into training, {count(report.calibration)} for "
            f"calibration and {count(report.test)} for the test. Risk: the share of all questions "
            "whose small answer is accepted and wrong; its bound is "
            f"{share(report.alpha)}."
        ),
        sections=(
            Section(
                {
                    "Accuracy and cost, with 95 % intervals over questions": _rules(report),
                    "The router against each baseline, at the router's accuracy": _baselines(
                        report
                    ),
                    "The bound": _bound(report),
                },
                drawings=(
                    (
                        accuracy_against_dollars(report.comparison),
                        "Accuracy against US dollars per 1,000 questions, with 95 % intervals. "
                        "Dotted: mixing both models at random, and thresholds of rules without "
                        "learning.",
                    ),
                ),
            ),
        ),
        verdicts=(verdict(report),),
        closing=_closing(report),
        words=("test",),
    )


def _rules(report: RouteReport) -> Table:
    rows = [
        [
            TITLES[rule.name],
            share(rule.accuracy.estimate),
            span(rule.accuracy.low, rule.accuracy.high),
            dollars(rule.cost.estimate * 1000),
            f"{dollars(rule.cost.low * 1000)} – {dollars(rule.cost.high * 1000)}",
        ]
        for rule in report.comparison.rules
    ]
    return ["rule", "right", "95 %", "$ per 1,000", "95 %"], rows


def _baselines(report: RouteReport) -> Table:
    rows = [
        [
            TITLES[entry.name],
            dollars(entry.cost_at_equal_accuracy * 1000),
            "yes" if entry.reaches_accuracy else "no",
            _ratio(entry.cost_ratio),
        ]
        for entry in report.comparison.baselines
    ]
    return ["baseline", "$ per 1,000", "reaches its accuracy", "router's cost ÷ its cost"], rows


def _bound(report: RouteReport) -> Table:
    rows = [
        ["splits that kept it", share(report.risk_held_share)],
        ["mean risk", share(report.mean_risk, 2)],
        ["greatest risk", share(report.greatest_risk, 2)],
        ["accepted", share(report.accepted_share)],
        ["errors allowed in a calibration", count(max(0, report.allowed_errors))],
        [
            "area under the curve, 99 %",
            f"{report.signal.auc:.3f} ({report.signal.low:.3f} – {report.signal.high:.3f})",
        ],
    ]
    return ["figure", "value"], rows


def _closing(report: RouteReport) -> list[str]:
    lines = [
        f"Each split is calibrated at {report.delta_of_a_split:.4f} instead of {report.delta}: "
        f"with probability 0.999, at least {share(1 - report.delta)} of these splits then keep the "
        "bound. A test of a few hundred questions has a sampling error, which the exact test takes "
        "into account.",
    ]
    if report.estimated_costs:
        which = (
            "The labels state no costs"
            if report.estimated_costs == report.questions
            else f"The labels of {count(report.estimated_costs)} questions don't state all costs"
        )
        lines.append(
            f"{which}: they are estimated from the length of the texts, one token per four "
            "characters, at the prices of --small-prompt-usd and so on."
        )
    if report.source:
        lines.append(f"Labels: {report.source}.")
    if report.sampling_share > 0:
        lines.append(
            f"In {share(report.sampling_share)} of the splits, the router draws further samples: "
            "their information is worth their price."
        )
    missing = [
        TITLES[name]
        for name, there in ((LOGPROB, report.has_logprobs), (ENTROPY, report.has_samples))
        if not there
    ]
    if missing:
        lines.append(f"Not in the labels, so not compared: {', '.join(missing)}.")
    return lines


def _ratio(ratio: Estimate) -> str:
    return f"{ratio.estimate:.3f} ({ratio.low:.3f} – {ratio.high:.3f})"
