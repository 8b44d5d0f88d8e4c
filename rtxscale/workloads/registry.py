"""Which implementation runs which `workload.kind`.

Callers: `rank.trial`, and `run.host` for what only libraries and files know, such as model names. A kind that the spec
knows must have a line here, as a test sees to; all but `simulated`, which no rank runs (`run.simulated_session`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rtxscale.spec.workload import DiffusionWorkload, LanguageWorkload, ScriptWorkload, VisionWorkload
from rtxscale.spec.workload import Workload as Declared
from rtxscale.workloads import adapters, data_files, float8, quantisation, script_file, unet
from rtxscale.workloads.collectives import Collectives
from rtxscale.workloads.diffusion import Diffusion
from rtxscale.workloads.language import Language
from rtxscale.workloads.protocol import Workload
from rtxscale.workloads.script import Script
from rtxscale.workloads.vision import Vision, cannot_checkpoint, unknown_model

IMPLEMENTATIONS: dict[str, Workload] = {
    "vision": Vision(),
    "language": Language(),
    "diffusion": Diffusion(),
    "script": Script(),
    "collectives": Collectives(),
}


def complaints(workloads: Iterable[Declared], directory: str = "") -> list[str]:
    """What is known to be wrong with these workloads, one sentence each; empty when all can be built.

    `directory` is the sweep file's: what a script's paths are relative to.
    """
    asked = list(workloads)
    models = dict.fromkeys(workload.model for workload in asked if isinstance(workload, VisionWorkload))
    found = [complaint for model in models if (complaint := unknown_model(model))]
    recomputed = dict.fromkeys(
        workload.model
        for workload in asked
        if isinstance(workload, VisionWorkload) and workload.checkpointing == "on" and not unknown_model(workload.model)
    )
    found.extend(complaint for model in recomputed if (complaint := cannot_checkpoint(model)))
    if any(isinstance(workload, DiffusionWorkload) for workload in asked) and (missing := unet.missing_library()):
        found.append(missing)
    adapted = any(isinstance(workload, LanguageWorkload) and workload.tuning != "full" for workload in asked)
    if adapted and (missing := adapters.missing_library()):
        found.append(missing)
    quantised = any(isinstance(workload, LanguageWorkload) and workload.tuning == "qlora" for workload in asked)
    if quantised and (missing := quantisation.missing_library()):
        found.append(missing)
    if any(workload.precision == "fp8" for workload in asked) and (missing := float8.missing_library()):
        found.append(missing)
    scripts = [workload for workload in asked if isinstance(workload, ScriptWorkload)]
    found.extend(dict.fromkeys(script_file.complaint(workload, Path(directory)) for workload in scripts))
    found.extend(dict.fromkeys(data_files.complaint(workload, Path(directory)) for workload in asked))
    return [complaint for complaint in found if complaint]
