"""A declaration: the template loads as it is, every fault is found at once, and nothing is guessed."""

import pytest

from rtxscale.errors import SpecError
from rtxscale.spec.declare import (
    Declaration,
    declared_fields,
    load_declaration,
    mapped,
    parse_declaration,
    template,
)


def test_the_template_says_nothing_and_loads():
    assert parse_declaration(template(), "declare.yaml") == Declaration()


def test_the_template_has_every_field_with_a_comment_above():
    lines = template().splitlines()
    for path in declared_fields():
        name = path.rpartition(".")[2]
        (place,) = [index for index, line in enumerate(lines) if line.strip() == f"{name}: unknown"]
        assert lines[place - 1].lstrip().startswith("# "), path
    assert max(map(len, lines)) <= 120


def test_the_template_can_be_filled_in():
    text = template().replace("psu_w: unknown", "psu_w: 1600").replace("cooler: unknown", "cooler: liquid")
    text = text.replace("inlet_c: unknown", "inlet_c: 22.5").replace("storage: unknown", "storage: not applicable")
    found = parse_declaration(text, "declare.yaml")
    assert (found.platform.psu_w, found.platform.cooler, found.platform.inlet_c) == (1600, "liquid", 22.5)
    assert found.at("platform.storage") == "not applicable"


def faults(text):
    with pytest.raises(SpecError) as refused:
        parse_declaration(text, "d.yaml")
    return [str(problem) for problem in refused.value.problems]


def test_every_fault_is_reported_with_its_line_and_path():
    text = "platform:\n  coler: liquid\n  cooler: fan\n  psu_w: -5\nprice: 3\nfoo: 1\nnotes: ''\n"
    found = faults(text)
    assert [line.split(": ")[:2] for line in found] == [
        ["d.yaml:2", "platform.coler"],
        ["d.yaml:3", "platform.cooler"],
        ["d.yaml:4", "platform.psu_w"],
        ["d.yaml:5", "price"],
        ["d.yaml:6", "foo"],
        ["d.yaml:7", "notes"],
    ]
    assert "nearest" in found[0] or "platform.cooler" in found[0]
    assert "blower" in found[1]
    assert "greater than 0" in found[2]


def test_an_unknown_section_is_answered_with_all_that_there_are():
    (found,) = faults("sockets: 1\n")
    assert found.endswith("expected a known key: one of platform, conditions, power, price, data, notes")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty file; expected a declaration"),
        ("- a\n", "a list; expected a declaration"),
        ("a: [", "broken YAML"),
        ("notes: 5\n", "notes: found 5; expected unknown or not applicable, or text"),
        ("notes: null\n", "notes: found null"),
        ("platform: {storage: no}\n", "platform.storage: found no (YAML reads it as false)"),
        ("power: {wall_w: .inf}\n", "power.wall_w: found .inf"),
        ("notes: a\nnotes: b\n", "the key notes again"),
    ],
)
def test_what_is_wrong_is_refused(text, words):
    assert words in faults(text)[0]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"none\.yaml: found no such file; expected the path of a declaration"):
        load_declaration(tmp_path / "none.yaml")


def test_mapping_changes_texts_and_no_numbers():
    text = "platform: {psu_w: 1600, chassis: box}\nnotes: hello\n"
    changed = mapped(parse_declaration(text, "d.yaml"), str.upper)
    assert (changed.platform.psu_w, changed.platform.chassis, changed.notes) == (1600, "BOX", "HELLO")
