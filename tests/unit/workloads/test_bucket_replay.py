"""Replayed gradient buckets: those that a real DDP makes, found without the model, and what is timed of them."""

import pytest
import timm
import torch
import torch.distributed as dist
from made_context import made_context
from torch.nn.parallel import DistributedDataParallel

from rtxscale.models.shapes import SIZES
from rtxscale.spec.workload import CollectivesWorkload
from rtxscale.workloads.links import bucket_replay, bucket_sizes
from rtxscale.workloads.links.bucket_replay import Replay
from rtxscale.workloads.links.bucket_sizes import buckets_of, unknown_source
from rtxscale.workloads.links.collectives import Collectives, request_of, time_request
from rtxscale.workloads.networks.decoder import build_decoder
from rtxscale.workloads.protocol import Bucket
from rtxscale.workloads.registry import complaints
from rtxscale.workloads.training.parallel import bucket_layout


def replaying(name="tiny"):
    return CollectivesWorkload(kind="collectives", buckets_of=name)


def context(group=None, world=1, rank=0, workload=None, bucket_mib=None):
    return made_context(workload or replaying(), bucket_mib=bucket_mib, rank=rank, world=world, group=group)


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield dist.new_group(backend="gloo")
    dist.destroy_process_group()


def images(model):
    return model(torch.zeros(2, 3, 32, 32)).sum()


def tokens(model):
    return model(input_ids=torch.zeros(1, 4, dtype=torch.long), use_cache=False).logits.sum()


@pytest.mark.parametrize(
    ("name", "bucket_mib"),
    [
        ("resnet18", None),
        ("test_resnet", None),
        ("test_resnet", 0.05),
        ("test_resnet", 0.2),
        ("tiny", None),
        ("tiny", 0.1),
    ],
)
def test_buckets_without_a_model_are_those_of_a_real_one(name, bucket_mib, group):
    model, run = (build_decoder(SIZES[name]), tokens) if name in SIZES else (timm.create_model(name), images)
    wrapped = DistributedDataParallel(model, process_group=group, bucket_cap_mb=bucket_mib)
    for _ in range(3):
        run(wrapped).backward()
    found = buckets_of(name, bucket_mib)
    assert found.seen
    assert found.buckets == bucket_layout(wrapped)


def test_a_small_cap_makes_many_buckets_and_none_makes_a_small_first_one():
    counts = [len(buckets_of("resnet18", cap).buckets) for cap in (1, 5, 25, 1000)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-2:] == [2, 1]
    assert len(buckets_of("resnet18", None).buckets) == 3
    assert buckets_of("resnet18", None).buckets[0].size_bytes == 4 * 513 * 1000, "the last layer alone is over 1 MiB"
    assert sum(one.parameters for one in buckets_of("resnet18", 1).buckets) == 62


def test_seven_billion_weights_need_no_memory():
    buckets = buckets_of("7b", None).buckets
    assert sum(one.size_bytes for one in buckets) == 4 * SIZES["7b"].parameters
    assert len(buckets) > 200


def test_a_pass_that_cannot_run_without_values_leaves_the_order_of_parameters(monkeypatch):
    def backward():
        raise NotImplementedError

    monkeypatch.setattr(bucket_sizes, "_model", lambda name: (torch.nn.Linear(4, 2), backward))
    found = buckets_of.__wrapped__("resnet18", 7 / 2**20)
    assert not found.seen
    assert [one.size_bytes for one in found.buckets] == [8, 32], "the bias comes last, so its gradient comes first"


BUCKETS = (
    Bucket(size_bytes=400, parameters=1),
    Bucket(size_bytes=80, parameters=2),
    Bucket(size_bytes=80, parameters=1),
)


def test_buckets_of_one_size_are_timed_as_one_and_all_of_them_together(group):
    one = bucket_replay.time_replay(BUCKETS, context(group))
    assert [(timing.operation, timing.size_bytes) for timing in one] == [
        ("all_reduce_buckets", 560),
        ("all_reduce", 80),
        ("all_reduce", 400),
    ]
    whole, small, large = one
    assert small.iterations == 2 * large.iterations
    assert all(timing.data_ok and 0 < timing.time_p50_s <= timing.time_p95_s for timing in one)
    assert whole.time_p50_s > max(small.time_p50_s, large.time_p50_s)
    assert whole.busbw_gb_s == 0, "one rank has no bus"


def test_a_wrong_sum_in_any_bucket_is_noticed(group, monkeypatch):
    place = context(group, world=2, rank=1)

    def summed(part, group):
        part.fill_(3)

    def summed_but_the_last(part, group):
        part.fill_(3 if len(part) == 100 else 2)

    for all_reduce, right in ((summed, True), (summed_but_the_last, False), (lambda part, group: None, False)):
        monkeypatch.setattr(dist, "all_reduce", all_reduce)
        assert Replay(BUCKETS, place).check() is right


def test_the_workload_replays_what_it_says(group):
    place = context(group, workload=replaying("resnet18"), bucket_mib=5)
    running = Collectives().prepare(place)
    assert running.step() == 0
    assert running.buckets() == buckets_of("resnet18", 5).buckets
    (row,) = running.attest()
    assert row.observed == "6 buckets of 62 parameters, in the order of its gradients"
    running.close()
    request = request_of(place.workload, 5)
    assert request.buckets == running.buckets()
    with pytest.raises(ValueError, match="need at least 2 workers"):
        time_request(request, context())


def test_names_of_models_are_looked_up_before_anything_runs():
    assert [unknown_source(name) for name in ("1b", "sdxl", "resnet50")] == ["", "", ""]
    (said,) = complaints([replaying("resnte50")])
    assert said.startswith("workload.buckets_of: found 'resnte50', which timm ")
    assert ", such as resnet50" in said
    assert said.endswith(", or one of tiny, 125m, 350m, 1b, 7b, 13b, sdxl")
    with pytest.raises(RuntimeError, match="resnte50"):
        buckets_of("resnte50", None)
