"""What watches a cluster, on the shared head node: the doctor on its nodes, and gauges as Prometheus reads them."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pytest
from conftest import REPOSITORY, free_ports, wait_for
from prometheus_client.parser import text_string_to_metric_families

from rtxscale.cli.grafana import dashboard_text
from rtxscale.telemetry.gauges import ALL_GAUGES, FIELD_GAUGES, TRIAL

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

READINGS = {field: float(place) for place, field in enumerate(FIELD_GAUGES, 1)}
SHOW = f"""
import os, sys, threading, time
from rtxscale.run.authentication import settle
from pathlib import Path
settle(os.environ, Path.home())
from rtxscale.run.cluster import join
from rtxscale.run.gauges import Gauges
from rtxscale.run.ray_setup import ray

class Shown:
    def show(self):
        gpu = {{**{READINGS!r}, "throttle_reasons": ["sw_power_cap", "hw_thermal_slowdown"]}}
        self.gauges = Gauges()
        tags = {{"node": "node0", "sweep": "watched", "session": "s1"}}
        devices = {{"GPU-a": gpu, "": {{"utilisation": 0.5}}}}
        self.gauges.show(devices, tags, "before")
        threading.Thread(target=self.show_for_ever, args=(devices, tags), daemon=True).start()

    def show_for_ever(self, devices, tags):
        while True:
            self.gauges.show(devices, tags, "0a1b2c")
            time.sleep(0.5)

join(sys.argv[1], {{}})
actor = ray.remote(Shown).options(num_cpus=0).remote()
ray.get(actor.show.remote())
print("shown", flush=True)
sys.stdin.readline()
"""


def test_every_node_is_examined_and_nothing_is_left(head, tmp_path):
    command = [sys.executable, "-m", "rtxscale", "doctor", "--address", head.address, "--quick", "--json"]
    done = subprocess.run(
        [*command, "--results", str(tmp_path)],
        env=head.environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    (node,) = found["nodes"]
    assert (node["name"], bool(node["address"]), node["problem"]) == ("node0", True, None)
    assert node["clock"] == {"offset_s": 0.0, "error_s": 0.0}  # the same machine
    assert node["examination"]["transfers"]["not_run"] == "--quick"
    assert {"Python", "rtxscale"} == set(node["versions"])
    assert found["between"] == []
    assert found["exit_code"] == done.returncode


def scraped(head):
    """Samples of our gauges of one sweep at every endpoint that Ray names to Prometheus, by metric name."""
    found = {}
    for target in json.loads((head.home / "ray" / "prom_metrics_service_discovery.json").read_text()):
        for endpoint in target["targets"]:
            with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=10) as answer:
                families = list(text_string_to_metric_families(answer.read().decode()))
            for sample in (sample for family in families for sample in family.samples):
                if sample.labels.get("sweep") == "watched":
                    found.setdefault(sample.name, []).append(sample)
    return found


@contextlib.contextmanager
def shown(head):
    """Gauges of a made-up GPU, set by an actor on the cluster."""
    with subprocess.Popen(
        [sys.executable, "-c", SHOW, head.address],
        env=head.environment,
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "shown\n"
        yield
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(30) == 0


def test_every_gauge_can_be_scraped_under_the_name_that_the_dashboard_uses(head):
    names = {f"ray_{gauge.name}" for gauge in (*ALL_GAUGES, TRIAL)}
    with shown(head):
        wait_for(lambda: names <= set(scraped(head)), 30, lambda: f"{names - set(scraped(head))}")
        found = scraped(head)
    of_gpu = {name: [s for s in samples if s.labels.get("gpu") == "GPU-a"] for name, samples in found.items()}
    for field, gauge in FIELD_GAUGES.items():
        (sample,) = of_gpu[f"ray_{gauge.name}"]
        assert sample.value == READINGS[field]
        assert (sample.labels["node"], sample.labels["session"]) == ("node0", "s1")
    assert of_gpu["ray_rtxscale_gpu_slowdown"][0].value == 1
    trials = {sample.labels["trial"]: sample.value for sample in found["ray_rtxscale_trial_info"]}
    assert trials in ({"before": 0, "0a1b2c": 1}, {"0a1b2c": 1})  # what has ended is 0, then gone
    assert {sample.labels["gpu"] for sample in found["ray_rtxscale_utilisation_ratio"]} == {"GPU-a", ""}


PROMETHEUS = "RTXSCALE_PROMETHEUS"


def test_a_real_prometheus_answers_every_question_of_the_dashboard(head, tmp_path):
    binary = os.environ.get(PROMETHEUS)
    if not binary:
        pytest.skip(f"needs the path of a Prometheus in {PROMETHEUS}, such as /usr/bin/prometheus of Debian's package")
    (port,) = free_ports(1)
    endpoints = head.home / "ray" / "prom_metrics_service_discovery.json"
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: ray, file_sd_configs: [{{files: ['{endpoints}']}}]}}]"
    )
    command = [binary, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]

    def ask(expression):
        for name, words in (("$sweep", "watched"), ("$node", ".*")):
            expression = expression.replace(name, words)
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success"
        return found["data"]["result"]

    def scraped_already():
        with contextlib.suppress(OSError):
            return ask('ray_rtxscale_gpu_power_watts{sweep="$sweep"}')
        return []

    asked = [target["expr"] for panel in json.loads(dashboard_text())["panels"] for target in panel["targets"]]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    log = (tmp_path / "log").open("w")
    with log, shown(head), subprocess.Popen(command, stderr=log) as prometheus:
        try:
            wait_for(scraped_already, 60, "the first samples")
            time.sleep(3)  # a rate needs two of them
            empty = [expression for expression in asked if not ask(expression)]
            of_trial = ask(
                'ray_rtxscale_gpu_power_watts{sweep=~"$sweep"} * on (node, sweep, session) group_left (trial) '
                "(ray_rtxscale_trial_info == 1)"
            )
            power = ask('sum by (sweep) (ray_rtxscale_gpu_power_watts{sweep=~"$sweep", gpu!=""})')
        finally:
            prometheus.terminate()
    hosts = [expression for expression in asked if 'gpu=""' in expression and "memory" in expression]
    assert empty == hosts  # the made-up host tells no memory
    assert {one["metric"]["trial"] for one in of_trial} == {"0a1b2c"}
    assert power[0]["metric"] == {"sweep": "watched"}
    assert float(power[0]["value"][1]) == READINGS["power_w"]
