import pytest

from rtxscale.workloads.links.timing import MIB, Timing, bus_factor, expected, iterations_for, message_bytes, sent

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")


def timing(operation, size_bytes, seconds, world):
    times = {"time_mean_s": seconds, "time_p50_s": seconds, "time_p95_s": seconds}
    return Timing(
        operation=operation, size_bytes=size_bytes, dtype="fp32", iterations=1, data_ok=True, world=world, **times
    )


@pytest.mark.parametrize(
    ("operation", "world", "factor"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("broadcast", 8, 1.0)],
)
def test_bus_factors_are_those_of_nccl_tests(operation, world, factor):
    assert bus_factor(operation, world) == factor


def test_bandwidth_counts_powers_of_ten():
    one = timing("all_reduce", 512 * MIB, 0.003, 4)
    assert one.algbw_gb_s == pytest.approx(178.957, abs=0.001)
    assert one.busbw_gb_s == pytest.approx(268.435, abs=0.001)


@pytest.mark.parametrize("world", [2, 3, 4, 8])
@pytest.mark.parametrize("item_bytes", [2, 4])
def test_a_message_splits_evenly_and_is_not_smaller_than_asked(world, item_bytes):
    size = message_bytes(0.001, world, item_bytes)
    assert size % (world * item_bytes) == 0
    assert 0 <= size - 0.001 * MIB < 4 * world * item_bytes


@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_the_expected_result_follows_from_what_all_ranks_sent(world):
    def value(scale, offset, place):
        return scale * (place % 4) + offset

    for rank in range(world):
        for part in range(world):
            for operation in ("all_reduce", "reduce_scatter"):
                scale, offsets = expected(operation, rank, world)
                total = sum(value(1, sent(operation, source, world)[1][part], 3) for source in range(world))
                assert value(scale, offsets[part], 3) == total
            assert expected("all_gather", rank, world)[1][part] == sent("all_gather", part, world)[1][part]
            assert expected("broadcast", rank, world)[1][part] == sent("broadcast", 0, world)[1][part]
            assert expected("all_to_all", rank, world)[1][part] == sent("all_to_all", part, world)[1][rank]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_doing_nothing_would_be_noticed(operation):
    world = 4
    untouched = [sent(operation, rank, world) == expected(operation, rank, world) for rank in range(world)]
    assert not all(untouched)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_values_are_integers_that_bf16_holds(operation):
    scale, offsets = expected(operation, 7, 8)
    assert all(abs(scale * 3 + offset) <= 256 for offset in offsets)


def test_fast_operations_are_repeated_more_often():
    assert iterations_for(1e-6) == 400
    assert iterations_for(0.01) == 8
    assert iterations_for(10.0) == 5
