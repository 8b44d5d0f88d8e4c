"""A trace of real GPUs under load, recorded once and played back: rows, ticks and energies are those of the recording.

Recorded on a machine with GPUs by

    rtxscale record tests/golden/telemetry/loaded.parquet --pseudonyms -- \
        python -m rtxscale.doctor.torch_process '[["load", 60], ["host", 0]]'
"""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rtxscale.results.schema import arrow_schema
from rtxscale.telemetry.fields import FAST
from rtxscale.telemetry.recorder import Recorded, fields_seen, totals
from rtxscale.telemetry.replay import ReplayProbe

TRACE = Path(__file__).parents[2] / "golden" / "telemetry" / "loaded.parquet"
ALWAYS = {"power_w", "energy_j", "temperature_c", "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons"}
ALWAYS |= {"utilisation", "memory_used_mib", "pcie_generation", "pcie_width", "performance_state", "processes"}
pytestmark = pytest.mark.skipif(not TRACE.exists(), reason=f"needs {TRACE.name}, recorded on a machine with GPUs")


@pytest.fixture(scope="module")
def samples():
    return pq.read_table(TRACE)


@pytest.fixture
def probe():
    return ReplayProbe.from_parquet(TRACE)


def test_it_holds_the_fields_of_the_card_and_no_private_name(samples):
    assert set(samples.column_names) <= set(arrow_schema("telemetry").names)
    assert set(fields_seen(samples)) >= ALWAYS
    uuids = {uuid for uuid in samples["uuid"].to_pylist() if uuid}
    assert uuids
    assert uuids == {f"GPU-{place}" for place in range(len(uuids))}


def test_it_is_small_and_names_no_machine(samples):
    assert TRACE.stat().st_size < 500_000
    texts = [name for name in samples.column_names if str(samples.schema.field(name).type) == "string"]
    said = {name: {value for value in samples[name].to_pylist() if value is not None} for name in texts}
    uuids = said.pop("uuid")
    known = {"node": {"node0"}, "device": {"gpu", "host"}, "trial_id": set(), "session_id": set()}
    assert said == known
    assert all(uuid.removeprefix("GPU-").isdigit() for uuid in uuids)
    assert set(samples.schema.metadata) == {b"rtxscale_schema", b"rtxscale_table"}


def test_it_is_played_back_tick_by_tick(samples, probe):
    devices = len(probe.devices())
    rows = [row for row in samples.to_pylist() if any(row[name] is not None for name in FAST)]
    played = []
    while tick := list(probe.read_fast()):
        assert len(tick) <= devices
        played += tick
    assert [(row["uuid"], row["t_ns"], row.get("power_w")) for row in played] == [
        (row["uuid"], row["t_ns"], row["power_w"]) for row in rows
    ]


def test_the_load_shows_and_both_energies_agree(samples, probe):
    recorded = Recorded(samples=samples, devices=probe.devices(), missed_ticks=0, errors=0)
    for one in totals(recorded):
        assert one.power_max_w > 2 * min(
            row["power_w"] for row in samples.to_pylist() if row["uuid"] == one.uuid and row["power_w"]
        )
        assert one.energy_counter_j / one.energy_integral_j == pytest.approx(1, abs=0.02)
