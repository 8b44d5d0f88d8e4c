"""The dossier as Markdown: the checklist for readers, made from the same data as `dossier.json`.

Text that did not come from rtxscale stands in code spans, where no renderer finds markup, links, mentions or HTML.
Pure; called by `dossier.pack`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rtxscale.report.dossier.lines import PARTS
from rtxscale.report.numbers import short
from rtxscale.results.outcomes import SIMULATED

TEXT = 600
"""Most characters of a value; `dossier.json` has it whole."""
MISSING = 12
"""Most missing lines listed at the top."""
TITLES = {
    "platform": "Platform",
    "software": "Software",
    "workload": "Workload",
    "distribution": "Topology and distribution",
    "conditions": "Clocks, power and cooling",
    "method": "Method",
    "results": "Results",
    "sanity": "Sanity signals",
    "record": "Record",
}


def markdown(dossier: dict[str, Any]) -> str:
    """The whole dossier."""
    return "\n".join(_lines(dossier)) + "\n"


def code(text: str, limit: int = TEXT) -> str:
    r"""Any text as one code span that is safe in a table, whatever is in it.

    A vertical bar, which would end the cell, is shown as a broken bar.

    >>> print(code("a|b <b>x</b>"), code("tick ` and ``"))
    `a¦b <b>x</b>` ``` tick ` and `` ```
    """
    line = short(text, limit).replace("|", "¦") or " "
    runs = [len(run) for run in re.findall(r"`+", line)]
    fence = "`" * (max(runs, default=0) + 1)
    room = " " if runs else ""
    return f"{fence}{room}{line}{room}{fence}"


def _lines(dossier: dict[str, Any]) -> Iterator[str]:
    run, score = dossier["run"], dossier["completeness"]
    by_id = {line["id"]: line for line in dossier["lines"]}
    yield f"# Dossier of {code(run['run_id'])}"
    yield ""
    if dossier["conclusions"].get("device") == SIMULATED:
        yield "**Simulated: no number in this dossier was measured. They come from a planted law.**"
        yield ""
    yield f"{code(run['question'])}"
    yield ""
    yield f"{code(dossier['conclusions']['headline'])}"
    yield ""
    yield f"Written {dossier['written']} by {dossier['written_by']}, dossier schema {dossier['schema_version']}."
    yield "Redacted: private names, paths and addresses are replaced." if dossier["redacted"] else "Not redacted."
    yield "Every file's SHA-256 is in `SHA256SUMS`; `rtxscale dossier --verify` checks them."
    yield ""
    yield "## Completeness"
    yield ""
    yield (
        f"{score['with_value']} of {score['of']} lines that apply have a value; {score['not_applicable']} do not apply."
    )
    if score["missing"]:
        yield ""
        yield "Missing, the most useful first:"
        yield ""
        yield from (f"- {code(name)}: {by_id[name]['text']}" for name in score["missing"][:MISSING])
        if len(score["missing"]) > MISSING:
            yield f"- and {len(score['missing']) - MISSING} more"
    yield from _remarks("Remarks on this dossier", dossier["remarks"])
    yield from _remarks("Remarks on the run", dossier["conclusions"].get("remarks", []))
    for part in PARTS:
        yield from _part(part, [line for line in dossier["lines"] if line["id"].startswith(f"{part}.")])


def _remarks(title: str, remarks: list[str]) -> Iterator[str]:
    if remarks:
        yield ""
        yield f"## {title}"
        yield ""
        yield from (f"- {code(remark)}" for remark in remarks)


def _part(part: str, lines: list[dict[str, Any]]) -> Iterator[str]:
    yield ""
    yield f"## {TITLES[part]}"
    yield ""
    yield "| line | value | declared by | where |"
    yield "|---|---|---|---|"
    for line in lines:
        value = "; ".join(
            [code(line["value"]), *(f"{other['declared_by']}: {code(other['value'])}" for other in line["also"])]
        )
        requirements = ", ".join(line["requirements"])
        yield f"| {line['text']} ({requirements}) | {value} | {line['declared_by']} | {code(line['where'])} |"
