"""What a dossier must say, as data: one line per fact that the playbook asks of a publication, and where it comes from.

A line's sources are asked in order; the first that knows is the value. What no source knows is `unknown`, what cannot
be is `not applicable`, and both are said. The sources are in `dossier.facts`; `dossier.record` fills the lines.
Requirement numbers are the playbook's.
"""

from __future__ import annotations

from rtxscale.report.dossier.line import KINDS, PARTS, Line, Source
from rtxscale.report.dossier.machine_lines import PLATFORM, SOFTWARE, WORKLOAD
from rtxscale.report.dossier.run_lines import CONDITIONS, DISTRIBUTION, METHOD, RECORD, RESULTS, SANITY

__all__ = ("KINDS", "LINES", "PARTS", "REQUIRED", "Line", "Source")


REQUIRED = ("P1", *(f"P{number}" for number in (*range(9, 14), *range(24, 33))))
"""Requirements of which every dossier has at least one line each."""

LINES = (*PLATFORM, *SOFTWARE, *WORKLOAD, *DISTRIBUTION, *CONDITIONS, *METHOD, *RESULTS, *SANITY, *RECORD)
"""Every line, in the order of the dossier."""
