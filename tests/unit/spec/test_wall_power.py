"""`wall_power` in a sweep file: each source with its fields, no id that changes, and nothing run from a dossier."""

import pytest

from rtxscale.cli.allowed import SUMS, check_allowed
from rtxscale.errors import BadInput, SpecError
from rtxscale.spec.load import parse_sweep

TEXT = """
name: metered
question: What does it draw at the wall?
study: weak
workload: {kind: vision, model: resnet18, batch_per_gpu: 4, precision: fp32}
axes: {gpus: [1, 2]}
"""


def sweep(meter=""):
    return parse_sweep(TEXT + (f"wall_power: {meter}\n" if meter else ""), "metered.yaml")


GOOD = [
    "{source: ipmi}",
    "{source: ipmi, address: bmc-1, period_s: 2}",
    "{source: redfish, address: 'https://10.0.0.9'}",
    "{source: csv, path: meter.csv, time_column: when, power_column: W}",
    "{source: command, command: [snmpget, -Oqv, pdu, power.0]}",
]


@pytest.mark.parametrize("meter", GOOD)
def test_a_meter_changes_no_id(meter):
    assert sweep(meter).wall_power is not None
    assert sweep(meter).sweep_id == sweep().sweep_id
    assert sweep().wall_power is None


WRONG = [
    ("{source: redfish}", "wall_power.address", "which source: redfish needs"),
    ("{source: csv}", "wall_power.path", "which source: csv needs"),
    ("{source: command}", "wall_power.command", "which source: command needs"),
    ("{source: ipmi, path: x}", "wall_power.path", "a field that source: ipmi has a use for"),
    ("{source: csv, path: x, command: [a]}", "wall_power.command", "a field that source: csv has a use for"),
    ("{source: clamp}", "wall_power.source", "ipmi, redfish, csv or command"),
    ("{source: ipmi, address: -oProxyCommand=x}", "wall_power.address", ""),
    ("{source: ipmi, period_s: 0}", "wall_power.period_s", ""),
    ("{source: ipmi, password: x}", "wall_power.password", ""),
]


@pytest.mark.parametrize(("meter", "path", "expected"), WRONG)
def test_what_is_wrong_is_named(meter, path, expected):
    with pytest.raises(SpecError) as error:
        sweep(meter)
    assert [problem.path for problem in error.value.problems] == [path]
    assert expected in error.value.problems[0].expected


def test_it_is_no_axis():
    with pytest.raises(SpecError, match=r"wall_power\.period_s belongs to the sweep as a whole"):
        parse_sweep(TEXT.replace("[1, 2]", "[1, 2], wall_power.period_s: [1.0, 2.0]"), "s.yaml")


@pytest.mark.parametrize(("meter", "needs"), list(zip(GOOD, (False, True, True, False, True), strict=True)))
def test_a_dossiers_meter_neither_runs_nor_sees_a_password_unless_allowed(tmp_path, meter, needs):
    check_allowed(sweep(meter), tmp_path, allowed=False)
    (tmp_path / SUMS).write_text("")
    if needs:
        with pytest.raises(BadInput, match="--allow-commands"):
            check_allowed(sweep(meter), tmp_path, allowed=False)
    else:
        check_allowed(sweep(meter), tmp_path, allowed=False)
    check_allowed(sweep(meter), tmp_path, allowed=True)
