"""Runs in an object store: a real S3 server of its own process thread, with outages, kills and a second machine."""

import contextlib
import json
import os
import stat
import time

import pytest

pytest.importorskip("moto.server", reason="needs moto's S3 server: pip install 'moto[s3]' flask flask-cors")
from moto.server import ThreadedMotoServer
from test_results_write import TEXT, everything, sweep, tables, trial
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.errors import BadInput, ResultsError, StorageOutage
from rtxscale.results import location, object_store, store_lease
from rtxscale.results.commit import CommitRecord
from rtxscale.results.location import find_run, list_runs, results_root, store_of
from rtxscale.results.lock import own_lease
from rtxscale.results.mirror import Copies, Mirror, send_report, to_fetch
from rtxscale.results.object_store import ObjectStore, endpoint, open_store, parts_of
from rtxscale.results.read import open_verified
from rtxscale.results.write import RunWriter

__all__ = ["sweep"]
URL = "s3://bucket/team/runs"
SECRET = "wJalrXUtnFEMIbPxRfiCYEXAMPLEKEY"  # noqa: S105 - of nobody


class Server:
    """An S3 server that can be away: what it holds outlives its listening."""

    def __init__(self):
        self.port = 0
        self.come()

    def come(self):
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()
        deadline = time.monotonic() + 10
        while not self.port or not listening(self.port):
            assert time.monotonic() < deadline
            self.port = self._server.get_host_and_port()[1]

    def go(self):
        self._server.stop()


def listening(port):
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.go()


@pytest.fixture
def store(server, monkeypatch, tmp_path_factory):
    """An empty bucket, its address and credentials in the environment, and a home of its own."""
    import moto.s3.models

    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(object_store, "ATTEMPTS", 1)
    go_to_another_machine(monkeypatch, tmp_path_factory)
    for backends in moto.s3.models.s3_backends.values():
        for backend in backends.values():
            backend.reset()
    files = open_store(URL).files
    type(files)(
        endpoint_override=f"http://127.0.0.1:{server.port}", region="us-east-1", allow_bucket_creation=True
    ).create_dir("bucket")
    return open_store(URL)


def go_to_another_machine(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def test_a_run_goes_there_commit_by_commit_and_another_machine_continues_it(
    store, sweep, monkeypatch, tmp_path_factory
):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.check_environment("env")
        for name in "ab":
            writer.commit(tables(trial(name)))
            writer.publish()
        writer.compact("s1")
        writer.publish()
        run_id = writer.run_id
    assert sorted(store.names()) == [
        f"{run_id}/commits/00000003.json",
        f"{run_id}/parts/00000003-steps.parquet",
        f"{run_id}/parts/00000003-trials.parquet",
        f"{run_id}/run.json",
        f"{run_id}/sweep.yaml",
    ]
    go_to_another_machine(monkeypatch, tmp_path_factory)
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        assert (writer.run_id, writer.attempts()) == (run_id, {"a": ["ok"], "b": ["ok"]})
        writer.check_environment("env")
        writer.commit(tables(trial("c", session="s2")))
        writer.publish()
    with RunWriter.open(results_root(URL), sweep, TEXT, fresh=True) as fresh:
        assert fresh.run_id.endswith("-02")
        fresh.commit(tables(trial("f")))
        fresh.publish()
    go_to_another_machine(monkeypatch, tmp_path_factory)
    assert open_verified(find_run(run_id, results_root(URL))).attempts() == {name: ["ok"] for name in "abc"}
    assert {path.name for path in list_runs(results_root(URL))} == {run_id, fresh.run_id}
    for path in [results_root(URL), *results_root(URL).rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_commands_take_the_address(store, sweep, monkeypatch, tmp_path_factory):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
        writer.publish()
    go_to_another_machine(monkeypatch, tmp_path_factory)
    listed = CliRunner().invoke(app, ["runs", "--results", URL, "--json"])
    assert [(one["run"], one["trials"]) for one in json.loads(listed.stdout)] == [(writer.run_id, {"ok": 1})]
    go_to_another_machine(monkeypatch, tmp_path_factory)
    monkeypatch.setenv("RTXSCALE_RESULTS", URL)
    assert find_run("latest", results_root()).name == writer.run_id
    send_report(store, report_in(find_run(writer.run_id, results_root())))
    assert f"{writer.run_id}/report.html" in store.names()


def test_a_sweeps_name_gets_its_runs_named_and_none_fetched(store, sweep, monkeypatch, tmp_path_factory):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
        writer.publish()
    go_to_another_machine(monkeypatch, tmp_path_factory)
    with pytest.raises(BadInput, match=f"runs of that sweep are {writer.run_id}$"):
        find_run(sweep.name, results_root(URL))
    assert not (results_root(URL) / writer.run_id).exists()


def report_in(run_dir):
    (run_dir / "report.html").write_text("<html>")
    return run_dir


def test_fresh_on_another_machine_takes_the_next_number(store, sweep, monkeypatch, tmp_path_factory):
    with RunWriter.open(results_root(URL), sweep, TEXT) as first:
        first.commit(tables(trial("a")))
        first.publish()
    go_to_another_machine(monkeypatch, tmp_path_factory)
    with RunWriter.open(results_root(URL), sweep, TEXT, fresh=True) as fresh:
        assert fresh.run_id.endswith("-02")


def test_an_outage_loses_nothing_and_what_is_missing_goes_there_afterwards(store, server, sweep):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
        writer.publish()
        server.go()
        try:
            writer.commit(tables(trial("b")))
            for _ in range(2):
                with pytest.raises(StorageOutage, match=r"s3://bucket/team/runs/small-.*a store that answers"):
                    writer.publish()
            writer.compact("s1")
        finally:
            server.come()
        writer.publish()
        assert [name for name in store.names() if "/commits/" in name] == [f"{writer.run_id}/commits/00000003.json"]


def test_what_a_killed_writer_had_not_sent_goes_there_first(store, sweep, monkeypatch, tmp_path_factory):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        assert writer.attempts() == {"a": ["ok"]}
    go_to_another_machine(monkeypatch, tmp_path_factory)
    assert open_verified(find_run(writer.run_id, results_root(URL))).attempts() == {"a": ["ok"]}


def test_two_machines_apart_are_not_mixed(store, sweep, monkeypatch, tmp_path_factory):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("mine")))  # and killed before it is sent
    first_home = location.Path.home()
    go_to_another_machine(monkeypatch, tmp_path_factory)
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("theirs")))
        writer.publish()
    monkeypatch.setenv("HOME", str(first_home))
    before = everything(results_root(URL))
    with pytest.raises(ResultsError, match="two machines have continued the run apart"):
        RunWriter.open(results_root(URL), sweep, TEXT)
    assert everything(results_root(URL)) == before


def test_a_living_writer_elsewhere_is_refused_and_a_dead_one_is_not(store, sweep, monkeypatch, tmp_path_factory):
    writer = RunWriter.open(results_root(URL), sweep, TEXT)
    below = store.below(writer.run_id)
    go_to_another_machine(monkeypatch, tmp_path_factory)
    with pytest.raises(ResultsError, match="found the run held by process"):
        RunWriter.open(results_root(URL), sweep, TEXT)
    held = json.loads(below.read("lock"))
    below.write("lock", json.dumps({**held, "token": "another", "host": "elsewhere"}).encode())
    writer.commit(tables(trial("a")))
    with pytest.raises(ResultsError, match="this process lost the run and must stop"):
        writer.publish()
    writer.close()
    assert "lock" in below.names(), "it is not ours to remove"
    with pytest.raises(ResultsError, match="on elsewhere"):
        store_lease.StoreLease.take(below)
    monkeypatch.setattr("rtxscale.results.lock.LEASE_S", -10.0)
    store_lease.StoreLease.take(below).release()
    assert [name for name in below.names() if "commits" not in name] == ["run.json", "sweep.yaml"]


def test_what_another_machine_has_put_since_the_fetch_is_not_overwritten(store, sweep, monkeypatch, tmp_path_factory):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("mine")))
        writer.publish()
    go_to_another_machine(monkeypatch, tmp_path_factory)
    take = Mirror.take

    def take_late(below, run_dir):
        theirs = record(9, "theirs").as_bytes()
        below.write(f"{run_dir.name}/commits/00000009.json", theirs)
        return take(below, run_dir)

    monkeypatch.setattr(Mirror, "take", take_late)
    before = store.names().keys()
    with pytest.raises(ResultsError, match="found trials there that were put since the run was fetched"):
        RunWriter.open(results_root(URL), sweep, TEXT)
    assert set(store.names()) == {*before, f"{writer.run_id}/commits/00000009.json"}


class Dying:
    """A file system of pyarrow whose process is killed before its change number `point`."""

    def __init__(self, files, point):
        self._files, self._left = files, point

    def __getattr__(self, name):
        if name in ("open_output_stream", "delete_file"):
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
        return getattr(self._files, name)


def directory_as_store(directory, run_id):
    from pyarrow.fs import LocalFileSystem

    for name in ("commits", "parts"):
        (directory / run_id / name).mkdir(parents=True)
    return ObjectStore(url=URL, base=str(directory), files=LocalFileSystem())


def write_all(root, sweep, acked):
    with RunWriter.open(root, sweep, TEXT) as writer:
        for name in "abc":
            if name not in writer.attempts():
                writer.commit(tables(trial(name)))
                writer.publish()
                acked.append(name)
            if name == "b":
                writer.compact("s1")
                writer.publish()


def names_in(directory):
    return {path.name for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def work_on(monkeypatch):
    """Let every root stand for this store."""

    def change(store):
        for place in ("rtxscale.results.write.store_of", "rtxscale.results.location.store_of"):
            monkeypatch.setattr(place, lambda _root: store)

    monkeypatch.setattr("os.fsync", lambda _descriptor: None)
    return change


def test_a_writer_killed_between_any_two_requests_leaves_a_whole_run(tmp_path, sweep, work_on):
    """The store is a directory here, as the order of requests is what counts: thousands would take minutes."""
    run_id = f"small-{sweep.sweep_id}-01"
    for point in range(1, 200):
        remote, acked = directory_as_store(tmp_path / f"remote{point}", run_id), []
        work_on(ObjectStore(url=URL, base=remote.base, files=Dying(remote.files, point)))
        with contextlib.suppress(KeyboardInterrupt):
            write_all(tmp_path / f"first{point}", sweep, acked)
        died = len(acked) < 3
        (tmp_path / f"remote{point}" / run_id / "lock").unlink(missing_ok=True)  # its owner is dead
        work_on(remote)
        second = tmp_path / f"second{point}"
        second.mkdir()
        location.fetch_newest(second, sweep.sweep_id)
        for found in second.glob("small-*"):
            assert set(acked) <= set(open_verified(found).attempts()), point
        write_all(second, sweep, [])
        run = open_verified(second / run_id)
        assert run.attempts() == {name: ["ok"] for name in "abc"}, point
        assert run.frame("trials").collect().height == 3, point
        assert names_in(tmp_path / f"remote{point}") == names_in(second) - {"lock"}, point
        if not died:
            break
    assert 20 < point < 199


def test_credentials_are_in_no_file_and_in_no_message(store, server, sweep, monkeypatch):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
        writer.publish()
    files = [path.read_bytes() for path in location.Path.home().rglob("*") if path.is_file()]
    files += [store.read(name) for name in store.names()]
    assert len(files) > 8
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ, "Ray would hand it on and log it"
    assert not [data for data in files if SECRET.encode() in data or b"AKIAEXAMPLE" in data]
    outage = object_store._outage(URL, OSError(f"cannot sign with {SECRET} of AKIAEXAMPLE"))
    assert "cannot sign with *** of ***" in str(outage)


def test_a_bucket_that_is_not_there_is_found_before_anything_runs(store, sweep):
    with pytest.raises(StorageOutage, match=r"s3://nobody.*expected a store that answers"):
        RunWriter.open(results_root("s3://nobody/runs"), sweep, TEXT)


def test_hostile_names_in_the_store_stay_there(store, sweep, monkeypatch, tmp_path_factory):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
        writer.publish()
    below = store.below(writer.run_id)
    for name in ("commits/evil.sh", "parts/..%2f..%2fx", "run.json.bak", "commits/99999999.json.sh"):
        below.write(name, b"evil")
    store.write("..hidden/run.json", b"{}")
    go_to_another_machine(monkeypatch, tmp_path_factory)
    root = results_root(URL)
    assert len(list_runs(root)) == 1
    assert not [path for path in location.Path.home().rglob("*") if path.is_file() and path.read_bytes() == b"evil"]
    with RunWriter.open(root, sweep, TEXT) as writer:
        writer.commit(tables(trial("b")))
        writer.publish()
    assert "commits/evil.sh" in below.names(), "not ours to remove"


def test_a_changed_byte_in_the_store_is_seen(store, sweep, monkeypatch, tmp_path_factory):
    with RunWriter.open(results_root(URL), sweep, TEXT) as writer:
        writer.commit(tables(trial("a")))
        writer.publish()
    below = store.below(writer.run_id)
    (part,) = (name for name in below.names() if name.endswith("trials.parquet"))
    below.write(part, below.read(part)[:-1] + b"x")
    go_to_another_machine(monkeypatch, tmp_path_factory)
    with pytest.raises(ResultsError, match="found another content than was committed"):
        find_run(writer.run_id, results_root(URL))


@pytest.mark.parametrize("url", ["s3://", "s3://b", "s3://bucket/../x", "s3://bucket/a b", "s3://u:p@host/x", "s3:"])
def test_an_address_of_another_form_is_refused(url, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadInput, match="expected s3://BUCKET/PREFIX"):
        results_root(url)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("runs",), ("show", "a-0123456789ab-01")])
def test_looking_at_a_store_that_holds_nothing_makes_nothing(words, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    CliRunner().invoke(app, [*words, "--results", "s3://runs/never-used"])
    assert not list(tmp_path.rglob("*"))


def test_a_path_object_keeps_one_slash_and_that_is_enough():
    assert parts_of("s3:/bucket/runs/") == parts_of("s3://bucket/runs") == ("bucket", "runs")


@pytest.mark.parametrize("found", ["localhost:9000", "http://user:secret@host", "ftp://host"])
def test_an_endpoint_with_a_password_is_refused_without_being_repeated(found):
    with pytest.raises(BadInput, match="credentials belong") as refused:
        endpoint({"AWS_ENDPOINT_URL": found})
    assert found not in str(refused.value)


def test_an_ordinary_root_stands_for_no_store(tmp_path):
    assert store_of(tmp_path) is None


def record(seq, *trials, session="s", supersedes=()):
    rows = tuple((name, 1, "ok") for name in trials)
    return CommitRecord(seq=seq, session_id=session, files=(), trials=rows, supersedes=supersedes)


A, B, C = record(1, "a"), record(2, "b"), record(2, "c")
BOTH = record(3, "a", "b", supersedes=(1, 2))


@pytest.mark.parametrize(
    ("here", "there", "fetched"),
    [
        ([], [], False),
        ([A], [A], False),
        ([A], [A, B], True),
        ([A, B], [A], False),
        ([A, B], [A, C], None),
        ([BOTH], [A, B], True),
        ([A, B], [BOTH], True),
        ([BOTH], [A], False),
        ([A, record(2, "b", "c")], [A, B], None),
    ],
)
def test_which_copy_counts(here, there, fetched):
    assert to_fetch(Copies(here=here, there=there, all_there=there)) is fetched


def test_the_lease_of_this_process_is_alive():
    assert not store_lease.owner_is_dead(own_lease(), 1e9)
