"""Feeds broken text to everything that reads text of others: `python tests/bench/fuzz.py yaml --minutes 5`.

Targets are `yaml`, `mapping`, `nccl`, `nccl_tests`, `topology`, `import`, `results` and `all`, one after another. With
atheris (`pip install atheris`) new inputs are led by coverage; without it by chance alone, and it says so. What is no
error of ours is printed with the input that it came from, and the exit code is 1. Not a test: `tests/property` has the
quick form of each.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from rtxscale.cli.import_results import read_import
from rtxscale.errors import RtxscaleError
from rtxscale.nccl.log import parse_log
from rtxscale.nccl.nccl_tests import read_nccl_tests
from rtxscale.results.commit import read_records
from rtxscale.results.live import read_live
from rtxscale.results.lock import living_owner
from rtxscale.results.manifest import read_manifest
from rtxscale.spec.load import parse_sweep
from rtxscale.spec.mapping import ImportMapping, parse_mapping
from rtxscale.topology.details import parse_details
from rtxscale.topology.listing import parse_listing
from rtxscale.topology.nccl_graph import parse_graph
from rtxscale.topology.query import parse_query
from rtxscale.topology.smi import parse_peer_access, parse_topology
from rtxscale.topology.transfers import parse_transfers
from rtxscale.topology.versions import parse_versions

try:
    import atheris
except ImportError:
    atheris = None

TESTS = Path(__file__).parents[1]
SEEDS = {
    "yaml": (TESTS.parent / "sweeps", "*.yaml"),
    "mapping": (TESTS / "bench", "*.yaml"),
    "nccl": (TESTS / "golden" / "nccl", "*"),
    "nccl_tests": (TESTS / "golden" / "nccl_tests", "*"),
    "topology": (TESTS / "golden" / "topology", "*"),
    "import": (TESTS / "golden" / "nccl_tests", "*"),
    "results": (TESTS / "golden" / "h200x2_nccl", "*.json"),
}
MAPPING = "rows: sessions\ncolumns: {gpus: ranks, throughput_per_s: images}\nconstants: {batch_per_gpu: 64}\n"
CSV = "gpus,images_per_s,batch_per_gpu,nccl.algorithm\n1,100.5,64,auto\n2,190,64,ring\n"
RECORD = {
    "rtxscale": "commit",
    "seq": 1,
    "session_id": "s",
    "files": [{"path": "parts/00000001-trials.parquet", "table": "trials", "rows": 1, "bytes": 9, "sha256": "0"}],
    "trials": [["t", 1, "ok"]],
    "supersedes": [],
    "schema_version": 1,
}
EXTRA = {"mapping": MAPPING.encode(), "import": CSV.encode(), "results": json.dumps(RECORD).encode()}
LARGEST = 20_000


def topology(text: str) -> None:
    parse_topology(text)
    parse_peer_access(text, "rw")
    for parse in (parse_query, parse_listing, parse_details, parse_transfers, parse_graph, parse_versions):
        parse(text)


def nccl_tests(text: str) -> None:
    with suppress(ValueError):  # its refusal
        read_nccl_tests(text)


def results(text: str) -> None:
    """The text in the place of each of a run's small files."""
    data = text.encode(errors="replace")
    with tempfile.TemporaryDirectory() as directory:
        run_dir = Path(directory)
        (run_dir / "commits").mkdir()
        for name in ("run.json", "commits/00000001.json", "live.json", "lock"):
            (run_dir / name).write_bytes(data)
        read_live(run_dir)
        living_owner(run_dir / "lock")
        for read in (read_records, read_manifest):
            quietly(partial(read, run_dir))


def quietly(read: Callable[[], object]) -> None:
    """An error of ours is an answer; any other goes up."""
    try:
        read()
    except RtxscaleError:
        return


TARGETS: dict[str, Callable[[str], object]] = {
    "yaml": lambda text: parse_sweep(text, "sweep.yaml"),
    "mapping": lambda text: parse_mapping(text, "map.yaml"),
    "nccl": parse_log,
    "nccl_tests": nccl_tests,
    "topology": topology,
    "import": lambda text: read_import(text, "given", ImportMapping(), "imported: given"),
    "results": results,
}


def seeds(target: str) -> list[bytes]:
    folder, pattern = SEEDS[target]
    found = [path.read_bytes()[:LARGEST] for path in sorted(folder.rglob(pattern)) if path.is_file()]
    return [*found, *([EXTRA[target]] if target in EXTRA else [])]


def by_chance(target: str, minutes: float, seed: int) -> int:
    """Inputs cut, doubled and mixed from the seeds; how many there were."""
    dice, known, tried = random.Random(seed), seeds(target), 0  # noqa: S311 - not for secrets
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        data = bytearray(dice.choice(known))
        for _ in range(dice.randint(1, 8)):
            at, other = dice.randint(0, len(data)), dice.choice(known)
            start = dice.randint(0, len(other))
            new = dice.choice([b"", bytes([dice.randrange(256)]), other[start : start + dice.randint(0, 40)]])
            data[at : at + dice.choice([0, 1, 3, 20, 200])] = new
        text = bytes(data[:LARGEST]).decode(errors="replace")
        try:
            quietly(partial(TARGETS[target], text))
        except Exception:
            print(f"{target}: {text!r}", file=sys.stderr)
            raise
        tried += 1
    return tried


def by_coverage(target: str, minutes: float) -> None:
    """Hand the process over to atheris, with the seeds as its corpus; it ends the process."""
    corpus = Path(tempfile.mkdtemp(prefix="rtxscale-fuzz-"))
    for place, data in enumerate(seeds(target)):
        (corpus / str(place)).write_bytes(data)
    atheris.instrument_all()
    limits = [f"-max_total_time={round(60 * minutes)}", f"-max_len={LARGEST}", "-timeout=20", "-print_final_stats=1"]
    arguments = [sys.argv[0], *limits, f"-artifact_prefix={corpus}/", str(corpus)]
    atheris.Setup(arguments, lambda data: quietly(partial(TARGETS[target], data.decode(errors="replace"))))
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.target == "all":
        words = ["--minutes", str(options.minutes), "--seed", str(options.seed)]
        codes = [subprocess.run([sys.executable, __file__, one, *words], env=os.environ).returncode for one in TARGETS]
        return int(any(codes))
    if atheris is not None:
        by_coverage(options.target, options.minutes)
    tried = by_chance(options.target, options.minutes, options.seed)
    print(f"{options.target}: {tried} inputs by chance, without atheris: no error but ours")
    return 0


if __name__ == "__main__":
    sys.exit(main())
