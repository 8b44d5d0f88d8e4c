"""A language model of somebody's own, as a directory in transformers' form: what its config.json says of it.

Reads JSON, imports neither torch nor transformers, and downloads nothing. Code that a configuration names is never run.
Callers: `workloads.networks.local_decoder`, `workloads.inputs`, and whoever needs a workload's vocabulary, FLOPs or
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtxscale.models.counted import Catalogue, shipped
from rtxscale.models.shapes import SIZES, DecoderShape
from rtxscale.results.small_json import is_whole, parse_small
from rtxscale.spec.sweep import Sweep
from rtxscale.spec.workload import LanguageWorkload
from rtxscale.workloads.files.data import DataError, fingerprint, sweep_directory

CONFIG = "config.json"
WEIGHTS = "model*.safetensors"
"""One file or several, as transformers saves them; files that need unpickling are never read."""
MOST_CONFIG = 1 << 20
MOST_LAYERS = 1024
"""Built one by one, more would take as long as nobody waits; the largest decoders have some 130."""
LLAMAS = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Model types whose blocks multiply the same matrices as a Llama's."""
REFUSED = {
    "auto_map": "code of its own, which is never run",
    "quantization_config": "weights that are quantised already",
    "attn_logit_softcapping": "attention logits that are capped, which PyTorch's attention cannot",
    "is_encoder_decoder": "an encoder",
}
"""What a configuration may not say, if it says more than false or null."""
PLAIN = frozenset({"full_attention", "sliding_attention"})


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A directory that holds a model: its configuration, and the files of its weights, if there are any."""

    place: Path
    config: Mapping[str, Any]
    weights: tuple[Path, ...]

    @property
    def vocab(self) -> int:
        """Number of tokens that it knows."""
        return int(self.config["vocab_size"])

    @property
    def longest(self) -> int | None:
        """Positions that it is made for; None where it does not say."""
        found = self.config.get("max_position_embeddings")
        return found if is_whole(found, 1) else None

    @property
    def window(self) -> int | None:
        """Tokens that some layer looks back at most; None where all see everything."""
        found = self.config.get("sliding_window")
        used = self.config.get("use_sliding_window", True) is not False
        return found if used and is_whole(found, 1) else None

    def shape(self) -> DecoderShape | str:
        """Its shape where it multiplies as a Llama does, else why its FLOPs are not known."""
        numbers: dict[str, Any] = {name: self.config.get(theirs) for name, theirs in NAMES.items()}
        numbers["kv_heads"] = numbers["kv_heads"] or numbers["heads"]
        if self.config.get("model_type") not in LLAMAS:
            return f"model type {self.config.get('model_type')} is not Llama-shaped"
        if not all(is_whole(number, 1) for number in numbers.values()):
            return f"{CONFIG} does not say {', '.join(NAMES.values())}"
        tied = self.config.get("tie_word_embeddings") is True
        shape = DecoderShape(**numbers, source=CONFIG, tied=tied)
        width = self.config.get("head_dim") or shape.head_size
        return shape if width * shape.heads == shape.hidden else "its heads are not a share of its width"

    def identity(self) -> str:
        """Which model it is, in words."""
        kinds = self.config.get("architectures")
        name = kinds[0] if isinstance(kinds, list) and kinds else self.config.get("model_type")
        shape = self.shape()
        flops = "" if isinstance(shape, DecoderShape) else f"; FLOPs not known: {shape}"
        weights = f"random weights: no {WEIGHTS}"
        if self.weights:
            weights = f"weights of {len(self.weights)} .safetensors, {fingerprint(self.weights)}"
        return f"{name}, {CONFIG} {fingerprint([self.place / CONFIG])}; {weights}{flops}"


NAMES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
}
"""Numbers of a shape, by their names in a configuration."""


def local_model(workload: LanguageWorkload, base: Path) -> LocalModel:
    """The model at `workload.path`, relative to the sweep file's directory `base`.

    Raises:
        DataError: there is none, or none that can be trained as the workload asks.
        OSError: it cannot be read.
    """
    model = _read(base / workload.path, workload.path)
    _check(model, workload)
    return model


def catalogue_beside(sweep: Sweep, base: Path) -> Catalogue:
    """What comes with rtxscale, and the shapes of a sweep's own models in `base`, the sweep file's directory.

    One that cannot be read, or is not Llama-shaped, is left out: `local_model` complains of it where it is trained.
    """
    if not isinstance(sweep.workload, LanguageWorkload):
        return shipped()
    paths = [sweep.workload.path, *sweep.axes.get("workload.path", ())]
    shapes: dict[str, DecoderShape] = {}
    for path in dict.fromkeys(str(path) for path in paths if path):
        with suppress(DataError, OSError):
            shape = _read(base / path, path).shape()
            if isinstance(shape, DecoderShape):
                shapes[path] = shape
    return shipped().joined(Catalogue(shapes=shapes))


def _read(place: Path, path: str) -> LocalModel:
    if not (place / CONFIG).is_file():
        found = "a directory without config.json" if place.is_dir() else "nothing"
        raise DataError(
            f"workload.path: found {found} at {path} beside the sweep file; expected a model's directory in "
            "transformers' form, at the same path on every node; nothing is downloaded"
        )
    config = _config(place / CONFIG, path)
    return LocalModel(place=place, config=config, weights=tuple(sorted(place.glob(WEIGHTS))))


def _config(file: Path, path: str) -> Mapping[str, Any]:
    with file.open("rb") as opened:
        text = opened.read(MOST_CONFIG + 1)
    try:
        config = parse_small(text) if len(text) <= MOST_CONFIG else None
    except ValueError:
        config = None
    if not isinstance(config, dict) or not is_whole(config.get("vocab_size"), 1):
        raise DataError(f"workload.path: found a {CONFIG} in {path} that is no JSON object with a vocab_size")
    return config


def _check(model: LocalModel, workload: LanguageWorkload) -> None:
    """Nothing that is never done, and a context that the model is made for."""
    for name, meaning in REFUSED.items():
        if model.config.get(name):
            raise DataError(f"workload.path: found {name} in {CONFIG} of {workload.path}, {meaning}; expected none")
    layers = model.config.get("num_hidden_layers")
    if isinstance(layers, int) and layers > MOST_LAYERS:
        raise DataError(
            f"workload.path: found num_hidden_layers {layers:,} in {CONFIG} of {workload.path}; expected at most "
            f"{MOST_LAYERS:,}"
        )
    kinds = model.config.get("layer_types")
    other = {str(kind) for kind in kinds if kind not in PLAIN} if isinstance(kinds, list) else set()
    if other:
        told, plain = ", ".join(sorted(other)), " or ".join(sorted(PLAIN))
        raise DataError(f"workload.path: found layers of {told} in {workload.path}; expected {plain}")
    for limit, what in ((model.longest, "max_position_embeddings"), (model.window, "sliding_window")):
        if limit is not None and workload.context > limit:
            raise DataError(
                f"workload.context: found {workload.context:,}, and {what} {limit:,} in {CONFIG} of {workload.path}; "
                f"expected at most {limit:,}"
            )


def vocab_of(workload: LanguageWorkload) -> int:
    """Number of tokens that the workload's model knows.

    Raises:
        DataError: it is one's own, and cannot be trained.
    """
    return local_model(workload, sweep_directory()).vocab if workload.path else SIZES[workload.size].vocab


def shape_of(workload: LanguageWorkload) -> DecoderShape | None:
    """The shape of the workload's model; None where it is one's own and not Llama-shaped.

    Raises:
        DataError: it is one's own, and cannot be trained.
    """
    if not workload.path:
        return SIZES[workload.size]
    shape = local_model(workload, sweep_directory()).shape()
    return shape if isinstance(shape, DecoderShape) else None
