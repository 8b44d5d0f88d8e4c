"""Storage that fails at any step of a commit and comes back: the rows are there once, however often it is tried."""

import contextlib
import errno
import itertools
import os

import pytest
from test_results_write import TEXT, sweep, tables, trial

from rtxscale.errors import ResultsError, StorageOutage
from rtxscale.results import disk
from rtxscale.results.read import open_verified
from rtxscale.results.write import RunWriter

__all__ = ["sweep"]
STEPS = ("open", "write", "rename", "replace", "unlink", "fsync", "stat")


class Outage:
    """Makes every step on a disk fail from step number `point` on, `lasting` times.

    With `reply_lost` the first of them is done all the same, as by a server whose answer does not arrive.
    """

    def __init__(self, monkeypatch, point, lasting, number, *, reply_lost):
        self._count = itertools.count(1)
        self._failing = range(point, point + lasting)
        self._point, self._number, self._reply_lost = point, number, reply_lost
        self.met = False
        for name in STEPS:
            monkeypatch.setattr(os, name, self._step(name, getattr(os, name)))

    def _step(self, name, real):
        def step(*arguments, **named):
            turn = next(self._count)
            if turn in self._failing:
                self.met = True
                if turn == self._point and self._reply_lost and name in ("rename", "replace", "write"):
                    real(*arguments, **named)
                raise OSError(self._number, os.strerror(self._number))
            return None if name == "fsync" else real(*arguments, **named)

        return step


def patiently(write):
    """As `run.patience` does."""
    for _ in range(60):
        with contextlib.suppress(StorageOutage):
            write()
            return
    raise AssertionError("tried in vain")


@pytest.mark.parametrize(
    ("first", "number", "lasting", "reply_lost"),
    [(1, errno.ENOSPC, 1, False), (2, errno.EIO, 1, True), (3, errno.ESTALE, 15, True)],
    ids=["full", "broken", "stale"],
)
def test_an_outage_at_any_step_neither_loses_nor_doubles_a_row(
    tmp_path, sweep, monkeypatch, first, number, lasting, reply_lost
):
    for point in itertools.count(first, 3):
        root = tmp_path / str(point)
        writer = RunWriter.open(root, sweep, TEXT)
        with monkeypatch.context() as patched:
            outage = Outage(patched, point, lasting, number, reply_lost=reply_lost)
            patiently(lambda writer=writer: writer.check_environment("env"))
            for name in "ab":
                patiently(lambda writer=writer, name=name: writer.commit(tables(trial(name))))
            patiently(lambda writer=writer: writer.compact("s1"))
        writer.close()
        run = open_verified(writer.run_dir)
        assert run.manifest["environment_id"] == "env", point
        assert run.attempts() == {"a": ["ok"], "b": ["ok"]}, point
        assert run.frame("trials").collect().height == 2, point
        assert run.frame("steps").collect().height == 4, point
        with RunWriter.open(root, sweep, TEXT) as again:
            assert again.attempts() == {"a": ["ok"], "b": ["ok"]}, point
        if not outage.met:
            break
    assert point > 40


def test_what_does_not_pass_is_no_outage(tmp_path):
    assert type(disk.unwritable(tmp_path, PermissionError(errno.EACCES, "no"))) is ResultsError
    assert type(disk.unwritable(tmp_path, OSError(errno.ESTALE, "stale"))) is StorageOutage


def test_a_full_disk_is_an_outage(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "MIN_FREE_MIB", 2**40)
    with pytest.raises(StorageOutage, match="MiB free"):
        disk.check_space(tmp_path)


def test_another_commit_after_a_late_one_is_not_taken_for_it(tmp_path, sweep, monkeypatch):
    with RunWriter.open(tmp_path, sweep, TEXT) as writer:
        with monkeypatch.context() as patched:
            real = os.fsync
            calls = []

            def fsync(descriptor):
                calls.append(descriptor)
                if len(calls) == 5:  # of the directory, after the record's rename
                    raise OSError(errno.EIO, "broken")
                real(descriptor)

            patched.setattr(os, "fsync", fsync)
            with pytest.raises(StorageOutage):
                writer.commit(tables(trial("a")))
        writer.commit(tables(trial("b")))
        assert writer.attempts() == {"a": ["ok"], "b": ["ok"]}
        with pytest.raises(ResultsError, match="second row"):
            writer.commit(tables(trial("a")))
