"""What stands behind the numbers on the page: steadiness, links, slowdowns, memory, findings, trials, the unknown."""

from __future__ import annotations

import math
import re

import polars as pl
import pytest

from rtxscale.analysis.conclude import conclude
from rtxscale.report.charts.bandwidth import bandwidth_figures
from rtxscale.report.charts.bandwidth_references import References, link_limit, references_of
from rtxscale.report.charts.figures import figures
from rtxscale.report.charts.steady import POINTS, steady_figure
from rtxscale.report.charts.telemetry import telemetry_figures
from rtxscale.report.charts.throttle_bands import throttled_spans, throttled_words
from rtxscale.report.charts.topology import topology_figures
from rtxscale.report.dossier.unknowns import unknown_table
from rtxscale.report.key_numbers import key_numbers
from rtxscale.report.page import with_code
from rtxscale.report.tables.card_errors import card_errors_table
from rtxscale.report.tables.evidence import attestation_words, environment_words
from rtxscale.report.tables.findings import findings_table, findings_words, tool_texts
from rtxscale.report.tables.memory import memory_table
from rtxscale.report.trial_counts import trial_counts
from rtxscale.report.trial_evidence import ROWS, trial_evidence
from rtxscale.results.read import Run, polars_schema
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.declare import Declaration, parse_declaration

from . import made_dossiers, made_runs

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
TREE_LOG = (made_dossiers.GOLDEN / "nccl" / "h200x2_nvlink_tree_ctas2_nccl2.28.9.log").read_text()


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    run = made_dossiers.golden_run(tmp_path_factory.mktemp("golden"))
    return run, conclude(run)


def environment(subject, name, value):
    row = {"node": "n", "subject": subject, "name": name, "value": value}
    return pl.DataFrame([row], schema=polars_schema("environment"))


def run_with(root, **rows):
    """An otherwise empty run with these rows."""
    with RunWriter.open(root, made_runs.h200_sweep(), "name: made-up\n", fresh=True) as writer:
        writer.commit({name: table(name, given) for name, given in rows.items()})
        return Run.open(writer.run_dir)


# Topology


def topologies(*names):
    texts = [(made_dossiers.GOLDEN / "topology" / name).read_text() for name in names]
    rows = [
        {"node": f"node-{place}", "subject": "doctor", "name": "text of nvidia-smi topo -m", "value": text}
        for place, text in enumerate(texts)
    ]
    return list(topology_figures(pl.DataFrame(rows, schema=polars_schema("environment"))))


def test_two_gpus_are_drawn_with_their_link():
    (figure,) = topologies("topo_2gpu_nv12_blank_affinity.txt")
    assert [gpu["name"] for gpu in figure.datasets["gpus"]] == ["GPU 0", "GPU 1"]
    (link,) = figure.datasets["links"]
    assert (link["series"], link["meaning"]) == ("NV12", "12 bonded NVLinks")
    assert (link["x"], link["y"], link["x2"], link["y2"]) == (-1.0, 0.0, 1.0, 0.0)
    assert "8 network devices" in figure.caption


def test_every_pair_of_eight_gpus_is_drawn_nearest_on_top():
    (figure,) = topologies("topo_4090x8_sys_nic.txt")
    links = figure.datasets["links"]
    assert len(figure.datasets["gpus"]) == 8
    assert len(links) == 28
    widths = [link["width"] for link in links]
    assert widths == sorted(widths)
    assert set(figure.labels) == {link["series"] for link in links}
    assert all(math.isclose(gpu["x"] ** 2 + gpu["y"] ** 2, 1, abs_tol=1e-3) for gpu in figure.datasets["gpus"])


def test_escaped_text_of_results_is_read_like_the_tools_own():
    text = (made_dossiers.GOLDEN / "topology" / "topo_5090x2_phb.txt").read_text()
    kept = [text, text.replace("\t", "\\t")]
    drawn = [next(topology_figures(environment("doctor", "text of nvidia-smi topo -m", one))).datasets for one in kept]
    assert drawn[0] == drawn[1]


def test_equal_machines_are_drawn_once_and_others_each():
    same = topologies("topo_5090x2_phb.txt", "topo_5090x2_phb.txt")
    assert [figure.key for figure in same] == ["topology"]
    both = topologies("topo_5090x2_phb.txt", "topo_2gpu_nv12_blank_affinity.txt")
    assert [figure.key for figure in both] == ["topology-1", "topology-2"]
    assert "machine node-0" in both[0].title
    assert topologies("topo_m_with_i_error.txt", "topo_1gpu_ansi.txt") == []


# Slowdowns


def samples(reasons_at):
    rows = [
        {
            "node": "n",
            "device": "gpu",
            "uuid": "GPU-a",
            "t_ns": START + round(second * SECOND),
            "sm_clock_mhz": 1900.0,
            "throttle_reasons": reasons,
        }
        for second, reasons in reasons_at
    ]
    return pl.LazyFrame(rows, schema=polars_schema("telemetry"))


def test_slowdowns_are_joined_into_spans_and_the_power_cap_is_none():
    quiet = [(s, ["sw_power_cap"]) for s in range(0, 10)]
    hot = [(10 + s / 2, ["sw_thermal_slowdown", "sw_power_cap"]) for s in range(8)]
    brake = [(40.0, ["hw_power_brake_slowdown"])]
    spans = throttled_spans(samples([*quiet, *hot, (20, None), *brake]))
    assert [
        ((a - START) / SECOND, (b - START) / SECOND) for a, b in spans.select("start_ns", "end_ns").iter_rows()
    ] == [
        (10.0, 14.0),
        (40.0, 40.5),
    ]
    assert spans["reasons"].to_list() == ["heat (driver)", "power brake"]
    assert throttled_words(spans) == "Red: a clock was held back, 2 times, 4.5 s in all: heat (driver), power brake."
    assert throttled_words(throttled_spans(samples(quiet))) == ""


def test_slowdowns_stand_behind_the_clock(golden):
    trials = pl.DataFrame(schema=polars_schema("trials"))
    reasons = [(s, ["hw_thermal_slowdown"] if 5 <= s < 9 else []) for s in range(20)]
    (figure,) = telemetry_figures(samples(reasons), trials)
    (band,) = figure.datasets["slowdowns"]
    assert (60 * band["start"], 60 * band["end"]) == (pytest.approx(5, abs=0.01), pytest.approx(8.5, abs=0.01))
    assert band["text"] == "heat (hardware)"
    assert "held back, once" in figure.caption
    assert figure.spec()["layer"][0]["mark"]["style"] == "slowdown"


# Steady state


def test_step_times_are_relative_to_the_window_of_their_own_visit(cpu):
    cell = cpu.conclusions.cells.filter(pl.col("is_default") & (pl.col("gpus") == 2)).row(0, named=True)
    frame = cpu.run.frame("trials").collect()
    own = frame.filter((pl.col("cell_id") == cell["cell_id"]) & (pl.col("outcome") == "ok")).sort("visit")
    rows = []
    for trial, pace in zip(own["trial_id"], (0.010, 0.020), strict=True):
        base = {"trial_id": trial, "attempt": 1, "rank": 0}
        rows.append({**base, "step": 0, "phase": "first", "step_time_s": 5.0})
        rows += [{**base, "step": 1 + n, "phase": "warmup", "step_time_s": 1.5 * pace} for n in range(400)]
        rows += [{**base, "step": 401 + n, "phase": "window", "step_time_s": pace} for n in range(400)]
        rows += [{**base, "rank": 1, "step": 1, "phase": "window", "step_time_s": 9.0}]
    steps = pl.LazyFrame(rows, schema=polars_schema("steps"))
    cells = cpu.conclusions.cells.filter(pl.col("cell_id") == cell["cell_id"])
    figure = steady_figure(frame, cells, steps, "CPU workers")
    points = figure.datasets["steps"]
    assert figure.labels == ("visit 1", "visit 2")
    assert {row["trial"] for row in points} == set(own["trial_id"])
    assert {round(row["share"], 6) for row in points if row["phase"] == "window"} == {1.0}
    assert {round(row["share"], 6) for row in points if row["phase"] == "warmup"} == {1.5}
    assert max(sum(row["series"] == label for row in points) for label in figure.labels) <= POINTS + 2
    # 400 warm-up steps of 15 ms come before the window of the first visit, of 30 ms before that of the second.
    spans = {
        label: [row["seconds"] for row in points if row["series"] == label and row["phase"] == "window"]
        for label in figure.labels
    }
    assert [min(span) for span in spans.values()] == [pytest.approx(6.0, abs=0.05), pytest.approx(12.0, abs=0.1)]
    # Warm-up and window of different visits overlap in time: no area can be said to be measured, only parts of lines.
    assert list(figure.datasets) == ["steps"]
    faint, strong, _ = figure.spec()["layer"]
    assert (faint["mark"]["type"], strong["mark"]["type"]) == ("line", "line")
    assert strong["transform"] == [{"filter": "datum.phase == 'window'"}]
    assert "strokeDash" in faint["mark"]
    assert "strokeDash" not in strong["mark"]
    assert "Strong: inside that window" in figure.caption
    assert "shaded" not in figure.caption
    assert steady_figure(frame, cells, steps.head(0), "CPU workers") is None


# Bandwidth against what was to be expected


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """Two GPUs with a log that H200s wrote, as a rank keeps it."""
    from rtxscale.nccl.lines import condense

    made = made_runs.h200_run(tmp_path_factory.mktemp("logged"), visits=1)
    two = made.conclusions.cells.filter(pl.col("is_default") & (pl.col("gpus") == 2))["cell_id"].item()
    trial = made.run.frame("trials").filter(pl.col("cell_id") == two).collect()["trial_id"].item()
    lines = [
        {
            "trial_id": trial,
            "attempt": 1,
            "source": "nccl",
            "rank": 0,
            "place": place,
            "line": line,
            "count": count,
        }
        for place, (line, count) in enumerate(condense(TREE_LOG))
    ]
    with RunWriter.reopen(made.run.run_dir) as writer:
        writer.commit({"logs": table("logs", lines)})
    run = Run.open(made.run.run_dir)
    return run, conclude(run)


def test_nccls_own_model_stands_beside_the_measurement(logged):
    run, conclusions = logged
    references = references_of(run, conclusions.bandwidth, conclusions.cells)
    assert {row["gpus"] for row in references.model} == {2}
    expected = {row["size"] // 2**20: row["busbw"] for row in references.model}
    # Ring, Simple, 15.2 us and 360 GB/s at 512 MiB; ring, LL, 7.8 us and 141 GB/s at 1 MiB: the table in the log.
    assert expected[512] == pytest.approx(512 * 2**20 / (15.2e-6 + 512 * 2**20 / 360e9) / 1e9, rel=1e-4)
    assert expected[1] == pytest.approx(2**20 / (7.8e-6 + 2**20 / 141e9) / 1e9, rel=1e-4)
    (figure,) = bandwidth_figures(conclusions.bandwidth, conclusions.cells, "GPUs", references)
    assert "NCCL's own model" in figure.caption
    assert len(figure.datasets["model"]) == 3
    (bare,) = bandwidth_figures(conclusions.bandwidth, conclusions.cells, "GPUs", References())
    assert bare.datasets["model"] == bare.datasets["limit"] == []
    assert "model" not in bare.caption


@pytest.mark.parametrize(
    ("name", "link", "rate"),
    [
        ("NVIDIA GeForce RTX 5090", "generation 5, 16 lanes", 32 * 128 / 130 / 8 * 16),
        ("NVIDIA GeForce RTX 4090", "generation 4, 8 lanes", 16 * 128 / 130 / 8 * 8),
        ("NVIDIA H200", "generation 5, 16 lanes", None),
        ("NVIDIA GeForce RTX 5090", "unknown", None),
        ("Unheard Of 1", "generation 5, 16 lanes", None),
    ],
)
def test_the_links_rate_is_drawn_where_it_is_known_and_binding(tmp_path, name, link, rate):
    rows = [
        {"node": "n", "subject": "gpu", "name": f"gpu0 {field}", "value": value}
        for field, value in (("name", name), ("pcie max", link))
    ]
    limit = link_limit(run_with(tmp_path, environment=rows))
    assert (limit is None) if rate is None else limit.gb_s == pytest.approx(rate, abs=0.006)


# Memory, findings, environment, unknown


def test_memory_is_one_row_for_cells_that_differ_in_communication_only(golden):
    run, conclusions = golden
    found = memory_table(run, conclusions, "GPUs")
    assert [row[:3] for row in found.rows] == [("vision/resnet50", "2", "128"), ("vision/resnet50", "1", "128")]
    peak = run.frame("trials").filter(pl.col("gpus") == 2).collect()["memory_peak_mib"].max()
    assert float(found.rows[0][3]) == pytest.approx(peak / 1024, abs=0.01)
    # 143,771 MiB a card: about 5 % of it reserved.
    assert found.rows[0][5] == "4.8 %"
    assert "140 GiB" in found.note
    assert sum(int(row[6]) for row in found.rows) == conclusions.cells.height


def test_a_run_on_cpu_has_no_memory_table(cpu):
    assert memory_table(cpu.run, cpu.conclusions, "CPU workers") is None


def test_findings_are_a_table_worst_first(tmp_path):
    values = {
        "driver-version": "note: driver 580; needed: nothing new",
        "shm": "warning (ignored by the user): 64 MiB of /dev/shm; needed: 1 GiB; fix: --shm-size; or remount",
        "torch-arch": "error: no kernel image for sm_120; needed: CUDA 12.8; fix: pip install torch",
        "odd": "something else entirely",
        "text of nvidia-smi topo -m": "\\tGPU0\n",
    }
    run = run_with(
        tmp_path,
        environment=[{"node": "driver", "subject": "doctor", "name": n, "value": v} for n, v in values.items()],
    )
    found = findings_table(run)
    assert [row[0] for row in found.rows] == ["error", "warning (ignored by the user)", "note", "–"]  # noqa: RUF001
    assert found.rows[1] == (
        "warning (ignored by the user)",
        "shm",
        "64 MiB of /dev/shm",
        "1 GiB",
        "--shm-size; or remount",
    )
    assert found.rows[2][2:4] == ("driver 580", "nothing new")
    assert found.rows[3][2] == "something else entirely"
    assert findings_words(found) == "1 error, 1 warning, 1 note."
    assert tool_texts(run) == [("nvidia-smi topo -m", "\tGPU0\n")]


def test_no_findings_and_no_doctor_are_two_things(tmp_path, cpu):
    nothing = [{"node": "driver", "subject": "doctor", "name": "findings", "value": "none"}]
    found = findings_table(run_with(tmp_path, environment=nothing))
    assert findings_words(found) == "Nothing found."
    assert findings_table(cpu.run) is None
    assert findings_words(None) == ""


def test_leads_say_what_the_folded_tables_hold(golden):
    run, _ = golden
    counts = dict(run.frame("attestation").collect()["verdict"].value_counts().iter_rows())
    assert attestation_words(run) == (
        f"{counts['honoured']} of {counts['honoured']} requests were honoured, none refuted, none left unproven. "
        "A request is one setting asked of one attempt at a trial."
    )
    assert (
        environment_words(run)
        == "torch 2.11.0+cu130, nccl 2.28.9, CUDA of torch 13.0, driver 580.159.04, python 3.12.3"
    )


def test_what_is_unknown_is_listed_and_a_declaration_shortens_the_list(golden):
    run, conclusions = golden
    before = unknown_table(run, conclusions, Declaration())
    texts = [row[0] for row in before.rows]
    assert "Cooler of the cards" in texts
    assert [row[1] for row in before.rows] == sorted(
        (row[1] for row in before.rows), key=["high", "middle", "low"].index
    )
    after = unknown_table(run, conclusions, parse_declaration("platform: {cooler: passive}", "d.yaml"))
    assert set(texts) - {row[0] for row in after.rows} == {"Cooler of the cards"}


def test_errors_of_cards_are_what_came_during_the_run(tmp_path, cpu):
    base = {"node": "n", "device": "gpu"}
    rows = [
        {**base, "uuid": "GPU-a", "t_ns": 1, "pcie_replays": 7, "ecc_corrected": 3, "xids": [31]},
        {
            **base,
            "uuid": "GPU-a",
            "t_ns": 2,
            "pcie_replays": 19,
            "ecc_corrected": 3,
            "xids": [79, 31],
            "remapped_rows": 1,
        },
        {**base, "uuid": "GPU-b", "t_ns": 1, "power_w": 300.0},
        {"node": "n", "device": "host", "t_ns": 1, "utilisation": 0.5},
    ]
    found = card_errors_table(run_with(tmp_path, telemetry=rows))
    assert found.rows == [("GPU-a", "2x 31, 1x 79", "12", "0", "–", "1")]  # noqa: RUF001
    assert card_errors_table(cpu.run) is None


# Trials behind points


def test_every_point_leads_to_its_trials(h200):
    drawn = figures(h200.run, h200.conclusions)
    listed = trial_evidence(h200.run, h200.conclusions)
    trials, cells = {row.trial for row in listed.rows}, {row.cell for row in listed.rows}
    seen = 0
    for figure in drawn:
        for row in (row for rows in figure.datasets.values() for row in rows):
            if row.get("cell"):
                assert row["cell"] in cells, figure.key
                first = row["trials"].partition(",")[0].partition(" ")[0]
                assert first in trials, figure.key
                seen += 1
            assert row.get("trial") is None or row["trial"] in trials
    assert seen > 50
    assert {figure.key for figure in drawn if any(r.get("cell") for rs in figure.datasets.values() for r in rs)} >= {
        *("weak-throughput", "weak-efficiency", "heat-2", "bandwidth-all_reduce"),
    }


def test_the_trials_table_says_what_a_trial_was(golden):
    run, conclusions = golden
    listed = trial_evidence(run, conclusions)
    assert len(listed.rows) == 169
    row = next(row for row in listed.rows if row.trial == "38dd048208b5")
    texts = dict(zip(listed.columns, row.texts, strict=True))
    assert (texts["visit"], texts["outcome"], texts["images/s"]) == ("1", "ok", "4,333")
    assert texts["step (ms)"] == "29.47"
    assert "left out" not in listed.note


def test_key_numbers_are_those_of_the_sentence(golden, empty):
    run, conclusions = golden
    counts = trial_counts(run)
    found = {one.label: (one.value, one.detail) for one in key_numbers(conclusions, "GPUs", counts)}
    assert found["weak efficiency, 2 GPUs"] == ("0.762", "no interval")
    assert found["throughput"][0] == "6,620"
    assert found["trials finished"] == ("169", "of 186 planned: incomplete, 169 count")
    assert key_numbers(empty.conclusions, "GPUs", trial_counts(empty.run)) == []


def test_backticks_are_code_and_nothing_else_is_markup():
    assert with_code("`a <b>` & `") == "<code>a &lt;b&gt;</code> &amp; `"


# Size


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return made_runs.large_run(tmp_path_factory.mktemp("large"), trials=10_000)


def test_a_run_of_10_000_trials_is_sampled_and_says_so(large):
    drawn = {figure.key: figure for figure in figures(large.run, large.conclusions)}
    most = max(len(rows) for figure in drawn.values() for rows in figure.datasets.values())
    assert most <= 5000
    assert sum(len(rows) for figure in drawn.values() for rows in figure.datasets.values()) < 20_000
    grey = re.search(r"Grey: ([\d,]+) more settings, 150 of them drawn", drawn["weak-efficiency"].caption)
    assert int(grey[1].replace(",", "")) > 1000
    assert len({row["series"] for row in drawn["weak-efficiency"].datasets["grey"]}) == 150
    assert "24 settings with the largest effects of" in drawn["effects"].caption
    assert "Shown: 8 of" in drawn["heat-4"].caption
    listed = trial_evidence(large.run, large.conclusions)
    assert len(listed.rows) == ROWS
    assert "9001 more trials are left out" in listed.note
    defaults = set(large.conclusions.cells.filter("is_default")["cell_id"])
    assert defaults <= {row.cell for row in listed.rows}
