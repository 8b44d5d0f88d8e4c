"""Secrets planted in every source that goes out: none survives in a dossier, a report or a picture."""

from __future__ import annotations

import io
import json
import re
import zlib

import polars as pl
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.report import page as page_module
from rtxscale.report.dossier.pack import Request, write_dossier
from rtxscale.results.read import Run
from rtxscale.results.schema import TABLES, arrow_schema
from rtxscale.results.write import RunWriter
from rtxscale.spec.declare import declared_fields, parse_declaration
from rtxscale.spec.load import parse_sweep

from . import made_dossiers as made

UUID = "GPU-5eca11ed-dead-4bee-8f00-5ec12e7c0ffe"
NODE = "5ecbadc0" * 7
SECRETS = (
    f"tronbox:77:78 [0] said /home/adalove/secretrun/x.py /mnt/nas9/model.pt ada.love@lab.example.org grace@hopper9 "
    f"192.168.17.23 fe80::1ff:fe23:4567:890a 00:1A:2b:3c:4d:5e serial number: 1324521012345 "
    f"HF_TOKEN=hf_abcDEFghiJKLmno password: hunter22 https://u:pw@gitlab.corp/x "
    f"on {UUID} of {NODE} tronbox.lab.example.org adalove myADALOVErun TronBox2x "
)
SHAPES = (
    "[::ffff:192.168.17.45]:43017 ip=flynnbox (flynnbox, 29500) cannot be retrieved, peer flynnbox<40923>, "
    "SUDO_USER=zaphod, uid=1001(zaphod) GITHUB_PAT=pat4711, nasbox:/export/x, as zaphod on flynnbox and nasbox"
)
TRACES = re.compile(
    r"tronbox|adalove|ada\.love|lab\.example|secretrun|nas9|grace|hopper9|192\.168\.17|fe23:4567|1a:2b:3c|1324521012345"
    r"|flynnbox|zaphod|pat4711|nasbox|abcDEFghi|hunter22|gitlab|5eca11ed|8f00-5ec12e7c0ffe|5ecbadc0",
    re.IGNORECASE,
)
NOT_TEXTS = {
    *("cooler", "inlet_c", "psu_w", "wall_w", "time_to_target_s"),
    *("per_hour", "purchase", "hours_of_use", "per_kwh"),
}
SWEEP = f"""# {SECRETS}
name: tronbox-sweep
question: "Asked by adalove on tronbox: {SECRETS}"   # {SECRETS}
study: weak
workload: {{kind: vision, model: resnet18, batch_per_gpu: 8, precision: fp32}}
axes:
  gpus: [1, 2]
  ddp.bucket_mib: [auto, 1]
"""


@pytest.fixture(scope="module")
def planted(cpu, tmp_path_factory):
    """The made-up run, and beside its rows in every table one whose every text is full of secrets."""
    assert all(map(TRACES.search, (SECRETS, UUID, NODE)))
    tables = {}
    for name, columns in TABLES.items():
        row = {}
        for column in columns:
            if column.kind == "str":
                row[column.name] = f"{SECRETS} {SHAPES}"
            if column.kind == "strs":
                row[column.name] = [SECRETS, SHAPES, UUID]
            if column.name.endswith("_json"):
                row[column.name] = json.dumps({"path": SECRETS, "host": SHAPES})
        row |= {"attempt": 1} if "attempt" in {column.name for column in columns} else {}
        row |= {"uuid": UUID} if name == "telemetry" else {}
        row |= {"node": NODE} if name in ("telemetry", "environment") else {}
        schema = arrow_schema(name)
        rows = cpu.run.frame(name).collect().to_arrow().cast(schema).to_pylist()
        if name == "environment":
            rows += [
                {**row, "subject": kind, "name": SECRETS} for kind in ("software", "package", "gpu", "host", "topology")
            ]
        tables[name] = pl.DataFrame([*rows, row], schema=cpu.run.frame(name).collect_schema()).to_arrow().cast(schema)
        tables[name] = tables[name].replace_schema_metadata(schema.metadata)
    root = tmp_path_factory.mktemp("planted")
    with RunWriter.open(root, parse_sweep(SWEEP, "s.yaml"), SWEEP, fresh=True) as writer:
        writer.check_environment("e" * 12)
        writer.commit(tables)
        run_dir = writer.run_dir
    (run_dir / "logs").mkdir()
    (run_dir / "logs" / "tronbox.log").write_text(
        f"{SECRETS}\n{SHAPES}\n{json.dumps({'x': [SECRETS, SHAPES]})}\n{SECRETS!r}\n"
    )
    (run_dir / "live.json").write_text(json.dumps({"current": SECRETS}))
    return Run.open(run_dir)


def texts_of(content: bytes, name: str) -> list[str]:
    """Everything readable in a file: its bytes as text, a table's values and metadata, a picture's chunks."""
    found = [
        content.decode("latin-1"),
        content.decode("utf-8", errors="replace"),
        content.decode("utf-16-le", "replace"),
    ]
    if name.endswith(".parquet"):
        file = pq.ParquetFile(io.BytesIO(content))
        found += [str(file.schema_arrow.metadata), str(file.metadata.metadata), str(file.metadata.to_dict())]
        found += [str(file.read().column(column).to_pylist()) for column in file.schema_arrow.names]
    if name.endswith(".png"):
        found += [chunk.decode("latin-1") for chunk in png_texts(content)]
    if name.endswith(".json"):
        found.append(str(json.loads(content)))
    return found


def png_texts(content: bytes):
    """The chunks of a PNG that hold text, unpacked."""
    place = 8
    while place < len(content):
        length, kind = int.from_bytes(content[place : place + 4]), content[place + 4 : place + 8]
        body = content[place + 8 : place + 8 + length]
        if kind in (b"tEXt", b"iTXt", b"eXIf"):
            yield body
        if kind == b"zTXt":
            yield zlib.decompress(body.split(b"\0", 1)[1][1:])
        place += 12 + length


def survivors(files: dict[str, bytes]) -> dict[str, str]:
    found = {}
    for name, content in files.items():
        for text in (name, *texts_of(content, name)):
            trace = TRACES.search(text)
            if trace:
                found[name] = text[max(0, trace.start() - 60) : trace.end() + 60]
    return found


def declaration():
    """Secrets in every field that takes text."""
    text = f"notes: {json.dumps(SECRETS)}\n"
    for section in ("platform", "conditions", "power", "price", "data"):
        names = [path.partition(".")[2] for path in declared_fields() if path.startswith(f"{section}.")]
        texts = [name for name in names if name not in NOT_TEXTS]
        text += f"{section}:\n" + "".join(f"  {name}: {json.dumps(SECRETS)}\n" for name in texts)
    return parse_declaration(text, "declare.yaml")


def test_nothing_survives_in_a_dossier(planted, tmp_path):
    write_dossier(Request(run=planted, declaration=declaration()), tmp_path / "d.zip")
    files = made.members(tmp_path / "d.zip")
    assert survivors(files) == {}
    assert not TRACES.search((tmp_path / "d.zip").read_bytes().decode("latin-1"))
    assert any(name.endswith(".svg") for name in files)
    assert any(name.startswith("logs/") for name in files)
    # What was replaced is still told apart and joined.
    telemetry = pl.read_parquet(io.BytesIO(files["tables/telemetry.parquet"]))
    trials = pl.read_parquet(io.BytesIO(files["tables/trials.parquet"]))
    assert trials["gpu_uuids"].explode().drop_nulls()[-1] in set(telemetry["uuid"].drop_nulls())


def test_the_test_would_see_them(planted, tmp_path):
    """Without redaction they are everywhere, also where only unpacking shows them."""
    write_dossier(Request(run=planted, declaration=declaration(), redact=False), tmp_path / "d.zip")
    files = made.members(tmp_path / "d.zip")
    found = set(survivors(files))
    assert found >= {"dossier.json", "dossier.md", "declare.json", "sweep.yaml", "logs/001-tronbox.log"}
    assert found >= {f"tables/{name}.parquet" for name in TABLES}
    assert made.data_of(files)["redacted"] is False


@pytest.mark.parametrize("redacted", [True, False], ids=["redacted", "kept"])
def test_nothing_survives_in_a_report_and_its_charts(planted, tmp_path, monkeypatch, redacted):
    monkeypatch.setattr(page_module, "vega_bundle", lambda: "window.vegaEmbed=null;")
    words = ["report", str(planted.run_dir), "-o", str(tmp_path / "r.html")]
    charts = ["--charts", str(tmp_path / "charts")] if redacted else ["--no-redact"]
    result = CliRunner().invoke(app, [*words, *charts])
    assert result.exit_code == 0, result.output
    files = made.members(tmp_path)
    if redacted:
        assert survivors(files) == {}
        assert {".png", ".svg", ".html"} <= {name[name.rindex(".") :] for name in files}
    else:
        assert "r.html" in survivors(files)


def test_the_report_that_a_sweep_leaves_is_redacted_too(planted, monkeypatch, capsys):
    from rtxscale.cli.sweep import report_if_possible

    monkeypatch.setattr(page_module, "vega_bundle", lambda: "window.vegaEmbed=null;")
    report_if_possible(planted.run_dir)
    report = planted.run_dir / "report.html"
    assert survivors({"report.html": report.read_bytes()}) == {}
    report.unlink()
