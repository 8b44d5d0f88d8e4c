"""A real run, 2x H200, 169 trials of sweeps/nccl.yaml: what README says of it comes out of its rows."""

import re
from pathlib import Path

import polars as pl
import pytest

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.analysis.flags import flagged

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "h200x2_nccl"
README = (GOLDEN.parents[2] / "README.md").read_text()
AXES = {
    "gpus": [1, 2, 4, 8],
    "nccl.algorithm": ["auto", "ring", "tree"],
    "nccl.channels": ["auto", 1, 2, 4, 8],
    "nccl.p2p": ["auto", "disabled"],
    "ddp.bucket_mib": [1, 25, 100],
}
MIB = 2**20


@pytest.fixture(scope="module")
def tables():
    from rtxscale.results.read import polars_schema

    def table(name):
        schema = polars_schema(name)
        frame = pl.read_parquet(GOLDEN / f"{name}.parquet")
        missing = [pl.lit(None, kind).alias(column) for column, kind in schema.items() if column not in frame.columns]
        return frame.with_columns(missing).select(list(schema))

    empty = {"environment": pl.DataFrame(schema=polars_schema("environment"))}  # not kept
    return empty | {name: table(name) for name in ("trials", "collectives", "attestation")}


@pytest.fixture(scope="module")
def conclusions(tables):
    trials = flagged(tables["trials"], tables["attestation"], tables["environment"])
    return conclude_tables(trials, tables["collectives"], axes=AXES)


def means(tables, size_mib, **settings):
    """Bus bandwidth over all trials with these settings, GB/s."""
    wanted = tables["trials"].filter(*(pl.col(name) == value for name, value in settings.items()))
    rows = tables["collectives"].join(wanted.select("trial_id", "attempt"), on=["trial_id", "attempt"])
    return rows.filter(pl.col("size_bytes") == size_mib * MIB)["busbw_gb_s"].mean()


def reference(transport, size_mib):
    """In-place bus bandwidth of nccl-tests on the same host, GB/s."""
    text = (GOLDEN / f"nccl_tests_p2p_{transport}.txt").read_text()
    (line,) = [line for line in text.splitlines() if re.match(rf" *{size_mib * MIB} ", line)]
    return float(line.split()[-2])


@pytest.mark.parametrize("transport", ["auto", "disabled"])
@pytest.mark.parametrize("size_mib", [64, 512])
def test_bandwidth_agrees_with_nccl_tests(tables, transport, size_mib):
    ours = means(tables, size_mib, nccl_algorithm="auto", nccl_channels="auto", nccl_p2p=transport)
    assert ours == pytest.approx(reference(transport, size_mib), rel=0.05)


def test_channels_reach_nccl(tables):
    found = [
        means(tables, 512, nccl_algorithm="auto", nccl_channels=count, nccl_p2p="auto")
        for count in ("1", "2", "4", "8")
    ]
    assert found == pytest.approx([20.9, 41.5, 82.3, 158], rel=0.03)


def test_every_forced_setting_was_proven(tables):
    asked = tables["attestation"].filter(pl.col("requested") != "auto")
    assert set(asked["verdict"]) == {"honoured"}
    assert asked.height > 200


def test_the_answer_says_what_could_not_be_separated(conclusions):
    assert conclusions.headline.startswith("2x NVIDIA H200 run vision/resnet50 at 1.52x of one, weak efficiency 0.76")
    assert "no setting is separable from the defaults" in conclusions.headline
    assert "(fastest measured: bucket 100 MiB, +18.2 %)" in conclusions.headline
    assert any("host_bound on 117" in remark for remark in conclusions.remarks)


def test_readme_quotes_the_throughputs(conclusions):
    default = conclusions.cells.filter("is_default")
    one, two = (default.filter(pl.col("gpus") == gpus).row(0, named=True) for gpus in (1, 2))
    assert round(one["throughput_per_s"]) == 4345
    assert (two["throughput_per_s"], two["throughput_low"], two["throughput_high"]) == pytest.approx(
        (6620, 5350, 8190), abs=5
    )


def test_the_unfinished_second_visit_lends_effects_only_its_own_pairs(conclusions):
    row = conclusions.effects.filter(pl.col("axis") == "nccl.p2p").row(0, named=True)
    assert (row["pairs"], row["pairs_left_out"], row["sessions"]) == (30, 15, 2)
    assert row["ratio"] == pytest.approx(0.9719, abs=1e-4)
    assert set(conclusions.effects["verdict"]) == {"not separable"}


def test_readme_quotes_this_run(tables):
    rows = re.findall(r"^\| (auto|disabled) \| (64|512) MiB \| ([\d.]+) \| ([\d.]+) \|", README, flags=re.MULTILINE)
    assert len(rows) == 4
    for transport, size, ours, theirs in rows:
        measured = means(tables, int(size), nccl_algorithm="auto", nccl_channels="auto", nccl_p2p=transport)
        assert float(ours) == pytest.approx(measured, rel=0.002)
        assert float(theirs) == pytest.approx(reference(transport, int(size)), rel=0.002)
