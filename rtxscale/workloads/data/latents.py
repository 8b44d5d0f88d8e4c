"""Latents from files as a data set to train a UNet on, and the part of it that is held out.

Item i is always the same, whoever asks for it. Held-out items carry their own noise and time, so that a loss of theirs
differs between two looks by the model alone. Caller: `workloads.diffusion`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from safetensors import safe_open
from torch.utils.data import Dataset

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import DiffusionWorkload
from rtxscale.workloads.data.sets import DataSets, divided
from rtxscale.workloads.files.data import array_in, fingerprint, sweep_directory
from rtxscale.workloads.files.latents import LATENTS, POOLED, TEXT, TIMES, LatentFiles, latent_files
from rtxscale.workloads.networks.noise import TIMESTEPS
from rtxscale.workloads.networks.unet import uncropped

PARTS = {LATENTS: "latents", TEXT: "text", POOLED: "pooled", TIMES: "times"}
"""Parts of a batch, as `unet.draw_batch` names them, by the array that holds them."""
SEED = 8080
"""Of the noise and times of held-out samples."""


class Samples(Dataset[Any]):
    """Samples of latents and what they are conditioned on, in the precision that they are kept in.

    Files are opened anew in each process: a memory map that is handed to a loader's worker would be copied whole.
    """

    def __init__(self, found: LatentFiles, image_size: int) -> None:
        """Nothing is opened yet."""
        self._found, self._uncropped = found, uncropped(image_size)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is open."""
        return {name: value for name, value in self.__dict__.items() if name != "_opened"}

    def __len__(self) -> int:
        """Number of samples."""
        return self._found.samples

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        """`latents` (4, side, side), `text` (tokens, width), `pooled` (width,), `times` (6,)."""
        sample = {PARTS[name]: self._read(name, place) for name in self._found.shapes}
        return {"times": self._uncropped, **sample}

    @cached_property
    def _opened(self) -> Any:
        found = self._found
        if found.place.is_dir():
            files = {name: found.place / f"{name}.npy" for name in found.shapes}
            return {name: array_in(file) for name, file in files.items()}
        return safe_open(found.place, framework="pt")

    def _read(self, name: str, place: int) -> torch.Tensor:
        if self._found.place.is_dir():
            return torch.from_numpy(self._opened[name][place].copy())
        read: torch.Tensor = self._opened.get_slice(name)[place]
        return read


class WithNoise(Dataset[Any]):
    """Samples with a noise and a time of their own each."""

    def __init__(self, samples: Dataset[Any]) -> None:
        """Whatever the samples are."""
        self._samples = samples

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._samples)  # type: ignore[arg-type]  # every set of ours has a length

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        """A sample with `noise`, shaped as its latents, and `moment`, the number of a time."""
        sample = self._samples[place]
        chance = torch.Generator().manual_seed(SEED + place)
        noise = torch.randn(sample["latents"].shape, generator=chance)
        return {**sample, "noise": noise, "moment": torch.randint(TIMESTEPS, (), generator=chance)}


def latent_sets(workload: DiffusionWorkload) -> DataSets:
    """Samples to train on, and one in ten held out.

    Raises:
        DataError: the path does not hold what it must.
    """
    found = latent_files(workload, sweep_directory())
    shape = " x ".join(map(str, found.shapes[LATENTS][1:]))
    said = f"latents, {found.samples:,} samples of {shape}, {fingerprint(found.files)}"
    sets = divided(Samples(found, workload.image_size), said)
    held_out = None if sets.held_out is None else WithNoise(sets.held_out)
    return DataSets(training=sets.training, held_out=held_out, identity=sets.identity)


def attest_augmentations(workload: DiffusionWorkload) -> Attested:
    """What is said beside the latents of the augmentations that their images had; random latents have none."""
    if workload.data == "resident":
        said, verdict = "none: random latents", Verdict.NOT_APPLICABLE
    else:
        said = latent_files(workload, sweep_directory()).augmentations
        verdict = Verdict.HONOURED if said else Verdict.NOT_ATTESTED
    return Attested(
        subject="workload.augmentations",
        requested="auto",
        observed=said or None,
        verdict=verdict,
        evidence="augmentations in the metadata of the latents: the word of whoever computed them",
    )
