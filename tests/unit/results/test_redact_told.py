"""Secrets, paths and names that only their surroundings tell go whole; what merely sounds like them stays."""

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rtxscale.results.redaction.private_names import Names, names_in
from rtxscale.results.redaction.redact import Redactor

GONE = "zq"
"""Every private part has it in it, and nothing else has."""
TOLD = (
    "passphrase: zqcorrect zqbattery, zqstaple; zqclip",
    "Passwort = zqhorse 'zqmoon' zq",
    "PGPASSWORD='zqone zqtwo,zqthree;4'",
    'PASSPHRASE="zq \\"zqquoted\\" zq"',
    "# the ipmi password is zqseven",
    "password: don'tzq zqtell",
    "# passwd: |\n  zqfirst\n  zqsecond",
    '{"client_secret":\n   "zqnine zq"}',
    "os.environ['REDIS_AUTH'] = 'zqten zq'",
    "| GITLAB_TOKEN | zqtab |",
    "SMTP_PASS=zqmail",
    "LDAP_PWD=zqdir",
    "ANTHROPIC_KEY=zqkey",
    "SharedAccountKey=zqshare==;Endpoint=x",
    "pg.auth = zqauth",
    "sshKey: zqkeyed",
    "userPass: zquser",
    "export NGC_APIKEY=zqngc",
    "Cookie: sid=zqcookie; other=zqother",
    "Authorization: Digest username=zqd, realm=zqrealm",
    "--admin-password zqflag --verbose",
    "--token=zqflag",
    "login --password 'zq two zq' --verbose",
    "[tool, --db-pass, zqlisted, --verbose]",
    '["tool", "--passphrase", "zq listed zq"]',
    "- --api-key\n- zqitem\n",
    "wget --user 'ada:zq pass' x",
    "curl -sS -u bob:zqcurl http",
    "curl -ubob:zqcurl http",
    "mysqldump -h x -pzqglued base",
    "ipmitool -I lanplus -U ADMIN -P zqipmi sdr",
    "redis-cli -a zqredis ping",
    "xfreerdp -p zqrdp",
    "sk_test_zq51Hb3XYZab",
    "dapi0123456789abcdef0123456789abcdef zq"[:36] + ", glsa_zqAbCdEf0123456789",
    "shpat_zq0123456789abcdef",
    "whsec_zqAbCdEf01234567",
    "hvb.zqAAAAAQKzSgTbbbbbb",
    "glptt-zq0123456789abcdef",
    "dor_v1_zq0123456789abcdef",
    "xapp-1-zqA0123456789-bcd",
    "g\u200bhp_zq0123456789abcdef\u2060ghijk",
    "pass\u00adword: zqsoft",
    "ｐａｓｓｗｏｒｄ：zqwide",  # noqa: RUF001  wide letters are meant
    "gcc -L/srv/zqlibs/lib -isystem/opt/zqinc",
    "cannot read /srv/site=zqsite/epoch=7.ckpt",
    "/srv/My zqproject/run 7/x.pt is not there",
    "cp /srv/zq\\ dir/file",
    "'/srv/zq dir/with, all/x'",
    "${SCRATCH}/zqdir/x",
    "$WORK/zqdir",
    "%USERPROFILE%\\zqdir\\x",
    "../../zqup/data.bin",
    "file%3a%2f%2f%2fsrv%2fzqenc%2fx",
    "／srv／zqwide／x",  # noqa: RUF001  wide letters are meant
    "ssh: could not resolve hostname zqbox: unknown",
    "no route to host zqbox7",
    "connected to server zqserver",
    "could not connect to zq-box (port 29500)",
    "lost zqnode4.rack2:6379",
    "Permission denied for user zqmarie",
    "logged in as zqmarie",
    "invalid user zqmarie from",
    "serial: zqabcdefgh",
    "Asset Tag = zqasset",
    "S/N zq12345",
)
KEPT = (
    "token 2048, token: 17, max_token=1000000, per token: 123456789, pad_token: <pad>, eos_token_id: 50256",
    "forward pass: 12 ms, backward pass = 0.4 s, in the last pass: compile",
    "session_key=abc123, cache key: x, query_key: 8, num_key_value_heads: 8, key: ring",
    "the token is refused, the password was wrong, no password is set",
    "password: unknown\npassword: none",
    "secretary and tokenizer: gpt2-medium, monkey: 1, keyboard: us, author: someone",
    "docker run -u 1000:1000 -p 8080:80 x; ssh -p 2222 x; mkdir -p out; nvidia-smi -pl 300",
    "pin_memory: true, passes: 3, bypass: on, passed: 12",
    "torch==2.11.0+cu130, SecretStorage==3.3.3, if token == end:",
    "train.py:1234 and torch.nn.functional:relu, c10d::store.cpp:221, step:1000",
    "connect to host memory, the user would, for user code, as user input",
    "at 300 images/s and/or 2 GB/s of 1/2; 16 tokens/s per W",
    "NVIDIA GeForce RTX 5090, NVIDIA RTX PRO 6000 Blackwell, H200-SXM-141GB, resnet50, Llama-3.1-8B",
    "serial share 0.02; serial: none; in serial",
    "node-1:29500 rank-0 cuda:0 sm_90 bf16 x16 gen5",
    "µ² … ﬁne emoji 👨‍👩‍👧 and עברית",
    "e^-p/tau, non-a/b, -1/2",
)


@pytest.mark.parametrize("text", TOLD)
def test_what_is_told_goes_whole(text):
    for around in (text, f"x, {text}\nnext line", f"  {text}", f"a\n{text}"):
        shown = Redactor().text(around)
        assert GONE not in shown, shown
        assert "redacted-" in shown
        assert Redactor().text(shown) == shown
    assert Redactor().text(f"{text}\nnext line").endswith("\nnext line") or text.endswith("\n")


@pytest.mark.parametrize("text", KEPT)
def test_what_sounds_alike_stays(text):
    assert Redactor().text(text) == text


@given(
    text=st.sampled_from(TOLD),
    before=st.sampled_from(["", "x ", "é ", "\n", "("]),
    after=st.sampled_from(["", "\n", ")"]),
)
@settings(max_examples=100, deadline=None)
def test_it_goes_in_json_that_stays_json(text, before, after):
    line = json.dumps({"message": f"{before}{text}{after}", "count": 3, "list": ["ring", True, None]})
    shown = Redactor().text(line)
    assert GONE not in json.dumps(json.loads(shown), ensure_ascii=False)
    assert (json.loads(shown)["count"], json.loads(shown)["list"]) == (3, ["ring", True, None])


def test_a_token_of_digits_goes_and_a_count_stays():
    assert Redactor().text("token: 99017734") == "token: redacted-secret"
    assert Redactor().text("pin token=1234") == "pin token=1234"


def test_data_goes_by_its_keys():
    data = {
        "options": {"hf_token": "zq", "db": {"password": ["zq", "zq b"], "port": 5432}, "tokens": 7, "width": 3},
        "axes": {"workload.options.access_key": ["zq"], "workload.options.depth": [1]},
        "rows": [{"name": "SLURM_PASSWORD", "value": "zq"}, {"name": "torch", "value": "2.11.0"}],
        "command": ["notify", "bob:zq", "--secret", "zq", "-p", "zq", "--level", "high", "-P", "4711", "host:9100"],
        "secret": True,
        "user": "zqada",
    }
    shown = Redactor().data(data)
    assert GONE not in json.dumps(shown)
    assert shown["options"]["db"]["port"] == 5432
    assert shown["options"] | {"db": 0} == {"hf_token": "redacted-secret", "db": 0, "tokens": 7, "width": 3}
    assert shown["axes"]["workload.options.depth"] == [1]
    assert shown["rows"][1] == {"name": "torch", "value": "2.11.0"}
    gone = "redacted-secret"
    assert shown["command"] == [
        "notify",
        gone,
        "--secret",
        gone,
        "-p",
        gone,
        "--level",
        "high",
        "-P",
        gone,
        "host:9100",
    ]
    assert shown["secret"] is True
    assert shown["user"] == "redacted-user"


def test_a_sweep_file_stays_one():
    text = """name: s   # password: zqa zqb
question: "Is the password: zqq zqr known?"
workload: {kind: script, options: {api_token: zqc zqd, width: 3, db_pass: 'zq, e}'}}
notify:
  command:
    - curl
    - -u
    - "bob:zqf"
    - --password
    - zqg
    - -X
    - POST
wall_power: {source: command, command: [ipmitool, -U, zqadmin, -P, zqh, sdr], period_s: 2}
secret: |
  zqi
  zqj
measure: {window_s: 2}
"""
    shown = Redactor().sweep(text)
    assert GONE not in shown
    data = yaml.safe_load(shown)
    gone = "redacted-secret"
    assert data["workload"] == {"kind": "script", "options": {"api_token": gone, "width": 3, "db_pass": gone}}
    assert data["notify"]["command"] == ["curl", "-u", gone, "--password", gone, "-X", "POST"]
    assert data["wall_power"]["command"] == ["ipmitool", "-U", "redacted-user", "-P", gone, "sdr"]
    assert data["measure"] == {"window_s": 2}
    assert Redactor().sweep(shown) == shown
    assert "zqa zqb" not in Redactor().sweep(f"a: [\n{text}")  # no YAML at all


def test_names_that_are_told_are_looked_for_elsewhere():
    names = names_in(["no route to host zqbox", "login failed for user zqmarie", "the user would; to host memory"])
    assert (names.hosts, names.users) == ({"zqbox"}, {"zqmarie"})
    assert Redactor(names=names).text("zqmarie@x on zqbox") == "redacted-user@redacted-host on redacted-host"


def test_an_address_without_separators_goes_where_it_is_named_one():
    assert Redactor().text("ether aabbccddeeff, trial aabbccddeef1") == "ether redacted-address, trial aabbccddeef1"
    assert Redactor(names=Names()).text("MAC: 0A1B2C3D4E5F") == "MAC: redacted-address"
