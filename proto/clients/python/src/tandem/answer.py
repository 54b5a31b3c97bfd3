"""The state of a streamed answer, which both clients share."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, Union

from tandem.calls import Call
from tandem.connection import Connection
from tandem.fields import AnswerToolCall, MessageDict
from tandem.generate.v1 import generate_pb2, output_spec_pb2
from tandem.parsed import ParsedOutput, Part, output_so_far, parsed_output, parts
from tandem.render.v1 import parse_pb2, render_pb2
from tandem.task.v1 import task_pb2

E = TypeVar("E", bound=Union[task_pb2.RunTaskResponse, generate_pb2.GenerateResponse])
"""The events of an answer: RunTask's or Generate's."""

TOKENS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel>", "<channel|>"),
    ("<reasoning>", "</reasoning>"),
    ("<mm:think>", "</mm:think>"),
)
"""The texts of reasoning markers that are tokens, as in render-svc. An output spec has only their ids."""


class Totals(Protocol):
    """The totals of an answer: TaskFinished of RunTask, or Summary of Generate."""

    @property
    def usage(self) -> generate_pb2.Usage:
        """The numbers of tokens."""

    @property
    def timings(self) -> generate_pb2.Timings:
        """The durations of the phases in milliseconds."""

    @property
    def seed(self) -> int:
        """The seed that reproduces the answer."""


class AnswerState(Generic[E]):
    """An answer of RunTask or Generate, as far as it has arrived."""

    def __init__(self, call: Call[E], connection: Connection) -> None:
        self._call, self._connection = call, connection
        self.rendered: task_pb2.Rendered | None = None
        """The event `rendered` of RunTask: adapter, warnings, fingerprint, output spec."""
        self.accepted: generate_pb2.Accepted | None = None
        """The event `accepted`: all parameters with their defaults."""
        self.finishes: dict[int, generate_pb2.Finished] = {}
        """The end of each output, by its index."""
        self.totals: Totals | None = None
        """Usage, timings and seed. None until the answer is complete."""
        self.request_id: str | None = None
        """The id of the call in the service's log. None before the first event."""
        self.has_output = False
        """True after an event that a retry would repeat."""
        self._is_cancelled = False
        self._has_ended = False
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._was_reasoning = False
        self._parts: list[Part] = []
        self._parsed: parse_pb2.ParsedOutput | None = None

    @property
    def finish_reason(self) -> str | None:
        """Why the first output ended: STOP, LENGTH, CANCELLED, DEADLINE, ERROR or GRAMMAR_LIMIT.

        After any other reason than STOP, the answer is not complete. CANCELLED is also the reason after
        `cancel()`. None until the output has ended.
        """
        if 0 not in self.finishes:
            return "CANCELLED" if self._is_cancelled else None
        number, names = self.finishes[0].reason, generate_pb2.FinishReason
        return names.Name(number).removeprefix("FINISH_REASON_") if number in names.values() else str(number)

    @property
    def message(self) -> MessageDict:
        """The assistant's message for the next turn: the first output's text so far, also after a cancellation.

        Its reasoning is in `reasoning_content`, without the markers, and not in `content`. A request whose own
        `output_spec` has unusual markers gives their strings beside their ids.

        With `parse_output=True` it has `reasoning_content`, `content` and `tool_calls` apart, by the rules of the
        model. `content` is None if there are calls and no content.
        """
        if self._is_parsed:
            return self._output().message
        content = "".join(self._content)
        if not self._reasoning:
            return {"role": "assistant", "content": content}
        markers = self._markers()
        sections = [without_markers(section, markers).strip("\n") for section in self._reasoning]
        reasoning = "\n".join(section for section in sections if section)
        return {"role": "assistant", "content": content.lstrip("\n"), "reasoning_content": reasoning}

    @property
    def content(self) -> str:
        """The content so far, without white space around it. Needs `parse_output=True`."""
        return self._output().content

    @property
    def reasoning(self) -> str:
        """The reasoning so far, without white space around it. Needs `parse_output=True`."""
        return self._output().reasoning

    @property
    def tool_calls(self) -> list[AnswerToolCall]:
        """The complete calls so far, in order. Needs `parse_output=True`."""
        return self._output().tool_calls

    @property
    def parse_warnings(self) -> list[parse_pb2.ParseWarning]:
        """The warnings of the parts that could not be read, after the last event."""
        return list(self._parsed.warnings) if self._parsed else []

    @property
    def warnings(self) -> list[render_pb2.Warning]:
        """The warnings of rendering."""
        return list(self.rendered.warnings) if self.rendered else []

    def _markers(self) -> output_spec_pb2.ReasoningMarkers:
        spec: output_spec_pb2.OutputSpec = self._call.request.output_spec
        return (self.rendered.output_spec if self.rendered else spec).reasoning

    @property
    def _is_parsed(self) -> bool:
        """True if the request wants the parts of the answer. Only one of RunTask can."""
        return bool(getattr(self._call.request, "parse_output", False))

    def _check_parsed(self) -> None:
        if not self._is_parsed:
            raise ValueError("the answer was not read for its parts: pass parse_output=True to run")

    def _output(self) -> ParsedOutput:
        """Returns the parts so far. Raises ValueError if there can be none, so that no call is missed."""
        self._check_parsed()
        if self._parsed is not None:
            return parsed_output(self._parsed)
        if self.totals is not None:
            raise ValueError("the service has no parse_output: it needs the version of the client")
        if self.rendered is None and not self._is_cancelled:
            raise ValueError("the answer has not arrived: read it first, such as with its text()")
        return parsed_output(output_so_far(self._parts))

    def _add(self, event: Any) -> None:
        kind = event.WhichOneof("event")
        self._connection.has_answered = True
        self.has_output |= kind in ("delta", "parsed", "prompt_logprobs", "finished", "summary")
        if kind == "delta":
            self._add_delta(event.delta)
        elif kind == "parsed":
            self._parts.extend(parts(event))
        elif kind == "rendered":
            self.rendered = event.rendered
            self._connection.report(event.rendered.warnings, self.request_id)
        elif kind == "accepted":
            self.accepted = event.accepted
        elif kind == "summary":
            self.totals = event.summary
        elif kind == "finished" and isinstance(event.finished, generate_pb2.Finished):
            self._add_finished(event.finished)
        elif kind == "finished":
            self.totals = event.finished
            self._parsed = event.finished.parsed if event.finished.HasField("parsed") else None
            self._add_finished(event.finished.finish)

    def _add_finished(self, finished: generate_pb2.Finished) -> None:
        self.finishes[finished.output_index] = finished
        self._connection.report([*_finish_warnings(finished), *self.parse_warnings], self.request_id)

    def _add_delta(self, delta: generate_pb2.Delta) -> None:
        if delta.output_index or not delta.text:
            return
        if not delta.reasoning:
            self._content.append(delta.text)
        elif self._was_reasoning:
            self._reasoning[-1] += delta.text
        else:
            self._reasoning.append(delta.text)
        self._was_reasoning = delta.reasoning

    def _mark_cancelled(self) -> None:
        self._is_cancelled = self._is_cancelled or not self._has_ended


def answer_text(event: Any) -> str:
    """Returns the text of an event that belongs to the first output's answer, without its reasoning."""
    delta = event.delta  # empty for any other event
    return "" if delta.reasoning or delta.output_index else str(delta.text)


def without_markers(text: str, markers: output_spec_pb2.ReasoningMarkers) -> str:
    """Returns the text of one section of reasoning without its first and its last marker."""
    starts = [*markers.start_strings, *(start for start, _ in TOKENS if markers.start_token_ids)]
    ends = [*markers.end_strings, *(end for _, end in TOKENS if markers.end_token_ids)]
    text = text.removeprefix(max(filter(text.startswith, starts), key=len, default=""))
    return text.removesuffix(max(filter(text.endswith, ends), key=len, default=""))


def _finish_warnings(finished: generate_pb2.Finished) -> list[str]:
    """Returns the names of the codes that the end of an output warns of."""
    names = generate_pb2.OutputWarning
    known = names.values()
    return [
        names.Name(code).removeprefix("OUTPUT_WARNING_") if code in known else str(code) for code in finished.warnings
    ]
