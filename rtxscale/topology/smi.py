"""Topologies and peer-access matrices as nvidia-smi prints them (`topo -m`, `topo -p2p`), as data.

No matrix is never an empty topology: the status is then `unavailable`, with what the tool said. Parsers raise on no
text; what could not be read is listed with its line. Does not run nvidia-smi. Callers: the doctor, `topology.sources`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from re import ASCII
from re import compile as pattern

from rtxscale.errors import Problem
from rtxscale.topology.affinity import Doubt, Placement, place
from rtxscale.topology.links import Link, read_link
from rtxscale.topology.matrix import PEER_LABELS, SELF, Refused, Row, Table, clean_lines, find_tables, is_cut, read_row

TOPOLOGY_COMMAND = "nvidia-smi topo -m"
PEER_COMMAND = "nvidia-smi topo -p2p"
_NIC_COUNT = pattern(r"(\d{1,6}) NICs found in the topology, only displaying (\d{1,6})", ASCII)

# Source: legend of `nvidia-smi topo -p2p`, driver 595.
PEER_MEANINGS: Mapping[str, str] = {
    "X": "the GPU itself",
    "OK": "supported, says the driver",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
    "U": "unknown",
}


class Status(StrEnum):
    """How much of a matrix there is."""

    READ = "read"
    INCOMPLETE = "incomplete"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, kw_only=True)
class Topology:
    """What `topo -m` says; `links` is keyed (row, column), `placements` by GPU.

    `problems` are lines that were not read. `suspects` are values that were left out, or that contradict each other.
    `repairs` says which glued cells were cut by means of the CPU count.
    """

    status: Status
    devices: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    placements: Mapping[str, Placement] = field(default_factory=dict)
    titles: tuple[str, ...] = ()
    nic_names: Mapping[str, str] = field(default_factory=dict)
    nics_found: int | None = None
    nics_shown: int | None = None
    problems: tuple[Problem, ...] = ()
    suspects: tuple[Problem, ...] = ()
    repairs: tuple[str, ...] = ()
    said: str = ""

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs among the devices, in column order."""
        return tuple(name for name in self.devices if name.startswith("GPU"))

    @property
    def nics(self) -> tuple[str, ...]:
        """The network devices among the devices, in column order."""
        return tuple(name for name in self.devices if not name.startswith("GPU"))

    @property
    def rows_missing(self) -> tuple[str, ...]:
        """Devices without a row of their own: the text is cut, or the row could not be read."""
        return tuple(name for name in self.devices if name not in self.rows)

    def link(self, a: str, b: str) -> Link | None:
        """The link of a pair, from either of its rows; None where neither was read."""
        return self.links.get((a, b)) or self.links.get((b, a))


@dataclass(frozen=True, kw_only=True)
class PeerAccess:
    """What `topo -p2p` claims for one capability; `labels` is keyed (row, column). A claim, not a test."""

    status: Status
    capability: str
    gpus: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    labels: Mapping[tuple[str, str], str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    said: str = ""

    def claimed(self, a: str, b: str) -> bool | None:
        """Whether the driver claims peer access in both directions; None where it does not say.

        Data can be wrong or a collective can hang all the same: only a verified transfer is proof.
        """
        labels = {self.labels.get((a, b)), self.labels.get((b, a))}
        if labels == {"OK"}:
            return True
        return False if labels - {"OK", "U", None} else None


@dataclass(frozen=True, kw_only=True)
class _Rows:
    rows: tuple[Row, ...]
    lines: Mapping[str, int]
    problems: tuple[Problem, ...]


def parse_topology(text: str, cpu_count: int | None = None, source: str = TOPOLOGY_COMMAND) -> Topology:
    """The first topology matrix of the text.

    `cpu_count` is the number of CPUs the host can have; with it, CPU and NUMA cells glued together can be cut.
    `source` is how problems name the text.
    """
    tables = [table for table in find_tables(text) if not _is_peer_table(table)]
    if not tables:
        return Topology(status=Status.UNAVAILABLE, said=_said(text))
    table = tables[0]
    read = _read_rows(table, source)
    if not read.rows:
        return Topology(status=Status.UNAVAILABLE, problems=read.problems, said=_said(text))
    links = {key: read_link(label) for key, label in _labels(table, read).items()}
    placements, suspects, repairs = _placements(table, read, cpu_count, source)
    found, shown = _nic_counts(text)
    missing = set(table.names) - {row.name for row in read.rows}
    return Topology(
        status=Status.INCOMPLETE if read.problems or missing else Status.READ,
        devices=table.names,
        rows=tuple(row.name for row in read.rows),
        links=links,
        placements=placements,
        titles=table.titles,
        nic_names=table.nic_names,
        nics_found=found,
        nics_shown=shown,
        problems=read.problems,
        suspects=(*suspects, *_contradictions(links, read, source), *_later_tables(tables, source)),
        repairs=repairs,
    )


def parse_peer_access(text: str, capability: str, source: str = PEER_COMMAND) -> PeerAccess:
    """The first peer-access matrix of the text; the text does not say which capability (`r`, `w`, `rw`, `n`, ...)."""
    table = next((table for table in find_tables(text) if _is_peer_table(table)), None)
    read = None if table is None else _read_rows(table, source)
    if table is None or read is None or not read.rows:
        problems = () if read is None else read.problems
        return PeerAccess(status=Status.UNAVAILABLE, capability=capability, problems=problems, said=_said(text))
    missing = set(table.names) - {row.name for row in read.rows}
    return PeerAccess(
        status=Status.INCOMPLETE if read.problems or missing else Status.READ,
        capability=capability,
        gpus=table.names,
        rows=tuple(row.name for row in read.rows),
        labels=_labels(table, read),
        problems=read.problems,
    )


def _is_peer_table(table: Table) -> bool:
    if table.titles:
        return False
    rows = [read_row(line, table.names) for _, line in table.rows]
    words = {label for row in rows if isinstance(row, Row) for label in row.labels} - {SELF}
    # Without titles and with one GPU there is only an X; `topo -m` has always had the CPU column.
    return bool(words & set(PEER_LABELS)) or (not words and any(isinstance(row, Row) for row in rows))


def _read_rows(table: Table, source: str) -> _Rows:
    rows: dict[str, Row] = {}
    lines: dict[str, int] = {}
    problems: list[Problem] = []
    last = table.names[-1]
    expected = f"a row with {len(table.names)} labels, for {table.names[0]} to {last}"
    for number, line in table.rows:
        row = read_row(line, table.names)
        if isinstance(row, Row) and number == table.unended and is_cut(row):
            row = Refused("the end of the text in its last label, or right behind")
        if isinstance(row, Refused):
            problems.append(Problem(file=source, line=number, path="", found=row.reason, expected=expected))
        elif row.name in rows:
            found = f"a second row, the first is line {lines[row.name]}"
            problems.append(Problem(file=source, line=number, path=row.name, found=found, expected="one row a device"))
        else:
            rows[row.name], lines[row.name] = row, number
    return _Rows(rows=tuple(rows.values()), lines=lines, problems=tuple(problems))


def _labels(table: Table, read: _Rows) -> dict[tuple[str, str], str]:
    return {
        (row.name, column): label
        for row in read.rows
        for column, label in zip(table.names, row.labels, strict=True)
        if column != row.name
    }


def _placements(
    table: Table, read: _Rows, cpu_count: int | None, source: str
) -> tuple[dict[str, Placement], list[Problem], tuple[str, ...]]:
    placements: dict[str, Placement] = {}
    suspects: list[Problem] = []
    repairs: list[str] = []
    for row in read.rows:
        if not row.name.startswith("GPU"):
            continue
        placement, doubts, mended = place(row.behind, table.titles, cpu_count, by_position=row.by_position)
        placements[row.name] = placement
        suspects += [_suspect(doubt, row.name, read.lines[row.name], source) for doubt in doubts]
        repairs += [f"line {read.lines[row.name]}: {row.name}: {what}" for what in mended]
    return placements, suspects, tuple(repairs)


def _suspect(doubt: Doubt, name: str, line: int, source: str) -> Problem:
    path = f"{name}, {doubt.column}"
    return Problem(file=source, line=line, path=path, found=doubt.found, expected=doubt.expected)


def _contradictions(links: Mapping[tuple[str, str], Link], read: _Rows, source: str) -> list[Problem]:
    """Pairs whose two rows say different things."""
    return [
        Problem(
            file=source,
            line=read.lines[b],
            path=f"{b} to {a}",
            found=links[b, a].label,
            expected=f"{link.label}, as in line {read.lines[a]}",
        )
        for (a, b), link in links.items()
        if (b, a) in links and read.lines[a] < read.lines[b] and links[b, a] != link
    ]


def _later_tables(tables: list[Table], source: str) -> list[Problem]:
    return [
        Problem(file=source, line=table.line, path="", found="another matrix", expected="one machine in one text")
        for table in tables[1:]
    ]


def _nic_counts(text: str) -> tuple[int | None, int | None]:
    match = next((match for _, line in clean_lines(text) if (match := _NIC_COUNT.search(line))), None)
    return (int(match[1]), int(match[2])) if match else (None, None)


def _said(text: str) -> str:
    return "\n".join(line for _, line in clean_lines(text)).strip()
