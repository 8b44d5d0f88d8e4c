import threading

import pytest

from rtxscale.rank.control import Control, Failure, Stopped


class Table:
    """Ranks as threads around one table; what `all_gather_object` does between processes."""

    def __init__(self, world):
        self._barrier = threading.Barrier(world, timeout=10)
        self._values = [None] * world

    def rank(self, number):
        control = Control(number, len(self._values))

        def gather(value):
            self._values[number] = value
            self._barrier.wait()
            found = list(self._values)
            self._barrier.wait()
            return found

        control._gather = gather
        return control


def together(*calls):
    results = [None] * len(calls)

    def run(place, call):
        try:
            results[place] = call()
        except Stopped as stop:
            results[place] = stop

    threads = [threading.Thread(target=run, args=(place, call)) for place, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_one_worker_talks_to_itself():
    assert Control(0, 1).exchange("word") == ["word"]


def test_all_ranks_hear_all_values_in_rank_order():
    table = Table(2)
    first, second = table.rank(0), table.rank(1)
    assert together(lambda: first.exchange("a"), lambda: second.exchange("b")) == [["a", "b"]] * 2


def test_a_failure_stops_the_others_with_its_outcome_and_rank():
    table = Table(2)
    first, second = table.rank(0), table.rank(1)
    failure = Failure(1, "oom", "20 GiB were too many")
    stop, told = together(lambda: first.exchange("a"), lambda: second.tell(failure))
    assert told is None
    assert stop.outcome == "oom"
    assert str(stop) == "rank 1 failed: 20 GiB were too many"


def test_the_ranks_can_talk_again_after_a_failure():
    table = Table(2)
    first, second = table.rank(0), table.rank(1)
    together(lambda: first.exchange("a"), lambda: second.tell(Failure(1, "crashed", "x")))
    assert together(lambda: first.exchange(1), lambda: second.exchange(2)) == [[1, 2]] * 2


def test_alone_a_failure_has_nobody_to_stop():
    with pytest.raises(Stopped):
        Control(0, 1).exchange(Failure(0, "crashed", "own"))
    Control(0, 1).tell(Failure(0, "crashed", "own"))
