"""Cells behind the links, cut at tabs and at white space."""

import pytest

from rtxscale.topology.affinity import TITLES, Placement, place
from rtxscale.topology.id_lists import cuts, read_id_list


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        (["0-15", "0", "", "N/A"], Placement(cpus="0-15", numa="0")),
        (["0-71", "0,3-9", "", "2"], Placement(cpus="0-71", numa="0,3-9", gpu_numa_id=2)),
        (["0-71", "0,3-9", "2"], Placement(cpus="0-71", numa="0,3-9", gpu_numa_id=2)),
        (["", "", "", "N/A"], Placement()),
        (["", "1", "", "N/A"], Placement(numa="1")),
        (["0-15", "", "", "N/A"], Placement(cpus="0-15")),
        (["0-15", "N/A", "", "N/A"], Placement(cpus="0-15")),
        (["0-15"], Placement(cpus="0-15")),
        ([], Placement()),
    ],
)
def test_cut_at_tabs(cells, right):
    assert place(cells, TITLES, None, by_position=True) == (right, (), ())


@pytest.mark.parametrize(
    ("cells", "titles", "right"),
    [
        (["0-15", "0", "N/A"], TITLES, Placement(cpus="0-15", numa="0")),
        (["0-15", "0N/A"], TITLES, Placement(cpus="0-15", numa="0")),
        (["N/A"], TITLES, Placement()),
        ([], TITLES, Placement()),
        (["0-15", "1"], TITLES[:2], Placement(cpus="0-15", numa="1")),
        (["N/A"], TITLES[:2], Placement()),
        (["0-15"], TITLES[:1], Placement(cpus="0-15")),
    ],
)
def test_cut_at_white_space(cells, titles, right):
    assert place(cells, titles, None, by_position=False) == (right, (), ())


@pytest.mark.parametrize(
    ("cells", "titles", "cpu_count"),
    [
        (["56-111,168-2231", "N/A"], TITLES, None),
        (["56-111,168-2231"], TITLES[:2], None),
        (["0-15", "0"], TITLES, 16),  # the last cell is cut off, or one is blank
        (["0"], TITLES, 16),
        (["0-15", "N/A"], TITLES, 16),  # CPUs 0-15, or 0-1 and NUMA node 5
        (["0-15", "0", "1", "N/A"], TITLES, 16),
        (["0-15"], (), 16),
        (["zero", "0", "N/A"], TITLES, 16),
        (["15-0", "0", "N/A"], TITLES, 16),
        (["0-15", "0", "1-2"], TITLES, 16),
        (["0-15,1-2", "0", "N/A"], TITLES, 16),
    ],
)
def test_what_cannot_be_told_apart_is_named_and_left_out(cells, titles, cpu_count):
    placement, doubts, repairs = place(cells, titles, cpu_count, by_position=False)
    assert len(doubts) == 1
    assert not repairs
    column = {"CPU Affinity": placement.cpus, "GPU NUMA ID": placement.gpu_numa_id}[doubts[0].column]
    assert column is None


def test_the_cpu_count_allows_the_cut_of_glued_cells():
    placement, doubts, repairs = place(["0-55,112-1670N/A"], TITLES, 168, by_position=False)
    assert (placement, doubts) == (Placement(cpus="0-55,112-167", numa="0"), ())
    assert repairs == ("'0-55,112-1670' read as CPUs 0-55,112-167 and NUMA node 0",)


def test_a_cut_that_is_not_the_only_one_is_not_made():
    placement, doubts, _ = place(["0-1234", "N/A"], TITLES, 500, by_position=False)
    assert (placement, len(doubts)) == (Placement(), 1)  # 0-123 and 4, or 0-12 and 34


def test_lists_of_numbers():
    assert read_id_list("3") == (range(3, 4),)
    assert read_id_list("0-99999,100000-9999999")[1].stop == 10_000_000
    for text in ("", "a", "3-", "1,1", "5-4", "1-3,2-4", "٣"):
        assert read_id_list(text) is None
    assert list(cuts("0-10")) == [("0-1", "0")]
