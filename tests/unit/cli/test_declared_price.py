"""Work per money comes from a declared price only, in `show` and `report`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.test_compare_command import invoke, made_run


@pytest.fixture
def declared(tmp_path):
    path = tmp_path / "declare.yaml"
    path.write_text("price: {per_hour: 4.0, currency: EUR}\n")
    return path


def test_show_and_report_use_the_declared_price(tmp_path, declared):
    name = made_run(tmp_path, "priced", {1: [100.0, 101.0], 2: [190.0, 191.0]}, "570.1")
    data = json.loads(invoke(tmp_path, "show", name, "--json", "--declare", str(declared)).stdout)
    found = {row["gpus"]: row["work_per_money"] for row in data["cost"]}
    assert found == pytest.approx({1: 100.5 * 900, 2: 190.5 * 900}, rel=1e-4)
    assert "images/EUR" in invoke(tmp_path, "show", name, "--declare", str(declared)).stdout
    page = invoke(tmp_path, "report", name, "--declare", str(declared))
    assert "images/EUR" in Path(page.stdout.splitlines()[-1]).read_text()
    without = json.loads(invoke(tmp_path, "show", name, "--json").stdout)
    assert {row["work_per_money"] for row in without["cost"]} == {None}
    assert "EUR" not in invoke(tmp_path, "show", name, "--csv", "cost").stdout


def test_a_wrong_declaration_is_refused(tmp_path):
    name = made_run(tmp_path, "priced", {1: [100.0]}, "570.1")
    (tmp_path / "bad.yaml").write_text("price: {per_hour: -1}\n")
    result = invoke(tmp_path, "show", name, "--declare", str(tmp_path / "bad.yaml"))
    assert (result.exit_code, "price.per_hour" in result.stderr) == (2, True)
