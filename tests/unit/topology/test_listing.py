"""`nvidia-smi -L`, with and without MIG."""

from pathlib import Path

import pytest

from rtxscale.topology.listing import ListedGpu, MigInstance, parse_listing
from rtxscale.topology.smi import Status

GOLDEN = Path(__file__).parents[2] / "golden" / "topology"
PLAIN = "GPU 0: NVIDIA GeForce RTX 5090 (UUID: GPU-0a)\nGPU 1: NVIDIA RTX 6000 (Ada) (UUID: GPU-0b)\n"


def test_a_gpu_cut_into_instances():
    read = parse_listing((GOLDEN / "smi_L_mig.txt").read_text())
    (gpu,) = read.gpus
    assert (read.status, read.has_mig, gpu.name) == (Status.READ, True, "NVIDIA H100 80GB HBM3")
    assert [(one.index, one.profile) for one in gpu.instances] == [
        (0, "3g.40gb"),
        (1, "2g.20gb"),
        (2, "1g.10gb"),
        (3, "1g.10gb"),
    ]
    assert gpu.instances[1].uuid == "MIG-00000001-0000-0000-0000-000000000001"


def test_plain_gpus():
    assert parse_listing(PLAIN.replace("\n", "\r\n")).gpus == (
        ListedGpu(index=0, name="NVIDIA GeForce RTX 5090", uuid="GPU-0a"),
        ListedGpu(index=1, name="NVIDIA RTX 6000 (Ada)", uuid="GPU-0b"),
    )
    assert not parse_listing(PLAIN).has_mig


def test_an_instance_named_the_old_way():
    read = parse_listing(PLAIN + "  MIG 1g.5gb Device 0: (UUID: MIG-GPU-0b/7/0)\n")
    assert read.gpus[1].instances == (MigInstance(profile="1g.5gb", index=0, uuid="MIG-GPU-0b/7/0"),)


def test_a_gpu_that_is_lost_is_a_problem_and_not_silence():
    read = parse_listing(PLAIN + "Unable to determine the device handle for GPU 0000:21:00.0: Unknown Error\n")
    assert (read.status, len(read.gpus), read.problems[0].line) == (Status.INCOMPLETE, 2, 3)


@pytest.mark.parametrize("text", ["", "No devices were found\n", "  MIG 1g.5gb Device 0: (UUID: MIG-0)\n"])
def test_no_list_is_unavailable(text):
    read = parse_listing(text)
    assert (read.status, read.gpus, read.said) == (Status.UNAVAILABLE, (), text.strip())
