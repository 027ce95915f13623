"""`ChatModel`: what an agent needs of a language model.

The smallest contract that a loop can be written against; providers are put
under it elsewhere. Messages are plain data, so that a history can be stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from substrate.kernel.tools.tools import ToolCallRequest

__all__ = ["ChatModel", "ModelReply"]


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a model: text, the tool calls it asks for, and tokens used by kind."""

    text: str = ""
    tool_calls: tuple[ToolCallRequest, ...] = ()
    usage: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])


@runtime_checkable
class ChatModel(Protocol):
    """A language model that can be asked once."""

    async def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> ModelReply:
        """Answer the conversation; `tools` are function schemas (`Toolbox.schemas`)."""
        ...
