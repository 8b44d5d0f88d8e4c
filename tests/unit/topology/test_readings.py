"""Null words, numbers with units, the CSV and the long form of nvidia-smi, and matrices of measured transfers."""

from pathlib import Path

import pytest

from rtxscale.topology.details import parse_details
from rtxscale.topology.null_words import null_reason, read_number
from rtxscale.topology.query import parse_query
from rtxscale.topology.transfers import parse_transfers

GOLDEN = Path(__file__).parents[2] / "golden" / "topology"


def text_of(name):
    with (GOLDEN / name).open(newline="") as file:
        return file.read()


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("[N/A]", "not supported"),
        ("N/A", "not supported"),
        ("Not Supported", "not supported"),
        ("[Not Supported]", "not supported"),
        ("[Requested functionality has been deprecated]", "deprecated"),
        ("Not Found", "not found"),
        ("", "blank"),
        ("  ", "blank"),
        ("[Unknown Error]", "error"),
        ("0", None),
        ("[0]", None),
        ("None of it", None),
    ],
)
def test_null_words(word, reason):
    assert null_reason(word) == reason


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("0 %", "%", 0),
        ("40", "", 40),
        ("40", "MiB", 40),
        ("-1.5", "", -1.5),
        ("84.03 W", "W", 84.03),
        ("[Not Supported]", "W", None),
        ("", "W", None),
    ],
)
def test_numbers(text, unit, number):
    assert read_number(text, unit) == number


@pytest.mark.parametrize(
    ("text", "unit"), [("84 W", "%"), ("84 W", ""), ("P8", ""), ("84.W", "W"), ("1e3", ""), ("nan", "")]
)
def test_no_numbers(text, unit):
    with pytest.raises(ValueError, match=r"^" + text):
        read_number(text, unit)


def test_the_recorded_query_of_idle_and_loaded_gpus():
    query = parse_query(text_of("smi_query_mixed_idle_load.csv"))
    assert (len(query.rows), query.problems) == (8, ())
    assert query.numbers("power.draw") == ([39.32, 111.50, 39.17, 26.20, 84.24, 631.95, 433.78, 144.97], [])
    assert query.numbers("power.draw.average") == ([None, None, None, 26.20, 84.24, 631.95, 433.78, 144.97], [])
    assert query.numbers("utilization.gpu") == ([0, 8, 0, 0, 7, 100, None, 100], [])
    assert query.numbers("memory.used")[0] == [214, 819, 211, 596, 1474, 19818, 11125, 0]
    assert query.numbers("temperature.memory")[0] == [None, None, None, None, None, 54, 59, None]
    assert query.numbers("clocks_event_reasons_counters.sw_power_cap")[0][2] == 15_814_595_384
    assert query.numbers("clocks.applications.graphics") == ([None] * 8, [])
    assert query.texts("mig.mode.current") == [None] * 5 + ["Disabled", "Enabled", None]
    assert query.texts("name")[3] == "NVIDIA GeForce RTX 4080 SUPER"


def test_the_recorded_process_list_of_windows():
    query = parse_query(text_of("smi_windows_apps_na.csv"))
    assert query.numbers("pid") == ([2056, 12332], [])
    assert query.numbers("used_gpu_memory") == ([None, None], [])
    assert query.units[query.columns.index("used_gpu_memory")] == "MiB"
    assert query.texts("process_name")[1] == r"C:\Windows\explorer.exe"


def test_a_cell_that_is_no_number_is_named_with_row_and_column():
    numbers, problems = parse_query("name, power.draw [W]\na, 84 W\nb, soon\nc, 3 A\n").numbers("power.draw")
    assert numbers == [84, None, None]
    assert [str(one) for one in problems] == [
        "nvidia-smi --query:3: power.draw: found 'soon'; expected a number in W, or N/A",
        "nvidia-smi --query:4: power.draw: found '3 A'; expected a number in W, or N/A",
    ]


def test_a_line_with_other_cells_is_left_out_and_named():
    query = parse_query("name, pstate\na, P0\nUnable to determine the device handle\nb, P2\n")
    assert (query.texts("pstate"), query.lines) == (["P0", "P2"], (2, 4))
    assert [one.line for one in query.problems] == [3]


def test_a_column_that_is_not_there():
    with pytest.raises(KeyError, match="power"):
        parse_query("name\na\n").numbers("power")
    assert parse_query("").rows == ()


def test_power_is_found_under_the_headings_of_old_and_new_drivers():
    old, new = (parse_details(text_of(f"smi_q_power_{name}.txt")) for name in ("old", "595"))
    assert read_number(old.find("Power Readings", "Power Draw"), "W") == 60.06
    assert old.find("GPU Power Readings", "Average Power Draw") is None
    assert read_number(new.find("GPU Power Readings", "Average Power Draw"), "W") == 84.03
    assert read_number(new.find("GPU Power Readings", "Instantaneous Power Draw"), "W") == 86.41
    assert read_number(new.find("GPU Memory Power Readings", "Average Power Draw"), "W") is None
    assert new.find("Power Readings", "Power Draw") is None
    assert old.values[0].path == ("Power Readings", "Power Management")


def test_headings_end_where_the_indent_ends():
    details = parse_details(
        "Attached GPUs      : 1\n"
        "GPU 00000000:01:00.0\n"
        "    ECC Mode\n"
        "        Current        : N/A\n"
        "    Fan Speed          : 0 %\n"
        "End :\n"
    )
    assert [(detail.path, detail.value, detail.line) for detail in details.values] == [
        (("Attached GPUs",), "1", 1),
        (("GPU 00000000:01:00.0", "ECC Mode", "Current"), "N/A", 4),
        (("GPU 00000000:01:00.0", "Fan Speed"), "0 %", 5),
        (("End",), "", 6),
    ]


def test_recorded_transfers_between_5090s():
    enabled, gpu, cpu = parse_transfers(text_of("p2p_bandwidth_latency_9x5090_head.txt"))
    assert [(one.unit, one.timed_by, one.peer_access) for one in (enabled, gpu, cpu)] == [
        ("GB/s", "D\\D", True),
        ("us", "GPU", False),
        ("us", "CPU", False),
    ]
    assert len(enabled.values) == len(gpu.values) == len(cpu.values) == 16
    assert (enabled.values[0, 0], enabled.values[3, 1]) == (1617.49, 56.58)
    assert (enabled.worst_pair(), enabled.values[enabled.worst_pair()]) == ((0, 1), 55.59)
    assert (gpu.values[3, 2], gpu.worst_pair()) == (14.32, (1, 0))
    assert (cpu.title, cpu.values[1, 0]) == ("P2P=Disabled Latency Matrix", 5.48)


def test_a_row_of_transfers_with_a_missing_value_is_named():
    (matrix,) = parse_transfers("P2P Connectivity Matrix\n  D\\D   0   1\n  0   1   1\n  1   1\n")
    assert matrix.values == {(0, 0): 1, (0, 1): 1}
    assert (matrix.unit, matrix.peer_access) == ("", None)
    assert [one.line for one in matrix.problems] == [4]
    assert parse_transfers("no matrix\n 0 1 2\n") == ()
