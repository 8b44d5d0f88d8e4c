"""Which implementation runs which `workload.kind`.

Callers: `rank.trial`, and `run.host` and `cli.looked_up` for what only libraries and files know, such as names. A kind
that the spec knows must have a line here, as a test sees to; all but `simulated`, which no rank runs
(`run.simulated_session`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from rtxscale.spec.cell import Cell
from rtxscale.spec.workload import CollectivesWorkload, DiffusionWorkload, LanguageWorkload, VisionWorkload
from rtxscale.spec.workload import Workload as Declared
from rtxscale.workloads import inputs
from rtxscale.workloads.diffusion import Diffusion
from rtxscale.workloads.language import Language
from rtxscale.workloads.links.bucket_sizes import unknown_source
from rtxscale.workloads.links.collectives import Collectives
from rtxscale.workloads.networks import adapters, attention, float8, local_decoder, quantisation, unet
from rtxscale.workloads.networks.attention import FLASH_2
from rtxscale.workloads.networks.timm_models import cannot_checkpoint, unknown_model
from rtxscale.workloads.protocol import Workload
from rtxscale.workloads.scripts.script import Script
from rtxscale.workloads.vision import Vision

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
    libraries = {one.fp8_library for one in asked if isinstance(one, LanguageWorkload) and one.precision == "fp8"}
    found.extend(missing for library in sorted(libraries) if (missing := float8.missing_library(library)))
    packaged = any(isinstance(workload, LanguageWorkload) and workload.attention == FLASH_2 for workload in asked)
    if packaged and (missing := attention.missing_library()):
        found.append(missing)
    sources = dict.fromkeys(one.buckets_of for one in asked if isinstance(one, CollectivesWorkload) and one.buckets_of)
    found.extend(complaint for name in sources if (complaint := unknown_source(name)))
    found.extend(dict.fromkeys(_of_files(workload, Path(directory)) for workload in asked))
    return [complaint for complaint in found if complaint]


def _of_files(workload: Declared, base: Path) -> str:
    """What is wrong with the files of a workload: first what their headers say, then what libraries do."""
    found = inputs.complaint(workload, base)
    return found or (local_decoder.complaint(workload, base) if isinstance(workload, LanguageWorkload) else "")


def main() -> int:
    """Read workloads and a sweep file's directory as JSON from standard input; print the complaints as a JSON list."""
    asked = json.load(sys.stdin)
    workloads = [Cell.model_validate_json(json.dumps({"workload": one})).workload for one in asked["workloads"]]
    print(json.dumps(complaints(workloads, asked["directory"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
