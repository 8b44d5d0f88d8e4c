"""Whether what a workload names on disk can be trained on: its data, and a model of one's own.

Reads names, sizes and headers, and imports neither torch nor a decoder of images: so a wrong path is found before
anything runs. Code of one's own is looked at by `files.script`. Callers: `registry`, and `cli.plan` for a sweep that is
planned where it will run.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from rtxscale.models.shapes import SIZES
from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.script import ScriptWorkload
from rtxscale.spec.workload import DiffusionWorkload, LanguageWorkload, VisionWorkload, names_files
from rtxscale.spec.workload import Workload as Declared
from rtxscale.workloads.files import script as script_file
from rtxscale.workloads.files.data import DataError, classes_of, image_root, outside_vocabulary, tokens_of
from rtxscale.workloads.files.latents import latent_files
from rtxscale.workloads.files.model import local_model
from rtxscale.workloads.files.script import DIRECTORY_VARIABLE

DIGITS_MISSING = "workload.data: found digits, which needs scikit-learn; install it with pip install 'rtxscale[data]'"


def complaint(workload: Declared, base: Path) -> str:
    """What is wrong with the files that a workload names; empty where nothing is. `base` is the sweep file's directory.

    Looks at names, sizes and headers, not at every byte.
    """
    if isinstance(workload, ScriptWorkload):
        return script_file.complaint(workload, base)
    try:
        if isinstance(workload, VisionWorkload):
            _look_at_images(workload, base)
        elif isinstance(workload, LanguageWorkload):
            _look_at_tokens(workload, base)
        elif isinstance(workload, DiffusionWorkload) and workload.data == "latents":
            latent_files(workload, base)
    except (DataError, OSError, ValueError) as error:
        return str(error) if isinstance(error, DataError) else f"{_named(workload)}: cannot be read ({error})"
    return ""


def _look_at_images(workload: VisionWorkload, base: Path) -> None:
    if workload.data == "digits" and importlib.util.find_spec("sklearn") is None:
        raise DataError(DIGITS_MISSING)
    known = len(classes_of(image_root(workload, base))) if workload.data == "images" else 10
    if workload.data in ("images", "digits") and workload.classes < known:
        raise DataError(
            f"workload.classes: found {workload.classes}, and {known} classes in the data; expected at least {known}"
        )


def attest_directory(workload: Declared) -> tuple[Attested, ...]:
    """Where the sweep file lies, beside which files were found; nothing for a workload that needs none."""
    if not names_files(workload):
        return ()
    row = Attested(
        subject="workload.directory",
        requested=getattr(workload, "directory", "."),
        observed=os.environ.get(DIRECTORY_VARIABLE),
        verdict=Verdict.HONOURED,
        evidence=f"{DIRECTORY_VARIABLE}, the sweep file's directory",
    )
    return (row,)


def _named(workload: Declared) -> str:
    """The field that a workload's files are named by."""
    return "workload.data_path" if getattr(workload, "data_path", "") else "workload.path"


def _look_at_tokens(workload: LanguageWorkload, base: Path) -> None:
    model = local_model(workload, base) if workload.path else None
    if workload.data in ("resident", "synthetic"):
        return
    found = tokens_of(workload, base)
    if found.size <= 10 * workload.context:
        raise DataError(
            f"workload.data: found {found.size:,} tokens; expected more than ten sequences of {workload.context:,}, "
            "one of which is held out; use a shorter context or more data"
        )
    vocab = SIZES[workload.size].vocab if model is None else model.vocab
    if wrong := outside_vocabulary(found[: 1 << 20], vocab):
        raise DataError(f"{wrong} in {workload.label}; expected tokens from 0 to {vocab - 1:,}")
