"""The GPU table is matched exactly and every value has a source."""

import pytest

from rtxscale.devices.gpus import find_by_user_text, find_gpu, known_labels, nearest_names
from rtxscale.devices.table import GPUS


@pytest.mark.parametrize("row", GPUS, ids=lambda row: row.label)
def test_no_row_shadows_another(row):
    nominal_mib = row.memory_gib * 1024
    for name in (row.name, *row.other_names):
        assert find_gpu(name, nominal_mib) is row
    assert find_by_user_text(row.label) is row
    assert find_by_user_text(f"NVIDIA {row.label.upper()}") is row


def test_labels_are_distinct():
    assert len(set(known_labels())) == len(GPUS)


def test_every_row_has_a_source_and_a_link():
    assert all(row.source and row.link.startswith("PCIe ") for row in GPUS)


# Memory as NVML reports it, in MiB, beside the label that is right.
SEEN = [
    ("NVIDIA GeForce RTX 5090", 32607, "RTX 5090"),
    ("NVIDIA GeForce RTX 5080", 16303, "RTX 5080"),
    ("NVIDIA GeForce RTX 4090", 24564, "RTX 4090"),
    ("GeForce RTX 4090", 24564, "RTX 4090"),
    ("NVIDIA RTX PRO 5000 Blackwell", 48935, "RTX PRO 5000 48 GB"),
    ("NVIDIA RTX PRO 5000 72GB Blackwell", 73415, "RTX PRO 5000 72 GB"),
    ("NVIDIA RTX PRO 5000 Blackwell", 73415, "RTX PRO 5000 72 GB"),
    ("NVIDIA RTX PRO 5000 72GB Blackwell", None, "RTX PRO 5000 72 GB"),
    ("NVIDIA RTX 6000 Ada Generation", 49140, "RTX 6000 Ada"),
    ("NVIDIA RTX 6000 Ada Generation", 46068, "RTX 6000 Ada"),  # ECC on
    ("NVIDIA RTX 5000 Ada Generation", 32760, "RTX 5000 Ada"),
    ("NVIDIA H200", 143771, "H200"),
    ("NVIDIA H200", None, "H200"),
    ("NVIDIA H100 80GB HBM3", 81559, "H100 SXM"),
    ("NVIDIA H100 PCIe", 81559, "H100 PCIe"),
    ("NVIDIA H100 NVL", 95830, "H100 NVL"),
    ("NVIDIA A100-SXM4-80GB", 81920, "A100 SXM 80 GB"),
    ("NVIDIA A100 80GB PCIe", 81920, "A100 PCIe 80 GB"),
]


@pytest.mark.parametrize(("name", "memory_mib", "label"), SEEN)
def test_names_as_nvml_reports_them(name, memory_mib, label):
    assert find_gpu(name, memory_mib).label == label


OTHERS = [
    ("NVIDIA GeForce RTX 5090 Laptop GPU", 24463),
    ("NVIDIA GeForce RTX 5090 D", 32607),
    ("NVIDIA GeForce RTX 5080 Laptop GPU", 16303),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376),
    ("NVIDIA GeForce RTX 4090 D", 24564),
    ("NVIDIA GeForce RTX 4090", 49140),  # a card rebuilt with more memory
    ("NVIDIA RTX A6000", 49140),
    ("Quadro RTX 6000", 24220),
    ("NVIDIA RTX A5000", 24564),
    ("Quadro RTX 5000", 16384),
    ("NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU", 24463),
    ("NVIDIA RTX PRO 5000 Blackwell", 24463),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887),
    ("NVIDIA RTX 5000 Ada Generation Laptop GPU", 16376),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9984),
    ("NVIDIA GB10", None),
    ("NVIDIA RTX PRO 5000 Blackwell", None),  # two variants: the name alone does not tell
    ("", None),
]


@pytest.mark.parametrize(("name", "memory_mib"), OTHERS)
def test_a_similar_card_gets_none_not_a_neighbours_values(name, memory_mib):
    assert find_gpu(name, memory_mib) is None


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("RTX 5090", "RTX 5090"),
        ("5090", "RTX 5090"),
        ("rtx5090", "RTX 5090"),
        ("GeForce RTX 5080", "RTX 5080"),
        ("RTX 5090 32GB", "RTX 5090"),
        ("RTX PRO 5000 72 GB", "RTX PRO 5000 72 GB"),
        ("RTX PRO 5000 Blackwell 48GB", "RTX PRO 5000 48 GB"),
        ("rtx 6000 ada", "RTX 6000 Ada"),
        ("NVIDIA RTX 5000 Ada Generation", "RTX 5000 Ada"),
        ("H200", "H200"),
        ("a100-sxm4-40gb", "A100 SXM 40 GB"),
        ("h100 nvl", "H100 NVL"),
    ],
)
def test_what_people_type(text, label):
    assert find_by_user_text(text).label == label


@pytest.mark.parametrize(
    "text",
    [
        "RTX PRO 5000",
        "RTX 5090 Laptop",
        "RTX 5090 D",
        "RTX 5090 48 GB",
        "RTX A5000",
        "RTX 5000",
        "A100",
        "H100",
        "",
        "x",
    ],
)
def test_ambiguous_or_unknown_text_finds_nothing(text):
    assert find_by_user_text(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RTX 509", "RTX 5090"),
        ("RTX PRO 5000", "RTX PRO 5000 72 GB"),
        ("RTX PRO 5000 96 GB", "RTX PRO 5000 48 GB"),
        ("RTX 6000", "RTX 6000 Ada"),
        ("A100", "A100 SXM 40 GB"),
    ],
)
def test_nearest_names_helps(text, expected):
    assert expected in nearest_names(text)


def test_the_playbooks_targets_and_ranges():
    target = {row.label for row in GPUS if row.p21_target}
    assert target == {"RTX 5090", "RTX PRO 5000 48 GB", "RTX PRO 5000 72 GB", "RTX 6000 Ada"}
    assert find_by_user_text("RTX 5090").efficiency_range == (0.91, 0.97)
    assert find_by_user_text("RTX 5080").efficiency_range is None
    assert find_by_user_text("RTX 6000 Ada").peaks is None
    assert not any(row.nvlink for row in GPUS if row.label.startswith("RTX"))


VALUES = (
    "bandwidth_gb_s",
    "tgp_w",
    "link",
    "peaks",
    "efficiency_range",
    "p2p_stock",
    "psu_w",
    "memory_gib",
    "mig_instances",
)


@pytest.mark.parametrize("row", GPUS, ids=lambda row: row.label)
def test_every_value_has_its_source_and_no_source_is_for_nothing(row):
    assert all(row.source_of(field) for field in VALUES if getattr(row, field) is not None)
    for field, source in row.sources:
        assert getattr(row, field) is not None, field
        assert source != row.source


def test_sources_of_values_that_are_not_the_rows():
    row = find_by_user_text("RTX 5090")
    assert "AIME" in row.source_of("efficiency_range")
    assert "GNS" in row.source_of("p2p_stock")
    assert row.source_of("tgp_w") == row.source
    assert "medium confidence" in find_by_user_text("RTX PRO 5000 72 GB").source_of("bandwidth_gb_s")
    assert "appendix" in find_by_user_text("RTX 5080").source_of("peaks")


def test_a_peak_belongs_to_one_precision_and_half_the_bytes_double_it():
    for row in GPUS:
        if row.peaks is None:
            assert row.peak_tflops("bf16") is None
            continue
        assert (
            row.peak_tflops("fp16") == row.peak_tflops("bf16") == pytest.approx(2 * row.peak_tflops("tf32"), rel=2e-3)
        )
        assert row.peak_tflops("fp32") <= row.peak_tflops("tf32")
        assert (row.peak_tflops("fp8") is None) == (row.architecture == "Ampere")
        if row.peaks.fp8:
            assert row.peaks.fp8 == pytest.approx(2 * row.peaks.bf16, rel=2e-3)
        assert row.peak_tflops("fp4") is None


def test_names_are_shared_only_by_memory_variants():
    names = [(name, row.memory_gib) for row in GPUS for name in (row.name, *row.other_names)]
    assert len(set(names)) == len(names)


# The playbook's table of hardware in scope, as it stands there: GiB, memory, GB/s, W, link, dense bf16 TFLOPS, range.
PLAYBOOK = {
    "RTX 5090": (32, "GDDR7, 512-bit, no ECC", 1792, 575, "PCIe 5 x16", 209.5, (0.91, 0.97)),
    "RTX 5080": (16, "GDDR7, 256-bit", 960, 360, "PCIe 5 x16", 112.6, None),
    "RTX PRO 5000 48 GB": (48, "GDDR7, ECC", 1344, 300, "PCIe 5 x16", None, None),
    "RTX PRO 5000 72 GB": (72, "GDDR7, ECC", 1344, 300, "PCIe 5 x16", None, None),
    "RTX 6000 Ada": (48, "GDDR6, 384-bit, ECC", 960, 300, "PCIe 4 x16", None, (0.94, 0.95)),
    "RTX 5000 Ada": (32, "GDDR6, ECC", 576, 250, "PCIe 4 x16", None, None),
    "RTX 4090": (24, "GDDR6X", 1008, 450, "PCIe 4 x16", 165.2, (0.62, 0.75)),
}


def test_the_table_says_what_the_playbook_says_and_no_more():
    assert {
        row.label: (
            row.memory_gib,
            row.memory,
            row.bandwidth_gb_s,
            row.tgp_w,
            row.link,
            row.peak_tflops("bf16"),
            row.efficiency_range,
        )
        for row in GPUS
        if row.label.startswith("RTX")
    } == PLAYBOOK


def test_mig_is_known_of_cards_that_have_it():
    known = {row.label: row.mig_instances for row in GPUS if row.mig_instances is not None}
    assert {label: known[label] for label in ("RTX PRO 5000 48 GB", "RTX PRO 5000 72 GB", "H200")} == {
        "RTX PRO 5000 48 GB": 2,
        "RTX PRO 5000 72 GB": 2,
        "H200": 7,
    }
    assert "RTX 5090" not in known


def test_power_supplies_of_the_vendor():
    assert {row.label: row.psu_w for row in GPUS if row.psu_w} == {"RTX 5090": 1000, "RTX 5080": 850, "RTX 4090": 850}
    assert all(row.psu_w > row.tgp_w for row in GPUS if row.psu_w)
