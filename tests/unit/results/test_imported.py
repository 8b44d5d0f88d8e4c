"""Foreign tables in our schema: right values, and a sentence with row and column for what is wrong."""

import json
import math

import pytest

from rtxscale.errors import BadInput, SpecError
from rtxscale.results.imports.foreign import parse_foreign
from rtxscale.results.imports.nccl_outputs import import_nccl_tests, looks_like_nccl_tests
from rtxscale.results.imports.run import import_table
from rtxscale.spec.cell import Cell
from rtxscale.spec.mapping import ImportMapping, parse_mapping

SOURCE = "imported: t.csv (sha256 0123456789ab)"


def mapping(text="{}"):
    return parse_mapping(text, "m.yaml")


def trials(text, mapped="constants: {batch_per_gpu: 64}"):
    imported = import_table(parse_foreign(text, "t.csv"), mapping(mapped), SOURCE)
    return imported.tables["trials"].to_pylist()


def test_known_names_need_no_mapping_and_every_row_names_its_source():
    first, second = trials("ngpus,images/s,Loss,precision\n1,100,2.5,bf16\n4,380.5,,bf16\n")
    assert (first["gpus"], first["throughput_per_s"], first["loss_last"], first["precision"]) == (1, 100.0, 2.5, "bf16")
    assert (second["gpus"], second["throughput_per_s"], second["loss_last"]) == (4, 380.5, None)
    assert (second["batch_per_gpu"], second["global_batch"], second["outcome"]) == (64, 256, "ok")
    assert {first["source"], second["source"]} == {SOURCE}


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators(separator):
    (row,) = trials(separator.join(["gpus", "throughput"]) + "\n" + separator.join(["2", "150"]) + "\n")
    assert row["throughput_per_s"] == 150.0


def test_json_forms_and_their_nan():
    rows = [{"gpus": 2, "throughput": 150, "loss": math.nan}]
    for text in (json.dumps(rows), json.dumps({"host": "x", "results": rows})):
        (row,) = trials(text)
        assert (row["gpus"], row["throughput_per_s"]) == (2, 150.0)
        assert math.isnan(row["loss_last"])


def test_steps_per_second_are_work_only_with_a_batch():
    (row,) = trials("gpus,steps_per_s\n4,2.62\n")
    assert row["throughput_per_s"] == pytest.approx(2.62 * 64 * 4)
    with pytest.raises(BadInput, match=r"row 2: found no batch; expected batch_per_gpu or global_batch"):
        trials("gpus,steps_per_s\n4,2.62\n", "{}")


def test_a_step_time_is_work_too():
    (row,) = trials("gpus,step_time_s\n2,0.5\n")
    assert row["throughput_per_s"] == pytest.approx(64 * 2 / 0.5)


def test_an_efficiency_needs_its_base_and_adds_it():
    with pytest.raises(BadInput, match="efficiency without its base"):
        trials("gpus,efficiency\n4,0.9\n")
    four, base = trials("gpus,efficiency\n4,0.9\n", "constants: {batch_per_gpu: 1, base_throughput_per_s: 6.0}")
    assert four["throughput_per_s"] == pytest.approx(0.9 * 6 * 4)
    assert (base["gpus"], base["throughput_per_s"]) == (1, 6.0)


def test_rows_are_repeats_unless_they_are_said_to_be_sessions():
    text = "gpus,throughput\n2,100\n2,101\n2,102\n"
    assert [(row["visit"], row["repeat"]) for row in trials(text)] == [(1, 1), (1, 2), (1, 3)]
    sessions = trials(text, "{rows: sessions, constants: {batch_per_gpu: 64}}")
    assert [(row["visit"], row["repeat"]) for row in sessions] == [(1, 1), (2, 1), (3, 1)]
    named = trials("gpus,throughput,session\n2,100,mon\n4,200,tue\n2,101,tue\n")
    assert [row["visit"] for row in named] == [1, 2, 2]
    assert len({row["trial_id"] for row in trials(text)}) == 3


def test_a_named_trial_counts_once_and_its_retries_are_attempts():
    text = "id,gpus,status,throughput\na,2,ERROR,10\na,2,done,100\nb,2,done,101\nb,2,done,101\n"
    imported = import_table(parse_foreign(text, "t.csv"), mapping("constants: {batch_per_gpu: 64}"), SOURCE)
    rows = imported.tables["trials"].to_pylist()
    assert [(row["attempt"], row["outcome"]) for row in rows] == [(1, "crashed"), (2, "ok"), (1, "ok")]
    assert rows[0]["trial_id"] == rows[1]["trial_id"] != rows[2]["trial_id"]
    assert imported.notes[:2] == (
        "1 row that repeats another one word by word is counted once",
        "1 row is a further attempt at a trial: its last good one counts",
    )


def test_settings_of_a_cell_make_it_one_of_ours():
    mapped = """
columns: {nccl.algorithm: algo, nccl.channels: ch}
constants: {workload.kind: vision, workload.model: resnet50, batch_per_gpu: 64, work_unit: image}
"""
    text = "gpus,algo,ch,throughput\n2,ring,8,100\n"
    imported = import_table(parse_foreign(text, "t.csv"), mapping(mapped), SOURCE)
    (row,) = imported.tables["trials"].to_pylist()
    workload = {"kind": "vision", "model": "resnet50", "batch_per_gpu": 64, "global_batch": 128}
    ours = Cell.model_validate({"gpus": 2, "workload": workload, "nccl": {"algorithm": "ring", "channels": 8}})
    assert (row["cell_id"], row["workload"]) == (ours.cell_id, "vision/resnet50")


def test_axes_are_what_varies():
    text = "gpus,nccl.p2p,throughput\n2,auto,100\n2,disabled,90\n4,auto,180\n"
    imported = import_table(parse_foreign(text, "t.csv"), mapping("constants: {batch_per_gpu: 64}"), SOURCE)
    assert imported.axes == {"gpus": (2, 4), "nccl.p2p": ("auto", "disabled")}


def test_settings_of_the_communication_are_axes_also_where_they_never_vary():
    imported = import_table(
        parse_foreign("gpus,nccl.p2p,throughput\n1,,50\n2,disabled,90\n", "t"),
        mapping("constants: {batch_per_gpu: 64}"),
        SOURCE,
    )
    assert imported.axes == {"gpus": (1, 2), "nccl.p2p": ("disabled",)}


def test_auto_is_the_default_cell_and_one_gpu_has_no_communication():
    told = trials("gpus,throughput,nccl.algorithm\n1,100,ring\n2,190,auto\n2,191,Default\n2,195,Ring\n2,196,ring\n")
    plain = trials("gpus,throughput\n1,100\n2,190\n")
    assert [row["cell_id"] for row in told[:3]] == [plain[0]["cell_id"], plain[1]["cell_id"], plain[1]["cell_id"]]
    assert told[3]["cell_id"] == told[4]["cell_id"] != told[2]["cell_id"]
    assert json.loads(told[3]["cell_json"])["nccl"] == {"algorithm": "ring"}


@pytest.mark.parametrize(
    ("column", "values", "path"),
    [
        ("precision", ("BF16", "float32"), "workload.precision"),
        ("unit", ("image", "tokens"), "workload.unit"),
        ("gpu", ("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4090"), "hardware.gpu"),
        ("device", ("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4090"), "hardware.gpu"),
        ("device", ("cpu", "cuda:0"), "hardware.device"),
    ],
)
def test_numbers_of_other_units_cards_and_precisions_are_other_cells(column, values, path):
    """A mean over them says nothing, and a ratio is no efficiency."""
    text = f"gpus,throughput,{column}\n" + "".join(f"{gpus},{100 * gpus},{one}\n" for gpus in (1, 2) for one in values)
    imported = import_table(parse_foreign(text, "t"), mapping("constants: {batch_per_gpu: 64}"), SOURCE)
    rows = imported.tables["trials"].to_pylist()
    assert len({row["cell_id"] for row in rows}) == 4
    assert path in imported.axes
    alone = [row for row in text.splitlines() if values[1] not in row]
    (first, _) = (
        import_table(parse_foreign("\n".join(alone), "t"), mapping("constants: {batch_per_gpu: 64}"), SOURCE)
        .tables["trials"]
        .to_pylist()
    )
    assert path == "workload.precision" or path not in first["cell_json"], "one value tells nothing apart"


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("gpus,images_per_s\n1,100\n", "image"),
        ("gpus,Tokens/s\n1,100\n", "token"),
        ("gpus,throughput\n1,100\n", None),
        ("gpus,throughput,unit\n1,100,Samples/s\n", "sample"),
        ("gpus,throughput,unit\n1,100,n/a\n", None),
        ("gpus,images_per_s,unit\n1,100,token\n", "token"),
        ("gpus,steps_per_s\n1,100\n", None),
    ],
)
def test_the_unit_of_work_is_said_by_its_column_or_by_that_of_the_throughput(text, unit):
    assert trials(text)[0]["work_unit"] == unit


def test_the_batch_may_stand_under_its_dotted_path():
    (row,) = trials("gpus,throughput,workload.batch_per_gpu,workload.precision\n2,100,8,FP16\n", "{}")
    assert (row["batch_per_gpu"], row["global_batch"], row["precision"]) == (8, 16, "fp16")


@pytest.mark.parametrize("text", ["gpus,throughput,model\r1,100,a\r", 'gpus,throughput,model\n1,100,"a\u2028b"\n'])
def test_lines_end_where_those_of_csv_do(text):
    (row,) = trials(text)
    assert row["workload"] in ("a", "a\u2028b")


def test_repeats_of_a_cell_share_their_session():
    rows = trials("gpus,throughput\n1,50\n2,100\n2,101\n")
    assert [row["session_id"] == rows[1]["session_id"] for row in rows] == [False, True, True]


def test_columns_without_a_place_are_named():
    imported = import_table(
        parse_foreign("gpus,throughput,mood\n2,100,fine\n", "t"), mapping("constants: {batch_per_gpu: 1}"), SOURCE
    )
    assert imported.notes == ("columns not used: mood",)


@pytest.mark.parametrize(
    ("text", "mapped", "words"),
    [
        ("gpus,throughput\nx,100\n", None, "row 2, column gpus: found 'x'; expected a number"),
        ("gpus,throughput\n1.5,100\n", None, "expected a whole number of at least 1"),
        ("gpus,throughput\n0,100\n", None, "expected a whole number of at least 1"),
        ("gpus,throughput\n1e308,100\n", None, "found '1e308'; expected a whole number of at least 1 and at most 18"),
        ("gpus;throughput\n1;100,5\n", None, "found '100,5'; expected a number, with a point and without marks"),
        (f"gpus,throughput,model\n1,100,{'x' * 301}\n", None, "column model: found 301 characters; expected at most"),
        (
            "gpus,throughput,workload.batch_per_gpu\n1,100,32\n",
            None,
            "constant batch_per_gpu: found 64; expected 32, as another column says of batch_per_gpu",
        ),
        (
            "gpus,throughput\n1,100\n",
            r'constants: {work_unit: "im\e[31mage"}',
            r"constant work_unit: found 'im\x1b[31mage'; expected one unit of work, such as image or token: up to 32",
        ),
        ("gpus,throughput,unit\n1,100,/s\n", None, "row 2, column unit: found '/s'; expected one unit of work"),
        ("cards,throughput\n1,100\n", None, "found no GPU count"),
        ("gpus,throughput\n,100\n", None, "found no GPU count"),
        ("gpus,throughput\n2\n", None, "found 1 values; expected 2"),
        ("gpus,gpus\n2,3\n", None, "found the column gpus more than once"),
        ("gpus,\n2,3\n", None, "a column without a name"),
        ('gpus,throughput\n2,"10\n', None, "found broken CSV"),
        ("gpus,throughput\n", None, "found no row"),
        ("", None, "found no row"),
        ("[{", None, "found broken JSON"),
        ('{"a": 1}', None, "holds no list of objects"),
        ('[{"gpus": [2]}]', None, "found a list or object at row 1: gpus"),
        ("gpus,status\n2,WEIRD\n", None, "found the outcome 'WEIRD'"),
        ("gpus,throughput\n2,1\n", "columns: {gpus: cards}", "found no column gpus: cards"),
        ("gpus,throughput,global_batch\n3,1,64\n", "{}", "expected a multiple of 3 GPUs"),
        ("gpus,throughput,global_batch\n2,1,64\n", None, "found batch 64 per GPU on 2 GPUs and a global batch of 64"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, mapped, words):
    with pytest.raises(BadInput) as error:
        trials(text, mapped or "constants: {batch_per_gpu: 64}")
    assert words in str(error.value)


def test_a_row_without_a_number_is_no_result_and_no_crash():
    """Nobody has said that it crashed; one that does say so is kept."""
    text = "gpus,throughput,status\n1,100,\n2,N/A,\n4,,done\n8,,ERROR\n"
    imported = import_table(parse_foreign(text, "t.csv"), mapping("constants: {batch_per_gpu: 64}"), SOURCE)
    rows = imported.tables["trials"].to_pylist()
    assert [(row["gpus"], row["outcome"]) for row in rows] == [(1, "ok"), (8, "crashed")]
    said = "2 rows (3, 4) hold neither a number nor a failure, so no result is given: left out"
    assert imported.notes == (said,)
    assert {"subject": "import", "name": "rows left out", "value": said}.items() <= (
        imported.tables["environment"].to_pylist()[1].items()
    )
    assert imported.axes == {"gpus": (1, 8)}
    with pytest.raises(BadInput, match="found no row with a result"):
        trials("gpus,throughput\n2,N/A\n")


def test_an_empty_row_is_no_attempt_at_its_trial():
    rows = trials("id,gpus,throughput\na,2,\na,2,100\n")
    assert [(row["attempt"], row["outcome"]) for row in rows] == [(1, "ok")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "gpus,images_per_s,steps_per_s\n1,1000,10\n",
            "row 2: found throughput_per_s, which makes 1,000 per second, and steps_per_s, which with a global batch "
            "of 64 makes 640.0; expected columns that agree",
        ),
        ("gpus,throughput,step_time_s\n2,1000,0.105\n", "step_time_s, which with a global batch of 128 makes 1,219"),
        ("gpus,steps_per_s,step_time_s,work_unit\n1,10,0.2,token\n", "found steps_per_s"),
        ("gpus,throughput,efficiency,base_throughput_per_s\n2,180,0.95,100\n", "efficiency"),
        ("gpus,throughput,steps_per_s,work_unit\n1,1000,10,images\n", "say so with work_unit"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(text, words):
    with pytest.raises(BadInput) as error:
        trials(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "gpus,images_per_s,steps_per_s\n1,640,10\n",
        "gpus,images_per_s,steps_per_s\n1,21.3,0.3\n",  # 0.333 steps per second, rounded
        "gpus,images_per_s,step_time_s\n1,648,0.1\n",  # means over other windows
        "gpus,tokens_per_s,steps_per_s\n1,20480,10\n",  # tokens are no samples
        "gpus,throughput,steps_per_s,work_unit\n1,20480,10,token\n",
        "gpus,throughput,steps_per_s,workload.kind\n1,20480,10,language\n",
        "gpus,throughput,steps_per_s,status\n1,1000,10,ERROR\n",
        "gpus,throughput,steps_per_s\n1,nan,10\n",
        "gpus,throughput,efficiency,base_throughput_per_s\n2,180,0.9,100\n",
    ],
)
def test_columns_that_agree_as_far_as_their_digits_go_are_taken(text):
    assert trials(text)[0]["gpus"] in (1, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("columns: {gpu: n}", "found the field gpu; expected a known field: the nearest is gpus"),
        ("rows: maybe", "rows: found maybe; expected repeats or sessions"),
        ("outcomes: {DONE: fine}", "outcomes.DONE: found fine; expected ok, crashed, oom"),
        ("columns: {gpus: [1]}", "columns.gpus: found"),
        ("colums: {}", "found the key colums"),
        ("{columns: {gpus: n}, constants: {gpus: 2}}", "expected each field once"),
        ("- 1", "expected a mapping"),
        ("", "found an empty file"),
    ],
)
def test_a_wrong_mapping_is_refused_with_its_line(text, words):
    with pytest.raises(SpecError) as error:
        mapping(text)
    assert words in str(error.value)
    assert str(error.value).startswith("m.yaml:1:")


NCCL = """# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid 1 on host device  0 [0000:01:00] NVIDIA H200
#  Rank  1 Group  0 Pid 1 on host device  1 [0000:02:00] NVIDIA H200
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
     1048576        262144     float     sum      -1     70.0   15.00   15.00       0     35.0   30.00   30.00       0
     2097152        524288     float     sum      -1     80.0   26.00   26.00       0     60.0   35.00   35.00       7
# Avg bus bandwidth    : 26
"""


def test_nccl_tests_output_becomes_a_collectives_trial():
    assert looks_like_nccl_tests(NCCL)
    imported = import_nccl_tests(NCCL, "n.txt", ImportMapping(), SOURCE)
    (trial,) = imported.tables["trials"].to_pylist()
    assert (trial["gpus"], trial["workload"], trial["source"]) == (2, "collectives", SOURCE)
    rows = imported.tables["collectives"].to_pylist()
    assert [(row["size_bytes"], row["busbw_gb_s"], row["data_ok"]) for row in rows] == [
        (2**20, 30.0, True),
        (2**21, 35.0, False),
    ]
    assert rows[0]["time_mean_s"] == pytest.approx(35e-6)
    facts = {row["name"]: row["value"] for row in imported.tables["environment"].to_pylist()}
    assert (facts["nccl-tests"], facts["nccl"], facts["warm-up iterations"]) == ("2.19.6", "2.28.9", "5")
    cell = json.loads(trial["cell_json"])
    assert cell.pop("nccl") == {"settings": "not recorded"}
    ours = Cell.model_validate(cell)
    assert (ours.gpus, ours.workload.operations, ours.workload.sizes_mib) == (2, ("all_reduce",), (1.0, 2.0))
    assert imported.axes == {"gpus": (2,), "nccl.settings": ("not recorded",)}
    assert any("nccl-tests does not write with which NCCL settings it ran" in note for note in imported.notes)


def test_settings_that_the_mapping_tells_make_an_output_one_of_ours():
    told = import_nccl_tests(NCCL, "n.txt", mapping("constants: {nccl.p2p: disabled}"), SOURCE)
    (trial,) = told.tables["trials"].to_pylist()
    assert Cell.model_validate_json(trial["cell_json"]).nccl.p2p == "disabled"
    assert (told.axes, told.notes) == ({"gpus": (2,), "nccl.p2p": ("disabled",)}, ())


def test_outputs_whose_settings_nobody_told_are_other_trials_of_one_cell():
    (one,), (other,) = (
        import_nccl_tests(NCCL, "n.txt", ImportMapping(), source).tables["trials"].to_pylist()
        for source in (SOURCE, "imported: u.txt (sha256 ba9876543210)")
    )
    assert one["trial_id"] != other["trial_id"]
    assert one["cell_id"] == other["cell_id"]


def test_nccl_tests_output_that_hides_its_ranks_needs_them_told():
    bare = "\n".join(line for line in NCCL.splitlines() if "Rank" not in line and "Collective" not in line)
    with pytest.raises(BadInput, match="found no operation on an unknown number of GPUs"):
        import_nccl_tests(bare, "n.txt", ImportMapping(), SOURCE)
    told = mapping("constants: {gpus: 4, nccl.p2p: disabled}")
    with pytest.raises(BadInput, match="found no operation"):
        import_nccl_tests(bare, "n.txt", told, SOURCE)
