"""The blocking client."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from tandem import calls
from tandem.answer import AnswerState, E, answer_text
from tandem.calls import Call, Output, Prompt
from tandem.connection import Attempts, Connection, Settings
from tandem.errors import REQUEST_ID, TandemError, tandem_error
from tandem.fields import (
    DetokenizeFields,
    GenerateFields,
    Messages,
    Options,
    ParseFields,
    RenderArguments,
    RenderRequest,
    TaskFields,
    TokenizeFields,
)
from tandem.generate.v1 import generate_pb2
from tandem.parsed import ParsedOutput, Part, parts
from tandem.render.v1 import registry_pb2, render_pb2
from tandem.task.v1 import task_pb2

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")


class Tandem:
    """A client of one service: render-svc, or gen-svc for `generate` and `generation_model`.

    The README describes the settings. Threads may share a client. Every method raises TandemError if its
    call fails, and InvalidRequest if the contract cannot express its arguments. All take `timeout` in
    seconds and `request_id`.
    """

    def __init__(self, address: str, **settings: Unpack[Settings]) -> None:
        self._connection = Connection(address, **settings)
        target, credentials, options = self._connection.target, self._connection.credentials, self._connection.options
        if credentials is None:
            self.channel = grpc.insecure_channel(target, options)
        else:
            self.channel = grpc.secure_channel(target, credentials, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Running calls end."""
        self.channel.close()

    def run(self, messages: Messages, **fields: Unpack[TaskFields]) -> Answer[task_pb2.RunTaskResponse]:
        """Answers a conversation (RunTask). The call starts when the answer is first read.

        The arguments are the fields of RunTaskRequest, such as `sampling={"temperature": 0}`,
        `stop={"max_new_tokens": 200}`, `grammar={"json_schema": schema}`, `tools`, and `timeout` in seconds.
        With `parse_output=True`, the answer has `tool_calls`, `reasoning`, `content` and `parts()`.
        `tool_choice="required"` makes the answer call a tool, and `parallel_tool_calls=False` one at most.
        """
        return self._stream(calls.run(messages, fields))

    def generate(self, prompt: Prompt, **fields: Unpack[GenerateFields]) -> Answer[generate_pb2.GenerateResponse]:
        """Continues a prompt: its text, its token ids, or the response of `render`."""
        return self._stream(calls.generate(prompt, fields))

    def render(self, messages: Messages, **fields: Unpack[RenderArguments]) -> render_pb2.RenderResponse:
        """Renders a conversation."""
        return self._unary(calls.render(messages, fields))

    def batch_render(
        self, requests: Iterable[RenderRequest], **options: Unpack[Options]
    ) -> list[render_pb2.RenderResponse | TandemError]:
        """Renders conversations: dicts of `messages` and the arguments of `render`. A failure is a result."""
        results = self._unary(calls.batch_render(requests, options))
        return [self._connection.reported(result) for result in results]

    def tokenize(self, text: str, **fields: Unpack[TokenizeFields]) -> render_pb2.TokenizeResponse:
        """Returns the token ids of a text, and their offsets if requested."""
        return self._unary(calls.tokenize(text, fields))

    def detokenize(self, token_ids: Iterable[int], **fields: Unpack[DetokenizeFields]) -> str:
        """Returns the text of token ids."""
        return self._unary(calls.detokenize(token_ids, fields))

    def parse_output(self, output: Output, **fields: Unpack[ParseFields]) -> ParsedOutput:
        """Reads the output of a model: its text, with the tokens around calls and reasoning, or its token ids."""
        return self._unary(calls.parse_output(output, fields))

    def models(self, **options: Unpack[Options]) -> list[registry_pb2.ModelInfo]:
        """Lists the models of render-svc."""
        return self._unary(calls.models(options))

    def model(self, name: str = "", **options: Unpack[Options]) -> registry_pb2.ModelInfo:
        """Describes a model of render-svc. An empty name means the only one."""
        return self._unary(calls.model(name, options))

    def generation_model(self, **options: Unpack[Options]) -> generate_pb2.LoadedModel:
        """Describes the model that gen-svc has loaded."""
        return self._unary(calls.generation_model(options))

    def health(self, service: str = "", **options: Unpack[Options]) -> str:
        """Returns the health of a service, such as `tandem.task.v1.TaskService`: SERVING or NOT_SERVING."""
        return self._unary(calls.health(service, options))

    def _unary(self, call: Call[T]) -> T:
        method = self.channel.unary_unary(call.path, _serialized, call.response.FromString)
        attempts = self._connection.attempts(call)
        wait = threading.Event()
        while True:
            try:
                result = call.result(method(call.request, **attempts.arguments()))
                self._connection.has_answered = True
                self._connection.report(call.warnings(result))
                return result
            except grpc.RpcError as error:
                failure = tandem_error(error)
                failure.__cause__ = error
            wait.wait(attempts.delay_after(failure))

    def _stream(self, call: Call[E]) -> Answer[E]:
        method = self.channel.unary_stream(call.path, _serialized, call.response.FromString)
        return Answer(method, call, self._connection)


class Answer(AnswerState[E]):
    """An answer that is streamed. Iterating yields its text, without reasoning, as it arrives.

    `with client.run(...) as answer:` cancels the call at the end of the block. After the last text,
    `finish_reason`, `message`, `totals` and `warnings` are set.
    """

    def __init__(self, method: Any, call: Call[E], connection: Connection) -> None:
        super().__init__(call, connection)
        self._method = method
        self._stopped = threading.Event()
        self._stream: Any = None
        self._events = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[str]:
        for event in self._events:
            if text := answer_text(event):
                yield text

    def events(self) -> Iterator[E]:
        """Yields every event of the contract. A retry repeats the events before the first output."""
        return self._events

    def deltas(self) -> Iterator[generate_pb2.Delta]:
        """Yields all deltas: of every output, with reasoning, and with token ids if requested."""
        return (event.delta for event in self._events if event.WhichOneof("event") == "delta")

    def parts(self) -> Iterator[Part]:
        """Yields reasoning, content and tool calls as they arrive. Needs `parse_output=True`."""
        self._check_parsed()
        return (part for event in self._events for part in parts(event))

    def text(self) -> str:
        """Reads the rest of the answer, and returns its text without reasoning."""
        return "".join(self)

    def cancel(self) -> None:
        """Cancels the call, from any thread. The iteration ends, and the service ends the generation."""
        self._mark_cancelled()
        self._stopped.set()
        if self._stream is not None:
            self._stream.cancel()

    def _read(self) -> Iterator[E]:
        try:
            attempts = self._connection.attempts(self._call)
            while not self._stopped.is_set():
                delay = yield from self._attempt(attempts)
                if delay is None:
                    return
                self._stopped.wait(delay)
        finally:
            self._has_ended = self._has_ended or not self._stopped.is_set()

    def _attempt(self, attempts: Attempts) -> Generator[E, None, float | None]:
        """Yields the events of one attempt. Returns the seconds until the next, or None after the last event."""
        self._stream = self._method(self._call.request, **attempts.arguments())
        try:
            if self._stopped.is_set():
                return None  # cancelled by another thread in the meantime
            for event in self._stream:
                if self._stopped.is_set():
                    return None
                if self.request_id is None:
                    self.request_id = dict(self._stream.initial_metadata()).get(REQUEST_ID)
                self._add(event)
                yield event
            return None
        except grpc.RpcError as error:
            if self._stopped.is_set():
                return None
            failure = tandem_error(error)
            failure.__cause__ = error
        finally:
            self._stream.cancel()
        return attempts.delay_after(failure, self.has_output)


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
