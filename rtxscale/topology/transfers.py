"""Matrices of measured bandwidth and latency, as the CUDA sample p2pBandwidthLatencyTest prints them.

Not a measurement of ours: it is what people paste, and what expected values are compared with. Caller: the doctor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rtxscale.errors import Problem
from rtxscale.topology.matrix import clean_lines

SAMPLE = "p2pBandwidthLatencyTest"
_TITLE = re.compile(r"\s*(\S.{0,120}\bMatrix)(?:\s+\(([\w/]{1,10})\))?\s*", re.ASCII)
_HEADER = re.compile(r"\s*(D\\D|GPU|CPU)((?:\s+\d{1,3})+)\s*", re.ASCII)
_ROW = re.compile(r"\s*(\d{1,3})((?:\s+\d{1,9}(?:\.\d{1,9})?)+)\s*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class TransferMatrix:
    r"""One matrix: its title, its unit (`GB/s` or `us`), who timed it (`D\D`, `GPU` or `CPU`), values by (from, to).

    `peer_access` is what the title says of P2P, None where it does not.
    """

    title: str
    unit: str
    timed_by: str
    values: Mapping[tuple[int, int], float]
    problems: tuple[Problem, ...] = ()

    @property
    def peer_access(self) -> bool | None:
        """Whether the transfers were made with peer access."""
        if "P2P=Enabled" in self.title:
            return True
        return False if "P2P=Disabled" in self.title else None

    def worst_pair(self) -> tuple[int, int] | None:
        """The pair of different GPUs with the lowest bandwidth, or the highest latency; None without such a pair."""
        pairs = [pair for pair in self.values if pair[0] != pair[1]]
        if self.unit == "us":
            return max(pairs, key=lambda pair: self.values[pair], default=None)
        return min(pairs, key=lambda pair: self.values[pair], default=None)


@dataclass(kw_only=True)
class _Draft:
    timed_by: str
    columns: list[int]
    title: str
    unit: str
    values: dict[tuple[int, int], float] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def parse_transfers(text: str, source: str = SAMPLE) -> tuple[TransferMatrix, ...]:
    """Every matrix of the text in order; never raises. A row with too few or too many values is a problem."""
    drafts: list[_Draft] = []
    title, unit, in_matrix = "", "", False
    for number, line in clean_lines(text):
        if match := _TITLE.fullmatch(line):
            title, unit, in_matrix = match[1], match[2] or "", False
        elif match := _HEADER.fullmatch(line):
            columns = [int(word) for word in match[2].split()]
            drafts.append(_Draft(timed_by=match[1], columns=columns, title=title, unit=unit))
            in_matrix = True
        elif in_matrix and (match := _ROW.fullmatch(line)):
            _add_row(drafts[-1], number, int(match[1]), match[2].split(), source)
    return tuple(
        TransferMatrix(
            title=draft.title,
            unit=draft.unit,
            timed_by=draft.timed_by,
            values=draft.values,
            problems=tuple(draft.problems),
        )
        for draft in drafts
    )


def _add_row(draft: _Draft, line: int, device: int, cells: list[str], source: str) -> None:
    if len(cells) != len(draft.columns):
        found, expected = f"{len(cells)} values", f"{len(draft.columns)}, one for each GPU of the header"
        draft.problems.append(Problem(file=source, line=line, path=draft.title, found=found, expected=expected))
        return
    draft.values |= {(device, column): float(cell) for column, cell in zip(draft.columns, cells, strict=True)}
