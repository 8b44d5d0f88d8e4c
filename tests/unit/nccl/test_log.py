from pathlib import Path

import pytest

from rtxscale.nccl.log import Communicator, LogFacts, Selection, parse_log

GOLDEN = Path(__file__).parents[2] / "golden" / "nccl"
HEAD = "node-a:1001:1101 [0] NCCL INFO "


def golden(name: str) -> LogFacts:
    return parse_log((GOLDEN / name).read_text())


def said(message: str) -> LogFacts:
    return parse_log(HEAD + message + "\n")


def test_nothing_in_nothing_out():
    assert parse_log("") == LogFacts()
    assert parse_log("step 10 loss 2.1\n") == LogFacts()


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("nccl_info_2_18.log", (2, 18, 5)),
        ("nccl_info_2_20.log", (2, 20, 5)),
        ("nccl_info_2_23_p2p_direct_4090x4.log", (2, 23, 4)),
        ("nccl_info_2_29_single_5090.log", (2, 29, 7)),
        ("nccl_hang_2_30_p2p_after_init.log", (2, 30, 4)),
        ("h200x2_nvlink_tree_ctas2_nccl2.28.9.log", (2, 28, 9)),
    ],
)
def test_version_bare_or_on_an_info_line(name, version):
    assert golden(name).version == version


def test_an_unexpanded_cuda_version_does_not_hide_nccls():
    assert parse_log("NCCL version 2.26.6+cudaCUDA_MAJOR.CUDA_MINOR\n").version == (2, 26, 6)


def test_several_versions_are_no_version():
    facts = golden("nccl_prefix_variants.log")
    assert facts.versions == ((2, 18, 5), (2, 26, 6))
    assert facts.version is None
    assert facts.selections_logged is None


def test_talk_about_a_version_is_not_the_version():
    assert parse_log("built against NCCL version 2.20.5+cuda12.4\nNCCL version 2.20.5 is old\n").versions == ()


def test_choices_by_number_without_the_function():
    assert golden("nccl_tuning_2_20_no_op.log").selections == (
        Selection(function=None, size_bytes=4, algorithm="tree", protocol="ll"),
        Selection(function=None, size_bytes=131072, algorithm="tree", protocol="ll128"),
        Selection(function=None, size_bytes=805306368, algorithm="ring", protocol="simple"),
    )


def test_choices_by_number_with_the_function_and_counts():
    assert golden("nccl_tuning_2_23_with_op.log").selections == (
        Selection(function="all_reduce", size_bytes=131072, algorithm="tree", protocol="ll128"),
        Selection(function="all_gather", size_bytes=37756928, algorithm="ring", protocol="simple", count=2),
    )


def test_choices_by_name_with_channels():
    selections = golden("nccl_tuning_2_24plus_names.log").selections
    assert selections[2] == Selection(
        function="all_reduce",
        size_bytes=805306368,
        algorithm="ring",
        protocol="simple",
        first_channel=0,
        last_channel=23,
    )
    assert [selection.channels for selection in selections] == [1, 4, 24, 2]
    assert selections[3].function == "reduce_scatter"


def test_names_of_algorithms_are_the_same_by_name_and_number():
    named = said("AllReduce: 8 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..0}")
    numbered = said("AllReduce: 8 Bytes -> Algo 5 proto 2 time 1.000000")
    assert named.selections[0].algorithm == numbered.selections[0].algorithm == "nvlstree"
    assert said("AllReduce: 8 Bytes -> Algo 99 proto 7 time 1.000000").selections[0].algorithm == "algorithm 99"


def test_kernels_that_bypass_algorithms_are_choices_too():
    facts = parse_log(
        HEAD + "AllReduce [Symmetric]: 1048576 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1\n"
        "" + HEAD + "AllGather [Copy Engine]: 2097152 Bytes -> cudaMemcpyBatchAsync\n"
    )
    assert [(one.function, one.algorithm, one.channels) for one in facts.selections] == [
        ("all_reduce", "symmetric", 8),
        ("all_gather", "copy engine", None),
    ]


def test_choices_are_not_logged_before_2_20():
    facts = golden("nccl_info_2_18.log")
    assert facts.selections == ()
    assert facts.selections_logged is False
    assert golden("nccl_info_2_20.log").selections_logged is True


@pytest.mark.parametrize("name", ["nccl_coll_and_trace_lines.log", "nccl_tuning_table_info.log"])
def test_look_alikes_are_not_choices(name):
    facts = golden(name)
    assert (facts.selections, facts.environment, facts.transports) == ((), {}, {})


def test_the_matrix_of_what_is_enabled_is_not_a_choice():
    facts = golden("nccl_env_algo_matrix_2_28.log")
    assert facts.selections == ()
    assert facts.environment == {"NCCL_ALGO": ("ring;allreduce:ring,tree",)}
    assert facts.rings_connected
    assert not facts.trees_connected


@pytest.mark.parametrize(
    "cut",
    [
        "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7",
        "AllReduce: 67108864 Bytes -> Algo RING proto SIM",
        "67108864 Bytes -> Algo 1 proto 2 time",
        "8 coll channels, 8 collnet chan",
        "Channel 00/0 : 0[0] -> 1[1] via",
    ],
)
def test_a_line_cut_short_says_nothing(cut):
    facts = said(cut)
    assert (facts.selections, facts.channels, facts.transports) == ((), (), {})
    assert facts.lines == 1


@pytest.mark.parametrize(
    "message",
    [
        "AllReduce: 67108864 Bytes -> Algo RING proto SIM",
        "67108864 Bytes -> Algo 1 proto 2 time",
        "AllReduce [Symmetric]: 1048576 Bytes -> Kernel",
        "Channel 00/0 : 0[0] -> 1[1] via",
        "Channel 00 : 0[6000] -> 1[",
        "Channel 00/0 : 0[0] -> 1[1] via TELEPATHY/direct",
    ],
)
def test_a_choice_or_connection_that_is_not_understood_makes_the_log_lossy(message):
    assert said(message).lossy


@pytest.mark.parametrize(
    "message",
    [
        "Channel 00/02 :    0   1",
        "Channel 00/64 : 0",
        "Broadcast: opCount a sendbuff 0x7f0000000200 recvbuff 0x7f0000000200 count 24 datatype 0 op 0 root 0",
        "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
    ],
)
def test_whole_lines_of_other_kinds_make_no_log_lossy(message):
    assert not said(message).lossy


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.log")))
def test_only_rays_folded_logs_are_lossy(name):
    assert golden(name).lossy == ("[repeated " in (GOLDEN / name).read_text())


def test_the_last_line_without_its_newline_is_not_read():
    facts = parse_log(HEAD + "NCCL_MAX_NCHANNELS set by environment to 1")
    assert facts.environment == {}
    assert facts.cut


@pytest.mark.parametrize(
    ("message", "transport"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read", "P2P/direct pointer"),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM"),
        ("Channel 00/0 : 0[6000] -> 1[7000] via P2P/IPC", "P2P/IPC"),
        ("Channel 00/0 : 0[0] -> 3[3] via P2P/indirect/1[1]", "P2P/indirect"),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", "SHM/direct"),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct", "SHM/direct"),
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/1", "NET/Socket"),
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(1)/GDRDMA", "NET/IB"),
        ("CollNet 00/1 : 0 [send] via COLLNET/SHARP/0/GDRDMA", "COLLNET/SHARP"),
    ],
)
def test_transports(message, transport):
    assert said(message).transports == {transport: 1}


def test_a_network_that_is_only_available_is_not_a_transport():
    assert golden("nccl_info_2_29_single_5090.log").transports == {}
    assert said("NET/Socket : Using [0]eth0:192.0.2.10<0>").transports == {}
    assert said("P2P Chunksize set to 131072").transports == {}


def test_variables_taken_with_and_without_a_full_stop():
    facts = golden("nccl_info_2_20.log")
    assert facts.environment == {"NCCL_MIN_NCHANNELS": ("1",), "NCCL_MAX_NCHANNELS": ("1",)}
    assert said("NCCL_DEBUG_FILE set by environment to /logs/a.").environment == {"NCCL_DEBUG_FILE": ("/logs/a.",)}
    both = parse_log(HEAD + "NCCL_ALGO set by environment to Ring\n" + HEAD + "NCCL_ALGO set by environment to Tree\n")
    assert both.environment == {"NCCL_ALGO": ("Ring", "Tree")}


def test_refused_settings_at_info():
    facts = golden("nccl_ignored_env_2_28_info.log")
    assert len(facts.refused) == 5
    assert "User asked for a minimum of 128 channels, limiting to 64" in facts.refused
    assert facts.warnings == ()


@pytest.mark.parametrize(
    "message",
    [
        "minCTAs 128 is larger than #channels upper limit 64, cap it to 64",
        "Comm config minCTAs reset to NCCL_MIN_CTAS=4",
        "splitShare 7 is not a valid value 0/1, set it to 0",
        'Unrecognized prefix token "allreduc" when parsing "allreduc:tree"',
    ],
)
def test_refused_settings_in_either_level(message):
    assert said(message).refused == (message,)
    warned = parse_log(f"\nnode-a:1:2 [0] init.cc:77 NCCL WARN {message}\n")
    assert warned.refused == warned.warnings == (message,)


def test_four_generations_of_no_algorithm():
    warnings = golden("nccl_errors_no_algo.log").warnings
    assert sum("lgorithm/protocol" in warning and "available" in warning for warning in warnings) == 4
    assert warnings[-1] == 'Unrecognized element token "trree" when parsing "trree"'


def test_communicators_of_a_real_run_with_their_channels():
    facts = golden("h200x2_nvlink_tree_ctas2_nccl2.28.9.log")
    assert [(one.created_by, one.rank, one.channels, one.complete) for one in facts.communicators] == [
        ("ncclCommInitRankConfig", 1, 24, True),
        ("ncclCommSplit", 1, 2, True),
        ("ncclCommInitRankConfig", 0, 24, True),
        ("ncclCommSplit", 0, 2, True),
    ]
    assert facts.channels == (2, 24)
    assert facts.config == {"Blocking": ("1",), "Min CTAs": ("2",), "Max CTAs": ("2",)}
    assert facts.environment == {"NCCL_NVLS_ENABLE": ("0",), "NCCL_ALGO": ("Tree",)}
    assert facts.transports == {"P2P/CUMEM": 4}
    assert facts.rings_connected
    assert facts.trees_connected
    assert not facts.lossy


def test_a_real_run_through_host_memory():
    facts = golden("h200x2_shm_ring_ctas8_nccl2.28.9.log")
    assert facts.transports == {"SHM/direct": 4}
    assert facts.environment["NCCL_P2P_DISABLE"] == ("1",)
    assert {(one.algorithm, one.channels) for one in facts.selections if one.size_bytes >= 2**20} == {("ring", 8)}


def test_p2p_off_on_eight_4090s_goes_through_host_memory():
    facts = golden("nccl_info_2_26_4090x8_shm.log")
    assert facts.environment == {"NCCL_P2P_DISABLE": ("1",)}
    assert facts.transports == {"SHM/direct": 2}
    assert facts.rings_connected
    assert facts.warnings == ("Could not find a path for pattern 1, falling back to simple order",)
    assert (facts.versions, facts.selections, facts.channels, facts.refused) == ((), (), (), ())


def test_every_shape_of_the_init_line():
    old = golden("nccl_info_2_18.log").communicators
    assert old == (
        Communicator(created_by="", rank=0, ranks=4, channels=24, complete=False),
        Communicator(created_by="", rank=1, ranks=4, channels=None, complete=True),
    )
    new = golden("nccl_info_2_29_single_5090.log").communicators
    assert [(one.created_by, one.ranks, one.complete) for one in new] == [("ncclCommInitRankConfig", 1, False)]


def test_a_hang_after_init_has_communicators_and_no_choice():
    facts = golden("nccl_hang_2_30_p2p_after_init.log")
    assert all(one.complete for one in facts.communicators)
    assert facts.selections == ()


def test_rays_folded_output_is_lossy_and_the_original_is_not():
    before, after = golden("nccl_ray_dedup_before.log"), golden("nccl_ray_dedup_after.log")
    assert not before.lossy
    assert before.transports == {"SHM/direct": 8}
    assert after.lossy
    assert after.transports == {"SHM/direct": 3}


def test_a_fold_of_other_output_makes_the_log_lossy_too():
    assert parse_log("(W pid=3) rank 2 step 10 [repeated 3x across cluster]\n").lossy


def test_all_prefix_variants_are_read():
    facts = golden("nccl_prefix_variants.log")
    assert facts.transports == {"P2P/CUMEM": 1, "P2P/IPC": 1}
    assert [(one.function, one.size_bytes) for one in facts.selections] == [
        (None, 131072),
        ("all_gather", 37756928),
        ("all_reduce", 4),
    ]
    assert len(facts.warnings) == 2
