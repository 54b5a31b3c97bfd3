"""A client of Tandem's gRPC services.

The messages of the contract are in `tandem.chat.v1.chat_pb2`, `tandem.render.v1.render_pb2` and so on.
"""

from tandem.aio import AsyncAnswer, AsyncTandem
from tandem.client import Answer, Tandem
from tandem.conversation import conversation, image
from tandem.errors import InvalidRequest, StrictError, TandemError
from tandem.fields import (
    AnswerToolCall,
    Grammar,
    Message,
    Messages,
    RenderOptions,
    ReturnOptions,
    Sampling,
    Stop,
    Tool,
    ToolCall,
    ToolChoice,
)
from tandem.parsed import ContentPart, ParsedOutput, Part, ReasoningPart, ToolCallPart

__all__ = [
    "Answer",
    "AnswerToolCall",
    "AsyncAnswer",
    "AsyncTandem",
    "ContentPart",
    "Grammar",
    "InvalidRequest",
    "Message",
    "Messages",
    "ParsedOutput",
    "Part",
    "ReasoningPart",
    "RenderOptions",
    "ReturnOptions",
    "Sampling",
    "Stop",
    "StrictError",
    "Tandem",
    "TandemError",
    "Tool",
    "ToolCall",
    "ToolCallPart",
    "ToolChoice",
    "conversation",
    "image",
]
