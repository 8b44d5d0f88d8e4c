"""The list of lines: none of the playbook's requirements without one, every source known, every declared field used."""

import pytest

from rtxscale.report.dossier.facts import APPLIES, SOURCES
from rtxscale.report.dossier.lines import KINDS, LINES, PARTS, REQUIRED
from rtxscale.report.dossier.record import FUNCTIONS
from rtxscale.report.dossier.workload import DOCUMENTED_BY_KIND, OPTIMIZERS, USUAL_RATES
from rtxscale.results.schema import TABLES
from rtxscale.spec.cell import Cell
from rtxscale.spec.declare import declared_fields
from rtxscale.spec.fields import KINDS as KINDS_OF_WORKLOAD
from rtxscale.spec.fields import sweep_fields

PLAYBOOK = {"P1", "P9", "P10", "P11", "P12", "P13", *(f"P{number}" for number in range(24, 33))}
PRICE = {"price.per_hour", "price.purchase", "price.hours_of_use", "price.per_kwh"}
"""Declared fields that one derived line holds together."""
ASKED = {
    "P1": ("torch", "torch_commit", "torch_build", "cudnn", "nccl", "driver", "ai_enterprise"),
    "P9": ("warmup", "soak", "criterion", "steady"),
    "P10": ("gpu_power", "wall_power", "per_watt"),
    "P11": ("power_limit", "overclock", "locked"),
    "P12": ("temperature", "memory_temperature", "fan", "cooler", "airflow", "inlet", "psu_w"),
    "P13": ("throttling",),
    "P24": (
        "gpu",
        "gpu_memory",
        "cooler",
        "cpu",
        "memory",
        "pcie_slots",
        "pcie_load",
        "storage",
        "os",
        "driver",
        "cuda",
    ),
    "P25": (
        *("name", "dataset", "dataset_version", "tokenizer", "precision", "attention_seen", "compile", "batch"),
        *("accumulation", "checkpointing", "optimizer", "schedule", "sharding", "loader", "pinned", "numa"),
        *("augmentations", "scheduler", "versions"),
    ),
    "P26": ("link", "p2p", "switches", "launch", "world", "algorithm", "channels", "protocol", "bucket", "topology"),
    "P27": (
        *("warmup", "criterion", "throughput", "steps", "time_to_target", "target", "gpu_power", "wall_power"),
        *("memory_peak", "memory_typical"),
    ),
    "P28": ("uplift", "uplift_by_model", "bandwidth", "capacity", "compile", "fp8", "pcie"),
    "P29": ("price", "per_money", "per_watt"),
    "P30": ("unknown",),
    "P31": ("files",),
    "P32": ("locked", "matrix", "templates", "comparison"),
}
"""What the playbook's text asks for under each number, read off it by hand."""


def test_every_requirement_has_its_lines():
    assert set(REQUIRED) == PLAYBOOK == set(ASKED)
    for requirement, names in ASKED.items():
        have = {line.id.partition(".")[2] for line in LINES if requirement in line.requirements}
        assert set(names) <= have, requirement


def test_ids_are_unique_and_every_line_is_complete():
    assert len({line.id for line in LINES}) == len(LINES)
    for line in LINES:
        assert line.part in PARTS
        assert line.text
        assert line.requirements
        assert line.sources
        assert line.weight in (1, 2, 3)
        assert line.applies in APPLIES


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.id)
def test_every_source_exists(line):
    for source in line.sources:
        assert source.kind in KINDS
        assert source.kind == "derived" or source.kind in SOURCES
        if source.kind == "derived":
            assert source.key in FUNCTIONS
        if source.kind == "trials":
            assert source.key in {column.name for column in TABLES["trials"]}
        if source.kind == "settings":
            assert source.key in sweep_fields(None)
            assert source.key.partition(".")[0] in Cell.model_fields
        if source.kind == "declared":
            assert source.key in declared_fields()


def test_every_function_belongs_to_a_line_and_every_declared_field_is_shown():
    keys = {(source.kind, source.key) for line in LINES for source in line.sources}
    assert {key for kind, key in keys if kind == "derived"} == set(FUNCTIONS)
    assert {key for kind, key in keys if kind == "declared"} | PRICE == set(declared_fields())


def test_the_constants_are_those_of_the_workloads():
    from rtxscale.workloads import diffusion, language, vision
    from rtxscale.workloads.networks import noise

    texts = DOCUMENTED_BY_KIND["optimizer"]
    first, second = language.BETAS
    assert {
        "sgd": f"SGD, momentum {vision.MOMENTUM}",
        "adamw": "AdamW",
        "language": f"AdamW, betas {first} and {second}, weight decay {language.WEIGHT_DECAY}",
        "diffusion": f"AdamW, weight decay {diffusion.WEIGHT_DECAY}",
    } == OPTIMIZERS
    usual = {"language": language.LEARNING_RATE, "diffusion": diffusion.LEARNING_RATE}
    assert vision.LEARNING_RATES | usual == USUAL_RATES
    for kind in usual:
        assert texts[kind] == f"{OPTIMIZERS[kind]}, learning rate {USUAL_RATES[kind]}"
    ends = f"{noise.FIRST_BETA} to {noise.LAST_BETA}"
    told = DOCUMENTED_BY_KIND["scheduler"]["diffusion"]
    assert told.startswith(f"DDPM, {noise.TIMESTEPS} steps, scaled linear betas {ends}, times drawn uniformly")


def test_every_kind_of_workload_is_described():
    trained = set(KINDS_OF_WORKLOAD) - {"collectives", "script"}  # what a script does, only its owner can declare
    for name in ("dataset", "optimizer", "schedule", "loader"):
        assert set(DOCUMENTED_BY_KIND[name]) == trained, name
