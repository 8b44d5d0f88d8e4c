"""A simulated workload: its law, and that nobody can take its numbers for a measurement.

The run is made without Ray: every planned trial goes to a simulated session, and its rows through the real writer,
analysis, report and dossier.
"""

import io
import math
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa
import pytest

from rtxscale.analysis.conclude import conclude
from rtxscale.errors import PlanError
from rtxscale.plan.assume import assumed_inventory
from rtxscale.plan.expand import make_plan
from rtxscale.rank.channel import Order
from rtxscale.report.dossier.facts import facts_of
from rtxscale.report.dossier.markdown import markdown
from rtxscale.report.dossier.record import dossier_of
from rtxscale.report.dossier.verify import line_problems
from rtxscale.report.page import page
from rtxscale.report.terminal import show_conclusions
from rtxscale.results.read import Run
from rtxscale.results.schema import arrow_schema
from rtxscale.results.write import RunWriter
from rtxscale.run.agenda import Todo
from rtxscale.run.environment import inventory_rows
from rtxscale.run.failures import judge
from rtxscale.run.ledger import same_software
from rtxscale.run.session import SessionSpec
from rtxscale.run.simulated_session import SimulatedSession, planted_rate
from rtxscale.run.trial_rows import Served, misplaced, rank_tables, trial_row, trials_table, with_placement
from rtxscale.spec.declare import Declaration
from rtxscale.spec.load import parse_sweep
from rtxscale.spec.workload import SimulatedWorkload

TEXT = """\
name: made-up
question: Is a planted law found?
study: strong
workload:
  {kind: simulated, machines: 4, contention: 0.02, coherency: 0.0005, cross_socket_loss: 0.1, cross_node_loss: 0.2,
   noise: 0.005, session_noise: 0.005, global_batch: 1024}
axes:
  gpus: [1, 2, 4, 8, 16, 32]
  placement: [packed, by_class]
  nccl.algorithm: [auto, ring]
visits: 4
sentinels: off
"""


def simulated_run(root, text=TEXT):
    """The sweep's trials, each committed with the rows that the foreman would have written."""
    sweep = parse_sweep(text, "made-up.yaml")
    plan = make_plan(sweep, assumed_inventory("cpu"))
    moment = 1_790_000_000_000_000_000
    with RunWriter.open(root, sweep, text) as writer:
        tables = {}
        for planned in plan.sessions:
            session = SimulatedSession(spec_of(planned), None)
            assert len(session.start()) == planned.key.gpus
            for place, trial in enumerate(planned.trials):
                todo, moment = Todo(session=planned, planned=trial), moment + 10**9
                end = session.run(Order(trial=trial.trial, trial_id=trial.trial_id), 1.0)
                verdict = judge(
                    end, earlier=(), first_of_session=False, misplaced=misplaced(planned.placement, end.reports)
                )
                served = Served(
                    run_id=writer.run_id,
                    sweep_id=plan.sweep_id,
                    study=sweep.study,
                    environment_id="made",
                    session_id=session.session_id,
                    session_start_s=None,
                    position=place,
                    started_ns=moment,
                    ended_ns=moment + 10**7,
                    placement=planned.placement,
                )
                row = trial_row(todo, served, verdict, end.reports, arrow_schema("telemetry").empty_table())
                found = with_placement(rank_tables(end.reports), todo.name, planned.placement, end.reports)
                found["trials"] = trials_table(row)
                for name, rows in found.items():
                    tables.setdefault(name, []).append(rows)
        writer.commit({name: pa.concat_tables(parts) for name, parts in tables.items()})
        return Run.open(writer.run_dir)


def spec_of(planned):
    return SessionSpec(
        session_id=f"{planned.session_id}-1a2b", placement=planned.placement, device="cuda", threads=1, environment={}
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return simulated_run(tmp_path_factory.mktemp("simulated"))


@pytest.fixture(scope="module")
def conclusions(run):
    return conclude(run)


@pytest.mark.parametrize(
    ("workers", "link", "expected"),
    [
        (1, None, 100.0),
        (4, "same_root", 400 / (1 + 0.3 + 0.12)),
        (4, "cross_socket", 400 / 1.42 * 0.75),
        (2, "cross_node", 200 / (1 + 0.1 + 0.02) * 0.5),
    ],
)
def test_the_law_is_gunthers_less_what_links_cost(workers, link, expected):
    workload = SimulatedWorkload(
        kind="simulated", rate=100.0, contention=0.1, coherency=0.01, cross_socket_loss=0.25, cross_node_loss=0.5
    )
    assert planted_rate(workload, workers, link) == pytest.approx(expected)


def test_noise_is_as_large_as_declared_and_the_same_each_time(run, tmp_path):
    rates = run.frame("trials").filter(pl.col("gpus") == 1).collect()["throughput_per_s"].log()
    assert rates.std() == pytest.approx(math.hypot(0.005, 0.005), rel=0.2)  # 128 trials, each its own session
    again = simulated_run(tmp_path)
    same = [one.frame("trials").select("trial_id", "throughput_per_s").collect().rows() for one in (run, again)]
    assert same[0] == same[1]


def test_every_trial_says_that_it_was_not_measured(run):
    trials = run.frame("trials").collect()
    assert set(trials["source"]) == {"simulated"}
    assert set(trials["device"]) == {"simulated"}
    assert trials["flags"].to_list() == [["simulated"]] * trials.height
    assert all(message.startswith("simulated") for message in trials["message"])
    assert trials["outside_s"].is_null().all()
    attested = run.frame("attestation").collect()
    assert attested.filter(pl.col("subject") == "measurement").height == trials.height
    assert not attested["verdict"].is_in(["honoured"]).any()
    forced = attested.filter(pl.col("subject") == "nccl.algorithm")
    assert set(forced["verdict"]) == {"not attested"}
    assert forced.height == trials.filter(pl.col("nccl_algorithm") == "ring").height


def test_the_planted_penalties_are_found(conclusions):
    near = {"same_switch": 0.0, "same_numa": 0.0, "cross_socket": 0.1, "cross_node": 0.2}
    assert conclusions.placements.height == 4 + 3 + 2 + 1 + 1
    for row in conclusions.placements.iter_rows(named=True):
        planted = 1 - (1 - near[row["link_class"]]) / (1 - near[row["reference_class"]])
        assert abs(row["penalty"] - planted) < 0.02, row


def test_the_planted_law_is_found(tmp_path):
    text = TEXT.replace("cross_socket_loss: 0.1, cross_node_loss: 0.2,", "").replace(
        "  placement: [packed, by_class]\n", ""
    )
    fits = conclude(simulated_run(tmp_path, text)).fits
    law = fits.filter((pl.col("law") == "USL") & pl.col("is_default") & pl.col("value").is_not_null())
    found = {row["parameter"]: row for row in law.iter_rows(named=True)}
    for name, planted in (("contention", 0.02), ("coherency", 0.0005)):
        assert found[name]["low"] <= planted <= found[name]["high"]
        assert found[name]["value"] == pytest.approx(planted, rel=0.1)


def test_the_terminal_the_page_and_the_dossier_say_so(run, conclusions):
    assert conclusions.headline.startswith("Simulated, not measured: ")
    assert conclusions.remarks[0].startswith("Simulated, not measured: all ")
    stream = io.StringIO()
    show_conclusions(conclusions, stream=stream)
    assert "simulated GPUs" in stream.getvalue()
    assert "simulated: not a measurement" in page(run, conclusions)
    facts = facts_of(run, conclusions, Declaration())
    dossier = dossier_of(facts, written=datetime(2026, 11, 30, tzinfo=UTC), redacted=True)
    assert "**Simulated: no number in this dossier was measured." in markdown(dossier)
    told = {line["id"]: line["declared_by"] for line in dossier["lines"] if line["status"] == "value"}
    assert told["platform.gpu"] == "simulated"
    assert not [name for name, by in told.items() if by == "measured" and name.startswith("results.")]
    assert not list(line_problems(dossier))


def test_the_inventory_of_the_run_names_the_nodes_that_are_not_there():
    real = assumed_inventory("cpu")
    pool = make_plan(parse_sweep(TEXT, "x"), real).pool
    rows = {(row["node"], row["name"]): row["value"] for row in inventory_rows(real, pool)}
    assert rows["assumed", "pool"] == "left out"
    assert (rows["sim3", "pool"], rows["sim3", "GPUs"]) == ("used", "8x simulated GPU")
    assert rows["sim0", "links by GPU index"].startswith("0-1 PIX, 0-2 NODE")


def test_ranks_that_are_not_there_have_one_software():
    plan = make_plan(parse_sweep(TEXT, "x"), assumed_inventory("cpu"))
    (*_, largest) = sorted(plan.sessions, key=lambda one: one.key.gpus)
    assert {"name": "workers", "value": "simulated"}.items() <= same_software(
        SimulatedSession(spec_of(largest), None).start()
    )[-1].items()


def test_a_simulation_has_no_processes_for_torchrun():
    with pytest.raises(PlanError, match="no processes that torchrun could start"):
        make_plan(parse_sweep(TEXT + "launcher: torchrun\n", "x"), assumed_inventory("cpu"))
