"""A cell's settings as text keys: which cells are equal apart from one axis, the GPU count or the communication.

Read from `trials.cell_json`, where defaults are left out, so the default is looked up in the models of `spec`. Called
by `analysis.cells`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rtxscale.spec.cell import Cell, as_text
from rtxscale.spec.flat import leaves
from rtxscale.spec.sweep import COMMUNICATION_AXES, SUBJECT_AXES

BATCH_AXES = ("workload.batch_per_gpu", "workload.global_batch")
LAYOUT_AXES = ("nodes", "gpus_per_node", "placement")
"""Where the workers are; a cell of one GPU has none of them."""
SIZE_AXES = ("gpus", *LAYOUT_AXES, *BATCH_AXES)
"""Axes that have no effect of their own: counts and batches make the curve, layouts are compared in `placement`."""
COMMUNICATION_KIND = "collectives"
"""A kind of workload that needs no field, to ask for the defaults of the communication."""
UNCOMPARED = ("collectives.", "nccl.unsafe", "measure.loss_budget", "target.")
"""Settings that do not change what the workload does: what is measured beside it, the licence for unsafe protocols."""
DEFAULTS, UNTOLD = "defaults", "settings not told"
"""What a cell is called that changes nothing: by us, or by somebody who has said nothing of the communication."""

COMPILED = {"off": "no compile", "default": "torch.compile"}
"""The mode `default` is not named: a label with that word reads like the default cell."""
WORDS: dict[str, Callable[[str], str]] = {
    "gpus": lambda value: f"gpus {value}",
    "nodes": lambda value: f"{value} node{'' if value == '1' else 's'}",
    "gpus_per_node": lambda value: f"{value} per node",
    "placement": lambda value: value.replace("_", " "),
    "nccl.algorithm": lambda value: value,
    "nccl.channels": lambda value: f"{value} channel" if value == "1" else f"{value} channels",
    "nccl.protocol": lambda value: f"protocol {value}",
    "nccl.p2p": lambda value: f"P2P {value}",
    "ddp.bucket_mib": lambda value: f"bucket {value} MiB",
    "workload.label": lambda value: value,
    "workload.precision": lambda value: value,
    "workload.compile": lambda value: COMPILED.get(value, f"torch.compile {value}"),
    "workload.batch_per_gpu": lambda value: f"batch {value} per GPU",
    "workload.global_batch": lambda value: f"global batch {value}",
    "launcher": lambda value: value,
    "hardware.gpu": lambda value: value,
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One cell's settings. `communication` and `rest` are keys: equal text means equal settings.

    `rest` is everything that a curve holds constant but the communication and the batch: with the layout's `held` count
    and the placement, which `rest_alone`, the key of a 1-GPU base, goes without. `values` holds each axis; None where
    an axis does not apply (the communication of one GPU).
    """

    communication: str
    rest: str
    rest_alone: str
    is_default: bool
    values: Mapping[str, str | None]
    flat: Mapping[str, str] = field(default_factory=dict)

    def other_than(self, *axes: str) -> str:
        """A key of all settings but these axes, GPU count and batch included."""
        return _key((path, value) for path, value in self.flat.items() if path not in axes)

    @property
    def layout(self) -> str:
        """Nodes, workers on each and placement in words; empty where the cell says nothing of them.

        >>> read_settings('{"gpus":4,"gpus_per_node":2,"nodes":2,"workload":{"kind":"collectives"}}', "a", ()).layout
        '2 nodes of 2'
        """
        counts = f"{self.flat['nodes']} nodes of {self.flat['gpus_per_node']}" if "nodes" in self.flat else ""
        counts = counts.replace("1 nodes", "1 node") if counts.startswith("1 ") else counts
        placed = in_words("placement", self.flat["placement"]) if "placement" in self.flat else ""
        return ", ".join(word for word in (counts, placed) if word)

    def words(self, axes: Iterable[str]) -> list[str]:
        """These axes in words; what is left to NCCL or DDP is not mentioned."""
        pairs = ((axis, self.values.get(axis)) for axis in axes)
        return [in_words(axis, value) for axis, value in pairs if value not in (None, "auto")]


def held_count(cells: Iterable[str | None], axes: Iterable[str]) -> str:
    """Which count of the layout a curve holds constant: the one of fewer values, workers on each node if in doubt.

    >>> held_count(['{"nodes":2,"gpus_per_node":2}', '{"nodes":2,"gpus_per_node":4}'], ["gpus_per_node"])
    'nodes'
    """
    seen: dict[str, set[int]] = {"nodes": set(), "gpus_per_node": set()}
    for text in cells:
        try:
            declared = json.loads(text or "")
        except ValueError:
            continue
        for name, values in seen.items():
            if isinstance(declared, dict) and declared.get(name) is not None:
                values.add(declared[name])
    both = {"nodes", "gpus_per_node"} <= set(axes)
    return "nodes" if not both and len(seen["nodes"]) < len(seen["gpus_per_node"]) else "gpus_per_node"


def read_settings(cell_json: str | None, cell_id: str, axes: Iterable[str], held: str = "gpus_per_node") -> Settings:
    """Settings of one cell. One that cannot be read is comparable with nothing but itself."""
    try:
        declared = json.loads(cell_json or "")
        flat = dict(sorted(flatten(declared)))
        kind = declared["workload"]["kind"]
    except (ValueError, KeyError, TypeError, AttributeError):
        nothing = dict.fromkeys(axes)
        return Settings(communication="", rest=cell_id, rest_alone=cell_id, is_default=False, values=nothing)
    gpus = flat.get("gpus", "1")
    compared = {path: value for path, value in flat.items() if is_compared(path)}
    communication = {path: value for path, value in compared.items() if is_communication(path)}
    alone = {path: value for path, value in compared.items() if path not in communication and path not in SIZE_AXES}
    placed = {path: compared[path] for path in (held, "placement") if path in compared}
    several = (is_communication, LAYOUT_AXES.__contains__)  # what one GPU has nothing of
    values = {
        axis: flat.get(axis)
        or (None if gpus == "1" and any(needs(axis) for needs in several) else default_at(axis, kind))
        for axis in axes
    }
    return Settings(
        communication=_key(communication.items()),
        rest=_key((alone | placed).items()),
        rest_alone=_key(alone.items()),
        is_default=not communication,
        values=values,
        flat=compared,
    )


def beside_size(label: str) -> str:
    """A cell's label without the number of GPUs and the batch, for texts that name those themselves.

    >>> beside_size("gpus 2, batch 64 per GPU, bf16, torch.compile"), beside_size("gpus 1")
    ('bf16, torch.compile', '')
    """
    size = ("gpus ", "batch ", "global batch ", DEFAULTS, UNTOLD)
    return ", ".join(part for part in label.split(", ") if not part.startswith(size))


def differing(labels: Sequence[str]) -> list[str]:
    """Of each label the parts that not all of them share, unlike `gpus 1` in a list of 1-GPU cells; of one nothing.

    A label that has no part of its own is that of the defaults.

    >>> differing(["gpus 1, bf16, batch 8 per GPU", "gpus 1, fp32, batch 8 per GPU"]), differing(["gpus 1, bf16"])
    (['bf16', 'fp32'], [])
    >>> differing(["gpus 1", "gpus 1, attention flash", "gpus 1, attention math"])
    ['defaults', 'attention flash', 'attention math']
    """
    parts = [label.split(", ") for label in labels]
    shared = set(parts[0]).intersection(*parts[1:]) if parts else set()
    told = dict.fromkeys(", ".join(part for part in some if part not in shared) or DEFAULTS for some in parts)
    return list(told) if len(told) > 1 else []


def is_communication(path: str) -> bool:
    """Whether the dotted path is a setting of the communication.

    >>> is_communication("nccl.channels"), is_communication("workload.precision")
    (True, False)
    """
    return path.startswith(COMMUNICATION_AXES)


def is_compared(path: str) -> bool:
    """Whether a setting can change the throughput.

    >>> is_compared("ddp.bucket_mib"), is_compared("target.value")
    (True, False)
    """
    return not path.startswith(UNCOMPARED)


def is_knob(axis: str) -> bool:
    """Whether an axis has an effect on the throughput of one and the same work.

    >>> [is_knob(axis) for axis in ("nccl.channels", "gpus", "workload.model", "target.value")]
    [True, False, False, False]
    """
    return is_compared(axis) and axis not in SIZE_AXES + SUBJECT_AXES


def in_words(axis: str, value: str) -> str:
    """One setting as people say it.

    >>> in_words("nccl.channels", "8"), in_words("workload.image_size", "224")
    ('8 channels', 'image_size 224')
    >>> [in_words("workload.compile", mode) for mode in ("off", "default", "max-autotune")]
    ['no compile', 'torch.compile', 'torch.compile max-autotune']
    """
    known = WORDS.get(axis)
    return known(value) if known else f"{axis.rpartition('.')[2]} {value}"


def flatten(section: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Dotted paths and texts of all values; 25 and 25.0 are alike.

    >>> list(flatten({"nccl": {"channels": 8}, "gpus": 2}))
    [('nccl.channels', '8'), ('gpus', '2')]
    """
    return ((path, as_text(leaf)) for path, leaf in leaves(section) if leaf != {})


@cache
def default_at(path: str, kind: str) -> str | None:
    """What a field has when a sweep does not mention it; None for a field that does not exist or has no default.

    Those of the communication are the same whatever the workload, also one that is none of ours.
    """
    kind = COMMUNICATION_KIND if is_communication(path) else kind
    try:
        value = Cell.model_validate({"workload": {"kind": kind}}).at(path)
    except (ValueError, AttributeError):
        return None
    return None if value is None else as_text(value)


def _key(settings: Iterable[tuple[str, str]]) -> str:
    return "\x1f".join(f"{path}={value}" for path, value in settings)
