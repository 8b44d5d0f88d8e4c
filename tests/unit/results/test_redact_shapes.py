"""Addresses, hosts, users, secrets and paths in the shapes in which PyTorch, NCCL, Slurm and Linux write them."""

import json
import time

import pytest

from rtxscale.results.read import Run
from rtxscale.results.redaction.private_names import Names, names_in, pseudonyms
from rtxscale.results.redaction.redact import Redactor
from rtxscale.results.redaction.redacted import redacted
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.load import parse_sweep

HOST, USER, SECRET = "redacted-host", "redacted-user", "redacted-secret"
PATH, ADDRESS, URL = "redacted-path", "redacted-address", "redacted-url"
ADDRESSES = {
    "[c10d] failed to connect to [::ffff:192.168.17.45]:43017": f"[c10d] failed to connect to [{ADDRESS}]:43017",
    "via ::ffff:10.9.8.7.": f"via {ADDRESS}.",
    "fe80::5efe:192.168.17.45 is up": f"{ADDRESS} is up",
    "route 64:ff9b::192.0.2.33/96": f"route {ADDRESS}/96",
    "0:0:0:0:0:ffff:192.168.1.9, ::192.0.2.33": f"{ADDRESS}, {ADDRESS}",
    "src:fe80::1ff:fe23:4567:890a": f"src:{ADDRESS}",
    "at https://[fe80::7]:8265/x/y now": f"at {URL} now",
}
HOSTS = {
    "[c10d] The IPv4 network addresses of (tron07, 29500) cannot be retrieved": 1,
    "(tron07, 29500) cannot be retrieved": 1,
    "timed out while trying to connect to ('tron', 29500)": 1,
    "host=tron07 port=29500": 1,
    "MASTER_ADDR=tron07": 1,
    "sock.connect(('tron', 29500)), raddr=('tron', 4321)": 2,
    "Using eth0:tron<0>, ib0:tron<0>": 2,
    "connecting to existing cluster at address: tron07:6379...": 1,
    "terminated on host tron07": 1,
    "host: 'tron'": 1,
    "mount tron07.lab:/x": 1,
    "export MASTER_ADDR='tron'": 1,
    "MASTER_ADDR: tron07": 1,
    '{"MASTER_ADDR": "tron", "rank": 3}': 1,
    '{\\"host\\": \\"tron\\"}': 1,
    "NCCL_COMM_ID=tron:29500": 1,
    "RAY_ADDRESS=tron07:6379": 1,
    "rdzv_endpoint='tron07:29500'": 1,
    "torchrun --rdzv-endpoint tron07:29500 --master_addr tron07": 2,
    '["torchrun", "--master-addr", "tron07"]': 1,
    "SLURM_JOB_NODELIST=tron[01-04,07]": 1,
    "hosts=tron07,tron08": 1,
    "(RayTrainWorker pid=71, ip=tron07)": 1,
    "Connection reset by peer [tron07]:43017": 1,
    "SocketImpl(fd=3, addr=[tron]:43210, remote=[tron07]:29500)": 2,
    "socket: tron07:29500": 1,
    "peer tron:29500 left": 1,
    "NET/Socket: peer tron07<40923> closed": 1,
    "Connect to tron<40923> failed": 1,
    "mount fileserver:/export/x": 1,
    "fileserver:/x/y on /data type nfs4": 1,
    "rsync nas-3:/x": 1,
    "srun: error: tron07: task 3: Killed": 1,
    "srun: error: tron[07-08]: tasks 0-1: Killed": 1,
    "slurmstepd: error: *** STEP 12.0 ON tron07 CANCELLED AT": 1,
    "tron07: Name or service not known": 1,
    "Dec  1 09:43:52 tron07 kernel: NVRM: Xid 79": 1,
    "2026-12-01T09:43:52+00:00 tron kernel: NVRM: Xid 79": 1,
    "Linux tron07 6.8.0-45-generic x86_64": 1,
    "tron:77:78 [0] NCCL INFO comm": 1,
    "  host      : tron\n  rank      : 0 (local_rank: 0)": 1,
    "The node 'tron07_2443_0' has failed to send a heartbeat": 1,
    "wall_power.address: found 'bmc-07'; expected an address": 1,
    "wall_power: {source: ipmi, address: bmc-07}": 1,
    "wall_power:\n  source: ipmi\n  address: bmc-07\n": 1,
    "ipmitool -I lanplus -H bmc-07 -E": 1,
    "('ipmitool', '-I', 'lanplus', '-H', 'bmc-07', '-E')": 1,
}
USERS = {
    "user=zaphod": 1,
    "SUDO_USER=zaphod": 1,
    "SLURM_JOB_USER=zaphod": 1,
    "LOGNAME=zaphod; x": 1,
    "uid=1001(zaphod) gid=1001(zaphod) groups=1001(zaphod),27(sudo)": 3,
    '{"USER": "zaphod"}': 1,
    "{'user': 'zaphod', 'rank': 3}": 1,
    "USER: zaphod": 1,
    "[sudo] password for zaphod: ": 1,
    "uid=zaphod,ou=people": 1,
    "Server=x;User Id=zaphod": 1,
}
SECRETS = {
    "PAT: x": f"PAT: {SECRET}",
    "GITHUB_PAT=abc": f"GITHUB_PAT={SECRET}",
    "--github-pat abc": f"--github-pat {SECRET}",
    "post to hooks.slack.com/services/T0/B0/XYZ failed": f"post to {URL} failed",
    "api.telegram.org/bot7:x?y=1": URL,
    "jdbc:oracle:thin:alice/pw@//db": URL,
    "the password for alice is hunter2": f"the password for {USER} is {SECRET}",
    "the password of the wall meter is hunter2": f"the password of the wall meter is {SECRET}",
    "The API key (abcd1234) was refused": f"The API key ({SECRET}) was refused",
    "the password (hunter2) was refused": f"the password ({SECRET}) was refused",
    "API key: abcd": f"API key: {SECRET}",
    "aws secret access key = ab/cd": f"aws secret access key = {SECRET}",
}
PATHS = {
    "open /home/alice/x y z/file failed": f"open {PATH} failed",
    "/home/alice/x y z/a b/c d.pt": f"{PATH} d.pt",
    'open "../zaphod data/imgs" failed': f'open "{PATH}" failed',
    "open '$WORK/zaphod data/imgs' failed": f"open '{PATH}' failed",
    "open ../zaphod data/imgs failed": f"open {PATH} failed",
    '{\\"p\\": \\"/srv/zaphod x\\"}': f'{{\\"p\\": \\"{PATH}\\"}}',
    "mount //filer7/zaphod": f"mount {PATH}",
}
KEPT = (
    "nccl.p2p=disabled, ddp.bucket_mib=1, workload.precision=bf16, axes: {gpus: [1, 2]}",
    "shape (batch, 4096), a tuple (RING, 29500), connect (see 4.2), address (hex)",
    "[rank0]:2026 lines, x[key]:4096, [INFO]:12, [default0]:2026-12-01",
    "vectorized_elementwise_kernel<4, float>, softmax<1024>, vector<int>, to <0>",
    "host memory, device to host=52.1 GB/s, ip=True, host=None, addr=0x7f00, peer=1, address=auto",
    "user=None, user=True, user=str, multi_user=yes, user 0m1.2s, user: 1.2 s",
    "file:/x, error:/x, path:/x".replace("/x", ""),
    "srun: error: Unable to create step for job 123: Invalid job",
    "connect: Connection refused, getaddrinfo: Name or service not known",
    "Linux version 6.8.0, Linux kernel 6.8.0, Linux 6.8.0",
    "file pattern: x, pattern=x, path: x, COMPAT=1, patch=3",
    "the token (optional), per token (bf16), the password (see README), a secret (string)",
    "the password for the meter is not set, the password of the wall meter is needed",
    "std::vector at::native::add c10::Error torch::cad 1.2.3.4.5 12:30:45",
    "torch.cuda/x, README.md/x, v1.2/x, torch.distributed/elastic",
    "host=self.host, address = wanted.address, node=roster.node_id(), nodes = pl.col(1), endpoint=get(2)",
    "`MASTER_ADDR`/`MASTER_PORT` at HOST:PORT, hostname:port, ``a``/``b``, --address looks at 4x cards",
    "Connecting (retry, 1000), API keys (12 of them), 4x cards on node 2, on host memory",
    "groups=2(sudo), f(1),27(docker), uid=0(root)",
)


def plain(table):
    """Texts that hold a name, each with how many times it is there."""
    return [pytest.param(text, count, id=text[:40]) for text, count in table.items()]


@pytest.mark.parametrize(("text", "shown"), [*ADDRESSES.items(), *SECRETS.items(), *PATHS.items()])
def test_it_goes_whole(text, shown):
    assert Redactor().text(text) == shown
    assert Redactor().text(shown) == shown


@pytest.mark.parametrize(("text", "count"), plain(HOSTS))
def test_a_host_goes_and_is_looked_for_elsewhere(text, count):
    shown = Redactor().text(text)
    assert not any(name in shown for name in ("tron", "bmc", "fileserver", "nas-3")), shown
    assert shown.count(HOST) == count, shown
    assert Redactor().text(shown) == shown
    found = names_in([text])
    assert found.hosts
    assert not found.users
    again = Redactor(names=found).text(" and ".join(found.hosts))
    assert set(again.split(" and ")) == {HOST}


@pytest.mark.parametrize(("text", "count"), plain(USERS))
def test_a_user_goes_and_is_looked_for_elsewhere(text, count):
    shown = Redactor().text(text)
    assert "zaphod" not in shown
    assert shown.count(USER) == count, shown
    assert Redactor().text(shown) == shown
    found = names_in([text])
    assert (found.users, found.hosts) == ({"zaphod"}, frozenset())
    assert Redactor(names=found).text("by zaphod") == f"by {USER}"


@pytest.mark.parametrize("text", KEPT)
def test_what_looks_alike_stays(text):
    assert Redactor().text(text) == text
    found = names_in([text])
    assert Redactor(names=found).text(text) == text


@pytest.mark.parametrize("text", [*HOSTS, *USERS, *ADDRESSES])
def test_it_goes_in_json_that_stays_json(text):
    line = json.dumps({"message": text, "count": 3})
    shown = json.loads(Redactor().text(line))
    told = json.dumps(shown)
    assert not any(name in told for name in ("tron", "bmc", "fileserver", "nas-3", "zaphod", "192.", "10.9")), told
    assert shown["count"] == 3


def test_a_pseudonym_stays_where_a_name_stood():
    redactor = Redactor(names=Names(pseudonyms=pseudonyms(["tron07abc"], [])))
    assert redactor.text("(pid=7, ip=tron07abc) to tron07abc:29500") == "(pid=7, ip=node-1) to node-1:29500"


def test_hosts_and_users_of_data_go_by_their_keys():
    data = {
        "env": {"MASTER_ADDR": "tron", "SUDO_USER": "zaphod", "host": "tron", "NCCL_P2P_DISABLE": "1", "GH_PAT": "x"},
        "host": "52.1 GB/s",
        "wall_power": {"source": "ipmi", "address": "bmc", "period_s": 2.0},
        "address": "00000000:01:00.0",
    }
    assert Redactor().data(data) == {
        "env": {"MASTER_ADDR": HOST, "SUDO_USER": USER, "host": HOST, "NCCL_P2P_DISABLE": "1", "GH_PAT": SECRET},
        "host": "52.1 GB/s",
        "wall_power": {"source": "ipmi", "address": HOST, "period_s": 2.0},
        "address": "00000000:01:00.0",
    }


SWEEP = """\
name: metered   # bmc-07 is the meter
question: Does it scale?
study: weak
workload: {kind: vision, model: resnet18, batch_per_gpu: 8}
axes: {gpus: [1, 2]}
wall_power: METER
"""


@pytest.mark.parametrize(
    ("meter", "word"),
    [
        ("{source: ipmi, address: bmc-07}", HOST),
        ("\n  source: ipmi\n  address: 'bmc-07'   # bmc-07", HOST),
        ("{source: redfish, address: https://bmc-07.lab/redfish, period_s: 2}", URL),
        ("{source: redfish, address: 'https://[fe80::7]:443/redfish'}", URL),
    ],
)
def test_the_address_of_a_meter_goes_and_the_sweep_still_loads(meter, word):
    text = SWEEP.replace("METER", meter)
    names = names_in([text])
    shown = Redactor(names=names).sweep(text)
    assert not any(name in shown for name in ("fe80", "443", "bmc-07" if "bmc-07" in meter else "fe80"))
    sweep = parse_sweep(shown, "s")
    assert sweep.wall_power.address == word
    assert sweep.wall_power.source == parse_sweep(text, "s").wall_power.source
    assert Redactor(names=names).sweep(shown) == shown


def test_the_meter_of_a_run_goes_from_all_its_texts(tmp_path):
    text = SWEEP.replace("METER", "{source: ipmi, address: bmc-07}")
    cell = json.dumps({"wall_power": {"source": "ipmi", "address": "bmc-07"}})
    trial = {"trial_id": "t" * 12, "attempt": 1, "cell_json": cell, "message": "bmc-07 is away, peer tron07<40923>"}
    with RunWriter.open(tmp_path, parse_sweep(text, "s.yaml"), text) as writer:
        writer.commit({"trials": table("trials", [trial, {**trial, "attempt": 2, "message": "tron07 is back"}])})
    shown = redacted(Run.open(writer.run_dir), Names())
    rows = shown.frame("trials").collect()
    assert rows["message"].to_list() == [f"{HOST} is away, peer {HOST}<40923>", f"{HOST} is back"]
    told = f"{rows.to_dicts()} {shown.sweep_text} {json.dumps(shown.manifest)}"
    assert "bmc-07" not in told
    assert parse_sweep(shown.sweep_text, "s.yaml").wall_power.address == HOST


HOSTILE = (
    *("a.", "a-", "a_", "a:", "a=", "(", "[a", "a<", "host=", "user_", "a b/", "/home/a ", "../a ", "\\", '"/', "::"),
    *("0:", "1.2.", "password for a ", "API ", "key (", "wall_power: ", "(a, ", "connect ", "1(a),", "srun: ", "//a"),
    *("api key ", "ipmitool ", "a/a@", "jdbc:", "a.com/", "\\\\'", "aaaa", "a:/", "pat ", "https://[", "Dec  1 "),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_time_grows_with_the_length_alone(piece):
    def needed(length):
        text = (piece * length)[:length]
        start = time.process_time()
        Redactor().text(text)
        names_in([text])
        return time.process_time() - start

    short, long = needed(4_000), needed(32_000)
    assert long < max(1.0, 24 * short)
