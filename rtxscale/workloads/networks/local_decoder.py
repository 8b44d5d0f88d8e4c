"""A decoder of somebody's own, built by transformers from the configuration in its directory, and its weights.

Nothing is downloaded, unpickled or run from there. What the workload needs of a model (blocks, positions that can be
made anew, attention that PyTorch does) is looked at on the model itself, built without memory. Callers:
`networks.language_model`, and `registry` for what cannot be trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rtxscale.models.shapes import SIZES, DecoderShape
from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.document import shorten
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.files.data import DataError, sweep_directory
from rtxscale.workloads.files.model import CONFIG, LocalModel, local_model
from rtxscale.workloads.networks.decoder import build_decoder, register_attention, set_attention

WRAPPED = ".base_layer"
"""How peft names what it has put an adapter beside."""
MOST_WORDS = 200
PARTS = ("self_attn", "mlp", "gradient_checkpointing")
"""What every block of the decoder must have."""


def build(workload: LanguageWorkload) -> Any:
    """The architecture that the workload names; on the meta device inside `torch.device("meta")`.

    Raises:
        DataError: it is one's own, and cannot be trained.
    """
    if not workload.path:
        return build_decoder(SIZES[workload.size])
    return _build(local_model(workload, sweep_directory()), workload.path)


def _build(found: LocalModel, path: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(str(found.place), local_files_only=True, trust_remote_code=False)
        make: Any = AutoModelForCausalLM.from_config
        model = make(config, trust_remote_code=False, attn_implementation="sdpa")
    except Exception as error:  # what a configuration can lead to has no common class
        said = f"found a model in {path} that transformers cannot build ({_first_words(error)})"
        raise DataError(f"workload.path: {said}; expected a {CONFIG} that transformers has written") from error
    register_attention()
    whole: nn.Module = model.float()
    return whole


def _first_words(error: Exception) -> str:
    """What an error is and says, without the pages that may follow."""
    return f"{type(error).__name__}: {shorten(str(error), MOST_WORDS)}"


def complaint(workload: LanguageWorkload, base: Path) -> str:
    """What is wrong with training the model of a workload's own; empty where nothing is, or where it has none.

    `base` is the sweep file's directory. Builds the model without memory, and reads the headers of its weights.
    """
    if not workload.path:
        return ""
    try:
        found = local_model(workload, base)
        with torch.device("meta"):
            model = _build(found, workload.path)
        return _lacking(model, workload) or _failing(model, found, workload) or _wrong_weights(model, found, workload)
    except (DataError, OSError) as error:
        return str(error) if isinstance(error, DataError) else f"workload.path: cannot be read ({error})"


def _lacking(model: Any, workload: LanguageWorkload) -> str:
    """What the workload needs and this architecture has not."""
    name = type(model).__name__
    inner = getattr(model, "model", None)
    blocks, rotary = getattr(inner, "layers", None), getattr(inner, "rotary_emb", None)
    whole = all(hasattr(block, part) for block in blocks or () for part in PARTS)
    if not blocks or rotary is None or not whole:
        return f"workload.path: found {name} in {workload.path}; expected a decoder whose blocks are built as a Llama's"
    others = [buffer for buffer, _ in model.named_buffers() if not buffer.startswith("model.rotary_emb.")]
    if others:
        return f"workload.path: found {others[0]} in {name}, which is not known how to fill; expected weights alone"
    return "" if workload.tuning == "full" else _missing_targets(blocks, workload)


def _failing(model: Any, found: LocalModel, workload: LanguageWorkload) -> str:
    """Why the model cannot run forward, tried without memory; asked of models that are known to run so."""
    if not isinstance(found.shape(), DecoderShape):
        return ""
    set_attention(model, "auto")
    try:
        with torch.device("meta"), torch.no_grad():
            model(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False)
    except Exception as error:
        if "meta tensors" in str(error):
            return ""  # positions that depend on a value, which is not there
        said = f"found a model in {workload.path} that cannot run ({_first_words(error)})"
        return f"workload.path: {said}; expected numbers in its {CONFIG} that go together"
    return ""


def _missing_targets(blocks: nn.Module, workload: LanguageWorkload) -> str:
    matrices = {place.rpartition(".")[2] for place, part in blocks.named_modules() if isinstance(part, nn.Linear)}
    missing = [target for target in workload.lora_targets if target not in matrices]
    if not missing:
        return ""
    return (
        f"workload.lora_targets: found {', '.join(missing)}, which no block of {workload.path} has; expected some of "
        f"its matrices: {', '.join(sorted(matrices))}"
    )


def _wrong_weights(model: Any, found: LocalModel, workload: LanguageWorkload) -> str:
    """Which weight the files lack, or hold in another shape."""
    if not found.weights:
        return ""
    with ExitStack() as opened:
        shapes = {name: tuple(one.get_slice(name).get_shape()) for one, name in _tensors(found, opened)}
    for name, parameter in model.named_parameters():
        if shapes.get(name) != tuple(parameter.shape):
            there = f"{name} of shape {shapes[name]}" if name in shapes else f"no {name}"
            return f"workload.path: found {there} in {workload.path}; expected a shape of {tuple(parameter.shape)}"
    return ""


def _tensors(found: LocalModel, opened: ExitStack) -> Iterator[tuple[Any, str]]:
    """Every tensor's file and name.

    Raises:
        DataError: a file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    for file in found.weights:
        try:
            one = opened.enter_context(safe_open(file, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise DataError(f"workload.path: found {file.name}, which is no .safetensors file ({error})") from error
        for name in one.keys():  # noqa: SIM118 - no mapping
            yield one, name


class Weights:
    """The weights of a model's directory, one whole tensor at a time; see `decoder.Given`."""

    def __init__(self, found: LocalModel) -> None:
        """Open the files; tensors stay there."""
        self._opened = ExitStack()
        self._file_of = {name: one for one, name in _tensors(found, self._opened)}

    def __enter__(self) -> Weights:
        """Open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._file_of = {}
        self._opened.close()

    def whole(self, name: str, device: torch.device) -> torch.Tensor:
        """The tensor of a parameter in fp32, whatever is put beside its layer."""
        key = name.replace(WRAPPED, "")
        tensor: torch.Tensor = self._file_of[key].get_tensor(key)
        return tensor.to(device, torch.float32)


def weights_of(workload: LanguageWorkload) -> Weights | None:
    """The weights that the workload's model begins with; None where they are random."""
    found = local_model(workload, sweep_directory()) if workload.path else None
    return Weights(found) if found is not None and found.weights else None


def attest_model(workload: LanguageWorkload) -> tuple[Attested, ...]:
    """Which model of one's own is trained, and whether from its weights; nothing of a named size."""
    if not workload.path:
        return ()
    row = Attested(
        subject="workload.model",
        requested=workload.path,
        observed=local_model(workload, sweep_directory()).identity(),
        verdict=Verdict.HONOURED,
        evidence="the files that it was built from",
    )
    return (row,)
