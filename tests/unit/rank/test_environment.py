import torch

from rtxscale.rank.environment import describe_software
from rtxscale.rank.session import cpu_name


def test_every_value_is_text_under_a_subject():
    rows = describe_software("cpu")
    assert {tuple(row) for row in rows} == {("subject", "name", "value")}
    assert all(isinstance(value, str) and value for row in rows for value in row.values())
    assert {row["subject"] for row in rows} == {"software", "setting", "package"}


def test_versions_are_those_of_the_libraries():
    values = {row["name"]: row["value"] for row in describe_software("cpu") if row["subject"] == "software"}
    assert values["torch"] == torch.__version__
    assert values["torch commit"] == torch.version.git_version


def test_it_says_the_same_every_time():
    assert describe_software("cpu") == describe_software("cpu")


def test_a_cpu_has_its_model_name_where_linux_gives_one(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2.0 GHz\nmodel name\t: Some CPU @ 2.0 GHz\n")
    assert cpu_name(info) == "Some CPU @ 2.0 GHz"
    assert cpu_name(tmp_path / "missing")


def test_every_installed_package_is_listed_once_with_its_version():
    rows = [row for row in describe_software("cpu") if row["subject"] == "package"]
    versions = {row["name"]: row["value"] for row in rows}
    assert len(versions) == len(rows)
    assert [row["name"] for row in rows] == sorted(versions)
    assert versions["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert "pytest" in versions
