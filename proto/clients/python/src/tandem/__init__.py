"""A client of Tandem's gRPC services.

The messages of the contract are in `tandem.chat.v1.chat_pb2`, `tandem.render.v1.render_pb2` and so on.
"""

from tandem.aio import AsyncAnswer, AsyncTandem
from tandem.client import Answer, Tandem
from tandem.conversation import InvalidRequest, conversation, image
from tandem.errors import TandemError

__all__ = [
    "Answer",
    "AsyncAnswer",
    "AsyncTandem",
    "InvalidRequest",
    "Tandem",
    "TandemError",
    "conversation",
    "image",
]
