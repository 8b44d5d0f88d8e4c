from rtxscale.models.flops import training_flops_per_token
from rtxscale.models.shapes import SIZES
from rtxscale.rank.trial import flops_per_work
from rtxscale.spec.cell import Cell


def test_only_language_models_have_known_flops():
    language = Cell.model_validate({"workload": {"kind": "language", "size": "tiny", "context": 64}})
    assert flops_per_work(language) == training_flops_per_token(SIZES["tiny"], 64)
    for workload in ({"kind": "vision"}, {"kind": "collectives"}):
        assert flops_per_work(Cell.model_validate({"workload": workload})) is None
