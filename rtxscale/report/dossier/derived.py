"""Lines of a dossier that need more than one cell of one table: medians, shares, ratios, comparisons with a fact sheet.

One function a line, from `Facts` to an answer; None where the run does not say. Called by `dossier.record`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from rtxscale.devices.facts import GpuFacts
from rtxscale.devices.gpus import find_gpu
from rtxscale.report.dossier.facts import (
    DECLARED,
    Answer,
    Facts,
    counted_values,
    distinct,
    documented,
    measured,
)
from rtxscale.results.manifest import MANIFEST

Derived = Callable[[Facts], Answer | None]


def card_facts(facts: Facts) -> list[GpuFacts]:
    """The documented cards among those that ran, by name and memory."""
    names = gpu_values(facts, "name") or dict.fromkeys(facts.trials["device_names"].explode().drop_nulls())
    memory = gpu_values(facts, "memory")
    found = [find_gpu(name, _mib(memory.get(gpu))) for gpu, name in _pairs(names)]
    return list({card.label: card for card in found if card is not None}.values())


def _pairs(names: dict[str, Any]) -> list[tuple[str, str]]:
    return [(key, key if value is None else str(value)) for key, value in names.items()]


def _mib(text: str | None) -> int | None:
    digits = (text or "").partition(" ")[0]
    return int(digits) if digits.isdigit() else None


def gpu_values(facts: Facts, name: str) -> dict[str, str]:
    """One fact of every GPU: node and number -> value."""
    rows = facts.environment.filter((pl.col("subject") == "gpu") & pl.col("name").str.ends_with(f" {name}"))
    return {
        f"{node} {found.partition(' ')[0]}": value
        for node, found, value in rows.select("node", "name", "value").iter_rows()
        if found.partition(" ")[2] == name and value
    }


def card(facts: Facts) -> Answer | None:
    """What is documented of the card."""
    texts = [
        f"{item.label}: {item.architecture}, {item.memory}, {item.link}; {item.source}" for item in card_facts(facts)
    ]
    return documented("; ".join(texts), "devices.table") if texts else None


def matched(facts: Facts) -> Answer | None:
    """Whether each node has one model of GPU."""
    names = gpu_values(facts, "name")
    if not names:
        return None
    nodes: dict[str, set[str]] = {}
    for gpu, name in names.items():
        nodes.setdefault(gpu.rpartition(" ")[0], set()).add(name)
    mixed = [node for node, models in nodes.items() if len(models) > 1]
    return measured(f"mixed on {distinct(mixed)}" if mixed else "one model per node", "environment: gpu/* name")


def findings(facts: Facts) -> Answer | None:
    """What `rtxscale doctor` found before the sweep, in its words."""
    rows = facts.environment.filter((pl.col("subject") == "doctor") & ~pl.col("name").str.starts_with("text of "))
    return (
        measured("; ".join(rows["value"].drop_nulls().unique(maintain_order=True)), "environment: doctor/*")
        if rows.height
        else None
    )


def pcie_under_load(facts: Facts) -> Answer | None:
    """The best link state of each used GPU in the windows: idle links slow down on purpose."""
    rows = facts.telemetry.drop_nulls(["pcie_generation", "pcie_width"])
    texts = [f"generation {row[0]}, {row[1]} lanes" for row in rows.select("pcie_generation", "pcie_width").iter_rows()]
    return measured(counted_values(texts), "telemetry, in the windows") if texts else None


def torch_build(facts: Facts) -> Answer | None:
    """The local part of PyTorch's version, and whether the version is a nightly's."""
    version = software(facts, "torch")
    if version is None:
        return None
    release, _, build = version.partition("+")
    kind = "nightly or development build" if "dev" in release or "a0" in release else "release"
    return measured(f"{build or 'no build named'}, {kind}", "environment: software/torch")


def architectures(facts: Facts) -> Answer | None:
    """Whether PyTorch was built for the card."""
    built, capabilities = (
        software(facts, "architectures of torch"),
        set(gpu_values(facts, "compute capability").values()),
    )
    if built is None or not capabilities:
        return None
    wanted = {f"sm_{capability.replace('.', '')}" for capability in capabilities}
    missing = sorted(wanted - set(built.split()))
    verdict = f"not built for {', '.join(missing)}" if missing else f"built for {', '.join(sorted(wanted))}"
    return measured(f"{built}; {verdict}", "environment: software/architectures of torch")


def software(facts: Facts, name: str) -> str | None:
    """A version, of what runs or else of what is installed; None where it is not known."""
    rows = facts.environment.filter(pl.col("subject").is_in(["software", "package"]) & (pl.col("name") == name))
    known = rows.filter(pl.col("value").is_not_null() & ~pl.col("value").is_in(["", "unknown"]))
    return next(iter(known.sort("subject", descending=True)["value"]), None)


def packages(facts: Facts) -> Answer | None:
    """How many packages are locked."""
    count = facts.environment.filter(pl.col("subject") == "package").height
    return measured(f"{count} packages in requirements.lock", "environment: package/*") if count else None


def matrix(facts: Facts) -> Answer | None:
    """The versions that decide numbers, in one line."""
    names = ("torch", "CUDA of torch", "cudnn", "nccl", "driver", "timm", "transformers", "python")
    known = [f"{name} {version}" for name in names if (version := software(facts, name))]
    return measured(", ".join(known), "environment: software/*") if known else None


def launch(facts: Facts) -> Answer | None:
    """How the ranks were started."""
    launchers = {"ray": "Ray Train", "torchrun": "torchrun"}
    known = facts.trials["launcher"].drop_nulls().unique().sort()
    if known.is_empty():
        return None
    words = distinct(launchers.get(name, name) for name in known)
    return Answer(
        value=f"{words}, one process per worker; `rtxscale explain TRIAL` gives each trial's torchrun command",
        declared_by=DECLARED,
        where="sweep: launcher",
    )


def transport(facts: Facts) -> Answer | None:
    """Transports in NCCL's own log."""
    rows = facts.attestation.filter((pl.col("subject") == "nccl.p2p") & pl.col("observed").is_not_null())
    counts = rows["observed"].value_counts().sort("observed").iter_rows()
    texts = [f"{seen} in {count} trials" for seen, count in counts]
    return measured(distinct(texts), "attestation: nccl.p2p") if texts else None


def power_limit(facts: Facts) -> Answer | None:
    """Power limits, and whether they are the stock ones."""
    limits, stock = gpu_values(facts, "power limit"), gpu_values(facts, "default power limit")
    known = {gpu: value for gpu, value in limits.items() if value != "unknown"}
    if not known:
        return None
    texts = [f"{value} ({_against(value, stock.get(gpu))})" for gpu, value in known.items()]
    return measured(counted_values(texts), "environment: gpu/* power limit")


def _against(value: str, stock: str | None) -> str:
    if stock in (None, "unknown"):
        return "stock limit unknown"
    return "stock" if value == stock else f"stock is {stock}"


def files(facts: Facts) -> Answer | None:
    """What else is in the dossier."""
    return measured(distinct(facts.files), "SHA256SUMS") if facts.files else None


def sweep_file(facts: Facts) -> Answer | None:
    """The sweep that starts the same trials elsewhere."""
    return measured(f"sweep.yaml, sweep {facts.run.manifest['sweep_id']}", MANIFEST)


DERIVED: dict[str, Derived] = {
    "card": card,
    "matched": matched,
    "findings": findings,
    "pcie_under_load": pcie_under_load,
    "torch_build": torch_build,
    "architectures": architectures,
    "packages": packages,
    "matrix": matrix,
    "launch": launch,
    "transport": transport,
    "power_limit": power_limit,
    "files": files,
    "sweep_file": sweep_file,
}
