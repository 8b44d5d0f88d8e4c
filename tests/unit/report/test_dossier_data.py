"""What a dossier says of data and targets: of resident data what it always said, of others what was attested."""

from types import SimpleNamespace

import polars as pl
import pytest

from rtxscale.report.dossier import training_data
from rtxscale.report.dossier.facts import NOT_APPLICABLE, documented, facts_of, from_attestation
from rtxscale.report.dossier.method import visits
from rtxscale.report.dossier.workload import model_code, optimizer, schedule
from rtxscale.results.read import Run
from rtxscale.results.schema import table
from rtxscale.spec.cell import Cell
from rtxscale.spec.declare import Declaration
from rtxscale.workloads.data import sets as datasets

NAMES = ("dataset", "dataset_version", "tokenizer", "augmentations", "loader", "pinned", "no_target")


def facts(target=None, trials=(), **workload):
    cell = Cell.model_validate({"workload": {"kind": "vision", "batch_per_gpu": 4} | workload, "target": target})
    seen = {"subject": "workload.data", "requested": "digits", "observed": "digits, SHA-256 ab", "verdict": "honoured"}
    return SimpleNamespace(
        cells=[cell],
        attestation=pl.from_arrow(table("attestation", [seen])),
        trials=pl.from_arrow(table("trials", list(trials))),
    )


def answers(one):
    fallback = {name: lambda _: documented("as ever", "rtxscale") for name in NAMES}
    return {name: derive(one) for name, derive in training_data.of_loaded(fallback).items()}


def test_resident_data_are_told_as_ever():
    assert {answer.value for answer in answers(facts()).values()} == {"as ever"}


def test_data_from_a_loader_are_told_by_what_was_attested_and_asked_for():
    told = answers(facts(data="digits", loader_workers=3, pin_memory="off"))
    assert told["dataset"].value.startswith("digits, SHA-256 ab")
    assert (told["loader"].value, told["pinned"].value) == ("3", "off")
    assert told["no_target"].status == NOT_APPLICABLE
    assert told["tokenizer"] is None


def test_a_decoder_of_bytes_has_bytes_for_tokens():
    told = answers(facts(kind="language", data="stdlib"))
    assert told["tokenizer"].value == "bytes: a token is a byte of the text"


def seen(subject, observed):
    row = {"subject": subject, "requested": "asked", "observed": observed, "verdict": "honoured"}
    return pl.from_arrow(table("attestation", [row]))


def test_the_schedule_is_told_as_seen_else_as_asked_for():
    asked = facts(schedule="cosine", schedule_steps=500, optimizer="adamw")
    assert schedule(asked).value == "cosine to 0 at update 500"
    assert optimizer(asked).value == "AdamW, learning rate 0.001"
    asked.attestation = seen("workload.schedule", "cosine to 0 at update 500")
    assert schedule(asked).value == "cosine to 0 at update 500 (1 honoured)"
    tuned = facts(kind="language", learning_rate=0.002)
    assert optimizer(tuned).value == "AdamW, betas 0.9 and 0.95, weight decay 0.1, learning rate 0.002"
    assert schedule(tuned).value == "constant learning rate"


def test_a_model_of_ones_own_is_told_with_its_weights():
    one = facts(kind="language", path="m")
    one.kinds, one.environment = frozenset({"language"}), pl.from_arrow(table("environment", []))
    one.attestation = seen("workload.model", "llama, config.json SHA-256 ab; random weights")
    assert model_code(one).value == "own models: llama, config.json SHA-256 ab; random weights (1 honoured)"


def test_augmentations_of_latents_are_what_was_said_beside_them():
    latents = facts(kind="diffusion", data="latents", data_path="l")
    assert answers(latents)["augmentations"] is None, "nobody has said anything: unknown"
    latents.attestation = seen("workload.augmentations", "flipped at random")
    assert answers(latents)["augmentations"].value == "flipped at random (1 honoured)"


def test_the_augmentations_are_the_workloads_own():
    assert training_data.AUGMENTATIONS["images"] == datasets.AUGMENTATIONS


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            {"metric": "top1", "value": 0.9},
            "top1 at least 0.9 of up to 1,024 held-out samples, looked at every 20 steps",
        ),
        ({"metric": "loss", "value": 2.5, "every_steps": 5}, "loss at most 2.5, looked at every 5 steps"),
    ],
)
def test_the_exact_target_is_told(target, said):
    assert training_data.target(facts(target=target, data="digits")).value == said
    assert training_data.target(facts()) is None


def test_time_to_target_says_who_did_not_get_there():
    ran = [
        {"gpus": 1, "target_reached": True, "target_s": 4.0},
        {"gpus": 1, "target_reached": True, "target_s": 2.0},
        {"gpus": 2, "target_reached": False, "target_s": 60.0},
        {"gpus": 2},
        {"gpus": 2, "target_reached": True, "target_s": None},
    ]
    said = training_data.time_to_target(facts(trials=ran)).value
    assert said == "1 worker: 2 of 2 runs reached it, 2 to 4 s; 2 workers: 0 of 1 runs reached it"
    assert training_data.time_to_target(facts()) is None


def test_libraries_are_told_in_the_version_that_ran_else_in_the_one_that_is_installed():
    rows = [
        {"subject": "software", "name": "timm", "value": "1.0.29"},
        {"subject": "package", "name": "timm", "value": "1.0.28"},
        {"subject": "package", "name": "diffusers", "value": "0.42.1"},
    ]
    one = SimpleNamespace(
        kinds=frozenset({"vision", "diffusion"}),
        environment=pl.from_arrow(table("environment", rows)),
        attestation=pl.from_arrow(table("attestation", [])),
    )
    assert model_code(one).value == "diffusers 0.42.1, timm 1.0.29"


def test_sentinels_are_neither_repeats_nor_in_any_number(golden):
    golden, conclusions = golden
    measured = facts_of(golden, conclusions, Declaration())
    trials = golden.frame("trials").collect()
    drift = trials.head(3).with_columns(
        trial_id=pl.Series(["a" * 12, "b" * 12, "c" * 12]), stage=pl.lit("sentinel"), repeat=pl.Series([1, 2, 3])
    )
    tables = {"trials": pl.concat([trials, drift])}
    frame = Run.frame
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "frame", lambda run, name: tables[name].lazy() if name in tables else frame(run, name))
        with_drift = facts_of(golden, conclusions, Declaration())
    assert with_drift.trials.height == measured.trials.height + 3
    assert visits(with_drift) == visits(measured)
    assert with_drift.counted.equals(measured.counted)


def test_layouts_with_commas_of_their_own_are_told_apart_by_semicolons():
    rows = [
        {"subject": "ddp.bucket_mib", "requested": "1", "observed": text, "verdict": "honoured"}
        for text in ("11 buckets, largest 9.51 MiB", "3 buckets, largest 25.27 MiB")
    ]
    answer = from_attestation(SimpleNamespace(attestation=pl.from_arrow(table("attestation", rows))), "ddp.bucket_mib")
    assert answer.value == "11 buckets, largest 9.51 MiB; 3 buckets, largest 25.27 MiB (2 honoured)"
    protocols = [row | {"observed": "ll, simple"} for row in rows]
    seen = SimpleNamespace(attestation=pl.from_arrow(table("attestation", protocols)))
    assert from_attestation(seen, "ddp.bucket_mib").value == "ll, simple (2 honoured)"
