"""The data sets that workloads train on, as PyTorch's map-style sets: item i is always the same, whoever asks for it.

Each has a part to train on and a part held out for evaluation, which no training step ever sees. Not the loader, which
is `data.loading`. Callers: the workloads that train on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Subset

from rtxscale.spec.workload import LanguageWorkload, VisionWorkload
from rtxscale.workloads.files import data as data_files
from rtxscale.workloads.files.data import HELD_OUT_SHARE, DataError, outside_vocabulary, sweep_directory
from rtxscale.workloads.files.model import vocab_of

SEED = 97
"""Of synthetic items."""
POOL = 64
"""Synthetic items are these many, over and over: making noise must not be what a loader's time is spent on."""
SYNTHETIC_ITEMS = 1_000_000
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's channels, as timm and torchvision normalise images."""
AUGMENTATIONS = "RandomResizedCrop, RandomHorizontalFlip, ToTensor, Normalize (torchvision's defaults)"

Sample = tuple[torch.Tensor, int] | torch.Tensor


@dataclass(frozen=True, kw_only=True)
class DataSets:
    """What to train on, what is held out (None: nothing), and which data they are, in words."""

    training: Dataset[Any]
    held_out: Dataset[Any] | None
    identity: str


def image_sets(workload: VisionWorkload) -> DataSets:
    """Images (3, size, size) in float32 with a class number each.

    Raises:
        DataError: the path does not hold what it must.
    """
    if workload.data == "digits":
        return _digits(workload)
    if workload.data == "images":
        return _folder(workload)
    noise = np.random.default_rng(SEED).integers(0, 256, (POOL, workload.image_size, workload.image_size, 3), np.uint8)
    labels = [place % workload.classes for place in range(POOL)]
    said = f"synthetic: {POOL} images of noise over and over, through the loader"
    return DataSets(training=Pictures(noise, labels, SYNTHETIC_ITEMS), held_out=None, identity=said)


class Pictures(Dataset[Any]):
    """Images in memory, (item, height, width, channel) in uint8, given out as a decoder of files would."""

    def __init__(self, pixels: NDArray[np.uint8], labels: Sequence[int], items: int | None = None) -> None:
        """`items`: how many there seem to be, over and over; else as many as there are."""
        self._pixels, self._labels = pixels, labels
        self._items = len(labels) if items is None else items
        self._mean, self._deviation = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(DEVIATION).view(3, 1, 1)

    def __len__(self) -> int:
        """Number of items."""
        return self._items

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        """Normalised image (channel, height, width) and class."""
        place %= len(self._labels)
        image = torch.from_numpy(self._pixels[place]).permute(2, 0, 1).float() / 255
        return (image - self._mean) / self._deviation, self._labels[place]


def _digits(workload: VisionWorkload) -> DataSets:
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, in grey on all channels, enlarged by repetition."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    grey = (pixels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    where = np.arange(workload.image_size) * 8 // workload.image_size
    every = np.repeat(grey[:, where][:, :, where, None], 3, axis=3)
    numbers = [int(label) for label in labels]
    whole = Pictures(every, numbers)
    content = data_files.digest([grey.tobytes()])
    said = f"digits of scikit-learn {version('scikit-learn')}, {len(numbers):,} images, {content}"
    return divided(whole, said)


def _folder(workload: VisionWorkload) -> DataSets:
    """Images of a directory, cropped and flipped at random to train on, the centre to evaluate on."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    base = sweep_directory()
    root = data_files.image_root(workload, base)
    finish = [transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
    size = workload.image_size
    augmented = transforms.Compose([transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), *finish])
    centred = transforms.Compose([transforms.Resize(size * 8 // 7), transforms.CenterCrop(size), *finish])
    training = ImageFolder(str(root), augmented, loader=_picture)
    names = [f"{Path(path).relative_to(root)} {Path(path).stat().st_size}\n" for path, _ in training.samples]
    listing = data_files.digest(name.encode() for name in names)
    said = f"image folder, {len(names):,} images in {len(training.classes):,} classes, names and sizes {listing}"
    place = data_files.data_place(workload.data_path, base)
    if data_files.has_own_division(place):
        held_out = ImageFolder(str(place / data_files.HELD_OUT), centred, loader=_picture)
        return DataSets(training=training, held_out=held_out, identity=f"{said}; its own val held out")
    kept = divided(training, said)
    last = cast("Subset[Any]", kept.held_out).indices
    looked_at = Subset(ImageFolder(str(root), centred, loader=_picture), last)
    return DataSets(training=kept.training, held_out=looked_at, identity=kept.identity)


def _picture(path: str) -> Any:
    """An image in three colours.

    Raises:
        DataError: it cannot be decoded; what decoders raise does not always name the file.
    """
    from torchvision.datasets.folder import default_loader

    try:
        return default_loader(path)
    except Exception as error:
        raise DataError(
            f"workload.data_path: found {path}, which cannot be decoded ({error}); expected a whole image"
        ) from error


def divided(whole: Dataset[Any], identity: str) -> DataSets:
    """One in `HELD_OUT_SHARE` samples held out, evenly over the set."""
    count = len(whole)  # type: ignore[arg-type]  # every set here has a length
    held = [place for place in range(count) if place % HELD_OUT_SHARE == HELD_OUT_SHARE - 1]
    kept = [place for place in range(count) if place % HELD_OUT_SHARE != HELD_OUT_SHARE - 1]
    said = f"{identity}; one in {HELD_OUT_SHARE} held out"
    return DataSets(training=Subset(whole, kept), held_out=Subset(whole, held), identity=said)


class Sequences(Dataset[Any]):
    """Tokens cut into sequences of `context`, without overlap.

    A loader's worker opens a memory map anew, which would be copied whole on its way there.
    """

    def __init__(
        self,
        tokens: NDArray[np.generic],
        context: int,
        *,
        vocab: int,
        first: int = 0,
        end: int | None = None,
        items: int | None = None,
    ) -> None:
        """Tokens from `first` to `end`. `items`: how many there seem to be, over and over; else as many as are."""
        self._tokens, self._context, self._vocab, self._first = tokens, context, vocab, first
        self._whole = ((tokens.size if end is None else end) - first) // context
        self._items = self._whole if items is None else items

    def __getstate__(self) -> dict[str, Any]:
        """With the place of a memory map instead of what is in it."""
        tokens = self._tokens
        if not isinstance(tokens, np.memmap):
            return self.__dict__
        place = {"filename": tokens.filename, "dtype": tokens.dtype, "offset": tokens.offset, "shape": tokens.shape}
        return {**self.__dict__, "_tokens": None, "place": place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """With the memory map opened."""
        place = state.pop("place", None)
        self.__dict__.update(state)
        if place is not None:
            self._tokens = np.memmap(mode="r", **place)

    def __len__(self) -> int:
        """Number of sequences."""
        return self._items

    def __getitem__(self, place: int) -> torch.Tensor:
        """One sequence (token,).

        Raises:
            DataError: the model does not know one of its tokens, with which a GPU could not go on.
        """
        start = self._first + place % self._whole * self._context
        tokens = self._tokens[start : start + self._context]
        if wrong := outside_vocabulary(tokens, self._vocab):
            raise DataError(f"{wrong}; expected tokens from 0 to {self._vocab - 1:,}, see those from {start:,} on")
        return torch.from_numpy(tokens.astype(np.int64))


def token_sets(workload: LanguageWorkload) -> DataSets:
    """Sequences of `context` tokens each; the last tenth is held out.

    Raises:
        DataError: the path does not hold what it must.
    """
    cut_up = partial(Sequences, context=workload.context, vocab=vocab_of(workload))
    if workload.data == "synthetic":
        noise = np.random.default_rng(SEED).integers(0, vocab_of(workload), POOL * workload.context, np.int32)
        said = f"synthetic: {POOL} sequences of random tokens over and over, through the loader"
        return DataSets(training=cut_up(noise, items=SYNTHETIC_ITEMS), held_out=None, identity=said)
    tokens = data_files.tokens_of(workload, sweep_directory())
    cut = tokens.size * (HELD_OUT_SHARE - 1) // HELD_OUT_SHARE
    kinds = {"tokens": "token file", "bytes": "bytes of text", "stdlib": "bytes of Python's standard library"}
    content = data_files.array_fingerprint(tokens)
    said = f"{kinds[workload.data]}, {tokens.size:,} tokens of {tokens.dtype}, {content}; the last tenth held out"
    return DataSets(training=cut_up(tokens, end=cut), held_out=cut_up(tokens, first=cut), identity=said)
