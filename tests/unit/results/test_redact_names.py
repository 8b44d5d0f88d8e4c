"""A known name goes wherever it stands: in any case, in other words, in every part of a sweep file."""

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtxscale.results.redaction import names_here as here
from rtxscale.results.redaction.field_words import EVERYDAY, field_words
from rtxscale.results.redaction.private_names import Names
from rtxscale.results.redaction.redact import Redactor
from rtxscale.spec.load import parse_sweep

KNOWN = Names(
    users=frozenset({"adalove", "Ada Lovelace", "max", "José"}), hosts=frozenset({"tronbox.lab.example.org", "n7"})
)
REDACTOR = Redactor(names=KNOWN)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ADALOVE's run", "redacted-user's run"),
        ("myadaloverun and adalove2", "myredacted-userrun and redacted-user2"),
        ("adalove_run, adalove-run, runAdalove", "redacted-user_run, redacted-user-run, runredacted-user"),
        ("mrs lovelace and Ada", "mrs redacted-user and redacted-user"),
        ("ada_lovelace, Countess Lovelace2", "redacted-user_redacted-user, Countess redacted-user2"),
        ("maxBox, gpuMax, max7, MAX", "redacted-userBox, gpuredacted-user, redacted-user7, redacted-user"),
        ("Jose and JOSÉ", "redacted-user and redacted-user"),
        ("TRONBOX2, mytronbox", "redacted-host2, myredacted-host"),
        ("mail.example.org, a.b.lab.example.org", "redacted-host, redacted-host"),
        ("n7, N7", "redacted-host, redacted-host"),
    ],
)
def test_a_known_name_goes_wherever_it_stands(text, shown):
    assert REDACTOR.text(text) == shown
    assert REDACTOR.text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "measure.warmup_max_s, workload.compile: max-autotune, memory_peak_mib",
        "at most 3 max_time_s; maximum, climax",
        "adage, Adam and AdamW",
        "n70, in7",
    ],
)
def test_words_of_the_field_and_other_words_stay(text):
    assert REDACTOR.text(text) == text


def test_ids_hold_no_names():
    redactor = Redactor(names=Names(users=frozenset({"face"})))
    assert redactor.text("trial 0a1bface22dd of 1a22face, face") == "trial 0a1bface22dd of 1a22face, redacted-user"


def test_a_name_in_a_word_of_the_field_or_a_package_is_no_name():
    redactor = Redactor(names=Names(users=frozenset({"lang", "flow"}), words=frozenset({"tensorflow"})))
    assert redactor.text("workload language/llama, tensorflow==2.1") == "workload language/llama, tensorflow==2.1"
    assert redactor.text("langdata, overflow, lang") == "redacted-userdata, overredacted-user, redacted-user"


def test_what_only_a_text_calls_a_name_is_looked_for_as_a_word():
    said = Names(users=frozenset({"grace"}), said=frozenset({"grace"}))
    assert Redactor(names=said).text("grace, graceful") == "redacted-user, graceful"
    both = said | Names(users=frozenset({"grace"}))
    assert Redactor(names=both).text("grace, graceful") == "redacted-user, redacted-userful"
    assert (Names(users=frozenset({"grace"})) | said).said == frozenset()


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(["adalove", "AdaLove", "TRONBOX", "lovelace"]), st.text(max_size=6))))
def test_no_known_name_of_four_letters_survives(parts):
    shown = REDACTOR.text("".join(parts)).lower()
    kept = [
        word for word in EVERYDAY | field_words() if any(name in word for name in ("adalove", "tronbox", "lovelace"))
    ]
    assert kept == []
    assert not any(name in shown for name in ("adalove", "tronbox", "lovelace"))


SWEEP = """\
# Adalove's box, TRONBOX; see notes of lovelace_2
name: adalove-sweep        # by AdaLove
question: Does Ada's TronBox2 scale?  # mytronbox
study: weak
workload: {kind: vision, model: resnet18, batch_per_gpu: 8, compile: max-autotune}
axes:
  gpus: [1, 2]   # on n7
measure: {profile: quick, warmup_max_s: 7}
"""


def test_every_part_of_a_sweep_is_searched_and_its_settings_stay():
    shown = REDACTOR.sweep(SWEEP)
    assert not any(name in shown.lower() for name in ("adalove", "tronbox", "lovelace", "ada's", "n7"))
    before, after = parse_sweep(SWEEP, "s"), parse_sweep(shown, "s")
    assert before.measure == after.measure
    assert before.workload == after.workload
    assert after.name == "redacted-user-sweep"


def test_this_machine_knows_its_people_and_neighbours(monkeypatch, tmp_path):
    monkeypatch.setattr(here, "PASSWD", tmp_path / "passwd")
    monkeypatch.setattr(here, "HOSTS", tmp_path / "hosts")
    monkeypatch.setattr(here.Path, "home", lambda: tmp_path / "countess")
    monkeypatch.setattr(here.getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(here.socket, "gethostname", lambda: "tron")
    monkeypatch.setattr(here.socket, "getfqdn", lambda: "tron.lab.example.org")
    monkeypatch.setattr(here, "_git_author", lambda: ["Grace Hopper", "grace@navy.example"])
    people = ["root:x:0:0:root:/root:/bin/sh", "bob:x:1001:1001:Bob Bits,,,:/home/bob:/bin/sh", "damaged"]
    (tmp_path / "passwd").write_text("\n".join([*people, "nobody:x:65534:65534:nobody:/:/bin/false"]))
    (tmp_path / "hosts").write_text(
        "127.0.0.1 localhost\n10.0.0.9 flynn\n0.0.0.0 ads.example\nfe80::1%eth0 sark\nx y\n"
    )
    found = here.names_here({"SUDO_USER": "eve", "GIT_AUTHOR_EMAIL": "carl@x.example", "USER": ""})
    assert found.users == {"ada", "countess", "Grace Hopper", "grace", "bob", "Bob Bits", "eve", "carl"}
    assert found.hosts == {"tron", "tron.lab.example.org", "flynn", "sark"}
    assert found.said == {"flynn", "sark"}


def test_a_machine_without_such_files_and_git_has_the_rest(monkeypatch, tmp_path):
    monkeypatch.setattr(here, "PASSWD", tmp_path / "none")
    monkeypatch.setattr(here, "HOSTS", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = here.names_here({"USER": "ada"})
    assert "ada" in found.users
    assert found.hosts


@pytest.mark.skipif(not any(os.access(f"{place}/git", os.X_OK) for place in os.get_exec_path()), reason="needs git")
def test_the_author_of_commits_is_known(monkeypatch, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("user.name", "Grace Hopper"),
        ("user.email", "amazing@navy.example"),
        ("user.signingkey", "K3Y"),
    ):
        subprocess.run(["git", "config", name, value], check=True)
    found = here.names_here({})
    assert {"Grace Hopper", "amazing"} <= found.users
    assert "K3Y" not in found.users
