"""Failed calls as exceptions."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

REQUEST_ID = "x-request-id"


class TandemError(Exception):
    """A call that failed.

    code         the gRPC code
    reason       the stable name of ERRORS.md; empty if the failure is not the service's, such as a
                 refused connection
    message      the description, for people
    field        the path of the invalid field, such as `conversation.messages[2].role`, or None
    retry_delay  seconds to wait before a retry, or None if a retry is not expected to help
    resource     type and name of a missing model, adapter or template, or None
    metadata     `line`: the line of the chat template that failed
    request_id   the id of the call in the service's log, or None
    """

    def __init__(self, code: grpc.StatusCode, message: str, request_id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id
        self.reason = ""
        self.field: str | None = None
        self.retry_delay: float | None = None
        self.resource: tuple[str, str] | None = None
        self.metadata: dict[str, str] = {}

    @property
    def is_unreachable(self) -> bool:
        """True if no service answered, such as after a refused connection."""
        return self.code is grpc.StatusCode.UNAVAILABLE and not self.reason

    def add_hint(self, hint: str) -> None:
        """Adds a remedy to the message."""
        self.message = f"{self.message} ({hint})"
        self.args = (self.message,)

    def __str__(self) -> str:
        name = " ".join(part for part in (self.code.name, self.reason) if part)
        suffix = f" (request {self.request_id})" if self.request_id else ""
        return f"{name}: {self.message}{suffix}"


class StrictError(TandemError):
    """A warning of the service, which a client with `strict=True` raises.

    `reason` is the code of the first warning, such as TOOLS_IGNORED, and `field` its path. `warnings` has all.
    """

    def __init__(self, warnings: list[Any], first: tuple[str, str, str], request_id: str | None = None) -> None:
        reason, path, text = first
        super().__init__(grpc.StatusCode.FAILED_PRECONDITION, text or f"the service warns of {reason}", request_id)
        self.reason, self.field, self.warnings = reason, path or None, warnings


class InvalidRequest(ValueError):
    """A request that the contract cannot express. It was not sent.

    `field` is the place in the caller's value, such as `messages[2].content[0]` or `sampling.temperature`.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field, self.problem = field, problem


def tandem_error(error: Any) -> TandemError:
    """Returns the exception for an RpcError, with the details of the trailer `grpc-status-details-bin`."""
    trailers = dict(error.trailing_metadata() or ())
    headers = dict(error.initial_metadata() or ())
    request_id = trailers.get(REQUEST_ID) or headers.get(REQUEST_ID)
    result = TandemError(error.code(), error.details() or "", request_id)
    try:
        status = status_pb2.Status.FromString(trailers.get("grpc-status-details-bin", b""))
        _add_all(result, status.details)
    except DecodeError:  # A proxy may have cut the trailer. The code and the message remain.
        pass
    return result


def error_of_status(status: Any) -> TandemError:
    """Returns the exception for a google.rpc.Status, such as the failure of one request of a batch."""
    codes = {code.value[0]: code for code in grpc.StatusCode}
    result = TandemError(codes.get(status.code, grpc.StatusCode.UNKNOWN), status.message)
    _add_all(result, status.details)
    return result


def _add_all(result: TandemError, details: Any) -> None:
    for detail in details:
        _add(result, detail)


def _add(result: TandemError, detail: Any) -> None:
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    retry, missing = error_details_pb2.RetryInfo(), error_details_pb2.ResourceInfo()
    if detail.Unpack(info):
        result.reason, result.metadata = info.reason, dict(info.metadata)
    elif detail.Unpack(bad) and bad.field_violations:
        result.field = bad.field_violations[0].field
    elif detail.Unpack(retry):
        result.retry_delay = retry.retry_delay.ToTimedelta().total_seconds()
    elif detail.Unpack(missing):
        result.resource = (missing.resource_type, missing.resource_name)
