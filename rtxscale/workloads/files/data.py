"""Where a workload's own data lie, and which bytes they are.

Reads names, sizes and headers, and imports neither torch nor a decoder of images. Nothing is downloaded. Callers:
`workloads.data.sets`, `workloads.inputs`.
"""

from __future__ import annotations

import hashlib
import math
import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtxscale.spec.workload import LanguageWorkload, VisionWorkload
from rtxscale.workloads.files.script import DIRECTORY_VARIABLE

IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})
TRAINING, HELD_OUT = "train", "val"
"""Sub-directories of an image folder that has its own division."""
HELD_OUT_SHARE = 10
"""One in so many samples is held out where the data themselves do not say which."""
TOKEN_BYTES = np.dtype("<u2")
"""A `.bin` file is bare tokens of two bytes, the lower one first, as nanoGPT and llm.c write them."""
NOT_OURS = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests"})
"""Directories of the standard library that differ from one installation to the next."""
PIECE_BYTES, WHOLE_BYTES = 1 << 20, 1 << 31
MOST_JOINED_BYTES = 1 << 31
"""Text in many files that is joined in memory, in each rank; a single file is mapped, however large."""


class DataError(Exception):
    """Data that a workload names cannot be trained on."""


def sweep_directory() -> Path:
    """The directory that paths of a workload are relative to."""
    return Path(os.environ.get(DIRECTORY_VARIABLE) or ".")


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
        DataError: it is no directory, has no classes, a class has no images, or nothing could be held out.
    """
    path, place = workload.data_path, data_place(workload.data_path, base)
    if not place.is_dir():
        raise DataError(f"workload.data_path: found the file {path}; expected a directory of images")
    for part, other in ((TRAINING, HELD_OUT), (HELD_OUT, TRAINING)):
        if (place / part).is_dir() and classes_of(place / part) and not (place / other).is_dir():
            raise DataError(
                f"workload.data_path: found {part} and no {other} in {path}; expected both, or a sub-directory for "
                "each class"
            )
    if not has_own_division(place):
        _check_classes(place, path)
        if sum(1 for _ in islice(images_in(place), HELD_OUT_SHARE)) < HELD_OUT_SHARE:
            raise DataError(
                f"workload.data_path: found fewer than {HELD_OUT_SHARE} images in {path}; expected at least as many, "
                f"one in {HELD_OUT_SHARE} of which is held out"
            )
        return place
    for part in (TRAINING, HELD_OUT):
        _check_classes(place / part, f"{path}/{part}")
    trained, held_out = classes_of(place / TRAINING), classes_of(place / HELD_OUT)
    if trained != held_out:
        odd = ", ".join(sorted(set(trained) ^ set(held_out))[:4])
        raise DataError(
            f"workload.data_path: found the classes {odd} in one of {TRAINING} and {HELD_OUT} of {path} only; expected "
            "the same in both: a class is numbered by its place among them"
        )
    return place / TRAINING


def _check_classes(root: Path, path: str) -> None:
    """Some sub-directories, and images in each.

    Raises:
        DataError: there are none.
    """
    classes = classes_of(root)
    if not classes:
        raise DataError(
            f"workload.data_path: found no sub-directories in {path}; expected one for each class, with its images in "
            "it"
        )
    empty = [name for name in classes if next(images_in(root / name), None) is None]
    if empty:
        raise DataError(
            f"workload.data_path: found no images in {', '.join(empty[:4])} of {path}; expected files such as .jpg or "
            ".png in the sub-directory of each class"
        )


def has_own_division(place: Path) -> bool:
    """Whether an image folder says itself what is held out: it has `train` and `val`."""
    return (place / TRAINING).is_dir() and (place / HELD_OUT).is_dir()


def classes_of(root: Path) -> list[str]:
    """Names of the classes of an image folder, in the order of their numbers."""
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir())


def images_in(directory: Path) -> Iterator[Path]:
    """Images in a directory and below it."""
    return (path for path in files_below(directory) if path.suffix.lower() in IMAGES)


def files_below(directory: Path) -> Iterator[Path]:
    """Files in a directory and below it, also behind symbolic links, which may lead in a circle."""
    seen = {directory.resolve()}
    for place, below, names in os.walk(directory, followlinks=True):
        real = {name: (Path(place) / name).resolve() for name in sorted(below)}
        below[:] = [name for name, path in real.items() if path not in seen]
        seen.update(real.values())
        yield from (path for name in names if (path := Path(place) / name).is_file())


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
    array = array_in(place)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"workload.data_path: found {array.ndim} dimensions of {array.dtype} in {workload.data_path}; expected one "
            "row of integers"
        )
    return array


def array_in(file: Path) -> NDArray[Any]:
    """The array of a `.npy` file, memory-mapped; nothing is unpickled.

    Raises:
        DataError: it holds no array of numbers, or less of one than it says.
        OSError: it cannot be read.
    """
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(file, mode="r")
    except OSError:
        raise
    except Exception as error:  # what a damaged header can lead to has no common class
        raise DataError(
            f"workload.data_path: found {file.name}, which is no whole array of numbers ({error}); expected a file "
            "that numpy.save has written"
        ) from error
    return array


def outside_vocabulary(tokens: NDArray[Any], vocab: int) -> str:
    """What is wrong with the first of these tokens that a model of so many does not know; empty where all are known."""
    unknown = tokens[(tokens < 0) | (tokens >= vocab)]
    if not unknown.size:
        return ""
    return f"workload.data: found the token {int(unknown[0]):,}, and a vocabulary of {vocab:,}"


def _bytes_of_text(workload: LanguageWorkload, base: Path) -> NDArray[np.generic]:
    place = data_place(workload.data_path, base)
    if place.is_file() and place.stat().st_size:
        return np.memmap(place, dtype=np.uint8, mode="r")
    files = sorted(files_below(place))
    total = sum(file.stat().st_size for file in files)
    if total > MOST_JOINED_BYTES:
        raise DataError(
            f"workload.data_path: found {total / 2**30:,.1f} GiB of text in the directory {workload.data_path}, which "
            f"every rank reads into memory; expected at most {MOST_JOINED_BYTES / 2**30:.0f} GiB, or one file of any "
            "size, which is memory-mapped: write them into one with cat"
        )
    return _joined(files)


def _bytes_of_library(workload: LanguageWorkload, base: Path) -> NDArray[np.generic]:
    return _joined(standard_library_files())


def standard_library_files() -> list[Path]:
    """Source files of Python's standard library, in the order of their names: text that every machine has."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (path for path in root.rglob("*.py") if not NOT_OURS & set(path.relative_to(root).parts))
    return sorted(files)


def _joined(files: Iterable[Path]) -> NDArray[np.generic]:
    """Bytes of files one after the other, read to their place at once: twice of them may not fit into memory."""
    sizes = [(file, file.stat().st_size) for file in files]
    whole = np.empty(sum(size for _, size in sizes), dtype=np.uint8)
    end = 0
    for file, size in sizes:
        with file.open("rb") as opened:
            end += opened.readinto(memoryview(whole)[end : end + size])  # type: ignore[arg-type]  # numpy's buffer
    return whole[:end]


def fingerprint(files: Iterable[Path]) -> str:
    """Which bytes files hold, in words: of all of them up to `WHOLE_BYTES`, of evenly spaced pieces beyond.

    Raises:
        OSError: one cannot be read.
    """
    facts = [(file, file.stat()) for file in files]
    return _fingerprint(tuple((file, stat.st_size, stat.st_mtime_ns) for file, stat in facts))


@lru_cache(maxsize=16)
def _fingerprint(files: tuple[tuple[Path, int, int], ...]) -> str:
    stride = _stride(sum(size for _, size, _ in files))
    return digest(_pieces(files, stride)) + _share(stride, "sizes and ")


def array_fingerprint(array: NDArray[np.generic]) -> str:
    """Which bytes a row of numbers holds, in words: of all of them, or of evenly spaced pieces as `fingerprint`."""
    piece, stride = PIECE_BYTES // array.itemsize, _stride(array.nbytes)
    starts = range(0, array.size, stride // array.itemsize)
    return digest(array[start : start + piece].tobytes() for start in starts) + _share(stride, "")


def _stride(total: int) -> int:
    """From one piece to the next in bytes, so that pieces of so many bytes are at most `WHOLE_BYTES` in all."""
    return PIECE_BYTES * max(1, math.ceil(total / WHOLE_BYTES))


def _share(stride: int, more: str) -> str:
    return "" if stride == PIECE_BYTES else f" of {more}one in {stride // PIECE_BYTES} MiB"


def _pieces(files: Iterable[tuple[Path, int, int]], stride: int) -> Iterator[bytes]:
    for file, size, _ in files:
        yield f"{file.name} {size}\n".encode()
        with file.open("rb") as opened:
            for start in range(0, size, stride):
                opened.seek(start)
                yield opened.read(PIECE_BYTES)


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
