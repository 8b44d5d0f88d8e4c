"""The cells behind the links of a `topo -m` row: CPU list, NUMA list, the GPU's own NUMA node.

Cells can be blank or glued to each other, so a row split at white space may have fewer than there are columns. A value
that cannot be told apart is left out and named as suspect. Caller: `topology.smi`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rtxscale.topology.id_lists import cuts, fits, read_id_list
from rtxscale.topology.null_words import null_reason

CPU, NUMA, GPU_NUMA = TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_MISSING = "N/A"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a GPU sits: CPU and NUMA node lists as printed, and its own NUMA node; None for no value or no column."""

    cpus: str | None = None
    numa: str | None = None
    gpu_numa_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A cell whose value is not to be trusted: its column, what stands there, what would be right."""

    column: str
    found: str
    expected: str


@dataclass(kw_only=True)
class _Reading:
    cells: dict[str, str] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)


def place(
    cells: Sequence[str], titles: Sequence[str], cpu_count: int | None, *, by_position: bool
) -> tuple[Placement, tuple[Doubt, ...], tuple[str, ...]]:
    """Placement from the cells behind the links, what is doubtful in it, and what was put right in which way.

    `by_position` says that the cells were cut at tabs, so that blank ones are there too. `cpu_count` is the number of
    CPUs the host can have (highest number plus one).

    >>> place(["56-111,168-2231", "N/A"], TITLES, 224, by_position=False)[0]
    Placement(cpus='56-111,168-223', numa='1', gpu_numa_id=None)
    >>> place(["56-111,168-2231", "N/A"], TITLES, None, by_position=False)[0].cpus is None
    True
    """
    reading = _Reading()
    if by_position:
        _by_position(reading, [cell.strip() for cell in cells], titles)
    else:
        _by_order(reading, _without_glued_missing(cells), titles, cpu_count)
    cpus = _list(reading, CPU, cpu_count)
    numa = _list(reading, NUMA, None)
    own = _list(reading, GPU_NUMA, None)
    if own is not None and not own.isdigit():
        reading.doubts.append(Doubt(column=GPU_NUMA, found=own, expected="one NUMA node number or N/A"))
        own = None
    placement = Placement(cpus=cpus, numa=numa, gpu_numa_id=None if own is None else int(own))
    return placement, tuple(reading.doubts), tuple(reading.repairs)


def _by_position(reading: _Reading, cells: list[str], titles: Sequence[str]) -> None:
    # nvidia-smi writes two tabs before the GPU's NUMA node, since the title before it is two stops wide.
    lists = [title for title in titles if title != GPU_NUMA]
    reading.cells.update(zip(lists, cells, strict=False))
    rest = [cell for cell in cells[len(lists) :] if cell]
    if len(rest) > (GPU_NUMA in titles):
        found = " ".join(rest)
        reading.doubts.append(Doubt(column=GPU_NUMA, found=found, expected=f"cells for {_said(titles)} only"))
    elif rest:
        reading.cells[GPU_NUMA] = rest[0]


def _by_order(reading: _Reading, cells: list[str], titles: Sequence[str], cpu_count: int | None) -> None:
    if len(cells) == len(titles):
        reading.cells.update(zip(titles, cells, strict=True))
        return
    rest = list(cells)
    # The GPU's NUMA node is always printed: without it, nobody knows which cells are blank or cut off.
    whole = GPU_NUMA not in titles or not rest or rest.pop() == _MISSING
    if len(cells) > len(titles) or not whole:
        reading.doubts.append(Doubt(column=CPU, found=" ".join(cells), expected=f"cells for {_said(titles)}"))
    elif any(null_reason(cell) is None for cell in rest):
        _cut(reading, " ".join(rest), cpu_count)


def _cut(reading: _Reading, text: str, cpu_count: int | None) -> None:
    """One cell for two columns: glued, or one of them blank. Only the host's CPU count can tell."""
    whole = read_id_list(text)
    if cpu_count is not None and (whole is None or not fits(whole, cpu_count)):
        fitting = [
            (head, tail)
            for head, tail in cuts(text)
            if int(tail) < cpu_count and fits(read_id_list(head) or (), cpu_count)
        ]
        if len(fitting) == 1:
            reading.cells[CPU], reading.cells[NUMA] = fitting[0]
            reading.repairs.append(f"{text!r} read as CPUs {fitting[0][0]} and NUMA node {fitting[0][1]}")
            return
    reading.doubts.append(Doubt(column=CPU, found=repr(text), expected=f"a {CPU} and a {NUMA} cell, not one for both"))


def _list(reading: _Reading, column: str, count: int | None) -> str | None:
    text = reading.cells.get(column, "").strip()
    if null_reason(text) is not None:
        return None
    ids = read_id_list(text)
    if ids is None:
        reading.doubts.append(Doubt(column=column, found=repr(text), expected="a list of numbers, such as 0-15,32-47"))
        return None
    if not fits(ids, count):
        reading.doubts.append(Doubt(column=column, found=repr(text), expected=f"numbers below the host's {count} CPUs"))
        return None
    return text


def _without_glued_missing(cells: Sequence[str]) -> list[str]:
    whole: list[str] = []
    for cell in cells:
        head = cell.removesuffix(_MISSING)
        whole += [head, _MISSING] if head and head != cell else [cell]
    return whole


def _said(titles: Sequence[str]) -> str:
    return ", ".join(titles) if titles else "no column"
