"""A tiny decoder trained by one process and by two ranks: the same losses however it is spread."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from made_context import made_context

from rtxscale.models.shapes import SIZES
from rtxscale.rank.command import STANDALONE
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.language import Language, draw_tokens
from rtxscale.workloads.networks.decoder import build_decoder, set_attention

STEPS, MANY_STEPS = 6, 20
TINY = {"kind": "language", "size": "tiny", "context": 32, "precision": "fp32"}
# Ten times what the order of fp32 sums over ranks, micro-steps and kernels was seen to change.
ROUNDING = {"rel": 1e-6}


def context(world=1, rank=0, kept=None, **fields):
    return made_context(
        LanguageWorkload.model_validate(TINY | fields), rank=rank, world=world, kept={} if kept is None else kept
    )


def losses(running, steps=STEPS):
    found = []
    for _ in range(steps):
        running.step()
        found.append(running.loss())
    running.close()
    return found


@pytest.fixture(scope="module")
def alone():
    """Losses of one process with the whole batch of four sequences."""
    return losses(Language().prepare(context(batch_per_gpu=4)))


@pytest.fixture(scope="module")
def alone_for_long():
    return losses(Language().prepare(context(batch_per_gpu=4)), MANY_STEPS)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    result = tmp_path_factory.mktemp("ranks") / "seen.json"
    script = Path(__file__).with_name("language_ranks.py")
    command = [sys.executable, "-m", "torch.distributed.run", *STANDALONE, "--nproc-per-node", "2", str(script)]
    done = subprocess.run([*command, str(result)], capture_output=True, text=True, timeout=270)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(result.read_text())


@pytest.mark.parametrize(
    "name",
    [
        "ddp",
        "ddp again",
        "fsdp",
        "fsdp, weights kept whole",
        "fsdp, checkpointing",
        "ddp, checkpointing",
        "ddp, accumulation",
        "fsdp, accumulation",
        "ddp, global batch",
        "zero1",
        "zero2",
        "zero3",
        "zero1, accumulation",
        "zero2, accumulation",
    ],
)
def test_losses_agree_within_rounding_however_the_batch_is_spread(name, ranks, alone_for_long):
    found = ranks[name]["losses"]
    assert len(found) == (MANY_STEPS if name in ("ddp", "fsdp", "zero1", "zero2", "zero3") else STEPS)
    assert found == pytest.approx(alone_for_long[: len(found)], **ROUNDING)
    assert ranks[name]["work"] == 2 * 32


def test_each_way_of_spreading_restarts_where_it_began(ranks):
    wrong = {name for name, seen in ranks.items() if seen["restarted"] != seen["by_rank"][0][:STEPS]}
    assert not wrong


def test_the_losses_can_tell_a_wrong_spread(ranks, alone):
    first, second = ranks["ddp"]["by_rank"]
    assert first != pytest.approx(second, **ROUNDING), "ranks train on different sequences"
    assert alone[-1] < alone[0] - 0.01, "the weights move far more than rounding"


def test_ddp_and_fsdp_agree_in_bf16(ranks, alone):
    ddp, fsdp = ranks["ddp, bf16"]["losses"], ranks["fsdp, bf16"]["losses"]
    assert fsdp == pytest.approx(ddp, rel=1e-4)
    assert ddp != alone
    assert ranks["fsdp, bf16"]["attested"]["workload.precision"] == ["bf16", "honoured"]


def test_fsdp_leaves_each_rank_its_share_only(ranks):
    assert ranks["fsdp"]["share"] == 0.5
    assert ranks["ddp"]["share"] == 1
    observed, verdict = ranks["fsdp"]["attested"]["workload.parallel"]
    assert observed == "fsdp, 21 of 21 parameters sharded, weights let go between the passes"
    assert verdict == "honoured"
    assert ranks["ddp"]["attested"]["workload.parallel"] == ["ddp", "honoured"]


PARAMETERS, ADAPTERS = 125_248, 2 * 4 * (128 + 96)
"""Of the tiny decoder, and of LoRA of rank 4 beside query and value of its two blocks."""


def test_each_stage_of_zero_shards_what_its_name_says(ranks):
    weights = {name: ranks[name]["share"] for name in ("ddp", "zero1", "zero2", "zero3")}
    assert weights == {"ddp": 1, "zero1": 1, "zero2": 0.5, "zero3": 0.5}
    assert ranks["ddp"]["states"] == [2 * PARAMETERS, 2 * PARAMETERS]
    assert ranks["zero3"]["states"] == ranks["zero2"]["states"] == [PARAMETERS, PARAMETERS]
    # Whole parameters go to one rank or the other.
    assert sum(ranks["zero1"]["states"]) == 2 * PARAMETERS
    assert ranks["zero1"]["states"] == pytest.approx([PARAMETERS, PARAMETERS], rel=0.02)


def test_each_stage_of_zero_is_told_from_what_was_built(ranks):
    seen = {name: ranks[name]["attested"]["workload.parallel"] for name in ("zero1", "zero2", "zero3")}
    own = ranks["zero1"]["states"][0] // 2
    assert seen == {
        "zero1": [f"ddp, this rank's optimizer with the states of {own:,} of 125,248 trained parameters", "honoured"],
        "zero2": ["fsdp, 21 of 21 parameters sharded, weights whole between the passes", "honoured"],
        "zero3": ["fsdp, 21 of 21 parameters sharded, weights let go between the passes", "honoured"],
    }
    kept = ranks["fsdp, weights kept whole"]["attested"]["workload.parallel"]
    assert kept == [seen["zero2"][0], "honoured"]
    assert ranks["zero1"]["buckets"] == ranks["ddp"]["buckets"]


@pytest.mark.parametrize("stage", ["zero1", "zero2", "zero3"])
def test_lora_trains_alike_however_it_is_spread(stage, ranks):
    spread, whole = ranks[f"lora, {stage}"], ranks["lora"]
    assert spread["losses"] == pytest.approx(whole["losses"], **ROUNDING)
    assert sum(spread["states"]) == 2 * ADAPTERS
    assert spread["attested"]["workload.parallel"][1] == "honoured"
    assert spread["attested"]["workload.tuning"] == whole["attested"]["workload.tuning"]


def test_lora_under_ddp_reduces_its_adapters_alone(ranks, alone):
    lora = ranks["lora"]
    assert lora["attested"]["workload.tuning"] == ["lora, 1,792 of 127,040 parameters trainable (1.411%)", "honoured"]
    assert lora["states"] == [2 * ADAPTERS, 2 * ADAPTERS]
    assert lora["losses"][0] == pytest.approx(alone[0], **ROUNDING), "it starts as its base"
    assert lora["losses"][-1] < lora["losses"][0]
    assert lora["losses"] != pytest.approx(alone, **ROUNDING)


def test_lora_agrees_in_bf16(ranks):
    assert ranks["lora, bf16, zero3"]["losses"] == pytest.approx(ranks["lora, bf16"]["losses"], rel=1e-3)
    assert ranks["lora, bf16, zero3"]["attested"]["workload.precision"] == ["bf16", "honoured"]


@pytest.mark.parametrize("name", ["ddp", "ddp, checkpointing", "ddp, accumulation", "fsdp", "fsdp, checkpointing"])
def test_recomputation_is_seen(name, ranks):
    observed, verdict = ranks[name]["attested"]["workload.checkpointing"]
    assert verdict == "honoured"
    assert observed.startswith("on, ") if "checkpointing" in name else observed == "off"


def test_only_ddp_has_buckets(ranks):
    assert ranks["ddp"]["buckets"] >= 1
    assert ranks["fsdp"]["buckets"] == 0


def test_ddp_reduces_once_a_step_however_many_micro_steps_it_has(ranks):
    assert ranks["ddp"]["reductions"] == MANY_STEPS * ranks["ddp"]["buckets"]
    for name in ("ddp, accumulation", "zero1, accumulation"):
        assert ranks[name]["reductions"] == STEPS * ranks["ddp"]["buckets"]


def test_accumulation_equals_the_large_batch(alone):
    assert losses(Language().prepare(context(batch_per_gpu=1, accumulation=4))) == pytest.approx(alone, **ROUNDING)


def test_checkpointing_changes_no_loss(alone):
    assert losses(Language().prepare(context(batch_per_gpu=4, checkpointing="on"))) == pytest.approx(alone, **ROUNDING)


def test_repeated_heads_change_no_loss(alone):
    running = Language().prepare(context(batch_per_gpu=4))
    running._model.config._attn_implementation = "repeated_heads"
    assert losses(running) == pytest.approx(alone, **ROUNDING)


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_the_kernel_asked_for_is_the_one_in_the_graph(kernel, alone):
    running = Language().prepare(context(batch_per_gpu=4, attention=kernel))
    assert [row.observed for row in running.attest() if row.subject == "workload.attention"] == [None]
    running.step()
    (row,) = [row for row in running.attest() if row.subject == "workload.attention"]
    assert (row.observed, str(row.verdict)) == (kernel, "honoured")
    assert losses(running, 2)[-1] == pytest.approx(alone[2], rel=1e-5)


def test_a_kernel_that_is_not_there_fails_instead_of_being_replaced():
    running = Language().prepare(context(batch_per_gpu=1, attention="cudnn"))
    with pytest.raises(RuntimeError, match="No viable backend"):
        running.step()
    running.close()


def test_sequences_do_not_depend_on_who_trains_them():
    whole = torch.cat(draw_tokens(context(batch_per_gpu=4).workload, context(batch_per_gpu=4)))
    parts = []
    for rank in (0, 1):
        place = context(world=2, rank=rank, batch_per_gpu=1, accumulation=2)
        micro_batches = draw_tokens(place.workload, place)
        assert [tuple(tokens.shape) for tokens in micro_batches] == [(1, 32), (1, 32)]
        parts.extend(micro_batches)
    assert torch.equal(torch.cat(parts), whole)


def test_a_session_keeps_the_model_and_starts_it_anew(alone):
    kept = {}
    first = Language().prepare(context(batch_per_gpu=4, kept=kept))
    model = kept["language"].model
    assert losses(first) == alone
    assert all(parameter.grad is None for parameter in model.parameters())
    again = Language().prepare(context(batch_per_gpu=4, kept=kept, checkpointing="on", context=16))
    again.step()
    again.close()
    last = Language().prepare(context(batch_per_gpu=4, kept=kept))
    assert kept["language"].model is model
    assert losses(last) == alone
    assert not any(block.gradient_checkpointing for block in model.model.layers)


def test_one_worker_with_fsdp_trains_the_whole_model(alone):
    running = Language().prepare(context(batch_per_gpu=4, parallel="fsdp"))
    running.step()
    assert {str(row.verdict) for row in running.attest() if row.subject == "workload.parallel"} == {"not applicable"}
    assert losses(running, 1)[0] == pytest.approx(alone[1], **ROUNDING)


@pytest.mark.parametrize("kernel", ["auto", "efficient"])
def test_no_forward_pass_waits_for_the_device(kernel):
    """Tensors without values cannot be looked at: whoever does so fails here, and on a GPU would wait."""
    with torch.device("meta"):
        model = build_decoder(SIZES["tiny"])
        tokens = torch.zeros(2, 8, dtype=torch.long)
    set_attention(model, kernel)
    model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
