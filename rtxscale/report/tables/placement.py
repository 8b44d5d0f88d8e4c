"""Where GPUs sit and what that costs, as small tables of text, shared by the terminal and the page.

Penalties of placements against the closest one, and the efficiency of several machines split into what is lost in a
node and what between nodes. Called by `tables.meaning`.
"""

from __future__ import annotations

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.numbers import NOTHING, interval, percent
from rtxscale.report.tables.conclusions import Table

FEW = 12
ROWS = 200
"""Most rows of a table on the page."""


def placement_table(conclusions: Conclusions, workers: str, *, brief: bool = False) -> Table | None:
    """Throughput of each placement over that of the closest; None where there was only one."""
    placements = conclusions.placements
    shown = placements.head(FEW if brief else ROWS)
    if shown.is_empty():
        return None
    columns = (workers, "placement", *(() if brief else ("links",)), "against", "ratio", "penalty", "verdict")
    rows = [
        (
            str(row["gpus"]),
            row["placement"],
            *(() if brief else (_links(row["link_class"]),)),
            row["reference"] if brief else f"{row['reference']} ({_links(row['reference_class'])})",
            interval(row["ratio"], row["ratio_low"], row["ratio_high"]),
            percent(row["penalty"]),
            row["verdict"] or NOTHING,
        )
        for row in shown.iter_rows(named=True)
    ]
    left_out = placements.height - shown.height
    note = f"{left_out} more: rtxscale show --csv placements" if left_out else ""
    return Table(
        key="placements",
        title="What a placement costs against the closest GPUs",
        columns=columns,
        rows=rows,
        right=frozenset({workers, "ratio", "penalty"}),
        note=note,
    )


def node_table(conclusions: Conclusions, workers: str, *, brief: bool = False) -> Table | None:
    """Efficiency within a node and across nodes; None where no cell on several nodes has its like on one."""
    nodes = conclusions.nodes
    kept = nodes.filter("is_default") if brief else nodes
    shown = kept.head(FEW if brief else ROWS)
    if shown.is_empty():
        return None
    counts = () if brief else (workers,)  # nodes of so many say it too
    columns = ("curve", *counts, "nodes", "in a node", "across nodes", "together")
    rows = [
        (
            row["curve"] if brief else f"{row['curve']}, {row['series']}",
            *(str(row["gpus"]) for _ in counts),
            f"{row['nodes']} of {row['gpus_per_node']}",
            interval(row["within"], row["within_low"], row["within_high"], least=2),
            interval(row["across"], row["across_low"], row["across_high"], least=2),
            interval(row["efficiency"], None, None, least=2),
        )
        for row in shown.iter_rows(named=True)
    ]
    left_out = nodes.height - shown.height
    return Table(
        key="nodes",
        title="Efficiency in a node and across nodes",
        columns=columns,
        rows=rows,
        right=frozenset(columns[1:]),
        note=f"{left_out} more: rtxscale show --csv nodes" if left_out else "",
    )


def placement_tables(conclusions: Conclusions, workers: str, *, brief: bool = False) -> list[Table]:
    """Both tables, where they have rows."""
    made = (placement_table(conclusions, workers, brief=brief), node_table(conclusions, workers, brief=brief))
    return [table for table in made if table is not None]


def _links(link_class: str | None) -> str:
    return "links not known" if link_class is None else link_class.replace("_", " ")
