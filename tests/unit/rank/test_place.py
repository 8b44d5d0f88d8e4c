import pytest

from rtxscale.errors import BadInput
from rtxscale.rank.place import Place, place_from_torchrun


def test_torchruns_variables_say_where_a_rank_is():
    variables = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    place = place_from_torchrun(variables, "cuda", 8)
    assert place == Place(rank=3, world=4, local_rank=1, device="cuda", threads=8)


def test_without_torchrun_the_error_says_how_to_start():
    with pytest.raises(BadInput, match="no variable WORLD_SIZE; start ranks with torchrun"):
        place_from_torchrun({"RANK": "0"}, "cpu", 1)
