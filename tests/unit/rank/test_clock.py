import time

import numpy as np
import pytest
import torch

from rtxscale.rank.clock import Block, host_bound, run_steps


def test_steps_are_timed_one_by_one_on_the_host():
    waits = iter([0.02, 0.04, 0.0])

    def step():
        time.sleep(wait := next(waits))
        return wait / 2

    block = run_steps(step, 3, torch.device("cpu"))
    assert block.step_s == pytest.approx([0.02, 0.04, 0.0], abs=0.015)
    assert block.input_s.tolist() == [0.01, 0.02, 0.0]
    assert block.host_bound is None


def test_a_device_that_follows_on_the_hosts_heels_is_host_bound():
    step_s = np.full(100, 0.010)
    enqueued_s = np.cumsum(step_s) - 20e-6
    assert host_bound(enqueued_s, step_s, np.zeros_like(step_s)).all()


def test_a_host_that_runs_ahead_is_not_host_bound():
    step_s = np.full(100, 0.010)
    enqueued_s = np.minimum(np.cumsum(np.full(100, 0.004)), np.cumsum(step_s) - 0.006)
    assert not host_bound(enqueued_s, step_s, np.zeros_like(step_s)).any()


def test_a_host_that_falls_behind_in_between_is_host_bound_there_only():
    step_s = np.array([0.010, 0.010, 0.030, 0.010])
    enqueued_s = np.array([0.002, 0.004, 0.050, 0.052])
    assert host_bound(enqueued_s, step_s, np.zeros_like(step_s)).tolist() == [False, False, True, False]


def test_very_short_steps_allow_for_the_launch_itself():
    assert host_bound(np.array([0.00010]), np.array([0.00014]), np.zeros(1)).all()


def simulated(input_s, enqueue_s, work_s, steps=200):
    """A host that waits for input and then enqueues, and a device that works through that in order."""
    now, done, marks, enqueued = 0.0, 0.0, [], []
    for _ in range(steps):
        begun = now + input_s
        now = begun + enqueue_s
        done = max(done, begun) + work_s
        done = max(done, now)
        marks.append(done)
        enqueued.append(now)
    step_s = np.diff(np.array([0.0, *marks]))
    return Block(step_s=step_s, input_s=np.full(steps, input_s), enqueued_s=np.array(enqueued)), done


@pytest.mark.parametrize(
    ("input_s", "enqueue_s", "work_s", "share", "by_host"),
    [
        (0.100, 0.020, 0.060, 0.5, False),  # 120 ms a step, of which the device works 60
        (0.030, 0.020, 0.060, 0.0, False),  # the host is ahead all the same
        (0.197, 0.022, 0.030, 0.87, False),  # a lead of 8 ms is much beside 30 ms of work, if little beside 227
        (0.0, 0.020, 0.010, 0.0, True),
        (0.050, 0.010, 0.005, 50 / 60, True),  # never more than the wait: the rest is the host's own
    ],
)
def test_waits_for_input_count_as_far_as_the_device_had_run_dry_and_are_not_the_hosts_doing(
    input_s, enqueue_s, work_s, share, by_host
):
    block, seconds = simulated(input_s, enqueue_s, work_s)
    assert block.waited_s.sum() / seconds == pytest.approx(share, abs=0.01)
    assert block.host_bound.all() if by_host else not block.host_bound.any()


def test_no_steps_no_verdicts():
    assert host_bound(np.zeros(0), np.zeros(0), np.zeros(0)).size == 0
    assert Block(step_s=np.zeros(0), input_s=np.zeros(0), enqueued_s=np.zeros(0)).waited_s.size == 0
