import os

import pytest
import torch.distributed as dist

from rtxscale.errors import RunError
from rtxscale.nccl.knobs import Knobs
from rtxscale.rank.communicator import _options, check_process, exactly, knobs_of
from rtxscale.spec.cell import Nccl


def test_the_cells_settings_become_knobs():
    nccl = Nccl(algorithm="tree", channels=4, protocol="simple", p2p="disabled")
    assert knobs_of(nccl) == Knobs(algorithm="tree", channels=4, protocol="simple", p2p="disabled")
    assert knobs_of(Nccl()) == Knobs()


def test_variables_exist_only_while_the_communicator_is_made(monkeypatch):
    monkeypatch.delenv("NCCL_ALGO", raising=False)
    with exactly({"NCCL_ALGO": "allreduce:tree"}):
        assert os.environ["NCCL_ALGO"] == "allreduce:tree"
    assert "NCCL_ALGO" not in os.environ


def test_what_the_user_had_set_does_not_reach_a_cell_that_asks_for_auto(monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_PROTO", "LL")
    with exactly({"NCCL_PROTO": "simple"}):
        assert "NCCL_ALGO" not in os.environ
        assert os.environ["NCCL_PROTO"] == "simple"
    assert (os.environ["NCCL_ALGO"], os.environ["NCCL_PROTO"]) == ("Ring", "LL")


def test_they_go_when_making_it_fails(monkeypatch):
    monkeypatch.delenv("NCCL_ALGO", raising=False)
    with pytest.raises(RuntimeError, match="no algorithm"), exactly({"NCCL_ALGO": "tree"}):
        raise RuntimeError("no algorithm")
    assert "NCCL_ALGO" not in os.environ


@pytest.mark.parametrize("name", ["NCCL_P2P_DISABLE", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS"])
def test_a_variable_nccl_has_already_cached_is_refused(name):
    with pytest.raises(ValueError, match=name), exactly({name: "1"}):
        pass


def test_a_process_started_without_its_variables_is_refused():
    with pytest.raises(RunError, match="found NCCL_P2P_DISABLE=unset in this process; the cell needs"):
        check_process(Knobs(p2p="disabled"), {})


def test_a_process_with_its_variables_is_accepted():
    check_process(Knobs(p2p="disabled"), {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"})
    check_process(Knobs(algorithm="ring", channels=2), {})


@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs a torch built with NCCL")
def test_channels_become_both_bounds_of_the_communicators_ctas():
    config = _options(Knobs(channels=4)).config
    assert (config.min_ctas, config.max_ctas) == (4, 4)
    untouched = _options(Knobs()).config
    assert (untouched.min_ctas, untouched.max_ctas) != (4, 4)
