"""A run that somebody has prepared: links lead nowhere, and whatever lies in its files is an error in words."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.errors import ResultsError, RtxscaleError
from rtxscale.results import directory
from rtxscale.results.disk import replace_file, write_file
from rtxscale.results.live import LiveState, ask_to_stop, driver_of, read_live, stop_wish, write_live
from rtxscale.results.lock import RunLock
from rtxscale.results.read import Run
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.sweep import Sweep

TEXT = "name: small\n"
SWEEP = Sweep.model_validate(
    {
        "name": "small",
        "question": "Does it scale?",
        "study": "weak",
        "workload": {"kind": "vision", "batch_per_gpu": 8},
        "axes": {"gpus": [1, 2]},
    }
)
STATE = LiveState(updated_ns=1, total=4, finished=2, current="gpus=2", left_s=12.5, throughputs=(1.0, None, 2.5))
JSONS = {
    "deep": b"[" * 100_000,
    "deep enough to parse": b'{"a":' * 40 + b"1" + b"}" * 40,
    "digits": b'{"pid": ' + b"9" * 5000 + b"}",
    "infinity": b'{"rtxscale": "run", "schema_version": Infinity}',
    "exponent": b'{"rtxscale": "run", "schema_version": 1e999}',
    "list": b"[1, 2]",
    "null": b"null",
    "nul": b'"\\u0000"',
    "bytes": b"\xff\xfe\x00",
}
"""Numbers and shapes that break whoever believes them."""


@pytest.fixture
def run_dir(tmp_path):
    row = {"trial_id": "a", "attempt": 1, "session_id": "s", "outcome": "ok"}
    with RunWriter.open(tmp_path / "root", SWEEP, TEXT) as writer:
        writer.commit({"trials": table("trials", [row])})
    return writer.run_dir


@pytest.fixture
def foreign(tmp_path):
    """A directory of somebody else, with names like ours, and what it must still hold at the end."""
    place = tmp_path / "foreign"
    place.mkdir()
    for name in ("00000009-trials.parquet", ".00000009.json.tmp", "thesis.txt", ".run.json.tmp", "lock"):
        (place / name).write_text(name)
    return place


def untouched(place):
    return all(path.read_text() == path.name for path in place.iterdir()) and len(list(place.iterdir())) == 5


def by_link(path, target):
    """Put a link in the place of something of the run."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}-before"))
    path.symlink_to(target)


@pytest.mark.parametrize(
    "name", ["parts", "commits", "lock", "run.json", "sweep.yaml", "notes", "parts/x", "commits/x"]
)
def test_a_run_with_a_link_in_it_is_not_written(run_dir, foreign, name):
    inner = {"parts": foreign, "commits": foreign}.get(name, foreign / "thesis.txt")
    if name in ("run.json", "sweep.yaml"):
        inner = foreign.parent / name
        inner.write_bytes((run_dir / name).read_bytes())
    by_link(run_dir / name, inner)
    for open_run in (lambda: RunWriter.reopen(run_dir), lambda: RunWriter.open(run_dir.parent, SWEEP, TEXT)):
        with pytest.raises(ResultsError, match="to be a symbolic link"):
            open_run()
    assert untouched(foreign)


def test_only_names_of_our_own_shape_are_tidied(run_dir):
    stray = [run_dir / name for name in ("parts/thesis.txt", "commits/thesis.txt", ".thesis.tmp", "commits/.mine.tmp")]
    ours = [
        *(run_dir / "parts" / name for name in ("00000009-trials.parquet",)),
        *(run_dir / "commits" / name for name in (".00000009.json.tmp", ".00000009.json.0123abcd.tmp")),
        *(run_dir / name for name in (".live.json.0123abcd.tmp", ".run.json.tmp", ".clock-0123abcd.tmp")),
    ]
    for path in [*stray, *ours]:
        path.write_text("")
    RunWriter.reopen(run_dir).close()
    assert all(path.exists() for path in stray)
    assert not any(path.exists() for path in ours)


def test_an_abandoned_directory_that_leads_elsewhere_is_left_alone(run_dir, foreign, monkeypatch):
    monkeypatch.setattr(directory, "ABANDONED_S", -1.0)
    (foreign / "run.json").write_text("run.json")
    (run_dir.parent / f".{SWEEP.sweep_id}-0.new").symlink_to(foreign)
    RunWriter.open(run_dir.parent, SWEEP, TEXT, fresh=True).close()
    assert (foreign / "run.json").exists()


@pytest.mark.parametrize("name", [".live.json.tmp", ".stop.tmp"])
def test_what_other_terminals_are_told_is_not_written_through_a_link(run_dir, foreign, name):
    (run_dir / name).symlink_to(foreign / "thesis.txt")
    write_live(run_dir, STATE)
    ask_to_stop(run_dir, "now")
    assert (read_live(run_dir), stop_wish(run_dir)) == (STATE, "now")
    assert untouched(foreign)


def test_a_file_is_replaced_past_a_link_under_the_old_temporary_name(tmp_path, foreign):
    (tmp_path / ".x.tmp").symlink_to(foreign / "thesis.txt")
    replace_file(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    (tmp_path / "link").symlink_to(foreign / "thesis.txt")
    with pytest.raises(OSError, match="symbolic links"):
        write_file(tmp_path / "link", b"new", exclusive=False)
    assert untouched(foreign)


def test_a_replacement_that_fails_leaves_nothing_behind(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "x", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_lock_is_not_taken_through_a_link_or_on_a_fifo(tmp_path, foreign):
    (tmp_path / "lock").symlink_to(foreign / "thesis.txt")
    with pytest.raises(ResultsError, match="symbolic links"):
        RunLock.take(tmp_path / "lock")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ResultsError, match="no regular file"):
        RunLock.take(tmp_path / "fifo")
    assert untouched(foreign)


@pytest.mark.parametrize("text", JSONS.values(), ids=JSONS)
def test_no_text_in_a_small_file_is_more_than_an_error_in_words(run_dir, text):
    for name in ("live.json", "lock"):
        (run_dir / name).write_bytes(text)
    assert (read_live(run_dir), driver_of(run_dir)) == (None, None)
    for name in ("run.json", "commits/00000001.json"):
        before = (run_dir / name).read_bytes()
        (run_dir / name).write_bytes(text)
        for look in (lambda: Run.open(run_dir), lambda: RunWriter.reopen(run_dir)):
            with pytest.raises(ResultsError, match=r"expected|damaged"):
                look()
        (run_dir / name).write_bytes(before)
    assert Run.open(run_dir).attempts() == {"a": ["ok"]}


@pytest.mark.parametrize(
    ("where", "value"),
    [
        *((("files", 0, "path"), value) for value in ("parts/..", "parts/.", "parts/", "parts/a\0b", "parts//x", 7)),
        *((("files", 0, "bytes"), value) for value in ("7", 1.5, True, -1, None)),
        *((("files", 0, "sha256"), value) for value in (None, 7)),
        *((("files", 0, "table"), value) for value in (["trials"], {}, None)),
        *((("trials", 0, 1), value) for value in (1.5, "1", 10**30, None)),
        *((("supersedes",), value) for value in (["1"], 7, [1.5], None)),
        (("session_id",), 7),
        (("schema_version",), "1"),
        (("trials", 0), "abcd"),
        (("files",), {"a": 1}),
    ],
)
def test_a_wrong_value_in_a_commit_record_is_damage(run_dir, where, value):
    path = run_dir / "commits" / "00000001.json"
    content = json.loads(path.read_text())
    place = content
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ResultsError, match="damaged commit record"):
        Run.open(run_dir)


@pytest.mark.parametrize(
    "fields",
    [
        *({name: value} for name in ("updated_ns", "total", "finished") for value in ("1", 1.5, -1, None, True)),
        *({name: 7} for name in ("current", "last")),
        *({name: value} for name in ("left_s", "temperature_c", "power_w") for value in ("1", [], True)),
        *({"throughputs": value} for value in ("12", {"a": 1}, [[1.0]], ["x"], 7)),
    ],
)
def test_a_wrong_value_in_a_state_is_no_state(tmp_path, fields):
    write_live(tmp_path, STATE)
    path = tmp_path / "live.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    assert read_live(tmp_path) is None


@pytest.mark.parametrize(
    "fields", [{"pid": "1"}, {"pid": -1}, {"pid": 1.0}, {"host": 7}, {"token": None}, {"since": []}]
)
def test_a_wrong_value_in_a_lease_is_nobody(run_dir, fields):
    lock = RunLock.take(run_dir / "lock")
    text = (run_dir / "lock").read_text()
    lock.release()
    (run_dir / "lock").write_text(json.dumps({**json.loads(text), **fields}))
    assert driver_of(run_dir) is None
    RunLock.take(run_dir / "lock").release()


@pytest.mark.parametrize("name", ["run.json", "sweep.yaml", "commits/00000001.json", "live.json", "stop", "lock"])
def test_a_fifo_is_not_waited_for(run_dir, name):
    (run_dir / name).unlink(missing_ok=True)
    os.mkfifo(run_dir / name)
    assert (read_live(run_dir), stop_wish(run_dir), driver_of(run_dir)) == (None, None, None)
    if name not in ("live.json", "stop", "lock"):
        with pytest.raises(ResultsError, match="no regular file"):
            Run.open(run_dir)


def test_a_record_that_is_a_link_to_nothing_ends_in_words(run_dir):
    (run_dir / "commits" / "00000009.json").symlink_to("nowhere")
    with pytest.raises(ResultsError, match="links to nothing"):
        Run.open(run_dir)


@pytest.mark.parametrize("text", JSONS.values(), ids=JSONS)
def test_one_bad_run_hides_none_of_the_others(run_dir, text):
    bad = run_dir.with_name(run_dir.name[:-2] + "09")
    (bad / "commits").mkdir(parents=True)
    for name in ("run.json", "live.json", "lock", "commits/00000001.json"):
        (bad / name).write_bytes(text)
    for words in (("runs", "--json"), ("status", "--json"), ("runs",), ("status",)):
        done = CliRunner().invoke(app, [*words, "--results", str(run_dir.parent)])
        assert done.exit_code == 0, done.output
        assert words[0] == "status" or run_dir.name in done.stdout
        assert done.exception is None or isinstance(done.exception, SystemExit | RtxscaleError)


def test_a_line_feed_in_a_state_begins_no_line(run_dir):
    write_live(run_dir, STATE)
    path = run_dir / "live.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "current": "x\nother-run: 8/8 trials"}))
    lock = RunLock.take(run_dir / "lock")
    try:
        shown = CliRunner().invoke(app, ["status", "--results", str(run_dir.parent)]).stdout
    finally:
        lock.release()
    assert r"now: x\nother-run: 8/8 trials" in shown
    assert not any(line.startswith("other-run") for line in shown.splitlines())


def test_the_run_says_which_sweep_file_it_was_last_given(run_dir):
    first = json.loads((run_dir / "run.json").read_text())["sweep_sha256"]
    RunWriter.open(run_dir.parent, SWEEP, TEXT + "# told\n").close()
    second = json.loads((run_dir / "run.json").read_text())["sweep_sha256"]
    assert first != second
    RunWriter.reopen(run_dir).close()
    assert Path(run_dir / "sweep.yaml").read_text().endswith("# told\n")
