"""A run is written and read back: identity, resume, compaction, refusals."""

import json
import os
import stat

import polars as pl
import pyarrow as pa
import pytest

from rtxscale.errors import ResultsError
from rtxscale.results import disk
from rtxscale.results.read import Run, open_verified, polars_schema
from rtxscale.results.schema import TABLES, arrow_schema, table
from rtxscale.results.write import RunWriter
from rtxscale.spec.sweep import Sweep

TEXT = "name: small\n"


@pytest.fixture
def sweep():
    return Sweep.model_validate(
        {
            "name": "small",
            "question": "Does it scale?",
            "study": "weak",
            "workload": {"kind": "vision", "batch_per_gpu": 8},
            "axes": {"gpus": [1, 2]},
        }
    )


def trial(trial_id, *, attempt=1, session="s1", outcome="ok", **columns):
    return {"trial_id": trial_id, "attempt": attempt, "session_id": session, "outcome": outcome, **columns}


def tables(*trials, steps=2):
    rows = [{"trial_id": t["trial_id"], "attempt": t["attempt"], "step": s} for t in trials for s in range(steps)]
    return {"trials": table("trials", trials), "steps": table("steps", rows), "buckets": table("buckets", [])}


def everything(directory):
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_commits_are_read_back_with_the_full_schema(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.commit(tables(trial("a", throughput_per_s=10.0, flags=["throttled"])))
        writer.commit(tables(trial("b", outcome="crashed")))
        run = Run.open(writer.run_dir)
    assert run.run_id == writer.run_id == f"small-{sweep.sweep_id}-01"
    assert run.sweep_text == TEXT
    assert run.manifest["axes"] == {"gpus": [1, 2]}
    assert run.attempts() == {"a": ["ok"], "b": ["crashed"]}
    trials = run.frame("trials").collect()
    assert dict(trials.schema) == polars_schema("trials")
    assert trials["trial_id"].to_list() == ["a", "b"]
    assert trials["flags"].to_list() == [["throttled"], None]
    assert run.frame("steps").select(pl.len()).collect().item() == 4
    run.verify()


@pytest.mark.parametrize("name", TABLES)
def test_every_table_of_an_empty_run_has_its_schema(tmp_path, sweep, name):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        frame = Run.open(writer.run_dir).frame(name).collect()
    assert frame.height == 0
    assert dict(frame.schema) == polars_schema(name)


@pytest.mark.parametrize("name", TABLES)
def test_polars_and_arrow_agree_on_the_schema(name):
    assert dict(pl.from_arrow(arrow_schema(name).empty_table()).schema) == polars_schema(name)


def test_the_same_sweep_resumes_and_fresh_starts_anew(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as first:
        first.commit(tables(trial("a")))
    more = sweep.model_copy(update={"visits": 5, "question": "More?"})
    with RunWriter.open(tmp_path, more, "name: small # more\n") as again:
        assert again.run_dir == first.run_dir
        assert again.attempts() == {"a": ["ok"]}
        assert Run.open(again.run_dir).sweep_text == "name: small # more\n"
    with RunWriter.open(tmp_path, sweep, TEXT, fresh=True) as fresh:
        assert fresh.run_id.endswith("-02")
        assert fresh.attempts() == {}
    with RunWriter.open(tmp_path, sweep, TEXT) as newest:
        assert newest.run_dir == fresh.run_dir
    assert Run.open(first.run_dir).attempts() == {"a": ["ok"]}


def test_attempts_are_in_order_and_never_doubled(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.commit(tables(trial("a", outcome="hang")))
        writer.commit(tables(trial("a", attempt=2)))
        assert writer.attempts() == {"a": ["hang", "ok"]}
        with pytest.raises(ResultsError, match="second row for one attempt of trial a"):
            writer.commit(tables(trial("a", attempt=2)))
        with pytest.raises(ResultsError, match="second row"):
            writer.commit({"trials": table("trials", [trial("b"), trial("b")])})
    assert Run.open(writer.run_dir).frame("trials").collect().height == 2


def test_compaction_keeps_every_row_in_one_file_per_table(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        for name in "abc":
            writer.commit(tables(trial(name)))
        writer.commit(tables(trial("x", session="s2")))
        before = Run.open(writer.run_dir).frame("steps").collect().sort("trial_id", "step")
        writer.compact("s1")
        writer.commit(tables(trial("d")))
        writer.compact("s1")
        writer.compact("s2")
        assert writer.attempts() == {name: ["ok"] for name in "abcdx"}
    run = Run.open(writer.run_dir)
    assert run.frame("steps").filter(pl.col("trial_id") != "d").collect().sort("trial_id", "step").equals(before)
    assert len(run.records) == 2
    assert len(list((run.run_dir / "parts").iterdir())) == 4
    run.verify()


def test_nothing_is_committed_for_empty_tables(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.commit({"trials": table("trials", [])})
        assert not list((writer.run_dir / "commits").iterdir())


def test_a_table_that_the_schema_did_not_build_is_refused(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer, pytest.raises(ValueError, match=r"results\.schema"):
        writer.commit({"trials": pa.table({"trial_id": ["a"]})})


def test_two_environments_do_not_mix(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.check_environment("none yet")  # a run without a row can be another one's
        writer.check_environment("one")
        writer.check_environment("one")
        writer.commit(tables(trial("a")))
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        with pytest.raises(ResultsError, match="measured in one"):
            writer.check_environment("two")
        assert Run.open(writer.run_dir).manifest["environment_id"] == "one"


def test_only_the_owner_can_read_the_files(tmp_path, sweep):
    with RunWriter.open(tmp_path / "root", sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
        for path in [tmp_path / "root", *(tmp_path / "root").rglob("*")]:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_directory_that_is_not_ours_is_passed_over(tmp_path, sweep):
    foreign = tmp_path / f"small-{sweep.sweep_id}-01"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        assert writer.run_id.endswith("-02")
    assert [path.name for path in foreign.iterdir()] == ["thesis.txt"]
    with pytest.raises(ResultsError, match="expected a run directory of rtxscale"):
        Run.open(foreign)


@pytest.mark.parametrize("content", ["{", "[]", '{"rtxscale": "other"}', '{"rtxscale": "run", "schema_version": 1}'])
def test_a_manifest_that_is_no_manifest_is_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ResultsError, match=r"run\.json"):
        Run.open(tmp_path)


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(ResultsError, match="no directory"):
        Run.open(tmp_path / "nothing")


def edit_json(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def newer_manifest(run_dir):
    edit_json(run_dir / "run.json", schema_version=99)


def newer_record(run_dir):
    edit_json(run_dir / "commits" / "00000001.json", schema_version=99)


def cut_record(run_dir):
    path = run_dir / "commits" / "00000001.json"
    path.write_bytes(path.read_bytes()[:-40])


def escaping_record(run_dir):
    path = run_dir / "commits" / "00000001.json"
    path.write_text(path.read_text().replace("parts/", "parts/../../"))


def cut_part(run_dir):
    os.truncate(next((run_dir / "parts").iterdir()), 100)


def lost_part(run_dir):
    next((run_dir / "parts").iterdir()).unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (newer_manifest, "schema 99"),
        (newer_record, "schema 99"),
        (cut_record, "damaged commit record"),
        (escaping_record, "damaged commit record"),
        (cut_part, "has 100 bytes instead of"),
        (lost_part, "is missing"),
    ],
)
def test_a_damaged_or_newer_run_is_refused_and_left_as_it_is(tmp_path, sweep, damage, message):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
    damage(writer.run_dir)
    before = everything(tmp_path)
    with pytest.raises(ResultsError, match=message):
        Run.open(writer.run_dir)
    with pytest.raises(ResultsError, match=message):
        RunWriter.open(tmp_path, sweep, TEXT)
    assert everything(tmp_path) == before


def test_verify_sees_a_changed_byte(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
    path = next((writer.run_dir / "parts").iterdir())
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(ResultsError, match="has another content"):
        Run.open(writer.run_dir).verify()


def test_a_run_opened_for_its_numbers_is_verified(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
    assert open_verified(writer.run_dir) == Run.open(writer.run_dir)
    path = next((writer.run_dir / "parts").iterdir())
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(ResultsError, match=r"found damaged results: .* has another content"):
        open_verified(writer.run_dir)


def test_a_run_compacted_while_it_is_verified_is_read_again(tmp_path, sweep, monkeypatch):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
        writer.commit(tables(trial("b")))
        verify = Run.verify

        def compact_first(run):
            monkeypatch.undo()
            writer.compact("s1")
            verify(run)

        monkeypatch.setattr(Run, "verify", compact_first)
        assert open_verified(writer.run_dir).attempts() == {"a": ["ok"], "b": ["ok"]}


@pytest.mark.parametrize(
    "fields",
    [
        {"axes": [1, 2]},
        {"axes": {"gpus": 3, "a": None}},
        {"axes": None},
        {"question": 3},
        {"environment_id": []},
        {"schema_version": True},
    ],
)
def test_a_manifest_with_other_types_is_damaged(tmp_path, sweep, fields):
    RunWriter.open(tmp_path, sweep, TEXT).close()
    (run_dir,) = tmp_path.iterdir()
    edit_json(run_dir / "run.json", **fields)
    with pytest.raises(ResultsError, match=r"run\.json.*damaged"):
        Run.open(run_dir)


def test_a_root_that_is_a_file_is_found_before_anything_runs(tmp_path, sweep):
    (tmp_path / "root").write_text("a file")
    with pytest.raises(ResultsError, match="RTXSCALE_RESULTS"):
        RunWriter.open(tmp_path / "root", sweep, TEXT)


def test_an_unwritable_root_is_found_before_anything_runs(tmp_path, sweep, monkeypatch):
    def refuse(path, data, *, exclusive=True):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(disk, "write_file", refuse)
    with pytest.raises(ResultsError, match="Permission denied while trying to write"):
        RunWriter.open(tmp_path, sweep, TEXT)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_found_before_anything_runs_and_at_each_commit(tmp_path, sweep, monkeypatch):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
        before = everything(tmp_path)
        monkeypatch.setattr(disk, "MIN_FREE_MIB", 2**40)
        with pytest.raises(ResultsError, match="MiB free"):
            writer.commit(tables(trial("b")))
        with pytest.raises(ResultsError, match="MiB free"):
            RunWriter.open(tmp_path, sweep, TEXT, fresh=True)
        assert everything(tmp_path) == before
        monkeypatch.undo()
        writer.commit(tables(trial("b")))
    assert Run.open(writer.run_dir).attempts() == {"a": ["ok"], "b": ["ok"]}


def test_a_commit_that_fails_half_way_leaves_nothing_and_the_next_works(tmp_path, sweep, monkeypatch):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        before = everything(tmp_path)
        real, calls = os.write, []

        def full(descriptor, data):
            calls.append(len(data))
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            return real(descriptor, data)

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(ResultsError, match="No space left on device"):
            writer.commit(tables(trial("a")))
        monkeypatch.undo()
        assert everything(tmp_path) == before
        assert writer.attempts() == {}
        writer.commit(tables(trial("a")))
    assert Run.open(writer.run_dir).attempts() == {"a": ["ok"]}


def test_files_without_a_commit_record_are_not_seen_and_go_at_the_next_open(tmp_path, sweep):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
    part = next((writer.run_dir / "parts").glob("*trials*"))
    orphan = part.with_name("00000009-trials.parquet")
    orphan.write_bytes(part.read_bytes())
    temporary = writer.run_dir / "commits" / ".00000009.json.tmp"
    temporary.write_text("{")
    assert Run.open(writer.run_dir).frame("trials").collect().height == 1
    RunWriter.open(tmp_path, sweep, TEXT).close()
    assert not orphan.exists()
    assert not temporary.exists()
