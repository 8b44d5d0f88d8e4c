"""CUDA_VISIBLE_DEVICES in every form that people use, on a machine with two GPUs and two MIG instances."""

from pathlib import Path

import pytest

from rtxscale.telemetry.visible import visible_devices

A = "GPU-00000000-0000-0000-0000-000000000000"
B = "GPU-10000000-0000-0000-0000-000000000000"
M0 = "MIG-00000000-0000-0000-0000-000000000000"
M1 = "MIG-00000001-0000-0000-0000-000000000001"

EXPECTED = {
    "<unset>": [A, B],
    "": [],
    "0": [A],
    "1,0": [B, A],
    "0,1,2,3": [A, B],
    "-1": [],
    "0,-1,1": [A],
    "NoDevFiles": [],
    "all": [],
    "none": [],
    "void": [],
    A: [A],
    "GPU-0000000": [A],
    M1: [M1],
    "MIG-GPU-00000000-0000-0000-0000-000000000000/1/0": [],
    f"{A},{M1}": [A],
    "0,0": [],
    "0, 1": [A, B],
}


def recorded_values():
    path = Path(__file__).parents[2] / "golden" / "telemetry" / "cuda_visible_devices_values.txt"
    return path.read_text().splitlines()[1:]


def test_every_recorded_value_has_an_expectation():
    assert set(recorded_values()) == set(EXPECTED)


@pytest.mark.parametrize("value", recorded_values())
def test_recorded_values(value):
    found = visible_devices(None if value == "<unset>" else value, [A, B], [M0, M1])
    assert list(found.uuids) == EXPECTED[value]
    hidden = len(found.uuids) < 2 and value not in {"0", A, "GPU-0000000", M1}
    assert bool(found.notes) == (hidden or value == "0,1,2,3")


@pytest.mark.parametrize(
    ("value", "uuids", "note"),
    [
        ("GPU-", [], "fits several"),
        ("GPU-0,GPU-1", [A, B], None),
        ("GPU-0,GPU-00", [], "twice"),
        ("GPU-7", [], "fits no device"),
        ("MIG-0000000", [], "fits several"),
        (f"{M1},{M0}", [M1], "one MIG instance, the first"),
        ("0,GPU-1", [A], "another form"),
        ("1gpu2", [B], None),
        ("1,", [B], "neither an index nor a UUID"),
        ("2", [], "index from 0 to 1"),
        (" ", [], "hides every GPU"),
    ],
)
def test_further_forms(value, uuids, note):
    found = visible_devices(value, [A, B], [M0, M1])
    assert list(found.uuids) == uuids
    assert (note in " ".join(found.notes)) if note else found.notes == ()


@pytest.mark.parametrize("value", [None, "", "0", "GPU-a", "0,0"])
def test_a_machine_without_gpus_has_none_and_says_nothing_of_it(value):
    assert visible_devices(value, []).uuids == ()
    assert visible_devices(value, []).notes == ()
