"""Installed software as facts, from files and package metadata alone: nothing is imported, so nothing heavy is loaded.

Impure; never raises. Caller: `doctor.collect`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import mmap
import re
from collections.abc import Iterable
from pathlib import Path

from rtxscale.doctor.facts import SoftwareFacts

CUDA_MAJORS = ("13", "12", "11")
TORCH_CUDA = re.compile(r"^cuda[^=]*=\s*(?:'([^']*)'|(None))", re.MULTILINE)
TORCH_VERSION = re.compile(r"^__version__\s*=\s*'([^']+)'", re.MULTILINE)
ARCHITECTURES = re.compile(rb"\x00((?:sm|compute)_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?)*)\x00")
NCCL_BUILD = re.compile(rb"NCCL version \d+\.\d+\.\d+\+cuda(\d+\.\d+)")
PYTHON_LIBRARY = "lib/libtorch_python.so"
NCCL_LIBRARY = "lib/libnccl.so.2"


def look_at_software(*, quick: bool) -> SoftwareFacts:
    """Versions of what a sweep uses. A quick look does not search NCCL's library for the CUDA it was built for."""
    torch = package_folder("torch")
    version, cuda = torch_version(_read(torch / "version.py")) if torch else (None, None)
    nccl = None if quick else package_folder("nvidia.nccl")
    # A PyTorch that was changed leaves the packages of its former CUDA behind.
    majors = sorted(CUDA_MAJORS, key=lambda major: major != (cuda or "").partition(".")[0])
    return SoftwareFacts(
        torch=version,
        torch_cuda=cuda,
        torch_architectures=torch_architectures(torch / PYTHON_LIBRARY) if torch else (),
        cudnn=_first(f"nvidia-cudnn-cu{major}" for major in majors),
        nccl=_first(f"nvidia-nccl-cu{major}" for major in majors),
        nccl_cuda=nccl_cuda(nccl / NCCL_LIBRARY) if nccl else None,
        ray=distribution_version("ray"),
        nvidia_ml_py=distribution_version("nvidia-ml-py"),
        shadowing_pynvml=distribution_version("pynvml"),
    )


def package_folder(name: str) -> Path | None:
    """Where a package lives, without importing it; None where it is not installed."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def torch_version(text: str) -> tuple[str | None, str | None]:
    r"""Version of torch, and of its CUDA ("" for a build without), from the text of its version.py.

    >>> torch_version("__version__ = '2.9.0+cu128'\ncuda: Optional[str] = '12.8'\n")
    ('2.9.0+cu128', '12.8')
    >>> torch_version("__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\n")
    ('2.9.0+cpu', '')
    """
    version, cuda = TORCH_VERSION.search(text), TORCH_CUDA.search(text)
    return version[1] if version else None, None if cuda is None else cuda[1] or ""


def torch_architectures(library: Path) -> tuple[str, ...]:
    """What `torch.cuda.get_arch_list` would say, found as text in the library; empty where it is not found."""
    found = _find_bytes(library, ARCHITECTURES)
    return tuple(found.decode().split()) if found else ()


def nccl_cuda(library: Path) -> str | None:
    """The CUDA version an NCCL library was built for, as in its own version text."""
    found = _find_bytes(library, NCCL_BUILD)
    return found.decode() if found else None


def distribution_version(name: str) -> str | None:
    """Version of an installed package, None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except (importlib.metadata.PackageNotFoundError, OSError, ValueError):
        return None


def _first(names: Iterable[str]) -> str | None:
    return next((version for name in names if (version := distribution_version(name)) is not None), None)


def _find_bytes(path: Path, pattern: re.Pattern[bytes]) -> bytes | None:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            match = pattern.search(content)
            return match[1] if match else None
    except (OSError, ValueError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
