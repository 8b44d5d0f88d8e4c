"""Latents that somebody has computed beforehand, with what they are conditioned on: which arrays, in which shapes.

A directory of NumPy files (`latents.npy` and so on) or one `.safetensors` file; both are memory-mapped, and neither can
hold code. Beside the arrays may stand in words which augmentations the images had: in `metadata.json`, or in the
metadata of the `.safetensors` file. Reads headers, imports no torch. Callers: `workloads.data.latents`,
`workloads.inputs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from rtxscale.models.unets import LATENT_CHANNELS, LATENT_SCALE, TIME_IDS, UNETS
from rtxscale.results.small_json import parse_small
from rtxscale.spec.printable import one_line
from rtxscale.spec.workload import DiffusionWorkload
from rtxscale.workloads.files.data import HELD_OUT_SHARE, DataError, array_in, data_place

LATENTS, TEXT, POOLED, TIMES = "latents", "prompt_embeds", "pooled_prompt_embeds", "add_time_ids"
"""Names of the arrays, as diffusers' pipelines and training scripts call them; the last one may be missing."""
DTYPES = frozenset({"float16", "float32", "F16", "BF16", "F32"})
SIDE_CAR = "metadata.json"
AUGMENTATIONS = "augmentations"
EXAMPLE = '{"augmentations": "centre crop to 1024 x 1024"}'
MOST_TEXT, MOST_SIDE_CAR = 500, 65_536
"""Characters of a description, and bytes of the file that holds it."""
FORM = "a directory with latents.npy, prompt_embeds.npy and pooled_prompt_embeds.npy, or a .safetensors file of these"


@dataclass(frozen=True, kw_only=True)
class LatentFiles:
    """Where samples lie, which arrays there are with their shapes, and what is said about their augmentations."""

    place: Path
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    augmentations: str
    """Empty where nobody has said anything."""

    @property
    def samples(self) -> int:
        """How many."""
        return self.shapes[LATENTS][0]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of all arrays."""
        return tuple(self.place / f"{name}.npy" for name in self.shapes) if self.place.is_dir() else (self.place,)


def latent_files(workload: DiffusionWorkload, base: Path) -> LatentFiles:
    """What lies at `workload.data_path`; `base` is the sweep file's directory.

    Raises:
        DataError: it is not there, is empty, or its arrays are not those that the model is trained on.
        OSError: it cannot be read.
    """
    place = data_place(workload.data_path, base)
    if place.is_dir():
        found = _directory(place)
    elif place.suffix == ".safetensors":
        found = _safetensors(place)
    else:
        raise DataError(f"workload.data_path: found the file {workload.data_path}; expected {FORM}")
    _check(workload, found)
    return found


def _directory(place: Path) -> LatentFiles:
    shapes, dtypes = {}, {}
    for name in (LATENTS, TEXT, POOLED, TIMES):
        file = place / f"{name}.npy"
        if not file.exists():
            continue
        array = array_in(file)
        shapes[name], dtypes[name] = tuple(array.shape), str(array.dtype)
    side_car = place / SIDE_CAR
    said = _side_car(side_car) if side_car.exists() else {}
    return LatentFiles(place=place, shapes=shapes, dtypes=dtypes, augmentations=_text(said))


def _side_car(file: Path) -> Mapping[str, Any]:
    with file.open("rb") as opened:
        text = opened.read(MOST_SIDE_CAR + 1)
    try:
        said = parse_small(text) if len(text) <= MOST_SIDE_CAR else None
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise DataError(f"workload.data_path: found a {SIDE_CAR} that is no short JSON object; expected {EXAMPLE}")
    return said


def _safetensors(place: Path) -> LatentFiles:
    try:
        with safe_open(place, framework="np") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
            shapes = {name: tuple(one.get_shape()) for name, one in slices.items()}
            dtypes = {name: str(one.get_dtype()) for name, one in slices.items()}
            said = opened.metadata() or {}
    except SafetensorError as error:
        raise DataError(f"workload.data_path: found {place.name}, which is no .safetensors file ({error})") from error
    known = {name: shape for name, shape in shapes.items() if name in (LATENTS, TEXT, POOLED, TIMES)}
    return LatentFiles(place=place, shapes=known, dtypes=dtypes, augmentations=_text(said))


def _text(said: Mapping[str, Any]) -> str:
    """What is said of augmentations, in one line that a terminal only shows."""
    text = said.get(AUGMENTATIONS, "")
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise DataError(f"workload.data_path: found {AUGMENTATIONS} that are no text of up to {MOST_TEXT} characters")
    return one_line(text.strip())


def _check(workload: DiffusionWorkload, found: LatentFiles) -> None:
    """Every array has the shape that this model is trained on, and there are as many of each."""
    shape, side = UNETS[workload.model], workload.image_size // LATENT_SCALE
    wanted = {
        LATENTS: (LATENT_CHANNELS, side, side),
        TEXT: shape.text,
        POOLED: (shape.pooled,),
        TIMES: (TIME_IDS,),
    }
    missing = [name for name in (LATENTS, TEXT, POOLED) if name not in found.shapes]
    if missing:
        raise DataError(f"workload.data_path: found no {', '.join(missing)} in {workload.data_path}; expected {FORM}")
    for name, actual in found.shapes.items():
        if actual[1:] != wanted[name] or len(actual) != len(wanted[name]) + 1:
            raise DataError(
                f"workload.data_path: found {name} of shape {_shape(actual)}; expected "
                f"{_shape(('samples', *wanted[name]))} for model {workload.model} at image_size {workload.image_size}"
            )
        if found.dtypes[name] not in DTYPES:
            raise DataError(f"workload.data_path: found {name} of {found.dtypes[name]}; expected fp32, fp16 or bf16")
    counts = {name: actual[0] for name, actual in found.shapes.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        raise DataError(f"workload.data_path: found {told}; expected as many of each, one of each for a sample")
    if found.samples < HELD_OUT_SHARE:
        raise DataError(
            f"workload.data_path: found {found.samples} samples in {workload.data_path}; expected at least "
            f"{HELD_OUT_SHARE}, one in {HELD_OUT_SHARE} of which is held out"
        )


def _shape(numbers: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, numbers))})"
