"""The metrics that Prometheus reads from a deployment that has answered questions."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from loopline.trainers.grpo.loop.metrics import TrainingMetrics
from tests.runtime.conftest import KINDS, Deployment, until
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

DEPLOY = Path(__file__).parents[2] / "deploy"
ALL_KINDS = (*KINDS, "gateway")
UNIT_OR_COUNT = re.compile(
    r"_(seconds|bytes|tokens|dollars|total|info|version|size)$"
    r"|^loopline_(stream|runs|messages|workers|engine_waiting|engine_breaker|dead_letters)"
)
NAME = re.compile(r"\b(?:loopline|process)_[a-z_]+\b")
OF_A_TYPE = re.compile(r"_(bucket|sum|count)$")

NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)

Labels = Mapping[str, str]


class Scraped:
    """The metrics of one process, in Prometheus' text format."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families: dict[str, Metric] = {
            family.name: family for family in text_string_to_metric_families(text)
        }

    @property
    def names(self) -> set[str]:
        """Names of all series, including those that have no sample yet."""
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        return {
            f"{family.name}{end}"
            for family in self.families.values()
            for end in ends.get(family.type, ("",))
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The value of one series; None if there is no such series."""
        for family in self.families.values():
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def labels(self) -> Iterator[Labels]:
        for family in self.families.values():
            for sample in family.samples:
                yield sample.labels


class Measured(ScriptedGateway):
    """A deployment that Prometheus reads."""

    def targets(self) -> dict[str, str]:
        """Worker → address, from the file for Prometheus."""
        groups: list[dict[str, Any]] = json.loads(self.state.scrape_targets.read_text())
        return {group["labels"]["worker"]: group["targets"][0] for group in groups}

    def scrape(self, worker: str) -> Scraped:
        response = httpx.get(f"http://{self.targets()[worker]}/metrics")
        assert response.status_code == 200
        return Scraped(response.text)

    def scrape_gateway(self, key: str | None = None) -> Scraped:
        with self.client(key) as http:
            response = http.get("/metrics")
        assert response.status_code == 200, response.text
        return Scraped(response.text)

    def everything(self) -> dict[str, Scraped]:
        """Everything that Prometheus would read."""
        return {
            "deployment": self.scrape_gateway(),
            **{worker: self.scrape(worker) for worker in self.targets()},
        }


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    """A deployment after two runs, one of each workflow. `llm` has a price, `slm` has none."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        deployment = Measured(Path(folder))
        try:
            deployment.up(
                "metrics.enabled=true",
                "gateway.port=0",
                "workers.gateway.count=1",
                "recorder.linger_seconds=0",
                "models.llm.price.prompt=2",
                "models.llm.price.completion=8",
                "models.llm.max_tokens_in_flight=100000",
                profile="micro",
                kinds=ALL_KINDS,
            )
            deployment.ask("What is 17 * 23?")
            deployment.ask("What is 12 + 30?", "--workflow", "solo")
            until(lambda: len(deployment.targets()) == len(ALL_KINDS), "all targets")
            until(
                lambda: deployment.scrape("recorder-1").value(
                    "loopline_runs_total", workflow="solo", outcome="answered"
                ),
                "the second run in the store",
            )
            yield deployment
        finally:
            deployment.end()


def training_figures() -> Scraped:
    """Only the names: another test checks the values of a training."""
    registry = CollectorRegistry()
    TrainingMetrics(registry)
    return Scraped(generate_latest(registry).decode())


def dashboard_queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_the_targets_file_and_the_status_list_the_address_of_every_process(
    measured: Measured,
) -> None:
    targets = measured.targets()
    assert set(targets) == {f"{kind}-1" for kind in ALL_KINDS}
    named = {worker["details"]["metrics"] for worker in measured.status()["workers"]}
    assert named == set(targets.values())
    for worker in targets:
        assert (measured.scrape(worker).value("process_resident_memory_bytes") or 0) > 1e6


def test_runs_are_counted_by_workflow_and_outcome(measured: Measured) -> None:
    recorder = measured.scrape("recorder-1")
    for workflow in ("delegate", "solo"):
        assert recorder.value("loopline_runs_total", workflow=workflow, outcome="answered") == 1
        assert recorder.value("loopline_run_seconds_count", workflow=workflow) == 1


def test_the_ledger_and_the_engines_agree_on_the_tokens(measured: Measured) -> None:
    recorder, engine = measured.scrape("recorder-1"), measured.scrape("gpu-1")
    for kind in ("prompt", "completion"):
        counted = engine.value(f"loopline_engine_{kind}_tokens_total", pool="llm")
        assert counted
        assert recorder.value("loopline_tokens_total", pool="llm", kind=kind) == counted


def test_a_pool_without_a_price_has_unpriced_calls_instead_of_a_zero_cost(
    measured: Measured,
) -> None:
    recorder = measured.scrape("recorder-1")
    assert (recorder.value("loopline_cost_dollars_total", pool="llm") or 0) > 0
    assert recorder.value("loopline_calls_without_price_total", pool="llm") is None
    assert recorder.value("loopline_cost_dollars_total", pool="slm") is None
    unpriced = recorder.value("loopline_calls_without_price_total", pool="slm")
    assert unpriced == recorder.value("loopline_calls_total", pool="slm") != 0


def test_a_worker_measures_the_queueing_and_handling_time_of_its_steps(measured: Measured) -> None:
    planner = measured.scrape("planner-1")
    steps = planner.value("loopline_message_handling_seconds_count", stream="role:planner")
    assert steps
    assert planner.value("loopline_message_queue_seconds_count", stream="role:planner") == steps
    assert planner.value("loopline_messages_in_hand", stream="role:planner") == 0


def test_an_engine_reports_its_speed_and_its_load(measured: Measured) -> None:
    gpu = measured.scrape("gpu-1")
    requests = gpu.value("loopline_engine_requests_total", pool="llm")
    first = gpu.value("loopline_engine_time_to_first_token_seconds_count", pool="llm")
    assert requests
    assert first == requests
    assert (gpu.value("loopline_engine_time_per_output_token_seconds_sum", pool="llm") or 0) > 0
    assert gpu.value("loopline_engine_batch_size", pool="llm") == 0
    assert gpu.value("loopline_engine_kv_tokens", pool="llm") == 0
    assert gpu.value("loopline_engine_kv_capacity_tokens", pool="llm") == 100_000
    assert gpu.value("loopline_engine_kv_capacity_tokens", pool="slm") is None


def test_the_gateway_reports_on_the_whole_deployment(measured: Measured) -> None:
    deployment = measured.scrape_gateway()
    for kind in ALL_KINDS:
        assert deployment.value("loopline_workers", worker_kind=kind, state="ready") == 1
    assert deployment.value("loopline_stream_waiting", stream="role:planner") == 0
    assert deployment.value("loopline_runs_in_flight") == 0
    assert deployment.value("loopline_dead_letters_stored") == 0
    assert (deployment.value("loopline_redis_memory_bytes") or 0) > 0


def test_a_key_can_be_limited_to_metrics_and_other_keys_need_that_right(measured: Measured) -> None:
    assert httpx.get(f"{measured.root}/metrics").status_code == 401
    scraper = measured.new_key("prometheus", "--model", "metrics")["key"]
    assert measured.scrape_gateway(scraper).names
    with measured.client(scraper) as http:
        assert http.get("/v1/models").json()["data"] == []
    with measured.client(measured.new_key("narrow", "--model", "slm")["key"]) as http:
        assert http.get("/metrics").status_code == 403


def test_names_have_units_and_labels_have_few_values(measured: Measured) -> None:
    run_ids = [run["id"] for run in json.loads(measured.ok("runs", "ls", "--json"))]
    assert len(run_ids) == 2
    for scraped in measured.everything().values():
        for family in scraped.families.values():
            if family.name.startswith("loopline_"):
                assert family.documentation.endswith(".")
                name = f"{family.name}_total" if family.type == "counter" else family.name
                assert UNIT_OR_COUNT.search(name), name
        for labels in scraped.labels():
            assert set(labels) <= {
                "stream", "pool", "kind", "workflow", "outcome", "worker_kind", "state", "policy",
                "version", "le", "generation",
            }  # fmt: skip
            assert not set(labels.values()) & set(run_ids)
            assert all(len(value) < 64 for value in labels.values())


def test_the_dashboard_and_the_alerts_query_only_exported_metrics(measured: Measured) -> None:
    everything = [training_figures(), *measured.everything().values()]
    exported_names = set[str]().union(*(scraped.names for scraped in everything))
    queries = dashboard_queries()
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    queries += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    queried_names = {name for query in queries for name in NAME.findall(query)}
    assert len(queried_names) > 30
    assert queried_names <= exported_names


def test_the_dashboard_shows_every_metric_of_this_project(measured: Measured) -> None:
    dashboard_names = set(NAME.findall((DEPLOY / "grafana-dashboard.json").read_text()))
    for scraped in [training_figures(), *measured.everything().values()]:
        for family in scraped.families.values():
            if family.name.startswith("loopline_") and family.name != "loopline_worker_info":
                names = {f"{family.name}{end}" for end in ("", "_total", "_bucket")}
                assert names & dashboard_names, family.name


@NEEDS_PROMTOOL
def test_promtool_accepts_the_metrics_queries_and_rules(measured: Measured, tmp_path: Path) -> None:
    for worker, scraped in {**measured.everything(), "trainer": training_figures()}.items():
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=scraped.text, capture_output=True, text=True
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, ""), worker
    # Queries of the dashboard are checked as rules, with a time range that Grafana fills in.
    names = itertools.count()
    rules = [
        {"record": f"query:{next(names)}", "expr": query.replace("$__rate_interval", "5m")}
        for query in dashboard_queries()
    ]
    queries = tmp_path / "queries.yml"
    queries.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    for words in (
        ("rules", "alerts.yml"),
        ("rules", str(queries)),
        ("config", "--syntax-only", "prometheus.yml"),
    ):
        checked = subprocess.run(
            ["promtool", "check", *words], capture_output=True, text=True, cwd=DEPLOY
        )
        assert checked.returncode == 0, checked.stderr


@NEEDS_PROMTOOL
def test_each_alert_fires_when_it_should_and_none_when_all_is_well(tmp_path: Path) -> None:
    cases = Path(__file__).with_name("alert_rules.yml").read_text()
    file = tmp_path / "cases.yml"
    file.write_text(cases.replace("RULES", str(DEPLOY / "alerts.yml")))
    checked = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    alerts = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    assert all(rule["alert"] in cases for rule in alerts)


def test_the_targets_file_lists_the_new_port_of_a_replaced_worker(
    measured: Measured,
) -> None:
    before = measured.targets()["tool-1"]
    (worker,) = measured.workers("tool")
    os.kill(worker["pid"], signal.SIGKILL)

    def moved() -> bool:
        groups = json.loads(measured.state.scrape_targets.read_text())
        places = [g["targets"][0] for g in groups if g["labels"]["worker"] == "tool-1"]
        return bool(places) and before not in places

    until(moved, "the new port of the tool worker")
    assert measured.scrape("tool-1").value("process_resident_memory_bytes")


def test_the_error_for_a_port_in_use_names_it_with_a_remedy(measured: Measured) -> None:
    port = measured.targets()["gpu-1"].rpartition(":")[2]
    refused = measured.run("worker", "slm", "--set", f"metrics.port={port}")
    assert refused.returncode == 1
    assert f"127.0.0.1:{port}" in refused.stderr
    assert "metrics.port=0 takes a free port" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_without_the_setting_no_metrics_are_served_or_imported(shared: Deployment) -> None:
    assert not shared.state.scrape_targets.exists()
    workers = shared.status()["workers"]
    assert workers
    assert not any("metrics" in worker["details"] for worker in workers)
    code = (
        "import sys, loopline.workers.process, loopline.workers.recorder, "
        "loopline.runtime.supervise.supervisor, loopline.runtime.gateway.app; "
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
