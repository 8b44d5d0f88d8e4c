"""Fields of a workload that need or exclude each other: buckets of a model, and a model of one's own."""

import pytest

from rtxscale.errors import SpecError
from rtxscale.plan.assume import assumed_inventory
from rtxscale.plan.expand import make_plan
from rtxscale.spec.load import parse_sweep

REPLAY = """\
name: buckets
question: Which bucket size?
study: weak
workload: {kind: collectives, buckets_of: 1b}
axes:
  gpus: [2, 4]
  ddp.bucket_mib: [1, 25]
"""


def test_a_replay_varies_buckets_and_shares_sessions():
    made = make_plan(parse_sweep(REPLAY, "s"), assumed_inventory("4x RTX 5090"))
    cells = {planned.trial.cell for planned in made.trials}
    assert {(cell.gpus, cell.ddp.bucket_mib) for cell in cells} == {
        (gpus, size) for gpus in (2, 4) for size in (1.0, 25.0, "auto")
    }
    assert {cell.workload.label for cell in cells} == {"collectives/buckets of 1b"}
    assert {session.key.workload for session in made.sessions} == {("collectives",)}


def test_messages_have_no_buckets():
    text = REPLAY.replace("buckets_of: 1b", "sizes_mib: [1]")
    made = make_plan(parse_sweep(text, "s"), assumed_inventory("4x RTX 5090"))
    assert {planned.trial.cell.ddp.bucket_mib for planned in made.trials} == {"auto"}


@pytest.mark.parametrize(
    "given", ["sizes_mib: [1]", "operations: [all_gather]", "precision: bf16", "sizes_mib: [2], precision: fp32"]
)
def test_buckets_say_themselves_what_is_sent(given):
    with pytest.raises(SpecError) as caught:
        parse_sweep(REPLAY.replace("1b", f"1b, {given}"), "s")
    assert len(caught.value.problems) == given.count(":")
    assert "together with buckets_of" in str(caught.value)


def test_an_axis_of_models_is_a_replay_too():
    axis = REPLAY.replace(", buckets_of: 1b", "") + "  workload.buckets_of: [1b, resnet50]\n"
    made = make_plan(parse_sweep(axis, "s"), assumed_inventory("2x RTX 5090"))
    assert {planned.trial.cell.workload.buckets_of for planned in made.trials} == {"1b", "resnet50"}
    with pytest.raises(SpecError, match="precision together with buckets_of"):
        parse_sweep(axis + "  workload.precision: [fp32, bf16]\n", "s")


def test_limits_of_a_number_are_all_told():
    text = REPLAY.replace("kind: collectives, buckets_of: 1b", "kind: diffusion, image_size: 33, batch_per_gpu: 1")
    with pytest.raises(SpecError, match="found 33; expected a whole number of at least 32 and a multiple of 32"):
        parse_sweep(text, "s")
    text = REPLAY.replace("kind: collectives, buckets_of: 1b", "kind: simulated, noise: 1, batch_per_gpu: 1")
    with pytest.raises(SpecError, match="found 1; expected a number of at least 0 and less than 1"):
        parse_sweep(text, "s")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sizes_mib: [1, 8, 1.0]", r"workload\.sizes_mib\[2\]: found 1\.0 again; expected each item of the list once"),
        ("operations: [all_gather, all_gather]", r"workload\.operations\[1\]: found all_gather again"),
        ("sizes_mib: [1.0e+30]", "found 1.0e.30; expected a number greater than 0 and of at most 1048576"),
    ],
)
def test_a_message_is_of_a_size_that_there_can_be_and_sent_once(given, said):
    with pytest.raises(SpecError, match=said):
        parse_sweep(REPLAY.replace("buckets_of: 1b", given), "s")


TARGET = """\
name: target
question: How long until it is good, and until it is better?
study: weak
workload: {kind: vision, data: digits, batch_per_gpu: 8}
target: {metric: top1, max_time_s: 60}
axes:
  gpus: [1]
  target.value: [0.8, 0.9]
"""


def test_fields_that_a_target_needs_can_be_axes():
    cells = [planned.trial.cell for planned in make_plan(parse_sweep(TARGET, "s"), assumed_inventory("cpu")).trials]
    assert {(cell.target.metric, cell.target.value, cell.target.max_time_s) for cell in cells} == {
        ("top1", 0.8, 60.0),
        ("top1", 0.9, 60.0),
    }
    alone = TARGET.replace("target: {metric: top1, max_time_s: 60}\n", "") + "  target.metric: [top1, val_loss]\n"
    cells = [planned.trial.cell for planned in make_plan(parse_sweep(alone, "s"), assumed_inventory("cpu")).trials]
    assert len({(cell.target.metric, cell.target.value) for cell in cells}) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TARGET.replace("target: {metric: top1, max_time_s: 60}\n", ""), r"target\.metric: found nothing"),
        (TARGET.replace("0.8", "good"), r"axes\.target\.value\[0\]: found good; expected a number greater than 0"),
        (TARGET.replace("metric: top1", "metric: top1, value: 0.5"), "both as an axis and fixed"),
        (TARGET.replace("{metric: top1, max_time_s: 60}", "top1"), "target: found top1; expected a mapping"),
        (TARGET.replace("target.value: [0.8, 0.9]", "target.value: []"), "found an empty list"),
    ],
)
def test_a_target_in_axes_is_told_once_what_is_wrong_with_it(text, said):
    with pytest.raises(SpecError, match=said) as caught:
        parse_sweep(text, "s")
    assert len(caught.value.problems) == 1, str(caught.value)


OWN = """\
name: own
question: How fast?
study: weak
workload: {kind: language, path: my-model, batch_per_gpu: 1}
axes:
  gpus: [1, 2]
"""


@pytest.mark.parametrize(
    "text",
    [
        OWN.replace("path: my-model", "path: my-model, size: 1b"),
        OWN + "  workload.size: [1b, 7b]\n",
        OWN.replace("path: my-model", "size: 1b") + "  workload.path: [a, b]\n",
    ],
)
def test_a_model_is_named_or_ones_own(text):
    assert parse_sweep(OWN, "s").workload.path == "my-model"
    with pytest.raises(SpecError, match="size together with path"):
        parse_sweep(text, "s")


@pytest.mark.parametrize("path", ["/models/mine", "~/mine"])
def test_a_model_is_found_beside_the_sweep_on_every_machine(path):
    with pytest.raises(SpecError, match=r"workload\.path"):
        parse_sweep(OWN.replace("my-model", path), "s")
