"""Outputs of nccl-tests in every shape, with the values that a person reads in them."""

import json
from pathlib import Path

import pytest

from rtxscale.nccl.nccl_tests import bus_bandwidths, read_nccl_tests
from rtxscale.nccl.nccl_tests_rows import Row, Side

CASES = Path(__file__).parents[2] / "golden" / "nccl_tests"
MIB = 2**20


def read(name):
    return read_nccl_tests((CASES / name).read_text())


def side(*values):
    return Side(**dict(zip(("time_us", "algbw_gb_s", "busbw_gb_s", "wrong"), values, strict=True)))


def test_2_0_has_a_column_of_deviations_and_none_of_roots():
    found = read("v2_0_error_col_na.txt")
    assert [row.size_bytes for row in found.rows] == [0, 0, 4, MIB, 4 * MIB, 2**31, 2**33]
    assert found.refused == 0, "the log line between the rows is no row"
    assert found.rows[-1] == Row(
        size_bytes=8589934592,
        count=2147483648,
        dtype="float",
        redop="sum",
        root=None,
        out_of_place=side(63896.0, 134.44, 235.26, None),
        in_place=side(63959.0, 134.30, 235.03, None),
    )
    assert (found.ranks, found.warmup_iterations, found.iterations) == (8, 5, 20)
    assert (found.version, found.nccl_version, found.operation) == (None, None, None)
    assert (found.out_of_bounds, found.average_busbw_gb_s) == (0, 68.4048)
    assert bus_bandwidths(found) == {MIB: 24.09, 4 * MIB: 66.60, 2**31: 231.93, 2**33: 235.03}


def test_2_13_with_log_lines_before_and_inside():
    found = read("v2_13_4090x4_with_info.txt")
    assert [(row.size_bytes, row.root) for row in found.rows] == [(MIB, -1), (32 * MIB, -1)]
    assert found.rows[0].out_of_place == side(152.7, 6.87, 10.30, 0.0)
    assert found.rows[1].in_place == side(3942.4, 8.51, 12.77, 0.0)
    assert (found.ranks, found.refused, found.average_busbw_gb_s) == (4, 0, 11.4350)


def test_2_13_unchecked_on_two_nodes():
    found = read("v2_13_wrong_na_2nodes.txt")
    assert bus_bandwidths(found) == {MIB: 0.39, 8 * MIB: 0.57, 64 * MIB: 0.60, 1024 * MIB: 0.61}
    assert found.rows[0].in_place.wrong is None, "N/A is no zero"
    assert (found.ranks, found.warmup_iterations, found.iterations) == (2, 5, 1)


def test_2_18_without_its_footer():
    found = read("v2_18_5090x8_no_footer.txt")
    assert (found.version, found.nccl_version, found.operation) == ("2.18.2", "2.29.7", "all_reduce")
    assert (found.ranks, found.warmup_iterations, len(found.rows)) == (8, 1, 8)
    assert (found.out_of_bounds, found.average_busbw_gb_s) == (None, None)
    assert bus_bandwidths(found)[128 * MIB] == 44.07
    assert 8 not in bus_bandwidths(found), "0.00 GB/s is too little to say anything"


def test_a_single_gpu_is_no_evidence_of_a_bus():
    found = read("v2_18_single_gpu_busbw0.txt")
    assert found.rows[-1].in_place == side(0.10, 1e6, 0.0, 0.0)
    assert (found.ranks, found.refused, found.average_busbw_gb_s) == (1, 0, 0.0)
    assert bus_bandwidths(found) == {}


def test_2_19_with_columns_of_each_iteration():
    found = read("v2_19_per_iter_header.txt")
    assert found.rows[0].out_of_place == side(74.74, 14.03, 24.55, 0.0)
    assert found.rows[0].in_place == side(72.38, 14.49, 25.35, None)
    assert bus_bandwidths(found) == {MIB: 25.35}


def test_a_row_that_log_lines_broke_up_is_refused_and_counted_once():
    found = read("rows_split_by_info.txt")
    assert (found.rows, found.refused) == ((), 1)


def test_the_end_of_a_row_whose_beginning_is_lost_is_counted_too():
    text = (CASES / "v2_13_4090x4_with_info.txt").read_text()
    found = read_nccl_tests(text.replace("     1048576        262144     float     sum      -1    ", ""))
    assert ([row.size_bytes for row in found.rows], found.refused) == ([32 * MIB], 1)


def test_json_with_booleans_and_numbers_as_strings():
    found = read("v2_17_json_report.json")
    first, second = found.rows
    assert (first.size_bytes, first.count, first.root) == (MIB, 262144, -1)
    assert (first.out_of_place, first.in_place) == (side(74.74, 14.03, 24.55, 0.0), side(72.38, 14.49, 25.35, None))
    assert (second.out_of_place, second.in_place) == (None, side(None, 0.0, 0.0, 2.0))
    assert (found.nccl_version, found.operation, found.ranks, found.iterations) == ("2.29.7", "all_reduce", 2, 20)
    assert (found.out_of_bounds, found.average_busbw_gb_s) == (1, 12.475)
    assert bus_bandwidths(found) == {}, "the file says that values were wrong"
    assert "placeholder" not in repr(found), "nothing of the environment is kept"


def test_json_that_only_says_false_is_not_taken_for_right():
    data = json.loads((CASES / "v2_17_json_report.json").read_text())
    data["out_of_bounds"] = {"okay": "false"}
    assert read_nccl_tests(json.dumps(data)).out_of_bounds == 1
    data["out_of_bounds"] = {"count": 0, "okay": "true"}
    found = read_nccl_tests(json.dumps(data))
    assert (found.out_of_bounds, bus_bandwidths(found)) == (0, {MIB: 25.35})
    data |= {"config": {"ngpus": 2, "nthreads": 1, "iterations": 50, "warmup_iters": 1, "devices": [{}, {}]}}
    found = read_nccl_tests(json.dumps(data))
    assert (found.ranks, found.iterations, found.warmup_iterations) == (4, 50, 1)


def test_the_forks_json_is_keyed_by_size():
    found = read("fork_json_pr318.txt")
    assert [row.size_bytes for row in found.rows] == [32 * MIB, 64 * MIB]
    assert found.rows[0].out_of_place == side(1494.278386, 22.455275, 19.648366, 0.0)
    assert found.rows[1].in_place == side(2849.237796, 23.553269, 20.609110, None)
    assert found.nccl_version == "2.26.6"
    assert bus_bandwidths(found) == {32 * MIB: 20.115716, 64 * MIB: 20.609110}


def test_columns_are_found_by_name_with_cpu_times_and_timestamps():
    found = read_nccl_tests(
        "#  size  count  type  redop  root  cputime  algbw  busbw  #wrong  cputime  algbw  busbw  #wrong  timestamp\n"
        "#        (B)  (elements)\n"
        "67108864  16777216  bfloat16  sum  -1  100.0  1.00  2.00  0  101.0  3.00  4.00  0  2026-01-01 00:00:09\n"
    )
    assert found.rows[0].dtype == "bfloat16"
    assert bus_bandwidths(found) == {64 * MIB: 4.0}


def test_wrong_data_is_no_evidence():
    text = (CASES / "v2_13_4090x4_with_info.txt").read_text()
    assert bus_bandwidths(read_nccl_tests(text.replace("9.98      0", "9.98      3"))) == {32 * MIB: 12.77}


def test_where_the_json_really_went():
    text = "# Writing JSON output to out.json.0\n" + (CASES / "v2_19_per_iter_header.txt").read_text()
    assert read_nccl_tests(text).json_file == "out.json.0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no header"),
        ("Test NCCL failure common.cu:892 'unhandled system error'", "no header"),
        ('{"results": [', "breaks off"),
        ('{"a": 1}', "keys a"),
    ],
)
def test_what_is_not_of_nccl_tests_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        read_nccl_tests(text)
