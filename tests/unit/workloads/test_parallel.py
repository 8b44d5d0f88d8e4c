import pytest
import torch
import torch.distributed as dist
from made_context import made_context
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.protocol import Bucket
from rtxscale.workloads.training.parallel import (
    attest_parallel,
    bucket_layout,
    fully_sharded,
    is_gathered,
    parse_layout,
    zero_redundancy,
)


def test_a_layout_reads_ddps_own_words():
    # As torch 2.14 gave it for resnet10t with a cap of 1 MiB.
    logged = {
        "bucket_sizes": "19710472",
        "rebuilt_bucket_sizes": "9990184, 4722688, 252896",
        "rebuilt_per_bucket_param_indices": "43 42 40, 34 35, 10",
        "bucket_cap_bytes": 1048576,
    }
    assert parse_layout(logged) == (
        Bucket(size_bytes=9990184, parameters=3),
        Bucket(size_bytes=4722688, parameters=2),
        Bucket(size_bytes=252896, parameters=1),
    )


def test_before_the_rebuild_there_is_no_layout_yet():
    assert parse_layout({"bucket_sizes": "400", "rebuilt_bucket_sizes": ""}) == ()


def test_sizes_and_members_must_belong_together():
    with pytest.raises(ValueError, match="zip"):
        parse_layout({"rebuilt_bucket_sizes": "4, 8", "rebuilt_per_bucket_param_indices": "1"})


@pytest.fixture
def group(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield dist.new_group(backend="gloo")
    dist.destroy_process_group()


def judged(requested, model, **seen):
    return str(attest_parallel(requested, model, 2, **seen).verdict)


def test_one_whole_model_is_nothing_that_can_be_asked_for():
    for requested in ("ddp", "fsdp", "zero1", "zero2", "zero3"):
        assert judged(requested, nn.Linear(2, 2)) == "refuted"
        assert str(attest_parallel(requested, nn.Linear(2, 2), 1).verdict) == "not applicable"


def test_an_optimizer_that_keeps_every_state_is_not_zero1(group):
    model = DistributedDataParallel(nn.Linear(2, 2), process_group=group)
    plain = torch.optim.AdamW(model.parameters())
    assert judged("ddp", model, optimizer=plain) == "honoured"
    assert judged("zero1", model, optimizer=plain) == "refuted"
    spread = zero_redundancy(model.parameters(), group, torch.optim.AdamW, lr=0.1)
    assert judged("zero1", model, optimizer=spread) == "not attested"  # no state before the first step
    model(torch.ones(1, 2)).sum().backward()
    spread.step()
    # In a group of one rank, that rank has all of them.
    assert judged("zero1", model, optimizer=spread) == "refuted"
    assert judged("ddp", model, optimizer=spread) == "refuted"


@pytest.mark.parametrize("reshard", [True, False])
def test_what_is_kept_between_the_passes_tells_the_stages_apart(reshard, group):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    alone = made_context(LanguageWorkload(kind="language", size="tiny"), group=group)
    fully_sharded(model, [model[0]], alone, compiled="off", block_dtype=None, reshard_after_forward=reshard)
    assert judged("zero2", model) == judged("zero3", model) == "not attested"
    model(torch.ones(1, 2))
    kept = is_gathered(model[0])
    assert kept is not reshard
    model[0].reshard()
    model.reshard()
    wanted = {"fsdp": "honoured", "zero2": "refuted", "zero3": "honoured", "ddp": "refuted", "zero1": "refuted"}
    if not reshard:
        wanted |= {"zero2": "honoured", "zero3": "refuted"}
    assert {name: judged(name, model, kept_whole=kept) for name in wanted} == wanted


def test_a_bare_model_has_no_buckets():
    assert bucket_layout(nn.Linear(2, 2)) == ()
