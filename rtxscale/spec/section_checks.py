"""What pydantic cannot see within one section of a sweep: fields that need or exclude each other.

Works on the plain data of a document, valid or not, and adds its problems to it. Called by `spec.checks`.
"""

from __future__ import annotations

from rtxscale.spec.document import Document, Path, shorten
from rtxscale.spec.fields import KINDS, is_option
from rtxscale.spec.phrases import alternatives, found_value
from rtxscale.spec.wall_power import FIELDS_OF, WallPower

DISTINCT = ("lora_targets", "operations", "sizes_mib")
"""Lists of which each item is one thing to do."""


def check_sections(document: Document) -> None:
    """Add every problem of lists, script, collectives, language, nodes, hardware and wall power."""
    check_lists(document)
    check_script(document)
    check_collectives(document)
    check_language(document)
    check_nodes(document)
    check_hardware(document)
    check_wall_power(document)


def workload_kind(document: Document) -> str | None:
    """The workload's kind, or None when it is not a known one."""
    kind = document.at(("workload", "kind"))
    return kind if isinstance(kind, str) and kind in KINDS else None


def check_lists(document: Document) -> None:
    """What is done for each item is not asked for twice."""
    for place in ((section, name) for section in ("workload", "collectives") for name in DISTINCT):
        items = document.at(place)
        for index, item in enumerate(items if isinstance(items, list) else []):
            if item in items[:index]:
                found = f"{found_value(item, document.marks.get((*place, index)))} again"
                document.report((*place, index), found, "each item of the list once")


def check_script(document: Document) -> None:
    """One way into the user's code, options with usable names, and work per step where every step has that much."""
    if workload_kind(document) != "script":
        return
    place: Path = ("workload",)
    ways = [name for name in ("entry", "path") if _given(document, name)]
    if len(ways) != 1:
        found = "both entry and path" if ways else "neither entry nor path"
        expected = "one of them: entry: package.module:function, or path: train.py"
        document.report(place, found, expected, line=key_line(document, place))
    if document.at((*place, "arguments")) and "path" not in ways:
        document.report((*place, "arguments"), "arguments without a path", "options, which a function finds in its job")
    options = document.at((*place, "options"))
    for name in options if isinstance(options, dict) else []:
        if not is_option(name):
            expected = "a name of letters, digits and underscores that settings have no use for themselves"
            where: Path = (*place, "options", name)
            document.report(where, f"the option {shorten(name)}", expected, line=key_line(document, where))
    varied = document.at(("study",)) != "weak" or document.at(("axes", "workload.batch_per_gpu")) is not None
    if varied and document.at((*place, "work_per_step")) is not None:
        expected = "what the code itself says of each step: a fixed number is wrong for all batches but one"
        document.report((*place, "work_per_step"), "one work_per_step for several batches", expected)


def check_collectives(document: Document) -> None:
    """Buckets say themselves which messages are sent: all-reduces of fp32 gradients."""
    if workload_kind(document) != "collectives" or not _given(document, "buckets_of"):
        return
    for name in ("operations", "sizes_mib", "precision"):
        axis: Path = ("axes", f"workload.{name}")
        place: Path = axis if document.at(axis) is not None else ("workload", name)
        if document.at(place) is not None:
            expected = "one of the two: buckets are all-reduces of fp32 gradients, in sizes of their own"
            document.report(place, f"{name} together with buckets_of", expected, line=key_line(document, place))


def check_language(document: Document) -> None:
    """A model has a named size or is one's own."""
    if workload_kind(document) != "language" or not (_given(document, "path") and _given(document, "size")):
        return
    axis: Path = ("axes", "workload.size")
    place: Path = axis if document.at(axis) is not None else ("workload", "size")
    expected = "one of the two: a named shape, or the directory of a model"
    document.report(place, "size together with path", expected, line=key_line(document, place))


def check_wall_power(document: Document) -> None:
    """Each source of wall power has the fields that it needs, and none of another's."""
    meter = document.at(("wall_power",))
    source = meter.get("source") if isinstance(meter, dict) else None
    if source not in FIELDS_OF:
        return
    needed, allowed = FIELDS_OF[source]
    for name in needed:
        if not meter.get(name):
            document.report(("wall_power", name), "nothing", f"wall_power.{name}, which source: {source} needs")
    for name in meter:
        if name not in ("source", "period_s", *needed, *allowed) and name in WallPower.model_fields:
            document.report(("wall_power", name), f"wall_power.{name}", f"a field that source: {source} has a use for")


def check_nodes(document: Document) -> None:
    """Two of gpus, nodes and gpus_per_node give the third; fixed ones agree; `plan.rules` looks at points of axes."""
    names = ("gpus", "nodes", "gpus_per_node")
    given = [name for name in names if document.at((name,)) is not None or document.at(("axes", name)) is not None]
    shape = [name for name in given if name != "gpus"]
    if len(given) == 1 and shape:
        missing = alternatives([name for name in names if name not in given])
        place: Path = (shape[0],) if document.at((shape[0],)) is not None else ("axes", shape[0])
        expected = f"{missing} beside it, fixed or as an axis: two of the three give the third"
        document.report(place, f"{shape[0]} alone", expected, line=key_line(document, place))
    gpus, nodes, each = (document.at((name,)) for name in names)
    if all(type(number) is int and number > 0 for number in (gpus, nodes, each)) and gpus != nodes * each:
        expected = f"gpus: {nodes * each}, or no gpus: it is nodes times gpus_per_node"
        document.report(("gpus",), f"gpus: {gpus} with {nodes} nodes of {each}", expected)


def check_hardware(document: Document) -> None:
    """A sweep for the CPU asks for no GPUs."""
    place: Path = ("hardware", "min_gpus")
    if document.at(("hardware", "device")) == "cpu" and document.at(place) is not None:
        document.report(place, "min_gpus together with device: cpu", "one of the two")


def _given(document: Document, name: str) -> bool:
    """Whether a field of the workload is given, fixed or as an axis."""
    return bool(document.at(("workload", name))) or document.at(("axes", f"workload.{name}")) is not None


def key_line(document: Document, path: Path) -> int | None:
    """Line of the key at a path; None where the file has none."""
    mark = document.marks.get(path)
    return None if mark is None else mark.key_line
