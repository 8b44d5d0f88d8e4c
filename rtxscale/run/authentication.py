"""Whether a running cluster asks for a token, found out before Ray is imported and fixes its mode for good.

A cluster that asks for none is warned of: whoever reaches its ports can run code there.

Ray itself never looks for a token when an address is given, retries a refused one for 20 s, and a token in use towards
an open cluster breaks every actor. One plain call to the head node settles it. Caller: `cli.sweep`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, MutableMapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from rtxscale.errors import RunError
from rtxscale.spec.printable import printable

CALL = "/ray.rpc.NodeInfoGcsService/GetClusterId"
"""Ray's own first call to a head node; its request is empty."""
TIMEOUT_S = 2.0
OPEN_WARNING = (
    "rtxscale: warning: found that the cluster at {address} asks for no token; expected one, since whoever reaches its "
    "ports can run code there: `ray get-auth-token --generate`, then start it with RAY_AUTH_MODE=token"
)


class Answer(StrEnum):
    """What the head node says to the call."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"


def settle(environment: MutableMapping[str, str], home: Path) -> None:
    """Set `RAY_AUTH_MODE` to what the cluster at `RAY_ADDRESS` needs; what the user or a job has set stays.

    An open cluster is a warning on stderr.

    Raises:
        RunError: the cluster asks for a token, and there is none or another.
    """
    address = environment.get("RAY_ADDRESS")
    if not address or environment.get("RAY_AUTH_MODE"):
        return
    answer = ask(address, None)
    if answer is Answer.OPEN:
        print(OPEN_WARNING.format(address=printable(address)), file=sys.stderr)
    if answer is not Answer.REFUSED:
        return
    token = find_token(environment, home)
    if token is None or ask(address, token) is Answer.REFUSED:
        raise RunError(
            f"found that the cluster at {address} asks for a token, and {'no' if token is None else 'another'} token "
            "here; expected the cluster's own in ~/.ray/auth_token, or RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH set"
        )
    environment["RAY_AUTH_MODE"] = "token"


def find_token(environment: Mapping[str, str], home: Path) -> str | None:
    """The token that Ray would use, in the order in which it looks; never to be shown."""
    if environment.get("RAY_AUTH_TOKEN"):
        return environment["RAY_AUTH_TOKEN"]
    path = Path(environment.get("RAY_AUTH_TOKEN_PATH") or home / ".ray" / "auth_token")
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def ask(address: str, token: str | None) -> Answer:
    """Make the call with or without a token; a head node that cannot be reached or understood is `UNKNOWN`."""
    try:
        grpc: Any = importlib.import_module("grpc")  # comes with ray[default], without types
    except ImportError:
        return Answer.UNKNOWN
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(CALL)(b"", timeout=TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as error:
            refused = error.code() is grpc.StatusCode.UNAUTHENTICATED
            return Answer.REFUSED if refused else Answer.UNKNOWN
    return Answer.ACCEPTED if token else Answer.OPEN
