"""Meters at the wall: what each source says, what it refuses, and that nothing of it gets into GPU power."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import sin

import pytest

from rtxscale.errors import BadInput, RunError
from rtxscale.results.schema import table
from rtxscale.spec.wall_power import WallPower
from rtxscale.telemetry.meter_log import LogColumns, read_log_lines
from rtxscale.telemetry.meters import DCMI, chassis_power_w, ipmi_words, open_meter
from rtxscale.telemetry.wall_meter import WallMeter
from rtxscale.telemetry.window import summarise, wall_summary

SECOND = 1_000_000_000
DCMI_TEXT = """
    Instantaneous power reading:                   1214 Watts
    Minimum during sampling period:                 210 Watts
    Maximum during sampling period:                1390 Watts
    Average power reading over sample period:      1102 Watts
"""


def command(tmp_path, code, **fields):
    (tmp_path / "meter.py").write_text(code)
    return WallPower(source="command", command=(sys.executable, "meter.py"), **fields)


def test_a_command_gives_the_first_number_it_prints(tmp_path):
    ((t_ns, power_w),) = open_meter(command(tmp_path, "print('P = 412.5 W, 49.9 Hz')"), tmp_path).read()
    assert power_w == 412.5
    assert t_ns > 1.7e18


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('no power')", "said: no power"),
        ("raise SystemExit('unplugged')", "ended with code 1 and said: unplugged"),
    ],
)
def test_a_command_without_a_number_is_refused_before_anything_runs(tmp_path, code, said):
    with pytest.raises(RunError, match=said):
        open_meter(command(tmp_path, code), tmp_path)


def test_a_command_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(RunError, match="no-such-meter"):
        open_meter(WallPower(source="command", command=("no-such-meter",)), tmp_path)


def test_dcmi_takes_the_reading_of_now_and_no_other():
    found = DCMI.search(DCMI_TEXT)
    assert float(found[1]) == 1214
    assert ipmi_words(None, {}) == ("ipmitool", "dcmi", "power", "reading")
    assert "secret" not in " ".join(ipmi_words("bmc", {"IPMI_PASSWORD": "secret"}))  # ipmitool reads it itself


REDFISH = {
    "/redfish/v1/Chassis": {
        "Members": [{"@odata.id": "/redfish/v1/Chassis/fan"}, {"@odata.id": "/redfish/v1/Chassis/1"}]
    },
    "/redfish/v1/Chassis/fan/Power": {"PowerControl": []},
    "/redfish/v1/Chassis/1/Power": {"PowerControl": [{"PowerConsumedWatts": 733}]},
}


@pytest.fixture
def controller():
    """A controller that answers as `REDFISH`, and the requests that it got."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Authorization")))
            known = REDFISH.get(self.path)
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(known or {}).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_redfish_finds_the_chassis_that_tells_power_and_then_asks_it_alone(controller, tmp_path):
    address, asked = controller
    meter = open_meter(WallPower(source="redfish", address=address), tmp_path, {})
    asked.clear()
    ((_, power_w),) = meter.read()
    assert power_w == 733
    assert asked == [("/redfish/v1/Chassis/1/Power", None)]


def test_redfish_shows_no_password_without_encryption(controller, tmp_path):
    address, asked = controller
    with pytest.raises(BadInput, match="https"):
        open_meter(WallPower(source="redfish", address=address), tmp_path, {"RTXSCALE_REDFISH_USER": "reader"})
    assert asked == []
    with pytest.raises(BadInput, match="https"):
        open_meter(WallPower(source="redfish", address="10.0.0.9"), tmp_path, {})


@pytest.mark.parametrize(
    ("resource", "watts"),
    [
        ({"PowerWatts": {"Reading": 812.5}}, 812.5),
        ({"PowerControl": [{"PowerConsumedWatts": 0}]}, 0.0),
        ({"PowerControl": [None]}, None),
        ({"PowerWatts": {"Reading": True}}, None),
        ({}, None),
    ],
)
def test_redfish_resources(resource, watts):
    assert chassis_power_w(resource) == watts


def test_a_log_counts_from_now_on_in_whole_lines_only(tmp_path):
    log = tmp_path / "meter.csv"
    log.write_text("time,power_w\n1796040000,100\n17960400")
    meter = open_meter(WallPower(source="csv", path="meter.csv"), tmp_path)
    assert meter.read() == []
    with log.open("a") as file:
        file.write("01,200\n1796040002,3")
    assert meter.read() == [(1796040001 * SECOND, 200.0)]
    with log.open("a") as file:
        file.write("00\nrubbish\n1796040003,\n")
    assert meter.read() == [(1796040002 * SECOND, 300.0)]


def test_a_log_that_is_begun_anew_is_followed(tmp_path):
    log = tmp_path / "meter.csv"
    log.write_text("time,power_w\n" + "1796040000,100\n" * 5)
    meter = open_meter(WallPower(source="csv", path="meter.csv"), tmp_path)
    log.write_text("time,power_w\n1796040009,150\n")
    assert meter.read() == [(1796040009 * SECOND, 150.0)]


def test_a_log_without_the_columns_or_the_file_is_refused(tmp_path):
    (tmp_path / "meter.csv").write_text("when,watts\n")
    with pytest.raises(RunError, match="no column time and no column power_w among when, watts"):
        open_meter(WallPower(source="csv", path="meter.csv"), tmp_path)
    with pytest.raises(RunError, match=r"gone\.csv"):
        open_meter(WallPower(source="csv", path="gone.csv"), tmp_path)
    named = WallPower(source="csv", path="meter.csv", time_column="when", power_column="watts")
    assert open_meter(named, tmp_path).read() == []


def test_a_log_that_holds_lines_and_no_reading_is_refused_and_told_of_later(tmp_path):
    log = tmp_path / "meter.csv"
    log.write_text("time,power_w\n1796040000000,100\n")  # milliseconds
    with pytest.raises(RunError, match="1796040000000,100"):
        open_meter(WallPower(source="csv", path="meter.csv"), tmp_path)
    log.write_text("time,power_w\n")
    meter = WallMeter(open_meter(WallPower(source="csv", path="meter.csv"), tmp_path), 60)
    with log.open("a") as file:
        file.write("1796040000000,100\n")
    assert (meter.take("n").num_rows, meter.errors) == (0, 1)
    with log.open("a") as file:
        file.write("time,power_w\n\n")  # begun anew
    assert (meter.take("n").num_rows, meter.errors) == (0, 1)


@pytest.mark.parametrize(
    ("head", "line", "reading"),
    [
        ("\ufefftime,power_w", "1796040000.5,1.5", (1796040000500000000, 1.5)),
        ('"power_w";"time"', '"412,5";"2026-11-30T12:00:00+00:00"', (1796040000000000000, 412.5)),
        ("time\tpower_w", "2026-11-30T13:00:00+01:00\t7", (1796040000000000000, 7.0)),
        ("time,power_w", "1796040000000,5", None),  # milliseconds are no seconds
        ("time,power_w", "1796040000,nan", None),
        ("time,power_w", "1796040000,5,6", None),
    ],
)
def test_lines_of_logs(head, line, reading):
    assert read_log_lines(head, [line], LogColumns()) == ([] if reading is None else [reading])


class Planned:
    """A log that holds what was planned; an exception is raised."""

    is_log = True

    def __init__(self, *answers):
        self.answers = list(answers)

    def read(self):
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_garbage_is_dropped_and_a_failing_meter_is_counted():
    meter = WallMeter(Planned([(1, 500.0), (2, -3.0), (3, 3.7e6)], OSError("unplugged"), [(4, 510.0)]), 60)
    rows = meter.take("node0").to_pylist()
    assert [(row["node"], row["device"], row["t_ns"], row["wall_power_w"]) for row in rows] == [
        ("node0", "wall", 1, 500.0)
    ]
    assert meter.take("node0").num_rows == 0
    assert (meter.errors, meter.last_error) == (3, "OSError: unplugged")
    assert meter.take("node0")["wall_power_w"].to_pylist() == [510.0]
    meter.stop()


def test_a_running_machine_that_draws_nothing_is_a_meter_that_tells_nothing():
    meter = WallMeter(Planned([(1, 0.0), (2, 500.0)]), 60)
    assert meter.take("node0")["wall_power_w"].to_pylist() == [500.0]
    assert (meter.errors, meter.last_error) == (1, "an implausible reading of 0 W")


def test_it_polls_until_it_is_stopped():
    read = threading.Event()

    class Waiting:
        is_log = False

        def read(self):
            read.set()
            return [(1, 1.0)]

    meter = WallMeter(Waiting(), 0.005)
    meter.start()
    assert read.wait(5)
    meter.stop()
    assert meter.take("n").num_rows >= 1
    assert meter.take("n").num_rows == 0  # a slow meter is not asked by whoever takes


def test_a_meter_that_hangs_holds_up_nobody():
    asked, answered = threading.Event(), threading.Event()

    class Hanging:
        is_log = False

        def read(self):
            asked.set()
            answered.wait(10)
            return []

    meter = WallMeter(Hanging(), 0.005)
    meter.start()
    assert asked.wait(5)
    began = time.monotonic()
    assert meter.take("n").num_rows == 0
    assert time.monotonic() - began < 2
    answered.set()
    meter.stop()


def test_wall_and_gpu_power_of_a_window_stand_side_by_side():
    def wall_w(s):
        return 600 + 50 * sin(s)

    rows = [{"device": "wall", "t_ns": round(s * SECOND), "wall_power_w": wall_w(s)} for s in range(101)]
    rows += [{"device": "gpu", "uuid": "a", "t_ns": round(s * SECOND / 10), "power_w": 300.0} for s in range(1001)]
    samples = table("telemetry", rows)
    start, end = round(10.25 * SECOND), round(60.75 * SECOND)
    found = wall_summary(samples, start, end)
    # The integral of 600 + 50 sin t, from its antiderivative 600 t - 50 cos t.
    from math import cos

    exact = 600 * 50.5 - 50 * (cos(60.75) - cos(10.25))
    assert found["wall_energy_j"] == pytest.approx(exact, rel=1e-3)
    assert found["wall_power_w"] == pytest.approx(exact / 50.5, rel=1e-3)
    assert summarise(samples, ["a"], start, end)["power_w"] == pytest.approx(300)


def test_a_meter_that_was_away_for_most_of_the_window_says_nothing():
    rows = [{"device": "wall", "t_ns": s * SECOND, "wall_power_w": 500.0} for s in range(5)]
    assert wall_summary(table("telemetry", rows), 0, 20 * SECOND) == {"wall_power_w": None, "wall_energy_j": None}
    assert wall_summary(table("telemetry", []), 0, SECOND) == {"wall_power_w": None, "wall_energy_j": None}
    away = [{"device": "wall", "t_ns": s * SECOND, "wall_power_w": 500.0} for s in range(21) if not 4 < s < 17]
    assert wall_summary(table("telemetry", away), 0, 20 * SECOND) == {"wall_power_w": None, "wall_energy_j": None}


def test_a_driver_whose_clock_was_set_has_no_power_at_the_wall_for_the_window():
    shown = [s if s < 10 else s + 30 for s in range(21)]
    wall = [{"node": "n0", "device": "wall", "t_ns": s * SECOND, "wall_power_w": 500.0} for s in shown]
    host = [
        {"node": node, "device": "host", "t_ns": t_s * SECOND, "monotonic_ns": s * SECOND, "utilisation": 0.1}
        for node, times in (("n0", shown), ("n1", range(21)))
        for s, t_s in enumerate(times)
    ]
    nothing = {"wall_power_w": None, "wall_energy_j": None}
    assert wall_summary(table("telemetry", wall + host), 0, 50 * SECOND) == nothing
    right = [{**row, "t_ns": s * SECOND} for s, row in enumerate(wall)]
    found = wall_summary(table("telemetry", right + host[21:]), 0, 20 * SECOND)
    assert found == {"wall_power_w": pytest.approx(500), "wall_energy_j": pytest.approx(10_000)}
