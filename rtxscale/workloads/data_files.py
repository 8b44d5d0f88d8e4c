"""Where a workload's own data lie, whether they can be trained on, and which bytes they are.

Reads names, sizes and headers, and imports neither torch nor a decoder of images: so a wrong path is found before
anything runs. Nothing is downloaded. Callers: `workloads.datasets`, `registry`, and `cli.plan` for a sweep that is
planned where it will run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rtxscale.models.shapes import SIZES
from rtxscale.spec.workload import LanguageWorkload, VisionWorkload
from rtxscale.spec.workload import Workload as Declared

IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})
TRAINING, HELD_OUT = "train", "val"
"""Sub-directories of an image folder that has its own division."""
TOKEN_BYTES = np.dtype("<u2")
"""A `.bin` file is bare tokens of two bytes, the lower one first, as nanoGPT and llm.c write them."""
DIGITS_MISSING = "workload.data: found digits, which needs scikit-learn; install it with pip install 'rtxscale[data]'"
NOT_OURS = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests"})
"""Directories of the standard library that differ from one installation to the next."""


class DataError(Exception):
    """Data that a workload names cannot be trained on."""


def complaint(workload: Declared, base: Path) -> str:
    """What is wrong with the data that a workload names; empty where nothing is. `base` is the sweep file's directory.

    Looks at names, sizes and headers, not at every byte.
    """
    try:
        if isinstance(workload, VisionWorkload):
            _look_at_images(workload, base)
        elif isinstance(workload, LanguageWorkload):
            _look_at_tokens(workload, base)
    except (DataError, OSError, ValueError) as error:
        return str(error) if isinstance(error, DataError) else f"workload.data_path: cannot be read ({error})"
    return ""


def _look_at_images(workload: VisionWorkload, base: Path) -> None:
    if workload.data == "digits" and importlib.util.find_spec("sklearn") is None:
        raise DataError(DIGITS_MISSING)
    known = len(classes_of(image_root(workload, base))) if workload.data == "images" else 10
    if workload.data in ("images", "digits") and workload.classes < known:
        raise DataError(
            f"workload.classes: found {workload.classes}, and {known} classes in the data; expected at least {known}"
        )


def _look_at_tokens(workload: LanguageWorkload, base: Path) -> None:
    if workload.data in ("resident", "synthetic"):
        return
    found = tokens_of(workload, base)
    if found.size <= 10 * workload.context:
        raise DataError(
            f"workload.data: found {found.size:,} tokens; expected more than ten sequences of {workload.context:,}, "
            "one of which is held out; use a shorter context or more data"
        )
    vocab = SIZES[workload.size].vocab
    largest = int(found[: 1 << 20].max())
    if largest >= vocab:
        raise DataError(
            f"workload.data: found the token {largest:,}, and a vocabulary of {vocab:,} in size {workload.size}; "
            "expected tokens below it"
        )


def data_place(path: str, base: Path) -> Path:
    """The file or directory that `workload.data_path` names, relative to the sweep file's directory.

    Raises:
        DataError: there is none.
    """
    if not path:
        raise DataError("workload.data_path: found nothing; expected a path relative to the sweep file")
    place = base / path
    if not place.exists():
        raise DataError(
            f"workload.data_path: found no {path} beside the sweep file; expected a file or directory there, at the "
            "same path on every node (a symbolic link will do)"
        )
    return place


def image_root(workload: VisionWorkload, base: Path) -> Path:
    """The directory whose sub-directories are the classes to train on: `train` where the folder has its own division.

    Raises:
        DataError: it is no directory, has no classes, or a class has no images.
    """
    place = data_place(workload.data_path, base)
    if not place.is_dir():
        raise DataError(f"workload.data_path: found the file {workload.data_path}; expected a directory of images")
    root = place / TRAINING if has_own_division(place) else place
    classes = classes_of(root)
    if not classes:
        raise DataError(
            f"workload.data_path: found no sub-directories in {workload.data_path}; expected one for each class, with "
            "its images in it"
        )
    empty = [name for name in classes if next(images_in(root / name), None) is None]
    if empty:
        raise DataError(
            f"workload.data_path: found no images in {', '.join(empty[:4])} of {workload.data_path}; expected files "
            "such as .jpg or .png in the sub-directory of each class"
        )
    return root


def has_own_division(place: Path) -> bool:
    """Whether an image folder says itself what is held out: it has `train` and `val`."""
    return (place / TRAINING).is_dir() and (place / HELD_OUT).is_dir()


def classes_of(root: Path) -> list[str]:
    """Names of the classes of an image folder, in the order of their numbers."""
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir())


def images_in(directory: Path) -> Iterator[Path]:
    """Images in a directory and below it."""
    return (path for path in directory.rglob("*") if path.suffix.lower() in IMAGES and path.is_file())


def tokens_of(workload: LanguageWorkload, base: Path) -> NDArray[np.generic]:
    """All tokens of a data set one after the other: memory-mapped from a file of tokens, or bytes of text.

    Raises:
        DataError: the file is not there, is empty, or is not of tokens.
    """
    reader: Callable[[LanguageWorkload, Path], NDArray[np.generic]]
    reader = {"tokens": _mapped, "bytes": _bytes_of_text, "stdlib": _bytes_of_library}[workload.data]
    found = reader(workload, base)
    if found.size == 0:
        raise DataError(f"workload.data_path: found no tokens in {workload.data_path or 'the library'}; expected some")
    return found


def _mapped(workload: LanguageWorkload, base: Path) -> NDArray[np.generic]:
    place = data_place(workload.data_path, base)
    if place.suffix not in (".bin", ".npy") or not place.is_file():
        raise DataError(f"workload.data_path: found {workload.data_path}; expected a file of tokens, .bin or .npy")
    size = place.stat().st_size
    if size == 0:
        raise DataError(f"workload.data_path: found the empty file {workload.data_path}; expected tokens")
    if place.suffix == ".bin":
        if size % TOKEN_BYTES.itemsize:
            raise DataError(
                f"workload.data_path: found {size:,} bytes in {workload.data_path}; expected tokens of two bytes each"
            )
        return np.memmap(place, dtype=TOKEN_BYTES, mode="r")
    array: NDArray[np.generic] = np.load(place, mmap_mode="r", allow_pickle=False)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"workload.data_path: found {array.ndim} dimensions of {array.dtype} in {workload.data_path}; expected one "
            "row of integers"
        )
    return array


def _bytes_of_text(workload: LanguageWorkload, base: Path) -> NDArray[np.generic]:
    place = data_place(workload.data_path, base)
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    return _joined(files)


def _bytes_of_library(workload: LanguageWorkload, base: Path) -> NDArray[np.generic]:
    return _joined(standard_library_files())


def standard_library_files() -> list[Path]:
    """Source files of Python's standard library, in the order of their names: text that every machine has."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (path for path in root.rglob("*.py") if not NOT_OURS & set(path.relative_to(root).parts))
    return sorted(files)


def _joined(files: Iterable[Path]) -> NDArray[np.generic]:
    return np.frombuffer(b"".join(file.read_bytes() for file in files), dtype=np.uint8)


def digest(pieces: Iterable[bytes]) -> str:
    """SHA-256 over pieces, in eight groups that no redaction takes for a secret.

    >>> digest([b"a", b"bc"]) == digest([b"abc"])
    True
    """
    whole = hashlib.sha256()
    for piece in pieces:
        whole.update(piece)
    text = whole.hexdigest()
    return " ".join(["SHA-256", *(text[start : start + 8] for start in range(0, len(text), 8))])
