"""`import`: people's tables become runs that show, report and compare work on, with the right values."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from rtxscale.cli.main import app

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = GOLDEN / "results_cases"
EXPECTED = json.loads((CASES / "results_expected.json").read_text())


def invoke(root, *words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"RTXSCALE_RESULTS": str(root)})


def imported(tmp_path, file, mapping="{}", *words):
    path = tmp_path / "mapping.yaml"
    path.write_text(mapping)
    result = invoke(tmp_path, "import", file, "--mapping", path, *words)
    assert result.exit_code == 0, result.output
    run = Path(result.stdout.splitlines()[-1])
    assert run.is_dir()
    shown = invoke(tmp_path, "show", run, "--json")
    assert shown.exit_code == 0, shown.output
    return run, json.loads(shown.stdout, parse_constant=lambda word: pytest.fail(word)), result


def efficiencies(data, curve="weak"):
    return {
        str(row["gpus"]): row["efficiency"]
        for row in data["efficiency"]
        if row["curve"] == curve and row["cell_id"] != row["base_cell_id"]
    }


def test_steps_are_not_throughput(tmp_path):
    _, data, _ = imported(tmp_path, CASES / "results_steps_per_s_trap.csv")
    right = EXPECTED["results_steps_per_s_trap.csv"]["weak_efficiency_4"]
    assert efficiencies(data) == {"4": pytest.approx(right)}


def test_weak_and_strong_in_one_table(tmp_path):
    _, data, _ = imported(tmp_path, CASES / "results_strong_vs_weak.csv")
    right = EXPECTED["results_strong_vs_weak.csv"]
    assert efficiencies(data, "weak") == pytest.approx(right["weak"])
    assert efficiencies(data, "strong") == pytest.approx(right["strong_global_256"])


def test_a_missing_baseline_names_its_reference(tmp_path):
    _, data, _ = imported(tmp_path, CASES / "results_missing_baseline.csv", "constants: {batch_per_gpu: 64}")
    assert efficiencies(data) == {"4": pytest.approx(800 / 820)}
    assert any("relative to 2 GPUs" in remark for remark in data["remarks"])


def test_failed_repeated_and_broken_rows_do_not_count(tmp_path):
    _, data, result = imported(tmp_path, CASES / "results_failed_nan_duplicates.csv", "constants: {batch_per_gpu: 64}")
    right = EXPECTED["results_failed_nan_duplicates.csv"]["efficiency"]
    assert efficiencies(data) == pytest.approx(right)
    assert {row["gpus"]: row["trials"] for row in data["cells"]} == {1: 1, 2: 1}
    assert "1 row that repeats another one" in result.stderr


def test_more_than_linear_is_shown_with_its_base_and_never_clipped(tmp_path):
    mapping = "{rows: sessions, constants: {batch_per_gpu: 1, base_throughput_per_s: 6.2034, work_unit: token}}"
    _, data, _ = imported(tmp_path, CASES / "results_superlinear.csv", mapping)
    found = efficiencies(data)
    assert found["4"] == pytest.approx((1.5739 * 1.5732 * 1.5728) ** (1 / 3))
    suspicious = [remark for remark in data["remarks"] if remark.startswith("Suspicious")]
    assert suspicious
    assert all("6.2034" in remark for remark in suspicious)
    (spread,) = [row for row in data["cells"] if row["gpus"] == 8]
    assert spread["throughput_low"] < 1.2142 * 8 * 6.2034


def test_show_report_explain_and_compare_work_on_an_import(tmp_path):
    run, data, _ = imported(tmp_path, CASES / "results_strong_vs_weak.csv", "{}", "--name", "theirs")
    assert run.name.startswith("theirs-")
    assert any(remark.startswith("Imported, not measured by rtxscale: all 6 trials") for remark in data["remarks"])
    assert "Imported, not measured" in " ".join(invoke(tmp_path, "show", run).stdout.split())
    report = invoke(tmp_path, "report", run)
    assert report.exit_code == 0, report.output
    assert "Imported, not measured" in (run / "report.html").read_text()
    again, _, _ = imported(tmp_path, CASES / "results_strong_vs_weak.csv", "{}", "--name", "theirs")
    assert again != run
    compared = invoke(tmp_path, "compare", run, again, "--fail-below", "0.99")
    assert compared.exit_code == 0, compared.output
    explained = invoke(tmp_path, "explain", data["outcomes"][0]["example"], "--run", run)
    assert explained.exit_code == 0, explained.output
    assert "Not measured by rtxscale (imported: results_strong_vs_weak.csv" in explained.output
    assert "so there is no command that repeats it" in explained.output
    assert not any(word in explained.output for word in ("None", "torch", "threads"))
    assert invoke(tmp_path, "runs").exit_code == 0


def test_an_import_is_told_nothing_about_a_sweep(tmp_path):
    run, data, _ = imported(tmp_path, CASES / "results_strong_vs_weak.csv")
    assert not any("sweep" in remark for remark in data["remarks"]), data["remarks"]
    assert any("rows: sessions in the mapping" in remark for remark in data["remarks"])
    assert "no sweep that this rtxscale can read" not in (invoke(tmp_path, "show", run).output)


def test_nobody_is_told_to_run_an_import_again_or_that_its_settings_are_known(tmp_path):
    table = tmp_path / "t.csv"
    for text, words in (
        ("1,100,8,\n2,190,8,\n", "with settings not told; one visit gives no interval, import several independent"),
        ("1,100,8,\n", "1 GPU: an unnamed workload at 100.0 images/s; import a second GPU count."),
        ("1,,8,ERROR\n", "a table with a finite, positive number in a row that ended well can be concluded from"),
        ("1,,8,RUNNING\n", "Nothing can be concluded yet: 1 cancelled; import the rows that are missing as well."),
    ):
        table.write_text(f"gpus,images_per_s,batch_per_gpu,status\n{text}")
        run, data, _ = imported(tmp_path, table)
        assert words in data["headline"]
        said = " ".join([data["headline"], *data["remarks"]])
        assert not any(word in said for word in ("sweep", "confirm", "defaults", "NCCL's", "all 1 trials")), said
        assert invoke(tmp_path, "report", run).exit_code == 0


def test_settings_that_a_table_tells_are_named_and_auto_is_the_default(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("gpus,throughput,batch_per_gpu,nccl.algorithm\n1,100,8,auto\n2,190,8,auto\n2,195,8,Ring\n")
    _, data, _ = imported(tmp_path, table)
    assert "weak efficiency 0.95, with nccl.algorithm on auto" in data["headline"]
    assert data["headline"].endswith(
        "ring, 2.6 % over the default, unconfirmed; measuring both again, in fresh sessions, would settle it."
    )
    assert [(row["axis"], row["value"], row["reference"]) for row in data["effects"]] == [
        ("nccl.algorithm", "ring", "auto")
    ]


def test_the_report_of_an_import_keeps_its_words_and_asks_for_no_sweep(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("gpus,throughput,batch_per_gpu,power_w\n1,100,8,300\n2,190,8,600\n")
    run, _, _ = imported(tmp_path, table)
    assert invoke(tmp_path, "report", run).exit_code == 0
    page = (run / "report.html").read_text()
    assert "run an unnamed workload at 1.90x" in page
    assert "all imported, 2 count" in page
    assert "3.16 J/unit" in page
    assert "as the imported file says it" in page
    assert "barrier to barrier" not in page
    assert not any(
        word in page for word in ("node-1", "J/None", "planned: not known", "rtxscale confirm", "without Ray")
    )


def test_columns_that_nobody_has_read_are_said_in_the_run_as_well(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(
        "gpus,throughput,batch_per_gpu,nccl_algorithm,flavour\n1,100,8,,a\n2,190,8,auto,a\n2,150,8,ring,b\n"
    )
    _, data, result = imported(tmp_path, table)
    assert "note: columns not used: flavour" in result.stderr
    (said,) = [remark for remark in data["remarks"] if "not used: flavour. If one of them is a setting" in remark]
    assert said.endswith("rows that differ in it alone count as repeats.")
    assert [row["axis"] for row in data["effects"]] == ["nccl.algorithm"], "our own name of a column is known"


def test_a_sweep_of_very_many_batches_has_a_report(tmp_path):
    table = tmp_path / "t.csv"
    rows = [f"{gpus},{90 * gpus + batch},{batch}" for batch in range(1, 9) for gpus in (1, 2)]
    table.write_text("\n".join(["gpus,throughput,batch_per_gpu", *rows, ""]))
    run, _, _ = imported(tmp_path, table)
    result = invoke(tmp_path, "report", run)
    assert result.exit_code == 0, result.output


def test_a_row_without_a_result_is_said_and_all_counts_agree(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("gpus,throughput,batch_per_gpu,status\n1,100,8,\n2,190,8,\n4,,8,\n8,,8,ERROR\n")
    run, data, result = imported(tmp_path, table)
    words = "row 4 holds neither a number nor a failure, so no result is given, and is left out"
    assert f"note: {words}" in result.stderr
    assert data["remarks"][0] == f"Of the imported file, {words}."
    assert "1 of 3 trials did not end ok and is not counted: 1 crashed." in data["remarks"]
    shown = " ".join(invoke(tmp_path, "show", run).stdout.split())
    assert "3 imported trials are finished, 2 count (3 attempts)." in shown
    (listed,) = json.loads(invoke(tmp_path, "runs", "--json").stdout)
    assert listed["trials"] == {"ok": 2, "crashed": 1}


def test_outputs_of_nccl_tests_claim_no_settings_and_are_told_apart(tmp_path):
    found = {}
    for transport in ("auto", "disabled"):
        file = GOLDEN / "h200x2_nccl" / f"nccl_tests_p2p_{transport}.txt"
        run, data, result = imported(tmp_path, file, "{}", "--name", transport)
        shown = " ".join(invoke(tmp_path, "show", run).stdout.split())
        assert "2 GPUs, settings not recorded" in shown
        assert data["headline"].endswith("of 512 MiB with settings not recorded.")
        assert "defaults" not in shown
        assert "take latencies from nccl-tests" not in shown
        assert "An output of nccl-tests is one session." in shown
        assert "nccl.p2p: disabled" in result.stderr
        found[transport] = data["outcomes"][0]["example"]
    assert found["auto"] != found["disabled"]


@pytest.mark.parametrize("transport", ["auto", "disabled"])
def test_nccl_tests_output_of_a_real_host(tmp_path, transport):
    file = GOLDEN / "h200x2_nccl" / f"nccl_tests_p2p_{transport}.txt"
    told = f"constants: {{gpus: 2, operation: all_reduce, nccl.p2p: {transport}}}"
    _, data, _ = imported(tmp_path, file, told)
    found = {row["size_bytes"]: row["busbw_gb_s"] for row in data["bandwidth"]}
    assert found[512 * 2**20] == pytest.approx({"auto": 312.7, "disabled": 27.29}[transport], rel=1e-3)
    assert {row["label"] for row in data["cells"]} == {"gpus 2, " + {"auto": "defaults"}.get(transport, "P2P disabled")}
    lines = {row["parameter"]: row["value"] for row in data["fits"] if row["law"] == "alpha-beta"}
    assert lines["bus bandwidth"] == pytest.approx(found[512 * 2**20], rel=0.1)


@pytest.mark.parametrize("name", sorted(path.name for path in (GOLDEN / "nccl_tests").glob("*.[tj]*")))
def test_any_output_of_nccl_tests_is_imported_or_refused_in_a_sentence(tmp_path, name):
    path = tmp_path / "mapping.yaml"
    path.write_text("constants: {gpus: 8, operation: all_reduce}")
    result = invoke(tmp_path, "import", GOLDEN / "nccl_tests" / name, "--mapping", path)
    assert result.exit_code in (0, 2), result.output
    assert "Traceback" not in result.output
    if result.exit_code == 0:
        shown = invoke(tmp_path, "show", "latest", "--json")
        assert shown.exit_code == 0, shown.output
        assert "NaN" not in shown.stdout


def test_bad_input_is_one_sentence(tmp_path):
    (tmp_path / "a.csv").write_text("gpus,throughput\n1,x\n")
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe\x00")
    for words in (("a.csv",), ("b.bin",), ("missing.csv",), (".",), ("a.csv", "--mapping", tmp_path / "no.yaml")):
        result = invoke(tmp_path, "import", tmp_path / words[0], *words[1:])
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("rtxscale: error: ")
        assert "Traceback" not in result.stderr
    assert not list(tmp_path.glob("*-01"))


def test_hostile_text_of_a_table_stays_text(tmp_path):
    (tmp_path / "e\x1b[2Jvil.csv").write_text("gpus,throughput,workload,batch_per_gpu\n1,100,\x1b]0;x\x07</script>,8\n")
    result = invoke(tmp_path, "import", tmp_path / "e\x1b[2Jvil.csv")
    assert result.exit_code == 0, result.output
    for words in (("show",), ("show", "--csv", "fits"), ("report",)):
        shown = invoke(tmp_path, *words)
        assert shown.exit_code == 0, shown.output
        assert "\x1b" not in shown.output


def test_the_json_of_a_fork_of_nccl_tests_is_known_by_its_name(tmp_path):
    mapping = "constants: {operation: all_reduce, gpus: 2, nccl.p2p: auto}"
    _, data, _ = imported(tmp_path, GOLDEN / "nccl_tests" / "fork_json_pr318.txt", mapping)
    assert data["headline"].endswith("in all_reduce of 64 MiB with nccl.p2p on auto.")


def test_our_own_table_of_trials_comes_back_as_it_went(tmp_path):
    trials = pl.read_parquet(GOLDEN / "h200x2_nccl" / "trials.parquet")
    table = tmp_path / "own.csv"
    trials.drop([name for name, kind in trials.schema.items() if isinstance(kind, pl.List)]).write_csv(table)
    _, data, _ = imported(tmp_path, table)
    told = "nccl.algorithm, nccl.channels, nccl.protocol, nccl.p2p and ddp.bucket_mib on auto"
    assert "at 1.52x of one, weak efficiency 0.76" in data["headline"]
    assert told in data["headline"]
    assert "(fastest measured: bucket 100 MiB, +18.2 %)" in data["headline"]
    assert len(data["cells"]) == trials["cell_id"].n_unique()
