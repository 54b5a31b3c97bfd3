"""The state of a streamed answer, which both clients share."""

from __future__ import annotations

from typing import Any

from tandem.generate.v1 import generate_pb2
from tandem.render.v1 import render_pb2


class AnswerState:
    """An answer of RunTask or Generate, as far as it has arrived."""

    def __init__(self) -> None:
        self.rendered: Any = None
        """The event `rendered` of RunTask: adapter, warnings, fingerprint, output spec."""
        self.accepted: generate_pb2.Accepted | None = None
        """The event `accepted`: all parameters with their defaults."""
        self.finishes: dict[int, generate_pb2.Finished] = {}
        """The end of each output, by its index."""
        self.totals: Any = None
        """TaskFinished or Summary, with `usage`, `timings` and `seed`. None until the answer is complete."""
        self.request_id: str | None = None
        """The id of the call in the service's log. None before the first event."""
        self.has_output = False
        """True after an event that a retry would repeat."""

    @property
    def finish_reason(self) -> str | None:
        """Why the first output ended: STOP, LENGTH, CANCELLED, DEADLINE, ERROR or GRAMMAR_LIMIT.

        After any other reason than STOP, the answer is not complete. None until the output has ended.
        """
        if 0 not in self.finishes:
            return None
        number, names = self.finishes[0].reason, generate_pb2.FinishReason
        return names.Name(number).removeprefix("FINISH_REASON_") if number in names.values() else str(number)

    @property
    def message(self) -> dict[str, Any] | None:
        """The assistant's message of a task, for the next turn. It contains the reasoning too."""
        message = getattr(self.totals, "message", None)
        return {"role": message.role, "content": message.text} if message else None

    @property
    def warnings(self) -> list[render_pb2.Warning]:
        """The warnings of rendering."""
        return list(self.rendered.warnings) if self.rendered else []

    def _add(self, event: Any) -> None:
        kind = event.WhichOneof("event")
        self.has_output |= kind in ("delta", "prompt_logprobs", "finished", "summary")
        if kind == "rendered":
            self.rendered = event.rendered
        elif kind == "accepted":
            self.accepted = event.accepted
        elif kind == "summary":
            self.totals = event.summary
        elif kind == "finished" and isinstance(event.finished, generate_pb2.Finished):
            self.finishes[event.finished.output_index] = event.finished
        elif kind == "finished":
            self.totals, self.finishes[0] = event.finished, event.finished.finish


def answer_text(event: Any) -> str:
    """Returns the text of an event that belongs to the first output's answer, without its reasoning."""
    delta = event.delta  # empty for any other event
    return "" if delta.reasoning or delta.output_index else delta.text
