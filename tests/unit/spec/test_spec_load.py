"""A sweep file is read as plain data, or refused with every problem, its line and what would be right."""

import os
from pathlib import Path

import pytest

from rtxscale.errors import SpecError
from rtxscale.plan.grid import make_grid
from rtxscale.spec.load import MAX_BYTES, load_sweep, parse_sweep

GOOD = """\
name: small
question: Does it scale?
study: weak
workload: {kind: vision, batch_per_gpu: 8}
axes:
  gpus: [1, 2]
  nccl.channels: [auto, 2]
"""


def problems(text):
    with pytest.raises(SpecError) as caught:
        parse_sweep(text, "sweep.yaml")
    return caught.value.problems


def only(text):
    found = problems(text)
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]


def test_a_good_file_keeps_its_text_and_values(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    loaded = load_sweep(path)
    assert loaded.text == GOOD
    assert loaded.sweep.axes == {"gpus": (1, 2), "nccl.channels": ("auto", 2)}


def test_a_byte_order_mark_is_no_fault(tmp_path):
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_sweep(path).sweep.name == "small"


def test_whole_numbers_are_fine_where_a_float_is_meant():
    assert parse_sweep(GOOD + "measure: {window_s: 3}\n", "x").measure.window_s == 3.0


def test_the_word_off_is_a_word_where_the_field_has_it():
    # YAML reads a bare off as false; torch.compile's field allows exactly that word, so nothing else can be meant.
    sweep = parse_sweep(GOOD.replace("batch_per_gpu: 8", "batch_per_gpu: 8, compile: off"), "x")
    assert sweep.workload.compile == "off"
    axis = GOOD + "  workload.compile: [off, default]\nexclude: [{workload.compile: off, gpus: 1}]\n"
    assert parse_sweep(axis, "x").axes["workload.compile"] == ("off", "default")


FAULTS = [
    # (text added at top level, line, path, found, part of expected)
    ("visits: 1e3", 8, "visits", "1e3 (YAML reads it as text)", "written 1000"),
    ("visits: 08", 8, "visits", "08 (YAML reads it as text)", "without leading zeros"),
    ("visits: 010", 8, "visits", "010 (YAML reads it as 8)", "plain decimal"),
    ("visits: 1:30", 8, "visits", "1:30 (YAML reads it as 90)", "plain decimal"),
    ("visits: '2'", 8, "visits", "'2'", "without quotes"),
    ("visits: yes", 8, "visits", "yes (YAML reads it as true)", "a whole number"),
    ("visits: 2.5", 8, "visits", "2.5", "a whole number"),
    ("visits: 0", 8, "visits", "0", "a whole number 1 to"),
    ("visits: 2024-01-02", 8, "visits", "2024-01-02 (YAML reads it as a date)", "a whole number"),
    ("visits:", 8, "visits", "nothing", "a whole number"),
    ("visits: &a 2\nrepeats: *a", 9, "repeats", "the alias *a", "without anchors"),
    ("visits: !!python/object:os.system {}", 8, "visits", "the tag", "without tags"),
    ("visits: " + "9" * 5000, 8, "visits", "999", "a number"),
    ("measure: {window_s: 1e-4}", 8, "measure.window_s", "1e-4 (YAML reads it as text)", "written 1.0e-4"),
    ("measure: {window_s: .nan}", 8, "measure.window_s", ".nan (YAML reads it as not a finite number)", "a number"),
    ("measure: {window_s: .inf}", 8, "measure.window_s", ".inf (YAML reads it as not a finite number)", "a number"),
    (
        "measure: {warmup_min_s: 30}",
        8,
        "measure.warmup_min_s",
        "30 with warmup_max_s 20 (profile quick)",
        "longer than",
    ),
    (
        "measure:\n  warmup_min_s: 30\n  warmup_max_s: 30",
        10,
        "measure.warmup_max_s",
        "warmup_min_s 30 with warmup_max_s 30",
        "longer than the least one",
    ),
    (
        "measure: {profile: published, soak_s: 0, warmup_max_s: 100}",
        8,
        "measure.warmup_max_s",
        "slope_s 180 (profile published) with soak_s 0 and warmup_max_s 100",
        "slope_s of at most 100",
    ),
    ("measure: {slope_s: 5}", 8, "measure.slope_s", "5", "a number of at least 10"),
    ("measure: {clock_slope: on}", 8, "measure.clock_slope", "on (YAML reads it as true)", "off, or a number greater"),
    ("nccl: {channels: 4}", 7, "axes.nccl.channels", "nccl.channels both as an axis and fixed in line 8", "one of the"),
    ("nccl: {p2p: off}", 8, "nccl.p2p", "off (YAML reads it as false)", "auto or disabled"),
    ("nccl: {algorithm: trree}", 8, "nccl.algorithm", "trree", "auto, ring or tree"),
    ("nccl: {\n  chanels: 2}", 9, "nccl.chanels", "the key chanels", "nearest is channels"),
    ("ddp: {bucket_mib: 0}", 8, "ddp.bucket_mib", "0", "auto, or a number greater than 0"),
    ("ddp: 25", 8, "ddp", "25", "a mapping with any of: bucket_mib"),
    ("bucket_mib: 25", 8, "bucket_mib", "the key bucket_mib", "belongs under ddp"),
    ("workload.precision: bf16", 8, "workload.precision", "the key workload.precision", "belongs under workload"),
    ("visit: 3", 8, "visit", "the key visit", "nearest is visits"),
    ("<<: {visits: 3}", 8, "<<", "the key <<", "one of name"),
    ("visits: 2\nvisits: 3", 9, "visits", "the key visits again (first in line 8)", "each key once"),
    ("1: 2", 8, "1", "the key 1", "a key that is text"),
    ("yes: 2", 8, "yes", "the key yes", "a key that is text"),
    ("collectives: {sizes_mib: []}", 8, "collectives.sizes_mib", "an empty list", "not empty"),
    ("collectives: {sizes_mib: [1, x]}", 8, "collectives.sizes_mib[1]", "x", "a number greater than 0"),
    ("collectives: {operations: [allreduce]}", 8, "collectives.operations[0]", "allreduce", "all_reduce"),
    ("gpus: 2", 6, "axes.gpus", "gpus both as an axis and fixed in line 8", "one of the two"),
    ("zip: [[gpus, nccl.chanels]]", 8, "zip[0][1]", "nccl.chanels", "nearest is nccl.channels"),
    ("zip: [[gpus]]", 8, "zip[0]", "a group of 1", "two or more axes"),
    ("exclude: [{gpus: 3}]", 8, "exclude[0].gpus", "3", "a value of the axis: 1 or 2"),
    ("exclude: [{gpus: yes}]", 8, "exclude[0].gpus", "yes (YAML reads it as true)", "a value of the axis"),
    ("exclude: [{gpu: 1}]", 8, "exclude[0].gpu", "the axis gpu", "nearest is gpus"),
    ("exclude: [{}]", 8, "exclude[0]", "an empty rule", "at least one axis"),
    ("hardware: {device: cpu, min_gpus: 2}", 8, "hardware.min_gpus", "min_gpus together", "one of the two"),
]


@pytest.mark.parametrize(("added", "line", "path", "found", "expected"), FAULTS)
def test_one_fault_is_one_problem_with_its_place_and_what_is_right(added, line, path, found, expected):
    problem = only(GOOD + added + "\n")
    assert (problem.file, problem.line, problem.path) == ("sweep.yaml", line, path)
    assert found in problem.found
    assert expected in problem.expected
    assert "\n" not in str(problem)


AXES = [
    ("gpus: []", "axes.gpus", "an empty list", "at least one value"),
    ("gpus: 2", "axes.gpus", "2", "a list with at least one value, each a whole number"),
    ("gpus: [1, 1]", "axes.gpus[1]", "1 again", "once"),
    ("gpus: [1, two]", "axes.gpus[1]", "two", "a whole number"),
    ("gpus: [1, null]", "axes.gpus[1]", "null (YAML reads it as nothing)", "a whole number"),
    ("gpus: [1, [2]]", "axes.gpus[1]", "a list", "a whole number"),
    ("nccl.channels: [auto, 65]", "axes.nccl.channels[1]", "65", "auto, or a whole number 1 to 64"),
    ("nccl.channels: [auto, yes]", "axes.nccl.channels[1]", "yes (YAML reads it as true)", "auto, or a whole number"),
    ("nccl.p2p: [on, disabled]", "axes.nccl.p2p[0]", "on (YAML reads it as true)", "auto or disabled"),
    ("nccl.chanels: [1]", "axes.nccl.chanels", "the axis nccl.chanels", "nearest is nccl.channels"),
    ("channels: [1]", "axes.channels", "the axis channels", "nearest is nccl.channels"),
    ("nccl: [1]", "axes.nccl", "the section nccl", "nccl.algorithm"),
    ("nccl: {channels: [1]}", "axes.nccl", "the section nccl", "nccl.channels"),
    ("visits: [1, 2]", "axes.visits", "an axis on visits", "belongs to the sweep as a whole"),
    ("order: [random]", "axes.order", "an axis on order", "belongs to the sweep as a whole"),
    ("workload.kind: [vision]", "axes.workload.kind", "an axis on workload.kind", "same in the whole sweep"),
    ("workload.operations: [x]", "axes.workload.operations", "which vision does not have", "dotted path"),
    ("collectives.sizes_mib: [1]", "axes.collectives.sizes_mib", "an axis on", "holds a list already"),
    ("workload.global_batch: [64]", "axes.workload.global_batch", "workload.global_batch", "study: weak"),
    ("measure.tolerance: [5%]", "axes.measure.tolerance[0]", "5%", "a number greater than 0"),
]


@pytest.mark.parametrize(("axis", "path", "found", "expected"), AXES)
def test_a_wrong_axis_names_the_field_and_its_values(axis, path, found, expected):
    problem = only(GOOD[: GOOD.index("  gpus")] + f"  {axis}\n")
    assert problem.path == path
    assert found in problem.found
    assert expected in problem.expected
    assert problem.line == 6


@pytest.mark.parametrize("axes", ["axes: {}", "axes:", "axes: null"])
def test_a_sweep_without_axes_is_refused(axes):
    assert only(GOOD[: GOOD.index("axes:")] + axes).found == "no axes"


def test_zip_groups_have_equal_length_and_share_no_axis():
    longer = GOOD.replace("[auto, 2]", "[auto, 2, 4]")
    assert "gpus with 2, nccl.channels with 3" in only(longer + "zip: [[gpus, nccl.channels]]\n").found
    twice = problems(GOOD + "zip: [[gpus, nccl.channels], [nccl.channels, gpus]]\n")
    assert [problem.path for problem in twice] == ["zip[1][0]", "zip[1][1]"]


def test_zipped_values_may_repeat_but_their_combinations_not():
    zipped = GOOD.replace("[1, 2]", "[1, 2, 2, 4]").replace("[auto, 2]", "[auto, auto, 2, auto]")
    assert "gpus[2]: found 2 again" in str(problems(zipped)[0])
    zipped += "zip: [[gpus, nccl.channels]]\n"
    points = make_grid(parse_sweep(zipped, "sweep.yaml")).points
    assert [tuple(point.values()) for point in points] == [(1, "auto"), (2, "auto"), (2, 2), (4, "auto")]
    twice = only(zipped.replace("auto, auto, 2, auto", "auto, 2, 2, auto"))
    assert (twice.path, twice.found) == ("zip[0]", "gpus: 2, nccl.channels: 2 again")


@pytest.mark.parametrize(
    ("study", "batch", "path"),
    [
        ("weak", "global_batch: 8", ["workload.global_batch", "workload.batch_per_gpu"]),
        ("strong", "batch_per_gpu: 8", ["workload.batch_per_gpu", "workload.global_batch"]),
        ("both", "batch_per_gpu: 8", ["workload.global_batch"]),
        ("both", "global_batch: 8", ["workload.batch_per_gpu"]),
        ("weak", "model: resnet18", ["workload.batch_per_gpu"]),
        ("weak", "batch_per_gpu: 8, global_batch: 8", ["workload.global_batch"]),
    ],
)
def test_the_study_needs_the_batch_it_holds_constant_and_no_other(study, batch, path):
    text = GOOD.replace("study: weak", f"study: {study}").replace("batch_per_gpu: 8", batch)
    assert sorted(problem.path for problem in problems(text)) == sorted(path)


def test_a_batch_on_an_axis_serves_the_study():
    text = GOOD.replace(", batch_per_gpu: 8", "") + "  workload.batch_per_gpu: [8, 16]\n"
    assert parse_sweep(text, "x").study == "weak"


def test_collectives_have_no_batch():
    text = GOOD.replace("{kind: vision, batch_per_gpu: 8}", "{kind: collectives}")
    assert parse_sweep(text, "x").workload.kind == "collectives"
    assert "the key batch_per_gpu" in only(GOOD.replace("kind: vision", "kind: collectives")).found


def test_everything_wrong_is_reported_at_once_in_file_order():
    text = GOOD.replace("small", "no").replace("weak", "week").replace("batch_per_gpu: 8", "modle: x")
    found = problems(text.replace("[1, 2]", "[]") + "visits: 1e3\nfoo: 1\n")
    assert [problem.path for problem in found] == [
        "name",
        "study",
        "workload.modle",
        "axes.gpus",
        "visits",
        "foo",
    ]
    assert [problem.line for problem in found] == [1, 3, 4, 6, 8, 9]


def test_contradictory_knobs_are_told_together():
    text = GOOD.replace("weak", "week") + "nccl: {channels: 2}\nmeasure: {warmup_min_s: 9, warmup_max_s: 5}\n"
    assert [(problem.path, problem.line) for problem in problems(text)] == [
        ("study", 3),
        ("axes.nccl.channels", 7),
        ("measure.warmup_max_s", 9),
    ]


def test_a_measure_on_an_axis_is_left_to_the_plan():
    sweep = parse_sweep(GOOD + "  measure.warmup_max_s: [10, 40]\nmeasure: {warmup_min_s: 30}\n", "x")
    assert sweep.measure.warmup_min_s == 30
    parse_sweep(GOOD + "  measure.profile: [quick, published]\nmeasure: {warmup_min_s: 30}\n", "x")


def test_every_missing_field_is_named():
    assert {problem.path for problem in problems("visits: 2\n")} == {"name", "question", "study", "workload", "axes"}
    kinds = "vision, language, diffusion, script, collectives or simulated"
    assert only(GOOD.replace("kind: vision, ", "")).expected == kinds


def test_nothing_is_interpreted():
    # An environment variable is plain text, and no name.
    assert only(GOOD.replace("name: small", "name: ${HOME}")).path == "name"
    assert parse_sweep(GOOD.replace("Does it scale?", "Is ${HOME} a home?"), "x").question == "Is ${HOME} a home?"


SCALARS = """\
name: traps
question: What YAML makes of words
study: weak
workload: {kind: vision, batch_per_gpu: 1}
axes:
  gpus: [1, 2]
  nccl.p2p: [NO, off, 1]
  measure.tolerance: [1e-4, 1.0e-4]
  workload.classes: [07, 08]
  workload.compile: [yes, default, max-autotune]
measure: {window_s: 1:30}
"""


def test_scalars_that_yaml_reads_otherwise_are_all_told():
    found = {problem.path: problem.found for problem in problems(SCALARS)}
    assert found == {
        "axes.nccl.p2p[0]": "NO (YAML reads it as false)",
        "axes.nccl.p2p[1]": "off (YAML reads it as false)",
        "axes.nccl.p2p[2]": "1",
        "axes.measure.tolerance[0]": "1e-4 (YAML reads it as text)",
        "axes.workload.classes[0]": "07 (YAML reads it as 7)",
        "axes.workload.classes[1]": "08 (YAML reads it as text)",
        "axes.workload.compile[0]": "yes (YAML reads it as true)",
        "measure.window_s": "1:30 (YAML reads it as 90)",
    }


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("", 1, "an empty file"),
        ("# only a comment\n", 1, "an empty file"),
        ("- a\n- b\n", 1, "a list"),
        ("hello", 1, "hello"),
        ("name: a\n\tquestion: b\n", 2, "a tab"),
        ("name: [a\nquestion: b\n", 2, "broken YAML"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("name: a\nb: \x07\n", 2, "U+0007"),
        ("a: " + "[" * 1000, 1, "nested more than"),
        ("a: " + "{a: " * 1000, 1, "nested more than"),
    ],
)
def test_text_that_is_no_sweep_is_one_problem(text, line, found):
    problem = only(text)
    assert problem.line == line
    assert found in problem.found


def test_aliases_cannot_make_a_file_grow():
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
    )
    assert any("the alias *a" in problem.found for problem in problems(bomb))


def test_a_grid_of_impossible_size_is_refused_before_it_is_built():
    values = ", ".join(str(value) for value in range(1, 400))
    text = GOOD + f"  ddp.bucket_mib: [{values}]\n  workload.classes: [{values}]\n"
    assert "a grid of 1,273,608 trials" in only(text).found
    assert only(text).path == "axes"


@pytest.mark.parametrize("name", ["visits", "repeats"])
def test_too_many_rounds_are_told_where_they_stand(name):
    problem = only(f"{GOOD}{name}: 999999999\n")
    assert (problem.path, problem.line) == (name, 8)


@pytest.mark.parametrize("text", ["0x" + "f" * 5000, "0b" + "1" * 20000, "0" + "7" * 5000, "1" + "_0" * 5000])
def test_a_number_that_cannot_be_written_out_is_a_fault(text):
    for place in (GOOD.replace("[1, 2]", f"[1, {text}]"), GOOD + f"visits: {text}\n", f"{text}: 1\n{GOOD}"):
        assert len(str(only(place))) < 500


@pytest.mark.parametrize("blank", ["''", "'  '", '"\\n\\t"'])
def test_a_question_says_something(blank):
    problem = only(GOOD.replace("Does it scale?", blank))
    assert problem.path == "question"
    assert "not blank" in problem.expected


def test_very_many_problems_end_in_a_remark():
    found = problems(GOOD.replace("[1, 2]", "[" + "x, " * 500 + "x]"))
    assert len(found) == 200
    assert "and more problems" in found[-1].found


def test_files_that_cannot_be_read_are_refused(tmp_path):
    latin, huge, pipe = tmp_path / "latin.yaml", tmp_path / "huge.yaml", tmp_path / "pipe"
    latin.write_bytes(GOOD.encode() + b"# caf\xe9\n")
    huge.write_bytes(b"#" * (MAX_BYTES + 1))
    os.mkfifo(pipe)
    expected = {
        tmp_path / "none.yaml": "no such file",
        tmp_path: "a directory",
        latin: "0xe9, which is not UTF-8",
        huge: "more than 128 KiB",
        pipe: "a device or pipe",
        Path("a\0b"): "cannot be read",
    }
    for path, found in expected.items():
        with pytest.raises(SpecError, match=found) as caught:
            load_sweep(path)
        assert caught.value.exit_code == 2
    with pytest.raises(SpecError) as caught:
        load_sweep(latin)
    assert caught.value.problems[0].line == 8
