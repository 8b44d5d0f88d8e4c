"""Dossiers for tests: of the real run on two H200s, and without charts where those are not looked at."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa

from rtxscale.report.dossier import pack
from rtxscale.report.dossier.pack import Request, write_dossier
from rtxscale.results.read import Run, polars_schema
from rtxscale.results.schema import arrow_schema, table
from rtxscale.results.write import RunWriter
from rtxscale.spec.load import parse_sweep

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden"
WHEN = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
NODE = "c0ffee00" * 7
SESSIONS = 3
UUIDS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000")
SOFTWARE = {
    "torch": "2.11.0+cu130",
    "torch commit": "70d99e998b4955e0049d13a98d77ae1b14db1f45",
    "CUDA of torch": "13.0",
    "architectures of torch": "sm_80 sm_90 sm_100",
    "nccl": "2.28.9",
    "cudnn": "91900",
    "driver": "580.159.04",
    "CUDA driver": "13.0",
    "NVIDIA kernel module": "open",
    "python": "3.12.3",
    "rtxscale": "0.1.0",
    "timm": "1.0.31",
}
GPU = {
    "name": "NVIDIA H200",
    "memory": "143771 MiB",
    "compute capability": "9.0",
    "power limit": "700.0 W",
    "default power limit": "700.0 W",
    "pcie max": "generation 5, 16 lanes",
    "mig": "off",
}


def golden_run(root: Path, sweep_text: str | None = None, environment: list[dict[str, str]] | None = None) -> Run:
    """The 169 trials measured on two H200s as a run, by default with an environment as such a machine gives it."""
    text = sweep_text or (ROOT / "sweeps" / "nccl.yaml").read_text()
    names = ("trials", "collectives", "attestation")
    tables = {name: _conformed(name) for name in names}
    tables["trials"] = tables["trials"].with_columns(
        gpu_uuids=pl.when(pl.col("gpus") == 2)
        .then(pl.lit(list(UUIDS)))
        .when(pl.col("slot") == 1)
        .then(pl.lit([UUIDS[1]]))
        .otherwise(pl.lit([UUIDS[0]]))
    )
    arrow = {
        name: frame.to_arrow().cast(arrow_schema(name)).replace_schema_metadata(arrow_schema(name).metadata)
        for name, frame in tables.items()
    }
    arrow["environment"] = table("environment", made_environment() if environment is None else environment)
    with RunWriter.open(root, parse_sweep(text, "nccl.yaml"), text, fresh=True) as writer:
        for part in range(SESSIONS):
            writer.commit({name: _share(rows, part) for name, rows in arrow.items()})
        return Run.open(writer.run_dir)


def _share(rows: pa.Table, part: int) -> pa.Table:
    """What a run commits when one of its sessions ends."""
    length = -(-rows.num_rows // SESSIONS)
    return rows.slice(part * length, length)


def made_environment() -> list[dict[str, str]]:
    def rows(node, subject, values):
        return [
            {"environment_id": "e" * 12, "node": node, "subject": subject, "name": name, "value": value}
            for name, value in values.items()
        ]

    found = rows("workers", "software", SOFTWARE)
    found += rows("workers", "package", {"nvidia-cublas": "13.0.0.19", "polars": "2.1.0", "torch": "2.11.0+cu130"})
    found += rows(NODE, "host", {"os": "Ubuntu 24.04", "kernel": "6.8.0-71-generic", "cpu model": "Intel Xeon 8468"})
    topology = (GOLDEN / "topology" / "topo_2gpu_nv12_blank_affinity.txt").read_text()
    found += rows(NODE, "doctor", {"p2p": "warning: no P2P", "text of nvidia-smi topo -m": topology})
    for index, uuid in enumerate(UUIDS):
        found += rows(NODE, "gpu", {f"gpu{index} {name}": value for name, value in {**GPU, "uuid": uuid}.items()})
    return found


def _conformed(name: str) -> pl.DataFrame:
    schema = polars_schema(name)
    frame = pl.read_parquet(GOLDEN / "h200x2_nccl" / f"{name}.parquet")
    missing = [pl.lit(None, kind).alias(column) for column, kind in schema.items() if column not in frame.columns]
    return frame.with_columns(missing).select(list(schema))


def without_charts(monkeypatch) -> None:
    """Drawing takes seconds; what is not about pictures does without."""
    monkeypatch.setattr(pack, "write_charts", lambda *_: [])


def written(run: Run, path: Path, **asked) -> dict[str, bytes]:
    """Every file of a dossier of this run."""
    write_dossier(Request(run=run, written=WHEN, **asked), path)
    return members(path)


def members(path: Path) -> dict[str, bytes]:
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def data_of(files: dict[str, bytes]) -> dict:
    return json.loads(files["dossier.json"])


def lines_of(files: dict[str, bytes]) -> dict[str, dict]:
    return {line["id"]: line for line in data_of(files)["lines"]}
