"""Rules about software: PyTorch build, cuDNN, NCCL, Ray, and how they fit the GPUs (playbook P1, P7).

Pure; each check gives a hit only for what is known to be wrong. Caller: `doctor.examine`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rtxscale.doctor import guide, matrix
from rtxscale.doctor.facts import Facts, GpuState
from rtxscale.doctor.finding import Hit, Rule, Severity, gpus_text
from rtxscale.doctor.matrix import is_below, read_version

CU128 = "pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu128"
OLDEST_PYNVML = matrix.Need(version=(12,), source="since 12 the package only depends on nvidia-ml-py")


def torch_build(facts: Facts) -> Iterator[Hit]:
    """A PyTorch that has no code for a GPU in use."""
    software = facts.software
    if software.torch is None:
        yield Hit(severity=Severity.ERROR, found="PyTorch is not installed", fix="pip install torch")
        return
    if not facts.used:
        return
    if software.torch_cuda == "":
        yield Hit(
            severity=Severity.ERROR,
            found=f"PyTorch {software.torch} is built without CUDA, beside {gpus_text(g.index for g in facts.used)}",
            why="It cannot use the GPUs at all.",
        )
        return
    capabilities: dict[tuple[int, int], list[GpuState]] = {}
    for gpu in facts.used:
        if gpu.device.compute_capability:
            capabilities.setdefault(gpu.device.compute_capability, []).append(gpu)
    for capability, gpus in capabilities.items():
        yield from _build_for(facts, capability, gpus)


def _build_for(facts: Facts, capability: tuple[int, int], gpus: list[GpuState]) -> Iterator[Hit]:
    software, sm = facts.software, f"sm_{capability[0]}{capability[1]}"
    who = f"{gpus_text(gpu.index for gpu in gpus)} ({sm})"
    build = f"PyTorch {software.torch} for CUDA {software.torch_cuda or 'unknown'}"
    if software.torch_architectures:
        runs = matrix.runs_on(software.torch_architectures, capability)
        code = f"{build} has code for {' '.join(software.torch_architectures)}; {who}"
        if not runs.native and runs.by_ptx:
            yield Hit(
                severity=Severity.WARNING,
                found=f"{code} runs it only through PTX",
                why="Kernels are compiled when first used, and libraries without PTX fail.",
            )
        elif not runs.native:
            why = guide.answer(guide.ARCHITECTURE) if gpus[0].architecture == "Blackwell" else ""
            yield Hit(severity=Severity.ERROR, found=f"{code} is not among them", why=f"{NO_IMAGE} {why}".strip())
        return
    need = matrix.CUDA_OF_TORCH.get(gpus[0].architecture or "")
    if need and is_below(software.torch_cuda, need):
        yield Hit(severity=Severity.ERROR, found=f"{build} cannot have code for {who}")


def torch_version(facts: Facts) -> Iterator[Hit]:
    """A PyTorch older than the matrix allows; nightlies are named as such."""
    software = facts.software
    native = software.torch_architectures
    for architecture in sorted({gpu.architecture or "" for gpu in facts.used}):
        need = matrix.TORCH.get(architecture)
        if need is None or not is_below(software.torch, need):
            continue
        # On Blackwell a build whose list holds the card will do (P1).
        has_code = architecture == "Blackwell" and any(
            matrix.runs_on(native, gpu.device.compute_capability).native
            for gpu in facts.used
            if gpu.architecture == architecture and gpu.device.compute_capability
        )
        severity = Severity.INFO if has_code else Severity.WARNING
        yield Hit(
            severity=severity,
            found=f"PyTorch {software.torch} on {architecture}" + (", with code for it" if has_code else ""),
            needed=f"PyTorch {need.text} or newer on {architecture}",
        )
    if "dev" in (software.torch or ""):
        yield Hit(
            severity=Severity.INFO,
            found=f"PyTorch {software.torch} is a nightly build",
            why="Its numbers are that night's: name the build and its commit when you publish.",
        )


def cudnn(facts: Facts) -> Iterator[Hit]:
    """An old cuDNN."""
    if facts.used and is_below(facts.software.cudnn, matrix.CUDNN):
        blackwell = facts.uses_blackwell
        yield Hit(
            severity=Severity.ERROR if blackwell else Severity.WARNING,
            found=f"cuDNN {facts.software.cudnn}",
            why=f"{CUDNN_WHY} {guide.answer(guide.CUDNN)}" if blackwell else "",
        )


def nccl(facts: Facts) -> Iterator[Hit]:
    """An old NCCL, or one built for another CUDA than PyTorch."""
    software = facts.software
    if not facts.used:
        return
    need = matrix.NCCL_BLACKWELL if facts.uses_blackwell else matrix.NCCL
    if is_below(software.nccl, need):
        yield Hit(
            severity=Severity.ERROR if facts.uses_blackwell else Severity.WARNING,
            found=f"NCCL {software.nccl}",
            needed=f"NCCL {need.text} or newer{' on Blackwell' if facts.uses_blackwell else ''}",
        )
    own, of_torch = read_version(software.nccl_cuda), read_version(software.torch_cuda)
    if own and of_torch and own[0] != of_torch[0]:
        yield _foreign_nccl(facts, "another CUDA major version")
    elif own and facts.uses_blackwell and own < (12, 8):
        yield _foreign_nccl(facts, "a CUDA that does not know Blackwell")


def _foreign_nccl(facts: Facts, what: str) -> Hit:
    software = facts.software
    return Hit(
        severity=Severity.WARNING,
        found=f"NCCL {software.nccl} is built for CUDA {software.nccl_cuda}, PyTorch for {software.torch_cuda}: {what}",
        needed="an NCCL built for PyTorch's CUDA",
        why="Seen as an illegal memory access from 512 KiB on (NVIDIA/nccl issue 2418).",
    )


def ray_version(facts: Facts) -> Iterator[Hit]:
    """No Ray, or an old one."""
    version = facts.software.ray
    if version is None:
        yield Hit(severity=Severity.ERROR, found="Ray is not installed")
    elif is_below(version, matrix.RAY):
        yield Hit(severity=Severity.ERROR, found=f"Ray {version}")


def ray_authentication(facts: Facts) -> Iterator[Hit]:
    """A Ray cluster that anybody may use."""
    settings = facts.settings
    if (settings.ray_auth_mode or "").lower() == "disabled":
        yield Hit(severity=Severity.WARNING, found="RAY_AUTH_MODE=disabled: Ray's token authentication is off")
    elif is_below(facts.software.ray, matrix.RAY_TOKEN):
        yield Hit(
            severity=Severity.WARNING,
            found=f"Ray {facts.software.ray} has no token authentication",
            needed=f"Ray {matrix.RAY_TOKEN.text} or newer",
            fix="pip install --upgrade 'ray[default,train,tune]'",
        )
    elif settings.ray_address and not settings.ray_token and settings.ray_auth_mode != "token":
        yield Hit(severity=Severity.WARNING, found="RAY_ADDRESS is set, and there is no Ray token on this host")


def pynvml_package(facts: Facts) -> Iterator[Hit]:
    """The old pynvml package in the place of nvidia-ml-py."""
    if facts.software.shadowing_pynvml and is_below(facts.software.shadowing_pynvml, OLDEST_PYNVML):
        yield Hit(severity=Severity.WARNING, found=f"package pynvml {facts.software.shadowing_pynvml} beside it")


def ai_enterprise(facts: Facts) -> Iterator[Hit]:
    """What NVIDIA AI Enterprise says about these cards."""
    if not facts.used:
        return
    product = facts.smi.licensed_product
    if product is not None:
        blackwell = facts.uses_blackwell
        yield Hit(
            severity=Severity.WARNING if blackwell else Severity.INFO,
            found=f"licensed product {product}" + (", with a Blackwell GPU" if blackwell else ""),
        )


NO_IMAGE = "Kernels fail with 'CUDA error: no kernel image is available for execution on the device'."
CUDNN_WHY = "Convolutions are slow or fail with an older one."

RULES = (
    Rule(
        id="torch_build",
        needed="a PyTorch with code for every GPU in use; for sm_120 2.7 or newer, built for CUDA 12.8 or newer",
        why=NO_IMAGE,
        fix=CU128,
        source=f"{matrix.PLAYBOOK}; {matrix.PYTORCH_145949}; torch.cuda.get_arch_list",
        check=torch_build,
    ),
    Rule(
        id="torch_version",
        needed="the PyTorch of the software matrix",
        why="Older versions lack kernels and fixes for the card.",
        fix=CU128,
        source=f"{matrix.PLAYBOOK}; {matrix.PYTORCH_145949}",
        check=torch_version,
    ),
    Rule(
        id="cudnn",
        needed="cuDNN 9",
        why=CUDNN_WHY,
        fix="reinstall PyTorch, which brings its cuDNN",
        source=matrix.CUDNN.source,
        check=cudnn,
    ),
    Rule(
        id="nccl",
        needed="an NCCL as new as the GPUs",
        why="Older ones hang or fail on newer cards.",
        fix="reinstall PyTorch, which brings its NCCL, and take others off LD_LIBRARY_PATH and LD_PRELOAD",
        source=f"{matrix.NCCL_BLACKWELL.source}; NVIDIA/nccl issue 2418",
        check=nccl,
    ),
    Rule(
        id="ray_version",
        needed=f"Ray {matrix.RAY.text} or newer",
        why="Sweeps run on Ray.",
        fix="pip install 'ray[default,train,tune]'",
        source=matrix.RAY.source,
        check=ray_version,
    ),
    Rule(
        id="ray_authentication",
        needed="token authentication on every cluster",
        why="Whoever reaches the cluster's ports can run code as its user.",
        fix="`ray get-auth-token --generate`, then RAY_AUTH_MODE=token for `ray start` and `ray job submit`",
        source=matrix.RAY_TOKEN.source,
        check=ray_authentication,
    ),
    Rule(
        id="pynvml_package",
        needed="nvidia-ml-py alone",
        why="Both are imported as pynvml; the old one gives bytes for names and lacks newer calls.",
        fix="pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py",
        source="dask/distributed issue 7563",
        check=pynvml_package,
    ),
    Rule(
        id="ai_enterprise",
        needed="a release of NVIDIA AI Enterprise that lists the card, where one is claimed",
        why="Release 3.3 covers Ada and Hopper professional cards; it does not vouch for Blackwell.",
        fix="name the release when you publish, and check its list of supported GPUs",
        source="NVIDIA AI Enterprise 3.3 release notes; playbook P1",
        check=ai_enterprise,
    ),
)
