"""Links judged under load: against the card, the host and the peers."""

import csv
from pathlib import Path

from rtxscale.topology.pcie import PcieLimit, PcieSample, judge_pcie, lower_of

GOLDEN = Path(__file__).parents[2] / "golden" / "topology"


def recorded():
    with (GOLDEN / "link_flap_samples.csv").open() as file:
        for row in csv.DictReader(file):
            yield PcieSample(
                gpu=row["gpu"],
                generation=int(row["pcie_gen"]),
                width=int(row["pcie_width"]),
                utilisation_percent=float(row["util_pct"]),
            )


def sample(generation, width=16, utilisation=100.0, gpu="0"):
    return PcieSample(gpu=gpu, generation=generation, width=width, utilisation_percent=utilisation)


def test_a_link_that_stays_slow_under_load_and_one_that_loses_lanes():
    first, second = judge_pcie(list(recorded()))
    expected = PcieLimit(generation=5, width=16)
    assert (first.loaded, first.expected, first.slow) == (4, expected, True)
    assert (first.below_generation, first.lowest.generation, first.below_width) == (3, 2, 0)
    assert (second.below_generation, second.below_width, second.lowest) == (0, 1, PcieLimit(generation=5, width=8))


def test_an_idle_link_is_not_judged():
    (verdict,) = judge_pcie([sample(1, utilisation=0.0), sample(1, utilisation=None)])
    assert (verdict.loaded, verdict.slow) == (0, None)


def test_a_slow_idle_link_of_a_fast_card_is_no_fault():
    (verdict,) = judge_pcie([sample(1, utilisation=0.0), sample(5)])
    assert verdict.slow is False


def test_the_host_may_be_the_limit():
    limit = PcieLimit(generation=lower_of(5, 4), width=16)
    assert judge_pcie([sample(4)], {"0": limit})[0].slow is False
    assert judge_pcie([sample(4)], {"0": PcieLimit(generation=5)})[0].slow is True


def test_a_link_that_cannot_be_read_is_not_judged():
    assert judge_pcie([sample(None, None)])[0].slow is None
    assert judge_pcie([]) == ()
