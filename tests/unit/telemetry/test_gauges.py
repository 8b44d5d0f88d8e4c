"""Gauges and the dashboard that names them: neither has one that the other lacks, and values are what was read."""

import json
import re

import pytest
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.telemetry.fields import FIELDS
from rtxscale.telemetry.gauges import ALL_GAUGES, FIELD_GAUGES, TAGS, TRIAL, TRIAL_TAGS, gauge_values

METRIC = re.compile(r"\bray_rtxscale_\w+")


@pytest.fixture(scope="module")
def dashboard():
    done = CliRunner().invoke(app, ["grafana"])
    assert done.exit_code == 0
    return json.loads(done.stdout)


def expressions(dashboard):
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_the_dashboard_shows_every_gauge_and_no_other(dashboard):
    shown = {name for expression in expressions(dashboard) for name in METRIC.findall(expression)}
    assert shown == {f"ray_{gauge.name}" for gauge in (*ALL_GAUGES, TRIAL)}


def test_it_selects_by_tags_that_the_gauges_have(dashboard):
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    for expression in expressions(dashboard):
        for inside in re.findall(r"\{([^}]*)\}", expression):
            tags = TRIAL_TAGS if TRIAL.name in expression else TAGS
            assert set(re.findall(r"(\w+)[=!]", inside)) <= set(tags), expression
        assert set(re.findall(r"\$(\w+)", expression)) <= variables
        assert expression.count("(") == expression.count(")")
    legends = {target["legendFormat"] for panel in dashboard["panels"] for target in panel["targets"]}
    assert {tag for legend in legends for tag in re.findall(r"\{\{(\w+)\}\}", legend)} <= {*TAGS, "trial"}


def test_a_gpu_is_added_once_while_one_session_follows_another(dashboard):
    # The old session's series is shown for some seconds more; a rate over both is right.
    sums = [one for one in expressions(dashboard) if one.startswith("sum by") and "rate(" not in one]
    assert sums
    assert all(one.startswith("sum by (sweep) (max by (sweep, node, gpu) (ray_") for one in sums)


def test_panels_have_ids_of_their_own_and_do_not_overlap(dashboard):
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24  # Grafana's columns


def test_gauges_are_of_sampled_fields_and_named_once():
    assert set(FIELD_GAUGES) <= {field.name for field in FIELDS}
    assert len({gauge.name for gauge in ALL_GAUGES}) == len(ALL_GAUGES)


@pytest.mark.parametrize(
    ("reasons", "slowdown", "capped"),
    [([], 0, 0), (["sw_power_cap"], 0, 1), (["gpu_idle"], 0, 0), (["hw_power_brake_slowdown", "sw_power_cap"], 1, 1)],
)
def test_what_holds_a_gpu_back(reasons, slowdown, capped):
    values = gauge_values({"throttle_reasons": reasons})
    assert values == {"rtxscale_gpu_slowdown": slowdown, "rtxscale_gpu_power_capped": capped}


def test_what_was_not_read_has_no_value():
    assert gauge_values({}) == {}
    assert gauge_values({"power_w": None, "utilisation": 0.0}) == {"rtxscale_utilisation_ratio": 0.0}
