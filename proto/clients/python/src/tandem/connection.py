"""Channels, credentials and retries: the parts that both clients share."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, TypedDict, Union

import grpc

from tandem.calls import Call
from tandem.errors import REQUEST_ID, TandemError

Pem = Union[str, "os.PathLike[str]", bytes]
"""PEM text as bytes, or the path of its file."""

Token = Union[str, Callable[[], str]]
"""A bearer token, or a function that returns the current one."""

MAX_MESSAGE_BYTES = 264 << 20
"""The largest response: 256 MiB of BatchRender's results, and their frames. gRPC's default is 4 MiB."""


class Settings(TypedDict, total=False):
    """The settings of a client. The README describes them."""

    tls: bool
    ca: Pem | None
    cert: Pem | None
    key: Pem | None
    token: Token | None
    timeout: float | None
    retries: int
    max_message_bytes: int
    options: tuple[tuple[str, Any], ...]


class Connection:
    """The settings of a client with their defaults, and the channel arguments that follow from them."""

    def __init__(
        self,
        address: str,
        *,
        tls: bool = False,
        ca: Pem | None = None,
        cert: Pem | None = None,
        key: Pem | None = None,
        token: Token | None = None,
        timeout: float | None = None,
        retries: int = 4,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        options: tuple[tuple[str, Any], ...] = (),
    ) -> None:
        scheme, _, rest = address.rpartition("://")
        if scheme not in ("", "http", "https"):
            raise ValueError(f"address {address!r} must be HOST:PORT, http://HOST:PORT or https://HOST:PORT")
        self.target = rest.rstrip("/")
        files = [_pem(ca), _pem(key), _pem(cert)]
        self.credentials: grpc.ChannelCredentials | None = None
        if tls or scheme == "https" or any(files):
            self.credentials = grpc.ssl_channel_credentials(*files)
        self.token, self.timeout, self.retries = token, timeout, retries
        self.options = [
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", -1),  # the service has the limit, and a typed error
            # The services accept any rate of pings, and ping every 30 seconds too.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.primary_user_agent", f"tandem-client/{metadata.version('tandem-client')}"),
            *options,
        ]

    def attempts(self, call: Call[Any]) -> Attempts:
        """Starts the time of a call."""
        return Attempts(self, call)


class Attempts:
    """The bounded attempts of one call, within its deadline."""

    def __init__(self, connection: Connection, call: Call[Any]) -> None:
        timeout = connection.timeout if call.timeout is None else call.timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._left = connection.retries
        self._token, self._request_id = connection.token, call.request_id

    def arguments(self) -> dict[str, Any]:
        """Returns the remaining time and the metadata of the next attempt, as arguments of gRPC."""
        metadata = []
        if self._token is not None:
            token = self._token if isinstance(self._token, str) else self._token()
            metadata.append(("authorization", f"Bearer {token}"))
        if self._request_id is not None:
            metadata.append((REQUEST_ID, self._request_id))
        return {"timeout": self._remaining(), "metadata": metadata}

    def delay_after(self, error: TandemError, has_output: bool = False) -> float:
        """Returns the seconds to wait before the next attempt, or raises the error.

        A call is repeated only if the service asks for it, before any output, and within the deadline.
        """
        if error.retry_delay is None or has_output or self._left == 0:
            raise error
        self._left -= 1
        delay = error.retry_delay * random.uniform(1, 1.25)  # so that clients do not return all at once
        remaining = self._remaining()
        if remaining is not None and delay >= remaining:
            raise error
        return delay

    def _remaining(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0)


def _pem(value: Pem | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    with open(value, "rb") as file:
        return file.read()
