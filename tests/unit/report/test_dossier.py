"""A dossier holds every line, says who says so, gives the same bytes again, and starts the same sweep elsewhere."""

from __future__ import annotations

import copy
import hashlib
import io
import json

import polars as pl
import pytest
from jsonschema import Draft202012Validator
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.errors import BadInput
from rtxscale.report.dossier.lines import LINES
from rtxscale.report.dossier.markdown import code
from rtxscale.report.dossier.pack import NEEDED, Request, write_dossier
from rtxscale.report.dossier.record import SCHEMA_VERSION, completeness
from rtxscale.results.read import Run
from rtxscale.results.schema import TABLES, table
from rtxscale.results.write import RunWriter
from rtxscale.spec.declare import parse_declaration

from . import made_dossiers as made

DECLARED = parse_declaration(
    "platform: {cooler: passive, psu_w: 3000, inlet_c: 21.5, ai_enterprise: not applicable}\n"
    "price: {per_hour: 4, currency: EUR, basis: invoice of October}\n"
    "power: {wall_w: 2100.5, meter: PDU}\n",
    "declare.yaml",
)


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return made.golden_run(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def files(golden, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        made.without_charts(patch)
        return made.written(golden, tmp_path_factory.mktemp("out") / "d.zip", declaration=DECLARED)


@pytest.fixture(scope="module")
def lines(files):
    return made.lines_of(files)


def test_every_line_is_there_and_none_is_empty(files, lines):
    assert list(lines) == [line.id for line in LINES]
    for line in lines.values():
        assert line["value"].strip()
        assert line["where"].strip()
        assert (line["declared_by"] == "nobody") == (line["status"] == "unknown")
    page = files["dossier.md"].decode()
    for line in LINES:
        assert f"| {line.text} ({', '.join(line.requirements)}) | `" in page, line.id


@pytest.mark.parametrize(
    ("name", "value", "by"),
    [
        ("platform.gpu", "2x NVIDIA H200", "measured"),
        ("platform.cooler", "passive", "declared by the user"),
        ("platform.psu_w", "3,000", "declared by the user"),
        ("platform.inlet", "21.5", "declared by the user"),
        ("platform.matched", "one model per node", "measured"),
        ("platform.doctor", "warning: no P2P", "measured"),
        ("software.torch_build", "cu130, release", "measured"),
        ("software.torch_commit", "70d99e998b4955e0049d13a98d77ae1b14db1f45", "measured"),
        ("software.architectures", "sm_80 sm_90 sm_100; built for sm_90", "measured"),
        ("software.locked", "3 packages in requirements.lock", "measured"),
        ("conditions.power_limit", "2x 700.0 W (stock)", "measured"),
        ("workload.batch", "128", "declared by the user"),
        ("workload.dataset", "resident: random images that stay on the device", "documented"),
        ("distribution.channels", "auto, 1, 2, 4, 8", "declared by the user"),
        ("distribution.protocol_seen", "ll, simple (169 not applicable)", "measured"),
        ("distribution.world", "1, 2", "measured"),
        ("method.outcomes", "169 ok", "measured"),
        ("results.wall_power", "2,100.5", "declared by the user"),
        ("results.price", "per hour 4", "declared by the user"),
    ],
)
def test_values_come_from_where_they_are_known(lines, name, value, by):
    assert (lines[name]["value"], lines[name]["declared_by"], lines[name]["status"]) == (value, by, "value")


def test_the_topology_is_kept_as_the_tool_printed_it(lines):
    text = (made.GOLDEN / "topology" / "topo_2gpu_nv12_blank_affinity.txt").read_text()
    assert lines["distribution.topology"]["value"] == text.strip()


def test_results_are_those_of_the_run(lines):
    """README's numbers of this run: 4,345 (here to three digits) and 6,620 images/s, weak efficiency 0.76."""
    assert lines["results.throughput"]["value"].startswith("1 GPU, batch 128 each: 4,350 images/s")
    assert "2 GPUs, batch 128 each: 6,620 (5,350-8,190) images/s" in lines["results.throughput"]["value"]
    assert "weak, 2 over 1: 0.76" in lines["results.efficiency"]["value"]
    # 4,345 images/s for an hour at 4 EUR: 3.91 million images per EUR.
    assert "1 GPU, batch 128 each: 3,91" in lines["results.per_money"]["value"]
    assert lines["results.per_money"]["declared_by"] == "declared by the user"


def test_work_per_energy_has_the_unit_that_reports_use(lines):
    assert lines["results.per_watt"]["value"].startswith("1 GPU, batch 128 each: 7.3")
    assert lines["results.per_watt"]["value"].count(" images/J") == 2
    assert "per W" not in json.dumps(lines["results.per_watt"]["value"])


def test_bounds_that_say_nothing_are_not_in_the_data_either(files):
    """A comparison over two visits can have bounds that are powers of ten apart; they are told as in every table."""
    concluded = made.data_of(files)["conclusions"]
    (best,) = [row for row in concluded["best"] if row["gpus"] == 2]
    assert (best["gain_low"], best["gain_high"]) == (None, None)
    assert best["interval_note"].startswith("gain: interval wider than x10: more visits")
    pairs = [
        (row[low], row[low.removesuffix("_low") + "_high"])
        for rows in concluded.values()
        if isinstance(rows, list)
        for row in rows
        if isinstance(row, dict)
        for low in row
        if low.endswith("_low") and "gain" not in low
    ]
    told = [(low, high) for low, high in pairs if low is not None and high is not None]
    assert len(told) > 300
    assert all(high <= 10 * low for low, high in told if low >= 0)


def test_what_is_not_known_or_cannot_be_is_said(lines):
    assert (lines["platform.storage"]["value"], lines["platform.storage"]["declared_by"]) == ("unknown", "nobody")
    assert lines["platform.storage"]["where"] == "declare.yaml: platform.storage"
    assert lines["software.ai_enterprise"]["status"] == "not applicable"
    assert lines["software.ai_enterprise"]["declared_by"] == "declared by the user"
    assert lines["workload.tokenizer"]["value"] == "not applicable: no language model ran"


def test_the_score_counts_lines_and_lists_the_most_useful_missing_ones_first(files, lines):
    score = made.data_of(files)["completeness"]
    known = [line for line in lines.values() if line["status"] == "value"]
    unknown = [line for line in lines.values() if line["status"] == "unknown"]
    assert (score["with_value"], score["of"]) == (len(known), len(known) + len(unknown))
    assert score["with_value"] + score["not_applicable"] + len(score["missing"]) == len(LINES)
    weights = [lines[name]["weight"] for name in score["missing"]]
    assert weights == sorted(weights, reverse=True)
    made_up = [{"id": "a", "status": "unknown", "weight": 1}, {"id": "b", "status": "unknown", "weight": 3}]
    assert completeness(made_up)["missing"] == ["b", "a"]


def test_the_data_follow_the_published_schema(files):
    schema = json.loads(files["dossier.schema.json"])
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    data = made.data_of(files)
    assert list(validator.iter_errors(data)) == []
    broken = {
        "empty value": lambda d: d["lines"][0].update(value=" "),
        "unknown by somebody": lambda d: d["lines"][0].update(status="unknown", value="unknown"),
        "further field": lambda d: d["lines"][0].update(extra=1),
        "nobody knows": lambda d: d["lines"][0].update(declared_by="nobody"),
        "no lines": lambda d: d.pop("lines"),
        "newer": lambda d: d.update(schema_version=SCHEMA_VERSION + 1),
    }
    for name, spoil in broken.items():
        spoilt = copy.deepcopy(data)
        spoil(spoilt)
        assert list(validator.iter_errors(spoilt)), name


def test_the_same_run_gives_the_same_bytes_charts_included(cpu, tmp_path):
    one, other = (made.written(cpu.run, tmp_path / name) for name in ("a.zip", "b"))
    assert one == other
    assert any(name.startswith("charts/") and name.endswith(".svg") for name in one)
    again = tmp_path / "c.zip"
    write_dossier(Request(run=cpu.run, written=made.WHEN), again)
    assert again.read_bytes() == (tmp_path / "a.zip").read_bytes()


def test_files_tables_and_checksums(files, golden):
    assert set(NEEDED) <= set(files)
    sums = dict(reversed(line.split("  ")) for line in files["SHA256SUMS"].decode().splitlines())
    assert set(sums) == set(files) - {"SHA256SUMS"}
    assert all(hashlib.sha256(files[name]).hexdigest() == digest for name, digest in sums.items())
    for name in TABLES:
        found = pl.read_parquet(io.BytesIO(files[f"tables/{name}.parquet"]))
        assert found.columns == [column.name for column in TABLES[name]]
        assert found.height == golden.frame(name).collect().height
    numbers = pl.read_parquet(io.BytesIO(files["tables/trials.parquet"]))["throughput_per_s"]
    assert numbers.equals(golden.frame("trials").collect()["throughput_per_s"])


def test_the_lock_pins_every_package_even_one_with_four_numbers(files):
    assert files["requirements.lock"].decode() == "nvidia-cublas==13.0.0.19\npolars==2.1.0\ntorch==2.11.0+cu130\n"


def test_pseudonyms_join_the_tables(files):
    trials = pl.read_parquet(io.BytesIO(files["tables/trials.parquet"]))
    environment = pl.read_parquet(io.BytesIO(files["tables/environment.parquet"]))
    uuids = environment.filter(pl.col("name").str.ends_with("uuid"))["value"].to_list()
    assert uuids == ["gpu-1", "gpu-2"]
    assert set(trials["gpu_uuids"].explode()) == set(uuids)
    assert set(environment["node"]) == {"workers", "node-1"}


def test_whoever_has_the_dossier_can_start_the_same_sweep(golden, tmp_path, monkeypatch):
    made.without_charts(monkeypatch)
    folder = write_dossier(Request(run=golden), tmp_path / "unpacked")
    planned = CliRunner().invoke(app, ["plan", str(folder / "sweep.yaml"), "--assume", "2x H200", "--json"])
    sessions = json.loads(planned.stdout)["sessions"]
    ids = {trial["trial_id"] for session in sessions for trial in session["trials"]}
    measured = set(golden.frame("trials").collect()["trial_id"])
    assert len(measured) == 169
    assert measured <= ids
    assert made.data_of(made.members(folder))["remarks"] == []


def test_private_words_in_the_sweep_change_no_trial_unless_it_is_said(tmp_path, monkeypatch):
    made.without_charts(monkeypatch)
    text = (made.ROOT / "sweeps" / "nccl.yaml").read_text()
    asked = text.replace("question: Which", "question: Asked by ada@lab.example.org, which")
    assert asked != text
    files = made.written(made.golden_run(tmp_path / "a", f"# on /home/ada/x\n{asked}"), tmp_path / "a.zip")
    assert b"lab.example" not in files["sweep.yaml"]
    assert b"ada" not in files["sweep.yaml"]
    assert made.data_of(files)["remarks"] == []
    files = made.written(made.golden_run(tmp_path / "b", f"# on /home/resnet50/x\n{text}"), tmp_path / "b.zip")
    (remark,) = made.data_of(files)["remarks"]
    assert "redaction changed more than its question" in remark


HOSTILE = (
    "<script>alert(1)</script> [x](https://evil.example) ![i](//e.example/p.png) **b** `c` | d | www.evil.example "
    "a@b.example # h &lt; <!-- $x$ ~~s~~ \\| ``` \u202egpj \n\n# heading\n- item"
)


def test_no_text_becomes_markup(tmp_path, monkeypatch, hostile):
    made.without_charts(monkeypatch)
    declaration = parse_declaration(f"notes: {json.dumps(HOSTILE)}\nplatform: {{chassis: '```'}}\n", "d.yaml")
    files = made.written(hostile.run, tmp_path / "d.zip", declaration=declaration, redact=False)
    page = files["dossier.md"].decode()
    renderer = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
    kinds = {token.type for block in renderer.parse(page) for token in (block, *(block.children or []))}
    assert not {"html_block", "html_inline", "link_open", "image", "em_open", "strong_open", "s_open", "fence"} & kinds
    rendered = renderer.render(page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [x](https://evil.example)" in rendered
    assert "\u202e" not in page
    rows = [line for line in page.splitlines() if line.startswith("| ") and "|---" not in line]
    assert {line.replace("`", "").count(" | ") for line in rows} == {3}
    assert len(rows) >= len(LINES)


@pytest.mark.parametrize("text", ["", " ", "`", "``", "a``b`", "`a", "x" * 5000, "a\nb", "|", "\\|", "\x1b[31m", "é🔥"])
def test_any_text_is_one_code_span(text):
    shown = code(text)
    (block,) = [token for token in MarkdownIt("commonmark").parse(f"- {shown}") if token.type == "inline"]
    assert [child.type for child in block.children] == ["code_inline"] or not text.strip()
    assert "|" not in shown
    assert "\n" not in shown


def test_old_runs_and_empty_runs_have_dossiers(empty, tmp_path, monkeypatch):
    made.without_charts(monkeypatch)
    old = Run.open(made.GOLDEN / "results_schema_1" / "quickstart-0a1b2c3d4e5f-01")
    for name, run in (("old", old), ("empty", empty.run)):
        files = made.written(run, tmp_path / f"{name}.zip")
        assert list(made.lines_of(files)) == [line.id for line in LINES]
        assert "unknown: this run did not record" in files["requirements.lock"].decode()
        schema = json.loads(files["dossier.schema.json"])
        assert list(Draft202012Validator(schema).iter_errors(made.data_of(files))) == []


def test_logs_travel_and_links_are_not_followed(golden, tmp_path, monkeypatch):
    made.without_charts(monkeypatch)
    logs = golden.run_dir / "logs" / "session"
    logs.mkdir(parents=True)
    (logs / "rank 0 of tron.log").write_text("tron:1:2 [0] NCCL INFO ok\n\ttron again, /home/ada/x\n")
    (logs / "binary.log").write_bytes(b"\xff\x00ok")
    (tmp_path / "secret").write_text("mine")
    (logs / "link.log").symlink_to(tmp_path / "secret")
    try:
        files = made.written(golden, tmp_path / "d.zip")
    finally:
        for path in logs.iterdir():
            path.unlink()
        logs.rmdir()
    kept = {name: text.decode() for name, text in files.items() if name.startswith("logs/")}
    assert sorted(kept) == ["logs/001-session-binary.log", "logs/002-session-rank-0-of-redacted-host.log"]
    assert kept["logs/002-session-rank-0-of-redacted-host.log"] == (
        "redacted-host:1:2 [0] NCCL INFO ok\n\tredacted-host again, redacted-path\n"
    )
    assert "logs/001-session-binary.log" in made.lines_of(files)["record.files"]["value"]


def test_what_ranks_and_the_sweep_wrote_travels_as_text_redacted(tmp_path, monkeypatch):
    made.without_charts(monkeypatch)
    line = {"trial_id": "38dd048208b5", "attempt": 1, "source": "nccl", "rank": 0}
    rows = [
        {**line, "place": 1, "line": "NCCL INFO Using network Socket", "count": 2},
        {**line, "place": 0, "line": "NCCL INFO NET/Socket : Using [0]eth0:192.168.17.23<0>", "count": 1},
        {**line, "source": "trace", "rank": 1, "place": 0, "line": 'File "/home/adalove/train.py", line 3', "count": 1},
        {**line, "source": "driver", "rank": None, "place": 0, "line": "a session did not start: gone", "count": 1},
    ]
    run = made.golden_run(tmp_path / "run")
    with RunWriter.reopen(run.run_dir) as writer:
        writer.commit({"logs": table("logs", rows)})
    files = made.written(Run.open(run.run_dir), tmp_path / "d.zip")
    kept = {name: text.decode() for name, text in files.items() if name.startswith("logs/")}
    assert set(kept) == {"logs/nccl.log", "logs/trace.log", "logs/driver.log"}
    heading, first, second = kept["logs/nccl.log"].splitlines()
    assert heading == "== trial 38dd048208b5, attempt 1, rank 0"
    assert first.startswith("NCCL INFO NET/Socket : Using [0]eth0:")
    assert second == "NCCL INFO Using network Socket (x2)"
    assert "192.168.17.23" not in first
    assert "adalove" not in kept["logs/trace.log"]
    assert kept["logs/driver.log"].splitlines() == [
        "== trial 38dd048208b5, attempt 1, driver",
        "a session did not start: gone",
    ]
    assert "logs/nccl.log" in made.lines_of(files)["record.files"]["value"]


def test_only_what_may_be_replaced_is(golden, tmp_path, monkeypatch):
    made.without_charts(monkeypatch)
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        write_dossier(Request(run=golden), full)
    with pytest.raises(BadInput, match="found no directory"):
        write_dossier(Request(run=golden), tmp_path / "missing" / "d.zip")
    monkeypatch.setattr("rtxscale.report.dossier.pack.markdown", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_dossier(Request(run=golden), tmp_path / "half.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    assert [path.name for path in full.iterdir()] == ["mine"]
