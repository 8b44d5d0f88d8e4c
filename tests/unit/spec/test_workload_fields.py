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
