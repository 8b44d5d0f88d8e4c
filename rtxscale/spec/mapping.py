"""How somebody's own table of results is read: which of their columns is which of ours, and what holds for every row.

A small YAML file beside the table; without one, common column names are known. Called by `results.imports.run` and
`cli.import_results`.

    rows: sessions                      # rows of equal settings are independent runs; repeats: of one session (default)
    columns: {gpus: ranks, throughput_per_s: images_per_s, nccl.algorithm: algo}
    constants: {batch_per_gpu: 64, work_unit: image, workload.kind: vision, workload.model: resnet50}
    outcomes: {FINISHED: ok, ERROR: crashed}
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rtxscale.errors import SpecError
from rtxscale.spec.document import Document, parse_document
from rtxscale.spec.load import read_text
from rtxscale.spec.phrases import expected_value, found_value, hint, nearest
from rtxscale.spec.section import Section
from rtxscale.spec.sweep import Name, Scalar, Study

FIELDS: dict[str, tuple[str, ...]] = {
    "gpus": ("n_gpus", "ngpus", "num_gpus", "gpu_count", "world_size", "workers", "ranks", "clients"),
    "throughput_per_s": (
        "throughput",
        "samples_per_s",
        "images_per_s",
        "tokens_per_s",
        "items_per_s",
        "samples_per_sec",
    ),
    "steps_per_s": ("iterations_per_s", "it_per_s", "steps_per_sec"),
    "step_time_s": ("step_s", "seconds_per_step"),
    "efficiency": ("weak_efficiency",),
    "base_throughput_per_s": (),
    "batch_per_gpu": ("per_gpu_batch", "batch_size_per_gpu", "local_batch", "micro_batch"),
    "global_batch": ("total_batch", "global_batch_size"),
    "trial": ("trial_id", "run_id", "id"),
    "visit": ("session", "run"),
    "repeat": ("replicate",),
    "slot": (),
    "outcome": ("status", "state"),
    "message": ("error",),
    "workload": ("model", "benchmark"),
    "work_unit": ("unit",),
    "precision": ("dtype",),
    "device": (),
    "device_name": ("gpu", "gpu_name", "card"),
    "loss_last": ("loss", "final_loss"),
    "power_w": ("watts", "power"),
    "energy_j": ("joules", "energy"),
    "sm_clock_mhz": ("clock_mhz",),
    "temperature_max_c": ("temperature_c",),
    "memory_peak_mib": ("peak_memory_mib",),
    "window_s": ("seconds", "duration_s"),
    "operation": (),
}
"""What a table can hold, and the names by which each is known without a mapping."""

SETTINGS = ("workload.", "nccl.", "ddp.")
"""Dotted paths of a cell's settings may be mapped as well, such as `nccl.algorithm`."""

EXPECTED = "a mapping with any of rows, columns, constants, outcomes, study, question and name"


class ImportMapping(Section):
    """One mapping file."""

    name: Name | None = Field(None, description="Name of the run: letters, digits, dots, underscores, hyphens.")
    question: str | None = Field(None, min_length=1, max_length=1000, pattern=r"\S", description="What was asked.")
    study: Study = Field("both", description="weak, strong or both; curves are only made where the data has them.")
    rows: Literal["repeats", "sessions"] = Field(
        "repeats", description="Whether rows of equal settings are repeats of one session or independent sessions."
    )
    columns: dict[str, str] = Field({}, description="Our field -> the name of their column.")
    constants: dict[str, Scalar] = Field({}, description="Our field -> a value that holds for every row.")
    outcomes: dict[str, Literal["ok", "crashed", "oom", "diverged", "hang", "cancelled"]] = Field(
        {}, description="Their word for how a run ended -> ours."
    )


def load_mapping(path: Path) -> ImportMapping:
    """Read and validate a mapping.

    Raises:
        SpecError: the file cannot be read or is wrong; holds every problem, in file order.
    """
    return parse_mapping(read_text(path, "a mapping"), str(path))


def parse_mapping(text: str, file: str) -> ImportMapping:
    """Validate the text of a mapping; `file` is its name in messages.

    Raises:
        SpecError: with every problem, in file order.
    """
    document = parse_document(text, file, EXPECTED)
    if isinstance(document.data, dict):
        mapping = _validated(document)
        if mapping is not None:
            _check_fields(document, mapping)
        if mapping is not None and not document.problems:
            return mapping
    elif not document.problems:
        document.report((), found_value(document.data, document.marks.get(())), EXPECTED, line=1)
    raise SpecError(sorted(document.problems, key=lambda problem: problem.line or 0))


def is_field(name: str) -> bool:
    """Whether a table can hold it.

    >>> is_field("gpus"), is_field("nccl.algorithm"), is_field("gpu")
    (True, True, False)
    """
    return name in FIELDS or name.startswith(SETTINGS)


def _validated(document: Document) -> ImportMapping | None:
    try:
        return ImportMapping.model_validate(document.data)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_context=False, include_input=False):
            path = fault["loc"]
            while path and path not in document.marks:
                path = path[:-1]
            info = ImportMapping.model_fields.get(str(path[0])) if path else None
            expected = EXPECTED if info is None else expected_value(info.annotation, info)
            if len(path) == 2:
                expected = "text, a number, true or false" if path[0] == "constants" else "text"
                expected = "ok, crashed, oom, diverged, hang or cancelled" if path[0] == "outcomes" else expected
            value, mark = document.at(path), document.marks.get(path)
            found = f"the key {path[-1]}" if fault["type"] == "extra_forbidden" else found_value(value, mark)
            document.report(path, found, expected + hint(value, mark, expected))
    return None


def _check_fields(document: Document, mapping: ImportMapping) -> None:
    for section, names in (("columns", mapping.columns), ("constants", mapping.constants)):
        for name in names:
            if not is_field(name):
                close = nearest(name, list(FIELDS))
                known = (
                    f"the nearest is {close}" if close else f"one of {', '.join(FIELDS)}, or a setting like nccl.p2p"
                )
                document.report((section, name), f"the field {name}", f"a known field: {known}")
            elif section == "constants" and name in mapping.columns:
                document.report((section, name), f"the field {name} again", "each field once, as column or constant")
