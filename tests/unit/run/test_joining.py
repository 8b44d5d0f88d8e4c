"""What `run` decides about clusters, hosts and processes without starting any."""

import inspect
import os
import socket
import time

import pytest

from rtxscale.errors import RunError
from rtxscale.plan.model import Placement
from rtxscale.run import authentication, cluster, host_lock, worker
from rtxscale.run.authentication import Answer
from rtxscale.run.host import UNWANTED_CALLBACKS, session_trainer, torch_config
from rtxscale.run.hub import Registered
from rtxscale.run.ray_setup import prepare
from rtxscale.run.session import SessionSpec, check_places
from rtxscale.run.torchrun_session import read_death
from rtxscale.run.watcher import by_device


def test_an_own_cluster_gets_a_token_and_what_the_user_set_stays():
    own, running, chosen = {}, {"RAY_ADDRESS": "h:1"}, {"RAY_AUTH_MODE": "disabled", "TUNE_GLOBAL_CHECKPOINT_S": "1"}
    for variables in (own, running, chosen):
        prepare(variables)
    assert own["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_MODE" not in running
    assert (chosen["RAY_AUTH_MODE"], chosen["TUNE_GLOBAL_CHECKPOINT_S"]) == ("disabled", "1")


def cluster_that(monkeypatch, token):
    """A head node that wants this token, or none."""

    def ask(_address, given):
        if token is None:
            return Answer.OPEN
        return Answer.ACCEPTED if given == token else Answer.REFUSED

    monkeypatch.setattr(authentication, "ask", ask)


def test_an_open_cluster_is_warned_of_and_another_is_not(monkeypatch, tmp_path, capsys):
    cluster_that(monkeypatch, None)
    authentication.settle({"RAY_ADDRESS": "h:1"}, tmp_path)
    assert "warning: found that the cluster at h:1 asks for no token" in capsys.readouterr().err
    cluster_that(monkeypatch, "secret")
    authentication.settle({"RAY_ADDRESS": "h:1", "RAY_AUTH_TOKEN": "secret"}, tmp_path)
    assert capsys.readouterr().err == ""


def test_the_token_is_used_only_where_the_cluster_wants_it(monkeypatch, tmp_path):
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("secret\n")
    for token, mode in ((None, None), ("secret", "token")):
        cluster_that(monkeypatch, token)
        variables = {"RAY_ADDRESS": "h:1"}
        authentication.settle(variables, tmp_path)
        assert variables.get("RAY_AUTH_MODE") == mode


@pytest.mark.parametrize(("given", "word"), [({}, "no token"), ({"RAY_AUTH_TOKEN": "other"}, "another token")])
def test_a_missing_or_wrong_token_is_found_at_once_and_never_shown(monkeypatch, tmp_path, given, word):
    cluster_that(monkeypatch, "secret")
    with pytest.raises(RunError, match=word) as caught:
        authentication.settle({"RAY_ADDRESS": "h:1", **given}, tmp_path)
    assert "other" not in str(caught.value).replace("another", "")


def test_what_a_job_or_the_user_decided_is_not_asked_again(monkeypatch, tmp_path):
    monkeypatch.setattr(authentication, "ask", lambda *_: pytest.fail("asked"))
    authentication.settle({}, tmp_path)
    authentication.settle({"RAY_ADDRESS": "h:1", "RAY_AUTH_MODE": "token"}, tmp_path)


def test_a_head_node_that_is_not_there_is_left_to_the_probe():
    assert authentication.ask("127.0.0.1:1", None) is Answer.UNKNOWN


@pytest.mark.parametrize("address", ["auto", "http://127.0.0.1:8265", "ray://127.0.0.1:10001", "host", ":6379"])
def test_an_address_of_another_form_is_refused(address):
    with pytest.raises(RunError, match="expected host:port"):
        cluster.probe(address)


def test_nobody_listening_is_found_out_quickly():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(RunError, match=f"found no cluster at 127.0.0.1:{port}"):
        cluster.probe(f"127.0.0.1:{port}")
    assert time.monotonic() - began < 2.5


def test_two_sweeps_do_not_both_start_a_cluster_here(tmp_path, monkeypatch):
    monkeypatch.setattr(host_lock, "PREDECESSOR_S", 0.2)
    path = tmp_path / "lock"
    with (
        host_lock.host_lock(path, "run-a"),
        pytest.raises(RunError, match="run run-a"),
        host_lock.host_lock(path, "run-b"),
    ):
        pass
    with host_lock.host_lock(path, "run-c"):
        assert "run-c" in path.read_text()


def test_the_trainer_still_has_its_hooks():
    from ray.train.v2._internal.execution.controller import TrainController

    assert session_trainer().__name__ == "SessionTrainer"
    assert inspect.iscoroutinefunction(TrainController.run)
    assert callable(TrainController.get_result)
    from ray.train.v2.api import data_parallel_trainer

    for name in UNWANTED_CALLBACKS:
        assert hasattr(data_parallel_trainer, name), f"Ray no longer has {name}"


class Workers:
    """A worker group of one: what is executed on it is executed here."""

    def __init__(self):
        self.done = []

    def execute(self, work, *_given, **_named):
        self.done.append(work.__name__)
        return [work()]


def test_gloo_listens_where_ray_does_before_it_connects(monkeypatch):
    from ray.train.torch.config import _TorchBackend

    workers = Workers()
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(worker.ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr(_TorchBackend, "on_start", lambda _self, group, _config: group.done.append("connected"))
    config = torch_config()
    config.backend_cls().on_start(workers, config)
    assert workers.done == ["settle_interface", "connected"]
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    config.backend_cls().on_start(workers, config)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7", "the user's choice"


def spec(**environment):
    placement = Placement(nodes=("node0", "node0"), gpu_uuids=("GPU-a", "GPU-b"), visible="0,1")
    return SessionSpec(session_id="s", placement=placement, device="cuda", threads=1, environment=environment)


def rank(number, uuid, **environment):
    return Registered(rank=number, pid=1, node="n", gpu_uuid=uuid, environment=environment)


def test_a_variable_that_did_not_arrive_is_an_error():
    ranks = {0: rank(0, "GPU-a", NCCL_P2P_DISABLE="1"), 1: rank(1, "GPU-b")}
    with pytest.raises(RunError, match="NCCL_P2P_DISABLE=None in rank 1; expected '1'"):
        check_places(ranks, spec(NCCL_P2P_DISABLE="1"))


def test_two_ranks_on_one_gpu_are_an_error():
    with pytest.raises(RunError, match="expected"):
        check_places({0: rank(0, "GPU-a"), 1: rank(1, "GPU-a")}, spec())
    check_places({0: rank(0, "GPU-b"), 1: rank(1, "GPU-a")}, spec())


def test_readings_by_device():
    latest = {"gpus": {"GPU-a": {"power_w": 1.0}}, "host": {"utilisation": 0.5}, "power_w": 1.0}
    assert by_device(latest) == {"GPU-a": {"power_w": 1.0}, "": {"utilisation": 0.5}}
    assert by_device({"gpus": {}, "host": None}) == {}


def test_torchruns_own_summary_names_the_dead_rank():
    output = """\
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
rtxscale.rank FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_11:00:00
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4242)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4242
"""
    assert read_death(output, 1).by_rank == {1: "its process died (exit code -9)"}
    assert read_death("ModuleNotFoundError: no module\n", 1).summary.endswith("ModuleNotFoundError: no module")
