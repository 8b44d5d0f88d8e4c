"""Objects under one prefix of an S3-compatible store: listed, read, written and removed whole.

Endpoint and credentials come from the environment alone (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` and so on, or the
files and roles that the AWS libraries know), are kept nowhere, and are taken out of every message. No knowledge of
runs; that is `results.mirror`. Called by `results.mirror` and `results.location`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rtxscale.errors import BadInput, StorageOutage

SCHEME = "s3:"
URL = re.compile(r"s3:/{1,2}(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]{1,62})(?P<prefix>(?:/[A-Za-z0-9._=+-]+)*)/?")
"""One slash or two: a path object keeps only one."""
OTHER_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/{1,2}(?P<rest>.*)", re.DOTALL)
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEFAULT_REGION = "us-east-1"
SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_HIDDEN: dict[str, str] = {}
"""Credentials that were taken out of the environment."""
CONNECT_S, ANSWER_S = 5.0, 30.0
ATTEMPTS = 3
MESSAGE_CHARACTERS = 240


class Object(NamedTuple):
    """Size in bytes, and when it was written by the store's clock (Unix time, seconds)."""

    size: int
    written_s: float


@dataclass(frozen=True, kw_only=True)
class ObjectStore:
    """Everything below `base` (bucket and prefix) of a file system of pyarrow; `url` is what the user calls it."""

    url: str
    base: str
    files: Any

    def below(self, name: str) -> ObjectStore:
        """The part of the store below one more name."""
        return replace(self, url=f"{self.url}/{name}", base=f"{self.base}/{name}")

    def names(self) -> dict[str, Object]:
        """Every object, by its name relative to this prefix.

        Raises:
            StorageOutage: the store does not answer, or refuses.
        """
        from pyarrow.fs import FileSelector, FileType

        with _translated(self.url):
            found = self.files.get_file_info(FileSelector(self.base, recursive=True, allow_not_found=True))
        start = len(self.base) + 1
        return {
            one.path[start:]: Object(one.size, one.mtime.timestamp())
            for one in found
            if one.type == FileType.File and one.path.startswith(f"{self.base}/")
        }

    def folders(self) -> list[str]:
        """Names right below this prefix that have something below them.

        Raises:
            StorageOutage: the store does not answer, or refuses.
        """
        from pyarrow.fs import FileSelector, FileType

        with _translated(self.url):
            found = self.files.get_file_info(FileSelector(self.base, allow_not_found=True))
        return sorted(one.base_name for one in found if one.type == FileType.Directory)

    def read(self, name: str) -> bytes:
        """The whole object.

        Raises:
            FileNotFoundError: there is none.
            StorageOutage: the store does not answer, or refuses.
        """
        with _translated(self.url), self.files.open_input_file(f"{self.base}/{name}") as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        """Put the whole object; others see all of it or what was there before.

        Raises:
            StorageOutage: the store does not answer, or refuses.
        """
        try:
            with _translated(self.url), self.files.open_output_stream(f"{self.base}/{name}") as stream:
                stream.write(data)
        except FileNotFoundError as error:  # no such bucket
            raise _outage(self.url, error) from error

    def remove(self, name: str) -> None:
        """Remove an object; one that is already gone is fine.

        Raises:
            StorageOutage: the store does not answer, or refuses.
        """
        try:
            with _translated(self.url):
                self.files.delete_file(f"{self.base}/{name}")
        except FileNotFoundError:
            return


def hide_credentials() -> None:
    """Keep the credentials in this process alone: Ray hands the AWS variables on to its workers, and logs them."""
    for name in SECRETS:
        if name in os.environ:
            _HIDDEN[name] = os.environ.pop(name)


def _secret(name: str) -> str | None:
    return os.environ.get(name) or _HIDDEN.get(name)


def is_url(text: str) -> bool:
    """Whether a user who writes this means something elsewhere; only `s3://` can be served.

    >>> is_url("s3://bucket/runs"), is_url("gs://bucket/runs"), is_url("/data/s3")
    (True, True, False)
    """
    return text.startswith(SCHEME) or OTHER_SCHEME.fullmatch(text) is not None


def shown(url: str) -> str:
    """The address as it may be printed: no user and no password, no query, and both slashes, of which a path keeps one.

    >>> shown("s3:/AKIA:se/cret@bucket/runs?token=x")
    's3://***@bucket/runs?***'
    """
    match = OTHER_SCHEME.fullmatch(url)
    scheme, rest = (match["scheme"], match["rest"]) if match else (SCHEME[:-1], url.removeprefix(SCHEME))
    _, at, place = rest.rpartition("@")
    place, question, _ = place.partition("?")
    return f"{scheme}://{'***@' if at else ''}{place}{'?***' if question else ''}"


def parts_of(url: str) -> tuple[str, ...]:
    """Bucket and the names of the prefix.

    Raises:
        BadInput: it is no `s3://bucket/prefix`, or a name in it would lead elsewhere.

    >>> parts_of("s3://bucket/team/runs")
    ('bucket', 'team', 'runs')
    """
    match = URL.fullmatch(url)
    names = (match["bucket"], *filter(None, match["prefix"].split("/"))) if match else ()
    if not names or any(set(name) == {"."} for name in names):
        raise BadInput(
            f"{shown(url)}: found no address of an object store; expected s3://BUCKET/PREFIX of letters, digits and "
            f"._=+-; the server is named by {ENDPOINTS[1]}, credentials by the other AWS variables"
        )
    return names


def endpoint(environment: Mapping[str, str]) -> str:
    """Where the store is; empty for Amazon's own.

    Raises:
        BadInput: it holds a password, or is no http address.
    """
    found = next((environment[name] for name in ENDPOINTS if environment.get(name)), "")
    if found and not re.fullmatch(r"https?://[^/@\s]+/?", found):
        raise BadInput(
            f"{ENDPOINTS[1]}: found an address of another form; expected https://HOST:PORT alone; credentials belong "
            "into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return found.rstrip("/")


def open_store(url: str) -> ObjectStore:
    """The store at an address; nothing is asked of it yet.

    Raises:
        BadInput: the address or the endpoint is of another form.
        StorageOutage: the AWS libraries find no way to it.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    names = parts_of(url)
    clean = f"s3://{'/'.join(names)}"
    region = next((os.environ[name] for name in REGIONS if os.environ.get(name)), DEFAULT_REGION)
    with _translated(clean):
        files = S3FileSystem(
            endpoint_override=endpoint(os.environ) or None,
            region=region,
            access_key=_secret(SECRETS[0]),
            secret_key=_secret(SECRETS[1]),
            session_token=_secret(SECRETS[2]),
            connect_timeout=CONNECT_S,
            request_timeout=ANSWER_S,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        )
    return ObjectStore(url=clean, base="/".join(names), files=files)


@contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _outage(url, error) from None  # the cause may hold what must not be shown


def _outage(url: str, error: OSError) -> StorageOutage:
    text = " ".join(str(error).split())
    for name in SECRETS:
        if secret := _secret(name):
            text = text.replace(secret, "***")
    return StorageOutage(
        f"{url}: found {text[:MESSAGE_CHARACTERS]}; expected a store that answers: see {ENDPOINTS[1]}, the bucket, the "
        "credentials and the network"
    )
