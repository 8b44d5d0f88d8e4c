"""Shapes of matrices beyond the recorded ones, and lines that must be refused rather than shifted."""

import pytest

from rtxscale.topology.smi import PEER_MEANINGS, Status, parse_peer_access, parse_topology

HEADER = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
ROW0 = "GPU0\t X \tPIX\t0-15\t0\t\tN/A\n"
ROW1 = "GPU1\tPIX\t X \t0-15\t0\t\tN/A\n"


def spaces(text):
    return text.expandtabs(8)


def test_tabs_and_spaces_say_the_same():
    assert parse_topology(HEADER + ROW0 + ROW1) == parse_topology(spaces(HEADER + ROW0 + ROW1))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\x1b[4m" + text.replace("ID\n", "ID\x1b[0m\n"),
        lambda text: "  " + text,
        lambda text: "12 NICs found in the topology, only displaying 0 in the matrix.\n\n" + text,
        lambda text: "$ nvidia-smi topo -m\n" + text + "\nLegend:\n\n  X    = Self\n",
        lambda text: "\n".join("    " + line for line in text.split("\n")),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: text.removesuffix("\n"),
    ],
)
def test_what_stands_around_the_cells_does_not_matter(change):
    read, plain = parse_topology(change(HEADER + ROW0 + ROW1)), parse_topology(HEADER + ROW0 + ROW1)
    assert (read.status, read.links, read.placements) == (Status.READ, plain.links, plain.placements)


@pytest.mark.parametrize("end", range(1, len("NV18") + 1))
def test_a_label_that_the_text_ends_in_is_no_link(end):
    cut = HEADER + "GPU0\t X \t" + "NV18"[:end]
    read = parse_topology(cut)
    assert (read.status, dict(read.links), len(read.problems)) == (Status.UNAVAILABLE, {}, 1)
    assert bool(parse_topology(f"{cut}\n").links) == (end > len("NV"))


@pytest.mark.parametrize(
    "row",
    [
        "GPU1\tPIX\t\t0-15\t0\t\tN/A\n",  # a cell is missing
        "GPU1\tPIX\tPIX\t X \t0-15\t0\t\tN/A\n",  # one too many
        "GPU1\tPIX\t X \tSYS\t0-15\t0\t\tN/A\n",
        "GPU1  PIX  X  SYS  0-15  0  N/A\n",
        "GPU1\t X \tPIX\t0-15\t0\t\tN/A\n",  # shifted
        "GPU1\tPIX\tPIX\t0-15\t0\t\tN/A\n",  # no X
        "GPU1  PIXSYS?  X  0-15  0  N/A\n",  # glue that is not from the vocabulary
        "GPU1  N/A  X  0-15  0  N/A\n",
        "GPU1  NV180-15  X\n",  # NV18 and 0-15, or NV1 and 80-15
        "GPU1PIX\n",
        "GPU7\tPIX\t X \t0-15\t0\t\tN/A\n",  # not in the header
        "GPU1 GPU is lost\n",
    ],
)
def test_a_row_that_cannot_be_trusted_is_refused_with_its_line(row):
    read = parse_topology(HEADER + ROW0 + row)
    assert read.status is Status.INCOMPLETE
    assert read.rows == ("GPU0",)
    assert [problem.line for problem in read.problems] == [3]
    assert str(read.problems[0]).startswith("nvidia-smi topo -m:3: ")
    assert read.link("GPU0", "GPU1").label == "PIX"


def test_a_wrapped_row_is_refused_in_both_halves():
    read = parse_topology(HEADER + "GPU0  X\nPIX  0-15  0  N/A\n" + ROW1)
    assert ([problem.line for problem in read.problems], read.rows) == ([2, 3], ("GPU1",))


def test_a_header_without_a_row_is_no_topology():
    read = parse_topology(HEADER)
    assert (read.status, read.said) == (Status.UNAVAILABLE, HEADER.strip())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Failed to run topology matrix\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "GPU 0: NVIDIA GeForce RTX 5090 (UUID: GPU-00000000-0000)\n",
        "GPU0 is lost. Reboot the system to recover this GPU\n",
    ],
)
def test_text_without_a_matrix_is_unavailable(text):
    for read in (parse_topology(text), parse_peer_access(text, "rw")):
        assert (read.status, read.said) == (Status.UNAVAILABLE, text.strip())


def test_rows_that_contradict_each_other_are_both_kept_and_reported():
    read = parse_topology(HEADER + ROW0 + ROW1.replace("PIX", "SYS"))
    assert (read.links["GPU0", "GPU1"].label, read.links["GPU1", "GPU0"].label) == ("PIX", "SYS")
    assert [str(one) for one in read.suspects] == [
        "nvidia-smi topo -m:3: GPU1 to GPU0: found SYS; expected PIX, as in line 2"
    ]


def test_a_second_row_of_one_device_and_a_second_machine_are_named():
    assert parse_topology(HEADER + ROW0 + ROW0 + ROW1).problems[0].line == 3
    read = parse_topology(HEADER + ROW0 + ROW1 + "\n" + HEADER + ROW0.replace("PIX", "SYS") + ROW1)
    assert read.link("GPU0", "GPU1").label == "PIX"
    assert [one.line for one in read.suspects] == [5]


def test_a_label_of_a_later_driver_is_kept_as_it_is():
    link = parse_topology(HEADER + ROW0.replace("PIX", "NVX") + ROW1).links
    assert ("GPU0", "GPU1") not in link  # could be NV and something
    link = parse_topology(HEADER + ROW0.replace("PIX", "CXL") + ROW1.replace("PIX", "CXL")).link("GPU0", "GPU1")
    assert (link.kind.value, link.label) == ("OTHER", "CXL")


def test_a_whitespace_header_of_one_gpu_with_a_nic_is_no_row():
    text = spaces(
        "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPHB\t0-7\t0\t\tN/A\nNIC0\tPHB\t X \n"
    )
    read = parse_topology(text)
    assert (read.gpus, read.nics, read.link("GPU0", "NIC0").label) == (("GPU0",), ("NIC0",), "PHB")
    assert read.placements["GPU0"].cpus == "0-7"


def test_numbers_beyond_the_hosts_cpus_are_suspect():
    read = parse_topology(HEADER + ROW0 + ROW1, cpu_count=8)
    assert read.placements["GPU0"].cpus is None
    assert read.suspects[0].expected == "numbers below the host's 8 CPUs"


@pytest.mark.parametrize(
    ("labels", "claimed"),
    [
        (("OK", "OK"), True),
        (("OK", "GNS"), False),
        (("CNS", "CNS"), False),
        (("TNS", "NS"), False),
        (("DR", "U"), False),
        (("U", "U"), None),
        (("OK", "U"), None),
    ],
)
def test_peer_access_counts_only_in_both_directions(labels, claimed):
    text = f" \tGPU0\tGPU1\t\n GPU0\tX\t{labels[0]}\t\n GPU1\t{labels[1]}\tX\t\n"
    read = parse_peer_access(text, "r")
    assert read.claimed("GPU0", "GPU1") is read.claimed("GPU1", "GPU0") is claimed
    assert set(labels) <= set(PEER_MEANINGS)
    assert read.claimed("GPU0", "GPU5") is None


def test_peer_access_of_one_gpu():
    read = parse_peer_access(" \tGPU0\t\n GPU0\tX\t\n", "rw")
    assert (read.status, read.gpus, read.labels) == (Status.READ, ("GPU0",), {})


def test_peer_rows_glued_together():
    read = parse_peer_access("  GPU0 GPU1 GPU2\nGPU0 XGNSOK\nGPU1 GNS XCNS\nGPU2 OK CNS X\n", "rw")
    assert (read.labels["GPU0", "GPU1"], read.labels["GPU0", "GPU2"], read.labels["GPU1", "GPU2"]) == (
        "GNS",
        "OK",
        "CNS",
    )
