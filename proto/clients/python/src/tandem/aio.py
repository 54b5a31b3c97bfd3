"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
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


class AsyncTandem:
    """`Tandem` for asyncio, with the same parameters and methods. Make it inside a coroutine."""

    def __init__(self, address: str, **settings: Unpack[Settings]) -> None:
        self._connection = Connection(address, **settings)
        target, credentials, options = self._connection.target, self._connection.credentials, self._connection.options
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(target, options)
        else:
            self.channel = grpc.aio.secure_channel(target, credentials, options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Running calls end."""
        await self.channel.close()

    def run(self, messages: Messages, **fields: Unpack[TaskFields]) -> AsyncAnswer[task_pb2.RunTaskResponse]:
        """Answers a conversation (RunTask). The call starts when the answer is first read."""
        return self._stream(calls.run(messages, fields))

    def generate(self, prompt: Prompt, **fields: Unpack[GenerateFields]) -> AsyncAnswer[generate_pb2.GenerateResponse]:
        """Continues a prompt: its text, its token ids, or the response of `render`."""
        return self._stream(calls.generate(prompt, fields))

    async def render(self, messages: Messages, **fields: Unpack[RenderArguments]) -> render_pb2.RenderResponse:
        """Renders a conversation."""
        return await self._unary(calls.render(messages, fields))

    async def batch_render(
        self, requests: Iterable[RenderRequest], **options: Unpack[Options]
    ) -> list[render_pb2.RenderResponse | TandemError]:
        """Renders conversations: dicts of `messages` and the arguments of `render`. A failure is a result."""
        results = await self._unary(calls.batch_render(requests, options))
        return [self._connection.reported(result) for result in results]

    async def tokenize(self, text: str, **fields: Unpack[TokenizeFields]) -> render_pb2.TokenizeResponse:
        """Returns the token ids of a text, and their offsets if requested."""
        return await self._unary(calls.tokenize(text, fields))

    async def detokenize(self, token_ids: Iterable[int], **fields: Unpack[DetokenizeFields]) -> str:
        """Returns the text of token ids."""
        return await self._unary(calls.detokenize(token_ids, fields))

    async def parse_output(self, output: Output, **fields: Unpack[ParseFields]) -> ParsedOutput:
        """Reads the output of a model: its text, with the tokens around calls and reasoning, or its token ids."""
        return await self._unary(calls.parse_output(output, fields))

    async def models(self, **options: Unpack[Options]) -> list[registry_pb2.ModelInfo]:
        """Lists the models of render-svc."""
        return await self._unary(calls.models(options))

    async def model(self, name: str = "", **options: Unpack[Options]) -> registry_pb2.ModelInfo:
        """Describes a model of render-svc. An empty name means the only one."""
        return await self._unary(calls.model(name, options))

    async def generation_model(self, **options: Unpack[Options]) -> generate_pb2.LoadedModel:
        """Describes the model that gen-svc has loaded."""
        return await self._unary(calls.generation_model(options))

    async def health(self, service: str = "", **options: Unpack[Options]) -> str:
        """Returns the health of a service, such as `tandem.task.v1.TaskService`: SERVING or NOT_SERVING."""
        return await self._unary(calls.health(service, options))

    async def _unary(self, call: Call[T]) -> T:
        method = self.channel.unary_unary(call.path, _serialized, call.response.FromString)
        attempts = self._connection.attempts(call)
        while True:
            try:
                result = call.result(await method(call.request, **attempts.arguments()))
                self._connection.has_answered = True
                self._connection.report(call.warnings(result))
                return result
            except grpc.RpcError as error:
                failure = tandem_error(error)
                failure.__cause__ = error
            await asyncio.sleep(attempts.delay_after(failure))

    def _stream(self, call: Call[E]) -> AsyncAnswer[E]:
        method = self.channel.unary_stream(call.path, _serialized, call.response.FromString)
        return AsyncAnswer(method, call, self._connection)


class AsyncAnswer(AnswerState[E]):
    """`Answer` for asyncio. Iterate with `async for`.

    `async with client.run(...) as answer:` cancels the call at the end of the block, and so does the
    cancellation of the task that reads the answer.
    """

    def __init__(self, method: Any, call: Call[E], connection: Connection) -> None:
        super().__init__(call, connection)
        self._method = method
        self._stopped = asyncio.Event()
        self._failure: TandemError | None = None
        self._stream: Any = None
        self._events: AsyncGenerator[E, None] = self._read()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()
        await self._events.aclose()

    async def __aiter__(self) -> AsyncIterator[str]:
        async for event in self._events:
            if text := answer_text(event):
                yield text

    def events(self) -> AsyncIterator[E]:
        """Yields every event of the contract. A retry repeats the events before the first output."""
        return self._events

    async def deltas(self) -> AsyncIterator[generate_pb2.Delta]:
        """Yields all deltas: of every output, with reasoning, and with token ids if requested."""
        async for event in self._events:
            if event.WhichOneof("event") == "delta":
                yield event.delta

    def parts(self) -> AsyncIterator[Part]:
        """Yields reasoning, content and tool calls as they arrive. Needs `parse_output=True`."""
        self._check_parsed()
        return self._read_parts()

    async def text(self) -> str:
        """Reads the rest of the answer, and returns its text without reasoning."""
        return "".join([text async for text in self])

    def cancel(self) -> None:
        """Cancels the call. The iteration ends, and the service ends the generation."""
        self._mark_cancelled()
        self._stopped.set()
        if self._stream is not None:
            self._stream.cancel()

    async def _read_parts(self) -> AsyncIterator[Part]:
        async for event in self._events:
            for part in parts(event):
                yield part

    async def _read(self) -> AsyncGenerator[E, None]:
        attempts = self._connection.attempts(self._call)
        try:
            while not self._stopped.is_set():
                async for event in self._attempt(attempts):
                    yield event
                if self._failure is None:
                    return
                await self._wait(attempts.delay_after(self._failure, self.has_output))
        finally:
            self._has_ended = self._has_ended or not self._stopped.is_set()

    async def _attempt(self, attempts: Attempts) -> AsyncGenerator[E, None]:
        """Yields the events of one attempt. `_failure` is its error, or None."""
        self._failure = None
        stream = self._stream = self._method(self._call.request, **attempts.arguments())
        try:
            async for event in stream:
                if self._stopped.is_set():
                    return
                if self.request_id is None:
                    self.request_id = dict(await stream.initial_metadata()).get(REQUEST_ID)
                self._add(event)
                yield event
        except asyncio.CancelledError:
            if not self._stopped.is_set():
                raise  # the reading task was cancelled
        except grpc.RpcError as error:
            if not self._stopped.is_set():
                self._failure = tandem_error(error)
                self._failure.__cause__ = error
        finally:
            stream.cancel()

    async def _wait(self, seconds: float) -> None:
        """Returns after a time, or when the call is cancelled."""
        try:
            await asyncio.wait_for(self._stopped.wait(), seconds)
        except asyncio.TimeoutError:
            pass


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
