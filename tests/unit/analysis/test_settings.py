"""Reading a cell's settings back: what is a setting of the communication, and what a default was."""

from made_trials import made_cell

from rtxscale.analysis.settings import default_at, read_settings
from rtxscale.spec.cell import Cell

AXES = ("gpus", "nccl.channels", "ddp.bucket_mib", "workload.precision", "workload.compile")


def read(cell, axes=AXES):
    return read_settings(cell.canonical(), cell.cell_id, axes)


def test_defaults_that_the_json_leaves_out_are_filled_in():
    values = read(made_cell(2, 64, bucket_mib=25.0)).values
    assert values == {
        "gpus": "2",
        "nccl.channels": "auto",
        "ddp.bucket_mib": "25",
        "workload.precision": "bf16",
        "workload.compile": "off",
    }


def test_communication_does_not_apply_to_one_gpu():
    values = read(made_cell(1, 64)).values
    assert values["nccl.channels"] is None
    assert values["gpus"] == "1"


def test_keys_separate_communication_from_the_rest():
    default, ring = read(made_cell(2, 64)), read(made_cell(4, 32, algorithm="ring"))
    assert default.rest == ring.rest
    assert default.communication != ring.communication
    assert default.is_default
    assert not ring.is_default
    assert read(made_cell(2, 64, precision="fp32")).rest != default.rest


def test_the_probe_and_the_licence_for_unsafe_settings_do_not_tell_cells_apart():
    plain = made_cell(2, 64)
    probed = Cell.model_validate({**plain.model_dump(), "collectives": {"sizes_mib": [1.0]}, "nccl": {"unsafe": True}})
    assert read(probed).rest == read(plain).rest
    assert read(probed).is_default


def test_unreadable_settings_compare_with_nothing():
    one, other = read_settings("{", "a", AXES), read_settings('{"workload": 1}', "b", AXES)
    assert one.rest != other.rest
    assert set(one.values.values()) == {None}


def test_unknown_fields_have_no_default():
    assert default_at("workload.nonsense", "vision") is None
    assert default_at("workload.precision", "nonsense") is None
    assert default_at("workload.precision", "collectives") == "fp32"
