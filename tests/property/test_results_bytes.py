"""Whatever the files of a run hold, they are read as they were committed or refused as damaged, never otherwise."""

import json
import shutil

import killed_writer
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtxscale.errors import RtxscaleError
from rtxscale.results.live import read_live
from rtxscale.results.lock import living_owner
from rtxscale.results.read import open_verified
from rtxscale.results.write import RunWriter

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
SLOW = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    root = tmp_path_factory.mktemp("original")
    killed_writer.finish(root)
    (run_dir,) = root.glob("killed-*")
    return run_dir


@pytest.fixture
def copy(original, tmp_path):
    def fresh():
        target = tmp_path / "root" / original.name
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(original, target)
        return target

    return fresh


def read_or_refused(run_dir):
    """Trials as read; None for a refusal."""
    try:
        run = open_verified(run_dir)
        return run.frame("trials").collect().sort("trial_id"), run.frame("steps").select(pl.len()).collect().item()
    except RtxscaleError:
        return None


def opened_or_refused(run_dir):
    try:
        RunWriter.open(run_dir.parent, killed_writer.SWEEP, killed_writer.TEXT).close()
    except RtxscaleError:
        return


def files_of(run_dir):
    return sorted(path for path in run_dir.rglob("*") if path.is_file())


@SLOW
@given(data=st.data())
def test_changed_bytes_are_seen_or_change_nothing(copy, original, data):
    run_dir = copy()
    path = data.draw(st.sampled_from(files_of(run_dir)))
    content = path.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, 20))
    path.write_bytes(content[:start] + data.draw(st.binary(max_size=20)) + content[start + length :])
    found = read_or_refused(run_dir)
    if path.parent.name == "parts" and path.read_bytes() != content:
        assert found is None, path.name
    living_owner(run_dir / "lock")
    opened_or_refused(run_dir)


def replaced(draw, value):
    """The JSON value with one place in it, at any depth, replaced."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: replaced(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], replaced(draw, value[place]), *value[place + 1 :]]
    return draw(ANY_JSON)


@SLOW
@given(data=st.data())
def test_any_json_in_place_of_ours_is_read_or_refused(copy, data):
    run_dir = copy()
    path = data.draw(st.sampled_from([path for path in files_of(run_dir) if path.suffix == ".json"]))
    path.write_text(json.dumps(replaced(data.draw, json.loads(path.read_text()))))
    read_or_refused(run_dir)
    opened_or_refused(run_dir)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY_JSON)
def test_a_state_or_a_lease_of_any_json_is_read_or_is_none(tmp_path, value):
    for name in ("live.json", "lock"):
        (tmp_path / name).write_text(json.dumps(value))
    read_live(tmp_path)
    living_owner(tmp_path / "lock")
