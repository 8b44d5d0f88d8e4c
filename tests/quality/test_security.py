"""What README promises about safety, where a test can see it: no code from data, no secrets, licences as documented."""

import ast
import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rtxscale.errors import SpecError
from rtxscale.spec.load import parse_sweep

PACKAGE = Path(__file__).parents[2] / "rtxscale"
READERS = ("results", "analysis", "report", "spec", "nccl", "topology", "plan", "cli")
BEARING_CODE = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "tarfile"}
RUNNING_DATA = {"eval", "exec", ".extractall", ".mktemp", ".system", ".popen", ".unsafe_load", ".full_load"}
FREE = re.compile(
    r"apache|\bmit\b|mit-|\bbsd\b|bsd-|\bisc\b|psf|python software foundation|mpl|mozilla|zlib|\b0bsd\b|cc0",
    re.IGNORECASE,
)
NVIDIA = re.compile(r"^(nvidia-|cuda-)")
TEXT = """\
name: {name}
question: Is it safe?
study: weak
workload: {{kind: vision, batch_per_gpu: {batch}}}
axes: {{gpus: [1, 2]}}
"""


def sources(*folders):
    return sorted(path for folder in folders for path in (PACKAGE / folder).rglob("*.py"))


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def called(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else f".{getattr(node.func, 'attr', '')}"
            yield name, {word.arg for word in node.keywords}


def faults(text):
    tree = ast.parse(text)
    return (set(imported(tree)) & BEARING_CODE) | {
        name for name, words in called(tree) if name in RUNNING_DATA or "shell" in words
    }


@pytest.mark.parametrize("path", sources(*READERS), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_that_reads_results_or_sweeps_can_run_what_it_reads(path):
    assert faults(path.read_text()) == set()


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from dill import loads", "eval(x)", "z.extractall(d)", "run(x, shell=True)", "os.system(x)"],
)
def test_the_search_itself_finds_what_it_looks_for(text):
    assert faults(text)


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.mkdir [evil]", "!!python/name:os.system", "!!python/object:object {}"]
)
def test_yaml_makes_no_objects(tag, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError):
        parse_sweep(TEXT.format(name="a", batch=tag), "sweep.yaml")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../up", "/etc", "a/b", ".hidden", "a\\nb", "..", "'a\x00b'", '"a\\nb"', "x" * 65])
def test_no_name_leads_out_of_the_results_root(name):
    with pytest.raises(SpecError, match=r"name|printable"):
        parse_sweep(TEXT.format(name=name, batch=8), "sweep.yaml")


def needed(name, known):
    """Names of all distributions that are installed because of this one."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in known:
        return
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return  # of another platform
    known[key] = distribution
    for text in distribution.requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed(requirement.name, known)


def licence_of(distribution):
    found = distribution.metadata
    classes = [text for text in found.get_all("Classifier") or [] if text.startswith("License")]
    return found.get("License-Expression") or "; ".join(classes) or found.get("License") or ""


def test_every_dependency_has_a_licence_that_readme_names():
    known = {}
    needed("rtxscale", known)
    assert len(known) > 50
    others = {
        name: licence_of(distribution)[:80]
        for name, distribution in known.items()
        if not FREE.search(licence_of(distribution)) and not NVIDIA.match(name)
    }
    assert others == {}
