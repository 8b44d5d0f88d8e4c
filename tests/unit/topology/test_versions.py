"""Driver and CUDA versions in every spelling that nvidia-smi has used, and words that are no version."""

from pathlib import Path

import pytest

from rtxscale.topology.versions import Versions, parse_versions

GOLDEN = Path(__file__).parents[2] / "golden" / "topology"


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("smi_banner_580.txt", Versions(driver="580.126.20", cuda="13.0", smi="580.126.20")),
        ("smi_banner_610.txt", Versions(driver="610.57.04", cuda="13.3", smi="610.57.04")),
        ("smi_q_header_610.txt", Versions(driver="610.57.04", cuda="13.3")),
        ("smi_version_595.txt", Versions(driver="595.71.05", cuda="13.2", smi="595.71.05", nvml="595.71")),
    ],
)
def test_recorded_texts(name, right):
    assert parse_versions((GOLDEN / name).read_text()) == right


def test_the_word_deprecated_is_no_version():
    read = parse_versions(
        "NVIDIA-SMI version  : 610.57.04\nNVML version        : 610.57\n"
        'DRIVER version      : Deprecated, see "KMD version" instead\n'
        'CUDA Version        : Deprecated, see "CUDA UMD version" instead\n'
        "KMD version         : 610.57.04\nCUDA UMD version    : 13.3\n"
    )
    assert (read.driver, read.cuda, read.nvml, read.smi) == ("610.57.04", "13.3", "610.57", "610.57.04")
    assert read.rejected == (
        'driver version: Deprecated, see "KMD version" instead',
        'cuda version: Deprecated, see "CUDA UMD version" instead',
    )


def test_deprecated_values_alone_give_nothing():
    read = parse_versions('DRIVER version : Deprecated, see "KMD version" instead\n')
    assert read.driver is None
    assert "Deprecated" in read.said


@pytest.mark.parametrize(("word", "reason"), [("Not Found", "not found"), ("N/A", "not supported"), ("", "blank")])
def test_a_driver_without_cuda(word, reason):
    line = f"| NVIDIA-SMI 535.161.05   Driver Version: 535.161.05   CUDA Version: {word:<8} |"
    read = parse_versions(line)
    assert (read.driver, read.cuda, read.cuda_reason) == ("535.161.05", None, reason)


def test_no_cuda_field_is_not_a_cuda_without_value():
    assert parse_versions("Driver Version : 390.157\n") == Versions(driver="390.157")


def test_a_banner_with_its_spaces_lost():
    read = parse_versions("| NVIDIA-SMI 580.1 Driver Version: 580.1 CUDA Version: 13.0 |")
    assert (read.driver, read.cuda, read.smi) == ("580.1", "13.0", "580.1")


def test_a_library_that_does_not_match_its_driver():
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
    assert parse_versions(text) == Versions(nvml="580.95", said=text.strip())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is installed.",
        "bash: nvidia-smi: command not found",
        "Driver Version : 580",
        "Driver Version : 580.1.2.3.4",
        "VBIOS Version : 97.02.2E.00.01",
        "My Driver Version : 580.1",
    ],
)
def test_what_names_no_driver_is_kept_as_said(text):
    read = parse_versions(text)
    assert (read.driver, read.cuda, read.said) == (None, None, text)


def test_old_and_new_name_that_differ():
    read = parse_versions("Driver Version : 580.1 [Deprecated]\nKMD Version : 610.57.04\n")
    assert read.driver == "610.57.04"
    assert read.conflicts == ("kmd version 610.57.04, driver version 580.1",)


def test_the_first_value_counts():
    assert parse_versions("Driver Version : 580.1\nDriver Version : 590.1\n").driver == "580.1"
