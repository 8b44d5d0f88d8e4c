"""The doctor on a machine with GPUs: NVML and nvidia-smi for real, and copies that arrive right."""

import json
import os
import subprocess
import sys
from statistics import median

import pytest

from rtxscale.stats.compare import independent_ratio
from rtxscale.stats.intervals import log_moments

MARGIN = 0.05
MIB = 1024 * 1024
SIZE, REPEATS, ROUNDS = 256 * MIB, 20, 5

pytestmark = pytest.mark.gpu


def gpus_here():
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@pytest.fixture(scope="module")
def examined(tmp_path_factory):
    if not gpus_here():
        pytest.skip("needs an NVIDIA GPU, found none")
    words = ["doctor", "--json", "--results", str(tmp_path_factory.mktemp("results"))]
    done = subprocess.run([sys.executable, "-m", "rtxscale", *words], capture_output=True, text=True, env=os.environ)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def test_no_rule_failed_and_every_gpu_is_known(examined):
    assert not [one for one in examined["findings"] if one["found"].startswith("this rule failed")]
    assert len(examined["machine"]["gpus"]) >= gpus_here()
    assert examined["machine"]["driver"]
    assert examined["machine"]["software"]["torch_architectures"]


@pytest.fixture
def linked(examined):
    """The same, where there is a link between GPUs."""
    if gpus_here() < 2:
        pytest.skip(f"needs 2 NVIDIA GPUs, found {gpus_here()}")
    return examined


def test_links_are_said(linked):
    found = {one["rule"]: one["found"] for one in linked["findings"]}
    assert f"links between {len([gpu for gpu in linked['machine']['gpus'] if gpu['used']])} GPUs" in found["topology"]
    assert "all_reduce" in found


def test_copies_arrive_right_at_a_believable_rate(examined):
    transfers = examined["transfers"]
    assert transfers["not_run"] is None
    assert bool(transfers["pairs"]) == (gpus_here() > 1)
    assert transfers["hosts"]
    for pair in transfers["pairs"]:
        assert pair["data_right"] is True, pair
        assert pair["there_gb_s"] > 1
        assert 1 < pair["small_copy_us"] < 5000
    for host in transfers["hosts"]:
        assert 1 < host["to_device_gb_s"] < 200, host
        assert host["to_device_together_gb_s"] <= 1.2 * host["to_device_gb_s"]


def measured_gb_s(copy, gpu):
    """Median of `plain_gb_s`."""
    return median(plain_gb_s(copy, gpu))


def plain_gb_s(copy, gpu):
    """Rates of copies of `SIZE` bytes back to back, by CUDA events in a stream of `gpu`, as nvbandwidth does."""
    import torch

    rates = []
    with torch.cuda.device(gpu):
        copy()
        torch.cuda.synchronize()
        for _ in range(ROUNDS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(REPEATS):
                copy()
            end.record()
            end.synchronize()
            rates.append(SIZE * REPEATS / start.elapsed_time(end) / 1e6)
    return rates


def doctors_gb_s(gpu):
    """Rates of pinned copies in and out as the doctor measures them, round after round in a process of its own."""
    command = [sys.executable, "-m", "rtxscale.doctor.torch_process", json.dumps([["host", gpu]] * ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [said["result"] for said in map(json.loads, done.stdout.splitlines()) if "result" in said]
    assert len(found) == ROUNDS, done.stdout
    return [[one[way] for one in found] for way in ("to_device_gb_s", "from_device_gb_s")]


def used(examined):
    """PCI places of the used GPUs; here CUDA must count them alike."""
    places = [gpu["index"] for gpu in examined["machine"]["gpus"] if gpu["used"]]
    import torch

    names = [torch.cuda.get_device_properties(place).uuid for place in range(len(places))]
    uuids = [gpu["uuid"].removeprefix("GPU-") for gpu in examined["machine"]["gpus"] if gpu["used"]]
    if [str(name) for name in names] != uuids:
        pytest.skip("needs CUDA_DEVICE_ORDER=PCI_BUS_ID, found GPUs counted otherwise")
    return places


def test_host_copies_are_as_fast_as_plain_ones(examined):
    """Plain copies before and after the doctor's: the ratio of the means of the rounds, with Welch's interval."""
    import torch

    pinned = torch.ones(SIZE, dtype=torch.uint8).pin_memory()
    reported = {host["gpu"]: host for host in examined["transfers"]["hosts"]}
    for device, place in enumerate(used(examined)):
        target = torch.empty(SIZE, dtype=torch.uint8, device=f"cuda:{device}")
        copies = {
            "to_device_gb_s": lambda target=target: target.copy_(pinned, non_blocking=True),
            "from_device_gb_s": lambda target=target: pinned.copy_(target, non_blocking=True),
        }
        before = {way: plain_gb_s(copy, device) for way, copy in copies.items()}
        doctors = dict(zip(copies, doctors_gb_s(device), strict=True))
        for way, copy in copies.items():
            plain = [*before[way], *plain_gb_s(copy, device)]
            found = independent_ratio(log_moments(doctors[way]), log_moments(plain))
            ratio, low, high = (float(value) for value in (found.ratio, found.low, found.high))
            print(
                f"GPU {place}, {way}: doctor {reported[place][way]:.2f}, plain {median(plain):.2f}; ratio of the means "
                f"{ratio:.4f} ({low:.4f}-{high:.4f}, {len(doctors[way])} and {len(plain)} rounds)"
            )
            assert ratio == pytest.approx(1, abs=MARGIN), (place, way)
            assert reported[place][way] / median(plain) == pytest.approx(1, abs=MARGIN), (place, way)
        del target, copies


def test_copies_between_gpus_are_as_fast_as_plain_ones(linked):
    import torch

    places = used(linked)
    ratios = {}
    for pair in linked["transfers"]["pairs"]:
        a, b = places.index(pair["a"]), places.index(pair["b"])
        one, other = (torch.ones(SIZE, dtype=torch.uint8, device=f"cuda:{device}") for device in (a, b))
        there = measured_gb_s(lambda one=one, other=other: other.copy_(one, non_blocking=True), a)
        back = measured_gb_s(lambda one=one, other=other: one.copy_(other, non_blocking=True), b)
        ratios[pair["a"], pair["b"]] = pair["there_gb_s"] / there
        ratios[pair["b"], pair["a"]] = pair["back_gb_s"] / back
        del one, other
    print(f"doctor over plain copies between GPUs: {ratios}")
    for name, ratio in ratios.items():
        assert ratio == pytest.approx(1, abs=MARGIN), name
