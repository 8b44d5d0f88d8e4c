"""Claims of a beginner's guide to the RTX 5090 that are wrong, and what is right.

Who follows the guide meets their consequences; rules quote the answer where that happens. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the guide says, and what is right; `right` stands alone."""

    said: str
    right: str


# Source: playbook, hardware in scope, and its corrections.
ARCHITECTURE = Claim(
    said="the RTX 5090 is Ada Lovelace with third-generation Tensor Cores",
    right="it is Blackwell (compute capability 12.0) with fifth-generation Tensor Cores",
)
MEMORY = Claim(said="it has 24 GB GDDR6X at 1 TB/s", right="it has 32 GB GDDR7 at 1.792 TB/s")
FP32 = Claim(said="its FP32 is 2.3 times the RTX 4090's", right="it is 104.8 against 82.6 TFLOPS, 1.27 times")
SM_COUNT = Claim(said="it has 50 % more SMs", right="it has 170 against 128, a third more")
DRIVER = Claim(said="driver 535 and CUDA 12.2 suffice", right="it needs driver 570 or newer and CUDA 12.8 builds")
CUDNN = Claim(said="cuDNN 8.9 suffices", right="it needs cuDNN 9")
NVLINK = Claim(said="several cards are linked by NVLink", right="it has no NVLink: cards talk over PCIe")
CLAIMS = (ARCHITECTURE, MEMORY, FP32, SM_COUNT, DRIVER, CUDNN, NVLINK)
TO_MEASURE = "That FP16 with TF32 gives 3x is a claim to measure; what its memory compression is, is not known here"


def answer(*claims: Claim) -> str:
    """The answer to who read the claims.

    >>> answer(NVLINK)
    "A beginner's guide says that several cards are linked by NVLink; but it has no NVLink: cards talk over PCIe."
    """
    said = " It says that ".join(f"{claim.said}; but {claim.right}." for claim in claims)
    return f"A beginner's guide says that {said}"
