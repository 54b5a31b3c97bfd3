"""Channels, credentials and retries: the parts that both clients share."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any, TypedDict, Union

import grpc

from tandem.calls import Call, is_seconds
from tandem.errors import REQUEST_ID, StrictError, TandemError
from tandem.names import SETTINGS
from tandem.render.v1 import render_pb2

Pem = Union[str, "os.PathLike[str]", bytes]
"""PEM text as bytes, or the path of its file."""

Token = Union[str, Callable[[], str]]
"""A bearer token, or a function that returns the current one."""

MAX_MESSAGE_BYTES = 264 << 20
"""The largest response: 256 MiB of BatchRender's results, and their frames. gRPC's default is 4 MiB."""


FIRST_BACKOFF, LAST_BACKOFF = 0.2, 2.0
"""Seconds between the attempts to connect: they double from the first to the last."""

_log = logging.getLogger("tandem")


class Settings(TypedDict, total=False):
    """The settings of a client. The README describes them."""

    tls: bool
    ca: Pem | None
    cert: Pem | None
    key: Pem | None
    token: Token | None
    timeout: float | None
    retries: int
    strict: bool
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
        strict: bool = False,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        options: tuple[tuple[str, Any], ...] = (),
        **unknown: Any,
    ) -> None:
        for name in unknown:
            known = ", ".join(Settings.__annotations__)
            remark = f"did you mean {SETTINGS[name]}?" if name in SETTINGS else f"the settings are {known}"
            raise TypeError(f"a client has no setting {name!r}; {remark}")
        if timeout is not None and not is_seconds(timeout):
            raise ValueError(f"timeout must be seconds, such as 30, not {timeout!r}")
        scheme, _, rest = address.rpartition("://")
        if scheme not in ("", "http", "https"):
            raise ValueError(f"address {address!r} must be HOST:PORT, http://HOST:PORT or https://HOST:PORT")
        self.target = rest.rstrip("/")
        files = [_pem(ca), _pem(key), _pem(cert)]
        self.credentials: grpc.ChannelCredentials | None = None
        if tls or scheme == "https" or any(files):
            self.credentials = grpc.ssl_channel_credentials(*files)
        self.token, self.timeout, self.retries, self.strict = token, timeout, retries, strict
        self.has_answered = False
        self._logged: set[str] = set()
        self._has_logged_retry = False
        self.options = [
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", -1),  # the service has the limit, and a typed error
            # The services accept any rate of pings, and ping every 30 seconds too.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", int(FIRST_BACKOFF * 1000)),
            ("grpc.max_reconnect_backoff_ms", int(LAST_BACKOFF * 1000)),
            ("grpc.primary_user_agent", f"tandem-client/{metadata.version('tandem-client')}"),
            *options,
        ]

    def attempts(self, call: Call[Any]) -> Attempts:
        """Starts the time of a call."""
        return Attempts(self, call)

    def report(self, warnings: Iterable[Any], request_id: str | None = None) -> None:
        """Logs the warnings of an answer, each code once, or raises StrictError for them."""
        given = list(warnings)
        notices = [_notice(warning) for warning in given]
        if notices and self.strict:
            raise StrictError(given, notices[0], request_id)
        for code, path, text in notices:
            if code not in self._logged:
                self._logged.add(code)
                _log.warning("%s", ": ".join(part for part in (code, path, text) if part))

    def log_retry(self, error: TandemError) -> None:
        """Logs that calls wait for a service, once."""
        if not self._has_logged_retry:
            self._has_logged_retry = True
            _log.warning("no service answers at %s, retrying: %s", self.target, error.message)

    def reported(self, result: render_pb2.RenderResponse | TandemError) -> render_pb2.RenderResponse | TandemError:
        """Reports the warnings of one result of a batch. An error for them is the result."""
        if isinstance(result, render_pb2.RenderResponse):
            try:
                self.report(result.warnings)
            except StrictError as error:
                return error
        return result

    def hint(self, error: TandemError) -> str | None:
        """Returns the remedy if one side of the connection has TLS and the other has not."""
        if error.code is not grpc.StatusCode.UNAVAILABLE or error.reason or self.has_answered:
            return None
        if self.credentials is not None and "WRONG_VERSION_NUMBER" in error.message:
            return f"the service has no TLS: use http://{self.target}, without certificates"
        if self.credentials is None and ("Socket closed" in error.message or "reset by peer" in error.message):
            return f"if the service has TLS, use https://{self.target}"
        return None


class Attempts:
    """The bounded attempts of one call, within its deadline."""

    def __init__(self, connection: Connection, call: Call[Any]) -> None:
        timeout = connection.timeout if call.timeout is None else call.timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._connection, self._request_id = connection, call.request_id
        self._left = connection.retries
        self._backoff = FIRST_BACKOFF
        self._hints = 0

    def arguments(self) -> dict[str, Any]:
        """Returns the remaining time and the metadata of the next attempt, as arguments of gRPC."""
        metadata = []
        token = self._connection.token
        if token is not None:
            metadata.append(("authorization", f"Bearer {token if isinstance(token, str) else token()}"))
        if self._request_id is not None:
            metadata.append((REQUEST_ID, self._request_id))
        return {"timeout": self._remaining(), "metadata": metadata}

    def delay_after(self, error: TandemError, has_output: bool = False) -> float:
        """Returns the seconds to wait before the next attempt, or raises the error.

        A call is repeated if the service asks for it or no service answered, before any output, and within
        the deadline. Without a deadline, the number of retries bounds both.
        """
        self._connection.has_answered |= bool(error.reason)
        hint = self._connection.hint(error)
        if hint is not None:
            error.add_hint(hint)
        delay = None if has_output or self._connection.retries <= 0 else self._delay(error, hint is not None)
        remaining = self._remaining()
        if delay is not None and remaining is not None and delay >= remaining:
            # An attempt to connect needs little time: one more is made before the deadline.
            is_worthwhile = error.retry_delay is None and remaining > 2 * FIRST_BACKOFF
            delay = remaining / 2 if is_worthwhile else None
        if delay is None:
            raise error
        if error.retry_delay is None:
            self._connection.log_retry(error)
        return delay

    def _delay(self, error: TandemError, has_hint: bool) -> float | None:
        jitter = random.uniform(1, 1.25)  # so that clients do not return all at once
        if error.retry_delay is not None:
            return error.retry_delay * jitter if self._take() else None
        if not error.is_unreachable or (self._deadline is None and not self._take()):
            return None
        self._hints += has_hint
        if "handshake failed" in error.message or self._hints > 1:
            return None  # another attempt meets the same certificates
        delay, self._backoff = self._backoff, min(self._backoff * 2, LAST_BACKOFF)
        return delay * jitter

    def _take(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def _remaining(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0)


def _notice(warning: Any) -> tuple[str, str, str]:
    """Returns code, path and text of a warning, or of the code of one. Only those of rendering have a path."""
    if isinstance(warning, str):
        return warning, "", ""
    known, number = warning.DESCRIPTOR.fields_by_name["code"].enum_type.values_by_number, warning.code
    code = known[number].name.rpartition("WARNING_CODE_")[2] if number in known else str(number)
    return code, getattr(warning, "path", ""), warning.text


def _pem(value: Pem | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    with open(value, "rb") as file:
        return file.read()
