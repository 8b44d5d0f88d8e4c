"""Verifying finds every tampering and follows no path out; differences are named field by field."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import zipfile

import polars as pl
import pytest

from rtxscale.errors import BadInput
from rtxscale.report.dossier import members
from rtxscale.report.dossier.diff import Difference, differences, same_tables, unread_sweeps
from rtxscale.report.dossier.lines import LINES
from rtxscale.report.dossier.members import opened
from rtxscale.report.dossier.record import completeness
from rtxscale.report.dossier.verify import counted, problems, read_dossier
from rtxscale.spec.declare import parse_declaration

from . import made_dossiers as made


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        made.without_charts(patch)
        root = tmp_path_factory.mktemp("verify")
        return made.written(made.golden_run(root), root / "d.zip")


def packed(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def resealed(files):
    """The same files with checksums that fit."""
    others = {name: content for name, content in files.items() if name != "SHA256SUMS"}
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(others.items()))
    return {**others, "SHA256SUMS": sums.encode()}


def found_in(path):
    with opened(path) as dossier:
        return problems(dossier, read_dossier(dossier))


def with_data(files, change):
    data = made.data_of(files)
    change(data)
    return resealed({**files, "dossier.json": json.dumps(data).encode()})


def test_an_attempt_that_is_there_twice_is_found(files, tmp_path):
    name = "tables/trials.parquet"
    trials = pl.read_parquet(io.BytesIO(files[name]))
    twice = io.BytesIO()
    pl.concat([trials, trials[:2]]).write_parquet(twice)
    faults = found_in(packed(tmp_path / "d.zip", resealed({**files, name: twice.getvalue()})))
    assert faults == [f"{name}: found 2 attempts of a trial more than once; expected each once"]


def test_a_whole_dossier_is_whole_packed_or_not(files, tmp_path):
    assert found_in(packed(tmp_path / "d.zip", files)) == []
    with zipfile.ZipFile(tmp_path / "d.zip") as archive:
        archive.extractall(tmp_path / "folder")
    assert found_in(tmp_path / "folder") == []


def test_an_older_dossier_needs_only_what_it_had(files, tmp_path):
    less = {name: content for name, content in files.items() if name != "tables/logs.parquet"}
    older = with_data(less, lambda data: data.update(schema_version=1))
    assert found_in(packed(tmp_path / "older.zip", older)) == []
    assert found_in(packed(tmp_path / "lacking.zip", resealed(less))) == ["tables/logs.parquet: missing"]


def test_a_line_that_came_later_is_not_missed_in_an_older_dossier(files, tmp_path):
    def without(version):
        def change(data):
            lines = [line for line in data["lines"] if line["id"] != "distribution.protocol_seen"]
            data.update(schema_version=version, lines=lines, completeness=completeness(lines))

        return with_data(files, change)

    assert found_in(packed(tmp_path / "older.zip", without(2))) == []
    assert found_in(packed(tmp_path / "now.zip", without(3))) == ["dossier.json: distribution.protocol_seen: missing"]


def test_every_tampering_is_found(files, tmp_path):
    table = "tables/trials.parquet"
    cases = {
        "changed": ({**files, table: files[table] + b"x"}, f"{table}: its content is not what SHA256SUMS says"),
        "missing": ({n: c for n, c in files.items() if n != table}, f"{table}: in SHA256SUMS, but missing"),
        "added": ({**files, "extra.txt": b"x"}, "extra.txt: not in SHA256SUMS"),
        "no sums": ({n: c for n, c in files.items() if n != "SHA256SUMS"}, "SHA256SUMS: missing"),
        "bad sums": ({**files, "SHA256SUMS": files["SHA256SUMS"] + b"oops\n"}, "found 'oops'"),
        "line gone": (with_data(files, lambda d: d["lines"].pop(3)), "dossier.json: platform.board: missing"),
        "line twice": (with_data(files, lambda d: d["lines"].append(d["lines"][0])), "platform.gpu: there 2 times"),
        "empty": (with_data(files, lambda d: d["lines"][0].update(value=" ")), "platform.gpu: value is empty"),
        "by nobody": (with_data(files, lambda d: d["lines"][0].update(declared_by="nobody")), "declared by 'nobody'"),
        "status": (with_data(files, lambda d: d["lines"][0].update(status="fine")), "status is 'fine'"),
        "no lines": (with_data(files, lambda d: d.update(lines=3)), "expected a list of lines"),
    }
    for number, (spoilt, words) in enumerate(cases.values()):
        found = found_in(packed(tmp_path / f"{number}.zip", spoilt))
        assert any(words in problem for problem in found), (words, found)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/../../evil", "C:/evil", "..\\evil", "a\\b", "dossier.json/../../x", "a\x00b"]
)
def test_paths_that_lead_out_are_refused_before_anything_is_read(files, tmp_path, name):
    packed(tmp_path / "d.zip", files)
    with zipfile.ZipFile(tmp_path / "d.zip", "a") as archive:
        entry = zipfile.ZipInfo("placeholder")
        entry.filename = name
        archive.writestr(entry, "x")
    if "\x00" in name:  # zipfile itself cuts the name there
        return
    with pytest.raises(BadInput, match="leads out of the folder"), opened(tmp_path / "d.zip"):
        pass
    assert sorted(path.name for path in tmp_path.parent.rglob("evil")) == []


def test_links_and_doubled_names_are_refused(files, tmp_path):
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    packed(tmp_path / "link.zip", files)
    with zipfile.ZipFile(tmp_path / "link.zip", "a") as archive:
        archive.writestr(link, "/etc/passwd")
    packed(tmp_path / "twice.zip", files)
    with zipfile.ZipFile(tmp_path / "twice.zip", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("dossier.json", "{}")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "dossier.json").symlink_to("/etc/passwd")
    for path, words in (
        (tmp_path / "link.zip", "a link"),
        (tmp_path / "twice.zip", "a name twice"),
        (folder, "a link"),
    ):
        with pytest.raises(BadInput, match=words), opened(path):
            pass


def test_as_many_files_as_a_dossier_may_have_are_looked_at_soon(tmp_path):
    packed(tmp_path / "many.zip", {str(number): b"" for number in range(members.MOST_FILES)})
    began = time.process_time()
    with opened(tmp_path / "many.zip") as dossier:
        assert len(dossier.sizes) == members.MOST_FILES
    assert time.process_time() - began < 3


def test_a_dossier_of_any_schema_has_every_line_and_its_own_score(files, tmp_path):
    def found(name, change):
        return found_in(packed(tmp_path / f"{name}.zip", with_data(files, change)))

    for schema, later in ((1, 1), (2, 1), (3, 0)):
        empty = found(f"empty{schema}", lambda data, schema=schema: data.update(schema_version=schema, lines=[]))
        assert sum("missing" in problem for problem in empty) >= len(LINES) - later
    better = found("better", lambda data: data["completeness"].update(with_value=130, missing=[]))
    assert [problem.split(":")[1] for problem in better] == [" completeness"]
    with opened(tmp_path / "better.zip") as dossier:
        data = read_dossier(dossier)
    assert counted(data)["completeness"] == made.data_of(files)["completeness"]
    for schema in (0, -3, "2", True):
        packed(tmp_path / "odd.zip", with_data(files, lambda data, schema=schema: data.update(schema_version=schema)))
        with pytest.raises(BadInput, match="this rtxscale reads 1 to 3"), opened(tmp_path / "odd.zip") as dossier:
            read_dossier(dossier)


def test_tables_and_sweeps_that_cannot_be_read_are_not_whole(files, tmp_path):
    cut = {**files, "tables/steps.parquet": files["tables/steps.parquet"][:-9]}
    text = {**files, "tables/telemetry.parquet": b"a,b\n1,2\n"}
    for name, spoilt in (("steps", cut), ("telemetry", text)):
        found = found_in(packed(tmp_path / f"{name}.zip", resealed(spoilt)))
        assert [problem.partition(" (")[0] for problem in found] == [
            f"tables/{name}.parquet: found no table that can be read"
        ]
    for name, sweep in (("broken", b"a: ["), ("other", b"name: y\nvisits: 2\n"), ("bytes", b"\xff\xfe")):
        found = found_in(packed(tmp_path / f"{name}.zip", resealed({**files, "sweep.yaml": sweep})))
        assert len(found) == 1
        assert "sweep.yaml" in found[0]


def test_lines_of_any_shape_are_named_not_stumbled_over(files, tmp_path):
    whole = packed(tmp_path / "whole.zip", files)
    shapes = ({"id": {"a": 1}, "value": "v"}, {"id": ["p"]}, {"id": 3, "status": []}, {"id": "x", "declared_by": {}})
    for number, line in enumerate(shapes):
        odd = packed(tmp_path / f"{number}.zip", with_data(files, lambda data, line=line: data["lines"].append(line)))
        assert found_in(odd)
        with opened(odd) as a, opened(whole) as b:
            assert differences(a, b) == []
    for lines in (None, 3, "x", {"a": 1}, [1]):
        odd = packed(tmp_path / "odd.zip", with_data(files, lambda data, lines=lines: data.update(lines=lines, run=[])))
        with opened(odd) as a, opened(whole) as b:
            differences(a, b)


def test_only_files_and_folders_of_a_bounded_number_are_read(files, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    for place in (folder, folder / "pipe"):
        with pytest.raises(BadInput, match="neither a file nor a directory"), opened(place):
            pass
    monkeypatch.setattr(members, "MOST_FILES", 5)
    many = tmp_path / "many"
    for number in range(6):
        (many / str(number)).mkdir(parents=True)
    for place in (many, packed(tmp_path / "many.zip", files)):
        with pytest.raises(BadInput, match="found more than 5 files"), opened(place):
            pass


def test_what_is_no_dossier_is_said(files, tmp_path):
    (tmp_path / "text.zip").write_text("no zip")
    packed(tmp_path / "other.zip", {"a.txt": b"x"})
    packed(tmp_path / "json.zip", {"dossier.json": b"[" * 100_000})
    packed(tmp_path / "mark.zip", {"dossier.json": b'{"a": 1}'})
    packed(tmp_path / "newer.zip", with_data(files, lambda d: d.update(schema_version=99)))
    cases = {
        "text": "found no ZIP that can be read",
        "other": "found no dossier.json",
        "json": "not JSON",
        "mark": 'found no "rtxscale": "dossier"',
        "newer": "found schema 99; this rtxscale reads 1 to 3",
        "gone": "found no ZIP that can be read",
    }
    for name, words in cases.items():
        with pytest.raises(BadInput, match=words), opened(tmp_path / f"{name}.zip") as dossier:
            read_dossier(dossier)


def test_what_a_dossier_does_not_say_is_not_there(files, tmp_path, monkeypatch):
    made.without_charts(monkeypatch)
    text = (made.ROOT / "sweeps" / "nccl.yaml").read_text() + "max_hours: 2\n"
    made.written(made.golden_run(tmp_path / "b", text), tmp_path / "b.zip")
    with opened(packed(tmp_path / "a.zip", files)) as a, opened(tmp_path / "b.zip") as b:
        found = [one for one in differences(a, b) if one.field.startswith("sweep.")]
    assert found
    assert not any("None" in (one.a, one.b) for one in found), found
    assert "not there" in {one.a for one in found}


def test_differences_are_named_field_by_field(files, tmp_path, monkeypatch):
    made.without_charts(monkeypatch)
    monkeypatch.setitem(made.SOFTWARE, "driver", "590.48.01")
    text = (made.ROOT / "sweeps" / "nccl.yaml").read_text().replace("window_s: 2", "window_s: 5")
    other = parse_declaration("platform: {cooler: liquid}\n", "d.yaml")
    theirs = made.written(made.golden_run(tmp_path / "b", text), tmp_path / "b.zip", declaration=other)
    theirs["requirements.lock"] = theirs["requirements.lock"].replace(
        b"polars==2.1.0\n", b"polars==2.2.0\nray==2.60.0\n"
    )
    packed(tmp_path / "b.zip", resealed(theirs))
    with opened(packed(tmp_path / "a.zip", files)) as a, opened(tmp_path / "b.zip") as b:
        found = differences(a, b)
        assert differences(a, a) == []
    assert found == [
        Difference(field="platform.cooler", a="unknown", b="liquid"),
        Difference(field="software.driver", a="580.159.04", b="590.48.01"),
        Difference(field="sweep.measure.window_s", a="2.0", b="5.0"),
        Difference(field="package polars", a="2.1.0", b="2.2.0"),
        Difference(field="package ray", a="not there", b="2.60.0"),
    ]


def with_line(files, name, value):
    def change(data):
        next(line for line in data["lines"] if line["id"] == name)["value"] = value

    return with_data(files, change)


def test_of_the_steady_criterion_what_was_measured_is_no_difference(files, tmp_path):
    """Each run records another example, in words of its own."""
    whole = made.lines_of(files)["method.criterion"]["value"]
    stated, example, _ = whole.partition("; recorded for example: ")
    assert example, "the line says otherwise now: see what of it is measured"
    silent = f"{stated}; SM clock not readable in 3 of 8 trials"
    for number, value in enumerate((stated, f"{stated}{example}halves differ by 0.1 %", f"{silent}{example}other")):
        other = packed(tmp_path / f"{number}.zip", with_line(files, "method.criterion", value))
        with opened(packed(tmp_path / "a.zip", files)) as a, opened(other) as b:
            assert differences(a, b) == []
    stricter = packed(tmp_path / "s.zip", with_line(files, "method.criterion", f"within 1 %{example}other"))
    with opened(tmp_path / "a.zip") as a, opened(stricter) as b:
        assert differences(a, b) == [Difference(field="method.criterion", a=stated, b="within 1 %")]


@pytest.mark.parametrize("sweep", [b"a: [", b"name: y\nvisits: 2\n", b"\xff\xfe"])
def test_where_a_sweep_cannot_be_read_their_ids_are_compared(files, tmp_path, sweep):
    spoilt = {**files, "sweep.yaml": sweep}
    with opened(packed(tmp_path / "a.zip", files)) as a, opened(packed(tmp_path / "b.zip", resealed(spoilt))) as b:
        assert differences(a, b) == []
        assert unread_sweeps(a, b) == [b]
        assert unread_sweeps(a, a) == []
    other = with_data(spoilt, lambda data: data["run"].update(sweep_id="0123456789ab"))
    own = made.data_of(files)["run"]["sweep_id"]
    with opened(tmp_path / "a.zip") as a, opened(packed(tmp_path / "c.zip", other)) as c:
        assert differences(a, c) == [Difference(field="sweep", a=own, b="0123456789ab")]


def test_results_are_the_same_where_every_table_is(files, tmp_path):
    trials, steps = "tables/trials.parquet", "tables/steps.parquet"
    changed = files[trials][:-1] + bytes([files[trials][-1] ^ 1])  # as long as before
    cases = {
        "declared": ({**files, "declare.json": b"{}"}, True),
        "changed": ({**files, trials: changed}, False),
        "longer": ({**files, steps: files[steps] + b"x"}, False),
        "fewer": ({name: content for name, content in files.items() if name != steps}, False),
    }
    with opened(packed(tmp_path / "a.zip", files)) as a:
        for name, (other, same) in cases.items():
            with opened(packed(tmp_path / f"{name}.zip", resealed(other))) as b:
                assert (name, same_tables(a, b), same_tables(b, a)) == (name, same, same)
    none = {name: content for name, content in files.items() if not name.startswith("tables/")}
    with opened(packed(tmp_path / "none.zip", none)) as a:
        assert not same_tables(a, a), "where there is no result, none is the same"
