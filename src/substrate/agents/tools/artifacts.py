"""Artifacts as a script uses them: ranges of what stayed outside, and new ones of its own.

Every ref is looked up in the session's scope, as it is for an argument of a call. What
is read at once is bounded, for it crosses into the script's memory.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator
from typing import Literal, cast

from substrate.agents.tools.session import Handle, InvokerSession
from substrate.agents.tools.shaping import bytes_of
from substrate.agents.tools.shown import preview
from substrate.kernel.blobs import BlobStore
from substrate.kernel.sandbox import Artifact
from substrate.kernel.values import decode, encode, json_text, plain

__all__ = ["MOST_READ", "put_artifact", "read_lines", "read_text"]

MOST_READ = 256 * 1024
"""Bytes that one read gives at most."""

_MOST_PUT = 64 * 1024 * 1024
_LONGEST = 4  # bytes of a code point in UTF-8
_CONTINUATION = 0b10  # how every byte of it but the first begins


async def read_text(
    session: InvokerSession, ref: str, start: int = 0, stop: int | None = None
) -> str:
    """The text from byte `start` up to byte `stop` of the UTF-8, widened to whole code points.

    Raises ValueError for a ref that the scope does not hold, for what is no text, for a
    negative offset and for more than `MOST_READ` bytes.
    """
    handle, store = _found(session, ref)
    if start < 0 or (stop is not None and stop < 0):
        msg = "offsets are counted from the start of the artifact: they cannot be negative"
        raise ValueError(msg)
    whole = await _json_text(session, handle, store) if handle.kind == "json" else None
    size = handle.size if whole is None else len(whole)
    end = size if stop is None else min(stop, size)
    if end - start > MOST_READ:
        msg = f"{end - start} bytes are more than the {MOST_READ} that one read gives: read a part"
        raise ValueError(msg)
    if start >= end:
        return ""
    low = max(start - _LONGEST, 0)
    if whole is None:
        window = b"".join([part async for part in store.open(handle.blob, low, end + _LONGEST)])
    else:
        window = whole[low : end + _LONGEST]
    return _widened(window, start - low, end - low).decode()


async def read_lines(
    session: InvokerSession, ref: str, start: int = 0, stop: int | None = None
) -> list[str]:
    """The lines from number `start` (0 is the first) up to `stop`, without their ends.

    Raises ValueError as `read_text` does.
    """
    handle, store = _found(session, ref)
    if start < 0 or (stop is not None and stop < 0):
        msg = "lines are counted from the first: a number cannot be negative"
        raise ValueError(msg)
    lines: list[str] = []
    number, size, rest = 0, 0, ""
    decoder = codecs.getincrementaldecoder("utf-8")()
    async for text in _texts(session, handle, store, decoder):
        *ended, rest = (rest + text).split("\n")
        for line in ended:
            if start <= number and (stop is None or number < stop):
                lines.append(line.removesuffix("\r"))
                size = _room(size, line)
            number += 1
        if stop is not None and number >= stop:
            return lines
        if number >= start:
            _room(size, rest)
    if rest and start <= number:
        _room(size, rest)
        lines.append(rest.removesuffix("\r"))
    return lines


async def put_artifact(
    session: InvokerSession, data: object, media_type: str | None = None
) -> Artifact:
    """Store text, bytes or other data of a script as an artifact of its scope.

    Raises ValueError for what is no data, or more than 64 MB.
    """
    if session.store is None:
        msg = "there is no artifact store"
        raise ValueError(msg)
    kind: Literal["text", "bytes", "json"] = "json"
    content, shown = b"", ""
    if isinstance(data, str):
        kind, content, shown = "text", await bytes_of(data), data[:200]
    elif isinstance(data, bytes | bytearray | memoryview):
        kind, content = "bytes", bytes(cast("bytes", data))
        shown = f"<{len(content)} bytes>"
    else:
        value = plain(data)
        content, shown = encode(value), preview(value, 200)
    if len(content) > _MOST_PUT:
        msg = f"{len(content)} bytes are more than the {_MOST_PUT} that an artifact may have"
        raise ValueError(msg)
    media_type = media_type or _MEDIA_TYPES[kind]
    blob = await session.store.put(content, media_type)
    ref = await session.issue(blob, kind, media_type, len(content))
    return Artifact(ref=ref, preview=shown, size=len(content), media_type=media_type)


_MEDIA_TYPES = {
    "text": "text/plain; charset=utf-8",
    "bytes": "application/octet-stream",
    "json": "application/json",
}


def _found(session: InvokerSession, ref: str) -> tuple[Handle, BlobStore]:
    handle, store = session.handle(ref), session.store
    if handle is None or store is None:
        msg = f"the artifact {ref!r:.100} was not issued in this scope"
        raise ValueError(msg)
    if handle.kind == "bytes":
        msg = f"the artifact is no text but {handle.media_type}: pass it on to a tool"
        raise ValueError(msg)
    return handle, store


async def _json_text(session: InvokerSession, handle: Handle, store: BlobStore) -> bytes:
    """The JSON of structured data, made once for as long as only this one is read."""
    if session.read_last is None or session.read_last[0] != handle.ref:
        data = await store.resolve(handle.blob)
        session.read_last = (handle.ref, await asyncio.to_thread(_as_json, data))
    return session.read_last[1]


def _as_json(data: bytes) -> bytes:
    return json_text(decode(data)).encode()


async def _texts(
    session: InvokerSession,
    handle: Handle,
    store: BlobStore,
    decoder: codecs.IncrementalDecoder,
) -> AsyncIterator[str]:
    if handle.kind == "json":
        yield (await _json_text(session, handle, store)).decode()
        return
    async for chunk in store.open(handle.blob):
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def _room(size: int, line: str) -> int:
    size += len(line.encode()) + 1
    if size > MOST_READ:
        msg = f"these lines have more than the {MOST_READ} bytes that one read gives: read fewer"
        raise ValueError(msg)
    return size


def _widened(window: bytes, start: int, end: int) -> bytes:
    """From `start` back and from `end` on, until neither splits a code point."""
    while start > 0 and _continues(window, start):
        start -= 1
    while end < len(window) and _continues(window, end):
        end += 1
    return window[start:end]


def _continues(window: bytes, at: int) -> bool:
    return at < len(window) and window[at] >> 6 == _CONTINUATION
