import pytest

from rtxscale.errors import RunError
from rtxscale.results.schema import arrow_schema
from rtxscale.run.environment import differences, environment_id, environment_rows, environment_table
from rtxscale.run.hub import Registered
from rtxscale.run.ledger import same_software

SOFTWARE = [{"subject": "software", "name": "torch", "value": "2.11"}]
HOSTS = {"node0": [{"subject": "gpu", "name": "gpu0 power limit", "value": "575 W"}]}


def identity(software=SOFTWARE, hosts=HOSTS):
    return environment_id(environment_rows(hosts, software))


def test_the_id_does_not_depend_on_the_order_of_facts():
    rows = environment_rows(HOSTS, SOFTWARE)
    assert environment_id(rows) == environment_id(rows[::-1])


def test_software_and_hardware_settings_change_it():
    other_torch = [{"subject": "software", "name": "torch", "value": "2.12"}]
    other_limit = {"node0": [{"subject": "gpu", "name": "gpu0 power limit", "value": "450 W"}]}
    assert len({identity(), identity(software=other_torch), identity(hosts=other_limit)}) == 3


def test_the_table_has_the_schema():
    rows = environment_rows(HOSTS, SOFTWARE)
    written = environment_table(rows, "abc")
    assert written.schema.equals(arrow_schema("environment"))
    assert written.column("environment_id").to_pylist() == ["abc", "abc"]


def test_workers_with_different_software_are_an_error():
    def worker(rank, version):
        software = ({"subject": "software", "name": "torch", "value": version},)
        return Registered(rank=rank, pid=rank, node="n", software=software)

    assert same_software([worker(0, "2.11"), worker(1, "2.11")])[0]["value"] == "2.11"
    with pytest.raises(RunError, match=r"torch '2\.11' and '2\.12'"):
        same_software([worker(0, "2.11"), worker(1, "2.12")])


def test_memory_that_grows_is_the_same_environment():
    def with_memory(value):
        return environment_id(
            [
                {"node": "node0", "subject": "host", "name": "memory", "value": value},
                {"node": "node0", "subject": "host", "name": "cpu cores", "value": "32"},
            ]
        )

    assert with_memory("31000 MiB") == with_memory("257811 MiB")


def test_installed_packages_are_recorded_without_being_the_environment():
    def package(version):
        return {"subject": "package", "name": "black", "value": version}

    assert (
        identity(software=[*SOFTWARE, package("25.1")]) == identity(software=[*SOFTWARE, package("25.9")]) == identity()
    )
    before, now = ([{"node": "workers", **package(version)}] for version in ("25.1", "25.9"))
    assert differences(before, now) == ""
    workers = [
        Registered(rank=rank, pid=rank, node="n", software=(*SOFTWARE, package(version)))
        for rank, version in enumerate(("25.1", "25.9"))
    ]
    assert same_software(workers)[-1]["value"] == "25.1"
