"""Artifact refs in the arguments of a call, replaced by what they stand for.

One that does not resolve refuses the call (`bad_ref`) before its tool starts.
"""

from __future__ import annotations

from typing import Any

from substrate.agents.tools.arguments import Path
from substrate.agents.tools.deadline import STEP_S, DeadlineExceededError, OnLate, run_bounded
from substrate.agents.tools.session import Handle, InvokerSession
from substrate.agents.tools.shaping import text_of
from substrate.agents.tools.shown import said
from substrate.agents.tools.threads import run_in_thread
from substrate.agents.tools.traits import Traits
from substrate.kernel.blobs import ArtifactStream, BlobStore
from substrate.kernel.errors import Refused
from substrate.kernel.values import decode

__all__ = ["OFF_LOOP", "Resolver"]

OFF_LOOP = 1024 * 1024
"""Bytes of structured data, the walk over which would hold up the event loop."""

_MOST_TOGETHER = 256 * 1024 * 1024  # bytes that one call may bring in by reference


class Resolver:
    """Resolves the refs of one call, each of them once; `size` is that of structured data."""

    def __init__(self, traits: Traits, session: InvokerSession, leave: OnLate) -> None:
        self._traits = traits
        self._session = session
        self._leave = leave
        self._known: dict[str, Any] = {}
        self._total = 0
        self.size = 0

    async def content(self, ref: str, path: Path) -> Any:
        """What `ref` stands for at this place: text, bytes, plain data, or a stream."""
        handle, store = self._session.handle(ref), self._session.store
        if store is None or handle is None:
            why = (
                "there is no artifact store" if store is None else "it was not issued in this scope"
            )
            message = f"the artifact ref {ref!r:.100} does not resolve: {why}"
            raise Refused(message, reason="bad_ref", status="error")
        if len(path) == 1 and path[0] in self._traits.streams:
            await self._read(ref, store.stat(handle.blob), STEP_S)
            return ArtifactStream(
                store, handle.blob, size=handle.size, media_type=handle.media_type
            )
        if handle.kind == "json":  # a tool may change what it gets: each place has its own
            self._count(handle)
            self.size += handle.size
            return await self._read(ref, _content(store, handle))
        if ref not in self._known:
            self._count(handle)
            self._known[ref] = await self._read(ref, _content(store, handle))
        return self._known[ref]

    def _count(self, handle: Handle) -> None:
        self._total += handle.size
        if self._total > _MOST_TOGETHER:
            message = (
                f"the artifacts of one call are more than {_MOST_TOGETHER} bytes together;"
                " pass fewer at a time, or to a tool that takes a stream"
            )
            raise Refused(message, reason="bad_ref", status="error")

    async def _read(self, ref: str, step: Any, most_s: float = 1e9) -> Any:
        left = max(self._session.clock.left(), 0.0)
        try:
            return await run_bounded(step, min(left, most_s), self._leave)
        except DeadlineExceededError:
            message = f"the artifact {ref!r:.100} was not read in the time that is left"
            raise Refused(message, reason="budget", status="error") from None
        except Exception as error:
            message = f"the artifact {ref!r:.100} could not be read: {said(error)}"
            raise Refused(message, reason="bad_ref", status="error") from None


async def _content(store: BlobStore, handle: Handle) -> Any:
    data = await store.resolve(handle.blob)
    if handle.kind == "bytes":
        return data
    if handle.kind == "text":
        return await text_of(data)
    if len(data) > OFF_LOOP:
        return await run_in_thread(decode, data)
    return decode(data)
