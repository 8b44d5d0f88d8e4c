"""What is private goes, whatever stands around it; what only looks alike stays."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtxscale.results.redaction.private_names import Names, names_in, pseudonyms
from rtxscale.results.redaction.redact import Redactor

UUID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
NAMES = Names(users=frozenset({"adalove"}), hosts=frozenset({"tronbox.lab.example.org"})) | Names(
    pseudonyms=pseudonyms(["b7f1c6ae" * 7], [f"GPU-{UUID}"])
)
PRIVATE = {
    "home": "/home/adalove/run7/x.py",
    "mac_home": "/Users/adalove/x",
    "root": "/root/.ssh/id_ed25519",
    "mount": "/mnt/secretproject/data",
    "spaces": '"/srv/My Project/x.pt"',
    "tilde": "~adalove/notes",
    "windows": "C:\\Users\\adalove\\x.txt",
    "share": "\\\\filer\\adalove",
    "include": "-I/home/adalove/include",
    "user": "adalove",
    "host": "tronbox",
    "full_host": "tronbox.lab.example.org",
    "other_host": "gpu7.cluster.internal",
    "country_host": "node3.cs.uni-x.de",
    "at": "grace@hopper9",
    "email": "ada.love+x@mail.example.co.uk",
    "ipv4": "192.168.17.23",
    "ipv6": "fe80::1ff:fe23:4567:890a",
    "mac": "00:1A:2b:3c:4d:5e",
    "mac_dashes": "00-1A-2b-3c-4d-5e",
    "infiniband": "0002:c903:00ab:cdef",
    "uuid": f"GPU-{UUID}",
    "bare_uuid": UUID.upper(),
    "unknown_uuid": "4c4c4544-0043-3510-8052-b4c04f4d3732",
    "node": "b7f1c6ae" * 7,
    "hf": "hf_abcDEFghiJKLmnoPQR",
    "github": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3",
    "variable": "WANDB_API_KEY=0123456789abcdef",
    "password": "password: hunter22",
    "flag": "--auth-token s3cret99",
    "header": "Authorization: Bearer abcdEFGH1234",
    "url": "https://ada:pw@gitlab.corp/x?private=1",
    "serial": "serial number: 1324521012345",
    "bare_serial": "1324521012345",
    "tag": "Service Tag: 7XK2Q13",
    "key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r\n-----END OPENSSH PRIVATE KEY-----",
}
SECRET_PARTS = re.compile(
    r"adalove|tronbox|secretproject|My Project|id_ed25519|filer|hopper9|grace|gpu7|uni-x|ada\.love|192\.168|fe80"
    r"|1a.2b.3c|c903|883f-0016d3cca427|8052-b4c04f4d3732|b7f1c6ae|abcDEFghi|16C7e42F|IOSFODNN|eyJ|0123456789abcdef|hunter22|s3cret99"
    r"|abcdEFGH|gitlab|1324521012345|7XK2Q13|b3BlbnNz",
    re.IGNORECASE,
)
KEPT = (
    "torch 2.11.0+cu128, NCCL 2.28.9+cuda13.0, driver 580.95.05",
    "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}",
    "halves differ by -0.77%, drift -0.31%; at most 5.00% over 1.03 s",
    "4,345 images/s, 16 tokens/s per W, 269.3 GB/s, and/or 1/2",
    "workload.batch_per_gpu, torch.nn.functional, page.py, README.md, libnccl.so.2",
    "PCI 00000000:01:00.0 at 12:30:45, c10::Error, 0.5 degC/min",
    "tokens: 2048, tokenizer: gpt2, work_unit token",
    "/sys/devices/pci0000:00/0000:00:01.0 and /dev/shm and /proc/driver/nvidia/version",
    "</script><b>bold</b>",
    "g1-cec97e49-v1-1a22c3d35bd 38dd048208b5 16b4546db03c",
    "CUDA out of memory: tried to allocate 137438953472 bytes; 2.00 GiB",
    "AMD EPYC 7763 64-Core Processor @ 2.45GHz",
)


@pytest.mark.parametrize("text", PRIVATE.values(), ids=PRIVATE)
def test_private_text_goes(text):
    assert SECRET_PARTS.search(text)
    for around in (text, f"failed ({text}), again", f"a={text}\nb", f"[{text}]", f"x {text}; y"):
        shown = Redactor(names=NAMES).text(around)
        assert not SECRET_PARTS.search(shown), shown
        assert Redactor(names=NAMES).text(shown) == shown


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_private_stays(text):
    assert Redactor(names=NAMES).text(text) == text


@given(
    text=st.sampled_from(sorted(PRIVATE)),
    before=st.sampled_from(["", " ", "(", "'", "x=", ": ", "é ", "\t", "🔥"]),
    after=st.sampled_from(["", " ", ")", "'", ", y", ".", ":", "\n", " é"]),
)
@settings(max_examples=200, deadline=None)
def test_nothing_survives_in_json_and_the_json_stays_json(text, before, after):
    line = json.dumps({"message": f"{before}{PRIVATE[text]}{after}", "count": 3, "list": ["ring", True, None, 0.5]})
    data = json.loads(Redactor(names=NAMES).text(line))
    assert not SECRET_PARTS.search(json.dumps(data))
    assert (data["count"], data["list"]) == (3, ["ring", True, None, 0.5])


def test_identifiers_keep_telling_apart():
    redactor = Redactor(names=Names(pseudonyms=pseudonyms(["n2-abcdef", "n1-abcdef"], [f"GPU-{UUID}", "GPU-other1"])))
    assert redactor.text(f"GPU-other1 on n1-abcdef, {UUID} on n2-abcdef") == "gpu-2 on node-2, gpu-1 on node-1"


def test_short_identifiers_are_replaced_in_their_columns_only():
    redactor = Redactor(names=Names(pseudonyms=pseudonyms(["n"], [])))
    assert redactor.identifier("n") == "node-1"
    assert redactor.text("n trials") == "n trials"


def test_everyday_words_are_nobodys_name():
    names = Names(users=frozenset({"root", "ray", "ubuntu"}), hosts=frozenset({"localhost", "gpu"}))
    assert Redactor(names=names).text("ray on localhost, ring, gpu root") == "ray on localhost, ring, gpu root"


def test_names_are_found_where_they_stand():
    names = names_in(
        [
            "/home/ada/x and /Users/bob/y and USER=carl",
            "tron:12:34 [0] NCCL INFO x",
            "\x1b[36m(pid=7)\x1b[0mflynn:12:34 [1] NCCL INFO x",
            "dora@clu HOSTNAME=sark",
            "C:\\Users\\eve\\z",
        ]
    )
    assert names.users == {"ada", "bob", "carl", "dora", "eve"}
    assert names.hosts == {"tron", "flynn", "clu", "sark"}


def test_keys_of_data_are_redacted_too():
    assert Redactor(names=NAMES).data({"/home/adalove": ["adalove", 1, None]}) == {
        "redacted-path": ["redacted-user", 1, None]
    }
