"""Runs that an earlier rtxscale wrote stay readable."""

from pathlib import Path

from rtxscale.results.read import Run, polars_schema

GOLDEN = Path(__file__).parents[2] / "golden" / "results_schema_1" / "quickstart-0a1b2c3d4e5f-01"


def test_columns_that_the_old_files_lack_are_null_with_the_right_type():
    run = Run.open(GOLDEN)
    run.verify()
    trials = run.frame("trials").collect()
    assert dict(trials.schema) == polars_schema("trials")
    assert trials["throughput_per_s"].to_list() == [100.0, 195.0]
    assert trials["power_w"].to_list() == [None, 412.5]
    assert trials["flags"].to_list() == [None, ["throttled"]]


def test_a_column_of_nulls_first_and_counters_over_32_bits_do_no_harm():
    telemetry = Run.open(GOLDEN).frame("telemetry").collect()
    assert dict(telemetry.schema) == polars_schema("telemetry")
    assert telemetry["power_w"].to_list() == [None, 412.5]
    assert telemetry["t_ns"].to_list() == [15814595384, 15814595385]
    assert telemetry["throttle_reasons"].to_list() == [[], ["sw_power_cap"]]
    assert telemetry["memory_temperature_c"].to_list() == [None, None]
