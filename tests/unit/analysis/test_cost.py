"""Energy and money: from the power of the used GPUs and a declared price, never from a list."""

import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.analysis.cost import Billing, billing_of
from rtxscale.spec.declare import Price
from rtxscale.stats.intervals import geometric_mean_interval, log_moments

AXES = {"gpus": [1, 2], "nccl.algorithm": ["auto", "ring"]}


def concluded(rows, price=None):
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes=AXES, price=price)
    assert_sound(conclusions)
    return conclusions


def cost(conclusions, gpus=2):
    return next(row for row in conclusions.cost.iter_rows(named=True) if row["gpus"] == gpus)


def test_energy_per_unit_of_work_is_power_over_throughput_with_an_interval_over_visits():
    rows = visits(made_cell(2, 64), 100.0, 110.0)
    rows[0]["power_w"], rows[1]["power_w"] = 500.0, 520.0
    row = cost(concluded(rows))
    right = geometric_mean_interval(log_moments([500 / 100, 520 / 110]))
    assert (row["energy_per_work_j"], row["energy_per_work_low"], row["energy_per_work_high"]) == pytest.approx(
        tuple(float(value) for value in (right.estimate, right.low, right.high))
    )
    assert row["work_per_j"] == pytest.approx(1 / row["energy_per_work_j"])
    assert (row["work_per_money"], row["note"]) == (None, "no price was declared")


def test_energy_at_the_wall_stands_beside_that_of_the_gpus_and_changes_nothing_of_it():
    rows = visits(made_cell(2, 64), 100.0, 110.0, power_w=500.0)
    alone = cost(concluded([dict(row) for row in rows]))
    rows[0]["wall_power_w"], rows[1]["wall_power_w"] = 900.0, 940.0
    row = cost(concluded(rows))
    right = geometric_mean_interval(log_moments([900 / 100, 940 / 110]))
    found = [row[f"wall_energy_per_work_{name}"] for name in ("j", "low", "high")]
    assert found == pytest.approx([float(value) for value in (right.estimate, right.low, right.high)])
    assert row["wall_power_w"] == pytest.approx(920)
    dead = cost(concluded([*rows, rows[1] | {"trial_id": "z", "visit": 3, "wall_power_w": 0.0}]))
    assert dead["wall_power_w"] == pytest.approx(920), "of the trials that the energy is of"
    assert dead["wall_energy_per_work_j"] == row["wall_energy_per_work_j"]
    assert {name: row[name] for name in alone if "wall" not in name} == {
        name: value for name, value in alone.items() if "wall" not in name
    }
    assert alone["wall_energy_per_work_j"] is None


def test_without_power_there_is_no_energy_and_it_says_so():
    row = cost(concluded(visits(made_cell(2, 64), 100.0, 110.0)))
    assert row["energy_per_work_j"] is None
    assert row["note"] == "no power was measured; no price was declared"


def test_work_per_money_from_a_billed_hour():
    rows = visits(made_cell(2, 64), 100.0, 100.0, power_w=500.0)
    row = cost(concluded(rows, Price(per_hour=4.0, currency="EUR")))
    assert row["work_per_money"] == pytest.approx(100 * 3600 / 4)
    assert row["currency"] == "EUR"


def test_the_hour_of_each_machine_that_a_trial_was_on_is_billed():
    rows = visits(made_cell(2, 64), 100.0, 100.0, power_w=500.0, nodes=2)
    assert cost(concluded(rows, Price(per_hour=4.0, currency="EUR")))["work_per_money"] == pytest.approx(360_000 / 8)
    # 8 EUR for the hour of two machines and 0.4 EUR for a kWh, of which there is half a one
    price = Price(per_hour=4.0, per_kwh=0.4, currency="EUR")
    assert cost(concluded(rows, price))["work_per_money"] == pytest.approx(360_000 / 8.2)


def test_a_purchase_is_spread_over_its_hours_and_electricity_is_added():
    rows = visits(made_cell(2, 64), 100.0, 100.0, power_w=1000.0)
    price = Price(purchase=20_000.0, hours_of_use=10_000.0, per_kwh=0.4, currency="EUR")
    # 2 EUR for the hour and 1 kWh
    assert cost(concluded(rows, price))["work_per_money"] == pytest.approx(100 * 3600 / 2.4)


@pytest.mark.parametrize(
    ("price", "why"),
    [
        (Price(), "no price was declared"),
        (Price(currency="EUR"), "no price was declared"),
        (Price(per_hour=1.0), "currency is not declared"),
        (Price(purchase=1.0, currency="EUR"), "needs price.hours_of_use"),
        (Price(purchase=1.0, per_hour=1.0, hours_of_use=1.0, currency="EUR"), "both declared"),
    ],
)
def test_a_price_that_is_none_says_why(price, why):
    billing, reason = billing_of(price)
    assert billing is None
    assert why in reason
    row = cost(concluded(visits(made_cell(2, 64), 100.0, power_w=100.0), price))
    assert row["work_per_money"] is None
    assert why in row["note"]


def test_electricity_alone_needs_power():
    price = Price(per_kwh=0.3, currency="EUR")
    assert billing_of(price) == (Billing(currency="EUR", per_kwh=0.3), "")
    row = cost(concluded(visits(made_cell(2, 64), 100.0), price))
    assert row["work_per_money"] is None
    # 360,000 images an hour for 0.1 kWh
    row = cost(concluded(visits(made_cell(2, 64), 100.0, power_w=100.0), price))
    assert row["work_per_money"] == pytest.approx(360_000 / 0.03)


def objectives(conclusions):
    return {(row["objective"], row["gpus"]): row for row in conclusions.objectives.iter_rows(named=True)}


def test_each_objective_has_its_own_best_cell():
    rows = [made_row(made_cell(1, 64), 50.0, visit=visit, power_w=300.0) for visit in (1, 2, 3)]
    for visit, level in enumerate((1.0, 1.0005, 0.9995), start=1):
        rows.append(made_row(made_cell(2, 64), 100.0 * level, visit=visit, power_w=500.0))
        rows.append(made_row(made_cell(2, 64, algorithm="ring"), 104.0 * level, visit=visit, power_w=700.0))
    found = objectives(concluded(rows, Price(per_hour=1.0, currency="EUR")))
    assert found["throughput", 2]["label"] == "gpus 2, ring"
    assert found["perf/W", 2]["label"] == "gpus 2, defaults"
    assert found["perf/W", 2]["value"] == pytest.approx(0.2)
    assert found["perf/W", 2]["unit"] == "images/J"
    assert found["perf/W", 2]["verdict"] == "the default is the best of 2"
    assert found["perf/money", 2]["label"] == "gpus 2, ring"
    assert found["perf/money", 2]["gain"] == pytest.approx(0.04)
    assert found["perf/money", 2]["unit"] == "images/EUR"
    assert "better than the default" in found["perf/money", 2]["verdict"]


def test_without_power_or_price_throughput_is_the_only_objective():
    found = objectives(concluded(visits(made_cell(1, 64), 50.0) + visits(made_cell(2, 64), 90.0)))
    assert {name for name, _ in found} == {"throughput"}


def test_the_counters_energy_comes_before_sampled_power():
    counted = {"power_w": 500.0, "energy_j": 2400.0, "window_s": 5.0}
    row = cost(concluded(visits(made_cell(2, 64), 100.0, 100.0, **counted)))
    assert row["energy_per_work_j"] == pytest.approx(480 / 100)
    assert row["power_w"] == 500
    for name in ("energy_j", "window_s"):
        sampled = cost(concluded(visits(made_cell(2, 64), 100.0, 100.0, **(counted | {name: None}))))
        assert sampled["energy_per_work_j"] == pytest.approx(500 / 100)
    price = Price(per_kwh=0.3, currency="EUR")
    row = cost(concluded(visits(made_cell(2, 64), 100.0, 100.0, **counted), price))
    assert row["work_per_money"] == pytest.approx(360_000 / (0.48 * 0.3))


def test_a_coarse_energy_says_so_with_its_edge_error():
    rows = visits(made_cell(2, 64), 100.0, 101.0, 102.0, energy_j=2400.0, window_s=5.0, energy_source="counter")
    for row, updates in zip(rows, (25.04, 50.0, 500.0), strict=True):
        row["energy_updates"] = updates
    conclusions = concluded(rows)
    assert "coarse energy in 2 of 3 trials: 25.0 counter steps and more" in cost(conclusions)["note"]
    (remark,) = [one for one in conclusions.remarks if one.startswith("The energy of")]
    assert "2 trials is coarse" in remark
    assert "as few as 25 steps, so that a single one may be off by up to 4 %" in remark
    fine = concluded([row | {"energy_updates": 100.0} for row in rows])
    assert "coarse" not in cost(fine)["note"] + " ".join(fine.remarks)
