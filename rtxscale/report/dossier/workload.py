"""Lines of a dossier about the workload: what each kind does whatever the sweep says, and what was chosen.

One function a line, from `Facts` to an answer; None where the run does not say. Called by `dossier.record`.
"""

from __future__ import annotations

from rtxscale.report.dossier import training_data
from rtxscale.report.dossier.derived import Derived, software
from rtxscale.report.dossier.facts import (
    DOCUMENTED,
    Answer,
    Facts,
    distinct,
    documented,
    from_attestation,
    measured,
    not_applicable,
)
from rtxscale.spec.training import Learning
from rtxscale.spec.workload import VisionWorkload


def model_code(facts: Facts) -> Answer | None:
    """The libraries that hold the models."""
    names = {"vision": "timm", "language": "transformers", "diffusion": "diffusers"}
    used = [names[kind] for kind in sorted(facts.kinds & names.keys())]
    versions = {name: software(facts, name) for name in used}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    if facts.kinds == {"collectives"}:
        return not_applicable("only collectives were timed")
    own = from_attestation(facts, "workload.model")
    known += [f"own models: {own.value}"] if own else []
    return measured(", ".join(known), "environment: software") if known else None


TRAINED = ("vision", "language", "diffusion")
SIMULATED = "none: numbers from a planted law, nothing is trained"
DOCUMENTED_BY_KIND = {
    "dataset": {
        "vision": "resident: random images that stay on the device",
        "language": "resident: random tokens that stay on the device",
        "diffusion": "resident: random latents and prompts that stay on the device",
        "simulated": SIMULATED,
    },
    "optimizer": {
        "vision": "SGD, momentum 0.9, or AdamW; learning rate 0.01 or 0.001 unless the sweep says otherwise",
        "language": "AdamW, betas 0.9 and 0.95, weight decay 0.1, learning rate 0.0003",
        "diffusion": "AdamW, weight decay 0.01, learning rate 1e-05",
        "simulated": SIMULATED,
    },
    "scheduler": {
        "diffusion": "DDPM, 1000 steps, scaled linear betas 0.00085 to 0.012, times drawn uniformly, noise predicted "
        "(epsilon), loss not weighted"
    },
    "schedule": {**dict.fromkeys(TRAINED, "constant learning rate"), "simulated": SIMULATED},
    "loader": {**dict.fromkeys(TRAINED, "none: the data stay on the device"), "simulated": SIMULATED},
    "training": {
        **dict.fromkeys((*TRAINED, "script"), "training"),
        "collectives": "neither: only collectives were timed",
        "simulated": "neither: numbers from a planted law, nothing was measured",
    },
}
"""What a kind of workload does whatever the sweep says; a test compares the constants with the workloads'."""
DOES_NOT_APPLY_BY_KIND = {
    "dataset_version": dict.fromkeys(TRAINED, "random data have no version"),
    "tokenizer": {"language": "random tokens need none"},
    "augmentations": {
        "vision": "random images have none",
        "language": "tokens have none",
        "diffusion": "random latents have none",
    },
    "pinned": dict.fromkeys(TRAINED, "the data stay on the device"),
    "no_target": {
        **dict.fromkeys(TRAINED, "random data have no target to reach"),
        "collectives": "only collectives were timed",
    },
    "no_sharding": {
        **dict.fromkeys(("vision", "diffusion"), "whole model on each GPU"),
        "collectives": "only collectives were timed",
    },
}


def _documented_by_kind(name: str) -> Derived:
    def derive(facts: Facts) -> Answer | None:
        texts = [DOCUMENTED_BY_KIND[name].get(kind) for kind in sorted(facts.kinds)]
        known = [text for text in texts if text]
        return documented(distinct(known), "rtxscale's workloads") if known else None

    return derive


def _not_applicable_by_kind(name: str) -> Derived:
    def derive(facts: Facts) -> Answer | None:
        reasons = [DOES_NOT_APPLY_BY_KIND[name].get(kind) for kind in sorted(facts.kinds)]
        known = [reason for reason in reasons if reason]
        everywhere = known and len(known) == len(facts.kinds)
        return not_applicable(distinct(known), DOCUMENTED, "rtxscale's workloads") if everywhere else None

    return derive


OPTIMIZERS = {
    "sgd": "SGD, momentum 0.9",
    "adamw": "AdamW",
    "language": "AdamW, betas 0.9 and 0.95, weight decay 0.1",
    "diffusion": "AdamW, weight decay 0.01",
}
USUAL_RATES = {"sgd": 0.01, "adamw": 0.001, "language": 3e-4, "diffusion": 1e-5}
"""What trains, by the optimizer chosen or by the kind, and what `learning_rate: auto` means; a test compares both."""


def optimizer(facts: Facts) -> Answer | None:
    """The optimizers of the cells that ran, with the learning rate that the sweep chose."""
    texts = sorted({_optimizer_of(workload) for workload in _learning(facts)})
    return documented(distinct(texts), "rtxscale's workloads") if texts else _documented_by_kind("optimizer")(facts)


def _learning(facts: Facts) -> list[Learning]:
    return [cell.workload for cell in facts.cells if isinstance(cell.workload, Learning)]


def _optimizer_of(workload: Learning) -> str:
    name = workload.optimizer if isinstance(workload, VisionWorkload) else str(getattr(workload, "kind", ""))
    rate = USUAL_RATES[name] if workload.learning_rate == "auto" else workload.learning_rate
    return f"{OPTIMIZERS[name]}, learning rate {rate}"


def schedule(facts: Facts) -> Answer | None:
    """The schedules of the learning rate: as seen in the optimizers, else as the sweep says."""
    texts = sorted({workload.schedule_in_words for workload in _learning(facts)})
    if not texts:
        return _documented_by_kind("schedule")(facts)
    return from_attestation(facts, "workload.schedule") or documented(distinct(texts), "sweep: workload.schedule")


def templates(facts: Facts) -> Answer | None:
    """Which of the playbook's three templates ran."""
    names = {"language": "transformer", "vision": "vision", "diffusion": "SDXL"}
    ran = [name for kind, name in names.items() if kind in facts.kinds]
    missing = [name for kind, name in names.items() if kind not in facts.kinds]
    if not facts.kinds:
        return None
    return measured(
        f"{', '.join(ran) or 'none'} in this run; not {', '.join(missing) or 'missing any'}", "trials.workload"
    )


OF_RESIDENT: dict[str, Derived] = {
    **{name: _documented_by_kind(name) for name in DOCUMENTED_BY_KIND},
    **{name: _not_applicable_by_kind(name) for name in DOES_NOT_APPLY_BY_KIND},
}
WORKLOADS: dict[str, Derived] = {
    "model_code": model_code,
    "templates": templates,
    **OF_RESIDENT,
    "optimizer": optimizer,
    "schedule": schedule,
    **training_data.of_loaded(OF_RESIDENT),
    "target": training_data.target,
    "time_to_target": training_data.time_to_target,
}
