"""A run whose code was changed on the way says so."""

import polars as pl

from rtxscale.analysis.script_code import code_remarks

COUNTED = pl.DataFrame({"trial_id": ["a", "b", "c"], "attempt": [1, 1, 2]})


def attestation(*rows):
    names = ("trial_id", "attempt", "subject", "requested", "observed")
    return pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows])


def entry(trial, seen, attempt=1, requested="train:build"):
    return (trial, attempt, "workload.entry", requested, seen)


def test_one_version_is_no_remark():
    same = attestation(entry("a", "SHA-256 1"), entry("b", "SHA-256 1"), entry("c", "SHA-256 1", 2))
    assert code_remarks(COUNTED, same) == ()
    assert code_remarks(COUNTED, None) == ()


def test_versions_are_counted_among_the_attempts_that_count():
    rows = attestation(
        entry("a", "SHA-256 1"), entry("b", "SHA-256 1"), entry("c", "SHA-256 9", 1), entry("c", "SHA-256 2", 2)
    )
    (remark,) = code_remarks(COUNTED, rows)
    assert "the code of train:build was changed within this run (2 versions, in 2, 1 trials)" in remark
    assert "--fresh" in remark


def test_two_functions_are_two_codes():
    assert code_remarks(COUNTED, attestation(entry("a", "x"), entry("b", "y", requested="train:other"))) == ()


def test_a_module_that_is_imported_counts_too():
    rows = [(trial, 1, "workload.modules", "as imported", seen) for trial, seen in (("a", "x"), ("b", "y"))]
    (remark,) = code_remarks(COUNTED, attestation(*rows))
    assert "a module that the code imports" in remark
