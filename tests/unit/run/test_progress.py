import io
import math
from dataclasses import replace

import pytest
from planned import planned_session

from rtxscale.run import progress
from rtxscale.run.agenda import Todo
from rtxscale.run.progress import Board, cell_words, result_words
from rtxscale.spec.workload import LanguageWorkload

SESSION = planned_session("s", 1.0, 2.0, gpus=2)


def todo(place=0, earlier=()):
    return Todo(session=SESSION, planned=SESSION.trials[place], earlier=earlier)


def board(total=4, finished=1):
    stream = io.StringIO()
    return Board(stream, total=total, finished=finished, expected_trial_s=10.0), stream


def test_each_trial_is_one_plain_line_where_there_is_no_terminal():
    shown, stream = board()
    with shown:
        shown.session_started(SESSION)
        shown.trial_started(todo())
        shown.trial_ended(todo(), {"outcome": "ok", "message": "", "throughput_per_s": 1234.5, "work_unit": "image"})
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("[2/4] gpus=2 ddp.bucket_mib=1.0 (batch 4, visit 1): ok, 1,234 image/s")
    assert "\x1b" not in lines[0]


def test_a_trial_that_will_be_tried_again_does_not_count_as_done():
    shown, stream = board()
    shown.trial_ended(todo(), {"outcome": "crashed", "message": "rank 1: gone"})
    shown.trial_ended(todo(earlier=("crashed",)), {"outcome": "crashed", "message": "rank 1: gone"})
    assert [line.split("]")[0] for line in stream.getvalue().splitlines()] == ["[1/4", "[2/4"]
    assert "attempt 2" in stream.getvalue()


def test_before_anything_is_measured_the_plans_estimate_counts():
    shown, _ = board(total=5, finished=1)
    assert shown.left_s() == 40.0


def test_temperature_and_power_are_shown_where_known():
    row = {"outcome": "ok", "temperature_max_c": 71.4, "power_w": 1102.0}
    assert result_words(row) == "ok, 71 °C, 1102 W"
    assert result_words({"outcome": "ok", "temperature_max_c": math.nan, "power_w": math.nan}) == "ok"


def test_brackets_in_messages_are_not_markup():
    shown, stream = board()
    shown.note("found [red]x[/red]")
    assert stream.getvalue() == "found [red]x[/red]\n"
    assert shown.taken_notes() == ["found [red]x[/red]"]
    assert shown.taken_notes() == []


def test_a_retry_and_a_repeat_are_told_apart():
    assert cell_words(todo(earlier=("hang",))) == "gpus=2 ddp.bucket_mib=1.0 (batch 4, visit 1, attempt 2)"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_one_line_that_is_redrawn_and_goes_away(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    shown = Board(stream, total=4, finished=1, expected_trial_s=10.0)
    with shown:
        shown.trial_started(todo())
        shown.show_readings({"temperature_c": 61.0, "power_w": 840.0})
        shown.trial_ended(todo(), {"outcome": "ok", "message": "", "throughput_per_s": 10.0, "work_unit": "image"})
    assert "1/4 | 30 s left | gpus=2 ddp.bucket_mib=1.0 (batch 4, visit 1) | 61 °C | 840 W" in stream.getvalue()
    assert "2/4" in stream.getvalue()
    assert "last: ok, 10.00 image/s" in stream.getvalue()
    ended = stream.getvalue()
    shown.refresh()
    assert stream.getvalue() == ended


def test_other_terminals_are_told_the_same():
    shown, _ = board()
    with shown:
        shown.trial_started(todo())
        shown.show_readings({"temperature_c": 61.0, "power_w": 840.0})
        shown.trial_ended(todo(), {"outcome": "ok", "message": "", "throughput_per_s": 10.0, "work_unit": "image"})
        shown.trial_ended(todo(1), {"outcome": "oom", "message": "", "throughput_per_s": 3.0})
    state = shown.state()
    assert (state.finished, state.total, state.throughputs) == (3, 4, (10.0, None))
    assert (state.temperature_c, state.power_w, state.last) == (61.0, 840.0, "oom")
    assert state.current == "gpus=2 ddp.bucket_mib=1.0 (batch 4, visit 1)"
    assert state.left_s > 0


def test_throughputs_told_to_other_terminals_are_of_one_model():
    """Images of one model beside tokens of another make no line."""
    resnet = todo()
    cell = resnet.planned.trial.cell
    language = LanguageWorkload(kind="language", size="tiny", batch_per_gpu=4)
    trial = resnet.planned.trial.model_copy(update={"cell": cell.model_copy(update={"workload": language})})
    decoder = replace(resnet, planned=replace(resnet.planned, trial=trial))
    shown, _ = board()
    for one, rate, unit in ((resnet, 10.0, "image"), (decoder, 9e5, "token"), (resnet, 12.0, "image")):
        shown.trial_ended(one, {"outcome": "ok", "message": "", "throughput_per_s": rate, "work_unit": unit})
    assert (shown.state().throughputs, shown.state().series) == ((10.0, 12.0), "vision/resnet18, image/s")
    shown.trial_ended(decoder, {"outcome": "crashed", "message": "rank 0: gone"})
    assert (shown.state().throughputs, shown.state().series) == ((9e5, None), "language/tiny, token/s")


class Clock:
    """Seconds as the test says."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def time_ns(self):
        return int(self.now * 1e9)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def after(shown, clock, seconds):
    clock.now += seconds
    return shown.left_s()


def test_the_time_left_counts_down_while_a_trial_runs_and_never_below_that_of_the_others(clock):
    shown, _ = board(total=3, finished=0)
    shown.trial_started(todo())
    assert [after(shown, clock, seconds) for seconds in (0, 4, 6, 30)] == [30.0, 26.0, 20.0, 20.0]
    shown.trial_ended(todo(), {"outcome": "ok", "message": ""})
    pace_s = (40 + 3 * 10) / 4
    assert [after(shown, clock, seconds) for seconds in (0, 7, 100)] == [2 * pace_s, 2 * pace_s - 7, pace_s]
    shown.trial_ended(todo(), {"outcome": "ok", "message": ""})
    assert after(shown, clock, 1000) == 0.0
    shown.trial_ended(todo(1), {"outcome": "ok", "message": ""})
    assert shown.state().left_s == 0.0


@pytest.mark.parametrize("rate", [math.nan, math.inf, None])
def test_a_rate_that_is_no_number_is_not_told(rate):
    shown, stream = board()
    shown.trial_ended(todo(), {"outcome": "ok", "message": "", "throughput_per_s": rate, "work_unit": "image"})
    assert stream.getvalue().endswith("(batch 4, visit 1): ok, 15 s left\n")
    assert (shown.state().last, shown.state().throughputs) == ("ok", (None,))


def test_a_message_is_one_line_whatever_it_holds():
    shown, stream = board()
    shown.trial_ended(todo(), {"outcome": "crashed", "message": "gone\n[4/4] gpus=2: ok\x1b[0m"})
    assert len(stream.getvalue().splitlines()) == 1
    assert r"crashed: gone\n[4/4] gpus=2: ok\x1b[0m" in stream.getvalue()
