"""APIBench: which call loads a model that serves the instruction? One completion for each."""

from __future__ import annotations

from contextlib import nullcontext

from loopline.agents.records import JsonObject, Trajectory
from loopline.bench.arms import POLICY_ARMS
from loopline.bench.benchmark import Benchmark, by_signals
from loopline.bench.checkers.apibench import ApiDatabase, ApiVerdict
from loopline.bench.datasets import Dataset, Item, Request, apibench, sample, skipped_summary
from loopline.bench.datasets.apibench import HUBS, Api, Hub, hub_of
from loopline.bench.errors import DataError
from loopline.bench.judgement import Judgement, Question
from loopline.bench.taxonomy import CALLED, Class
from loopline.bench.tools.classes import class_of
from loopline.trainers.data.json_files import Reading

ALL = "all"
_NAMES: dict[Hub, str] = {
    "huggingface": "Hugging Face",
    "tensorflow": "TensorFlow Hub",
    "torchhub": "Torch Hub",
}
_CLASSES = {
    ApiVerdict.NO_CALL: Class.NO_CALL,
    ApiVerdict.UNKNOWN_FUNCTION: Class.HALLUCINATED,
    ApiVerdict.UNKNOWN_ARGUMENTS: Class.HALLUCINATED,
    ApiVerdict.OTHER_DOMAIN: Class.WRONG_TOOL,
}


def load(request: Request) -> Dataset:
    """Return the evaluation questions of a hub, or of all hubs. Raises DataError or UsageError. The
    hubs' databases are included, since the judge looks up every call in them; an entry that no call
    can match is reported like an unreadable record.
    """
    hubs = HUBS if request.split == ALL else (hub_of(request.split),)
    readings = [apibench.load(hub, request.data) for hub in hubs]
    items = [_item(question) for reading in readings for question in reading.records]
    databases: dict[Hub, Reading[Api]] = {
        hub: apibench.load_apis(hub, request.data) for hub in hubs
    }
    omissions = [
        omission for reading in (*readings, *databases.values()) for omission in reading.skipped
    ]
    for hub, reading in databases.items():
        omissions += ApiDatabase(hub, reading.records).unusable
    selected_items = sample(items, request.samples, request.seed)
    source = f"APIBench, evaluation questions{skipped_summary(omissions)}"
    entries: JsonObject = {
        hub: [[api.api_call, api.domain] for api in reading.records]
        for hub, reading in databases.items()
    }
    return Dataset("apibench", request.split, selected_items, len(items), source, {"apis": entries})


def _item(question: apibench.Question) -> Item:
    return Item(
        id=question.id,
        question=f"Hub: {_NAMES[question.hub]}\nInstruction: {question.instruction}",
        gold=question.reference,
        about={"split": question.hub, "domain": question.domain},
    )


class ApiBenchJudge:
    """Judges a run: verdict `ast`; measure `hallucination`: 1 for a call that is not an API of the
    hub."""

    def __init__(self, reference: JsonObject) -> None:
        databases = reference.get("apis")
        if not isinstance(databases, dict):
            raise DataError("the benchmark's manifest lacks the hubs' databases")
        self._databases = {
            hub: ApiDatabase(hub, _apis(databases[hub])) for hub in HUBS if hub in databases
        }

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement:
        text, about = trajectory.answer or "", question.about
        hub = next(
            (candidate_hub for candidate_hub in HUBS if candidate_hub == about.get("split")), None
        )
        if hub is None or hub not in self._databases:
            raise DataError(f"there is no database for the hub {about.get('split')!r}")
        verdict = self._databases[hub].check(text, str(about.get("domain")))
        right = verdict is ApiVerdict.RIGHT
        signals = [] if verdict is ApiVerdict.NO_CALL else [CALLED]
        return Judgement(
            verdicts={"ast": right},
            prediction=text or None,
            answer=text[:200],
            signals=(*signals, *([] if right else [str(_CLASSES[verdict])])),
            measures={"hallucination": float(verdict.hallucinated)},
            detail="" if right else str(verdict),
        )


def _apis(entries: object) -> list[Api]:
    apis: list[Api] = []
    for entry in entries if isinstance(entries, list) else []:
        match entry:
            case [str(call), str(domain)]:
                apis.append(Api(domain=domain, api_name="", api_call=call))
            case other:
                raise DataError(
                    f"the manifest's database has an entry that is not an API: {other!r}"
                )
    return apis


BENCHMARK = Benchmark(
    name="apibench",
    title="APIBench, by syntax tree",
    load=load,
    judge=lambda manifest, _: nullcontext(ApiBenchJudge(manifest.reference)),
    checkers={"ast": "the call is an API of the hub, for the instruction's domain"},
    class_of=by_signals(class_of),
    arms=POLICY_ARMS,
    default_arms="llm",
    default_split=ALL,
    workflow_options={"prompt": "api_call"},
)
