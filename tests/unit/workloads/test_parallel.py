import pytest
from torch import nn

from rtxscale.workloads.parallel import bucket_layout, parse_layout
from rtxscale.workloads.protocol import Bucket


def test_a_layout_reads_ddps_own_words():
    # As torch 2.14 gave it for resnet10t with a cap of 1 MiB.
    logged = {
        "bucket_sizes": "19710472",
        "rebuilt_bucket_sizes": "9990184, 4722688, 252896",
        "rebuilt_per_bucket_param_indices": "43 42 40, 34 35, 10",
        "bucket_cap_bytes": 1048576,
    }
    assert parse_layout(logged) == (
        Bucket(size_bytes=9990184, parameters=3),
        Bucket(size_bytes=4722688, parameters=2),
        Bucket(size_bytes=252896, parameters=1),
    )


def test_before_the_rebuild_there_is_no_layout_yet():
    assert parse_layout({"bucket_sizes": "400", "rebuilt_bucket_sizes": ""}) == ()


def test_sizes_and_members_must_belong_together():
    with pytest.raises(ValueError, match="zip"):
        parse_layout({"rebuilt_bucket_sizes": "4, 8", "rebuilt_per_bucket_param_indices": "1"})


def test_a_bare_model_has_no_buckets():
    assert bucket_layout(nn.Linear(2, 2)) == ()
