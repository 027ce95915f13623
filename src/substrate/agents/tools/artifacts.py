"""Artifacts as a script uses them: ranges of what stayed outside, and new ones of its own.

Every ref is looked up in the session's scope, as it is for an argument of a call. What
is read at once is bounded, for it crosses into the script's memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, cast

from substrate.agents.tools.session import Handle, InvokerSession
from substrate.agents.tools.shaping import bytes_of
from substrate.agents.tools.shown import preview
from substrate.agents.tools.threads import run_in_thread
from substrate.kernel.blobs import BlobStore
from substrate.kernel.sandbox import Artifact
from substrate.kernel.values import decode, encode, json_text, plain

__all__ = ["MOST_PUT_IN_ALL", "MOST_READ", "put_artifact", "read_lines", "read_text"]

MOST_READ = 256 * 1024
"""Bytes that one read gives at most."""

MOST_PUT_IN_ALL = 256 * 1024 * 1024
"""Bytes that one script may make into artifacts."""

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
    if stop is not None and stop <= start:
        return []
    wanted = None if stop is None else stop - start
    skip, held = start, b""
    async for chunk in _chunks(session, handle, store):
        rest = chunk
        if skip:
            passed = rest.count(_END)
            if passed < skip:
                skip -= passed
                continue
            rest, skip = rest.split(_END, skip)[-1], 0
        held += rest
        if wanted is not None and held.count(_END) >= wanted:
            held = _END.join(held.split(_END, wanted)[:wanted]) + _END
            break
        _require_room(held)
    _require_room(held)
    lines = held.removesuffix(_END).decode().split("\n") if held else []
    return [line.removesuffix("\r") for line in lines]


_END = b"\n"


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
        content, shown = await run_in_thread(_encoded, data)
    if len(content) > _MOST_PUT:
        msg = f"{len(content)} bytes are more than the {_MOST_PUT} that an artifact may have"
        raise ValueError(msg)
    session.put_bytes += len(content)
    if session.put_bytes > MOST_PUT_IN_ALL:
        msg = f"the artifacts of one script may have {MOST_PUT_IN_ALL} bytes together, not more"
        raise ValueError(msg)
    media_type = media_type or _MEDIA_TYPES[kind]
    blob = await session.store.put(content, media_type)
    ref = await session.issue(blob, kind, media_type, len(content))
    return Artifact(ref=ref, preview=shown, size=len(content), media_type=media_type)


def _encoded(data: object) -> tuple[bytes, str]:
    value = plain(data)
    return encode(value), preview(value, 200)


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
        session.read_last = (handle.ref, await run_in_thread(_as_json, data))
    return session.read_last[1]


def _as_json(data: bytes) -> bytes:
    return json_text(decode(data)).encode()


async def _chunks(
    session: InvokerSession, handle: Handle, store: BlobStore
) -> AsyncIterator[bytes]:
    """The UTF-8 of a text, in parts that are short enough to be looked through at once."""
    if handle.kind == "text":
        async for chunk in store.open(handle.blob):
            yield chunk
        return
    whole = await _json_text(session, handle, store)
    for start in range(0, len(whole), MOST_READ):
        yield whole[start : start + MOST_READ]
        await asyncio.sleep(0)


def _require_room(held: bytes) -> None:
    if len(held) > MOST_READ:
        msg = f"these lines have more than the {MOST_READ} bytes that one read gives: read fewer"
        raise ValueError(msg)


def _widened(window: bytes, start: int, end: int) -> bytes:
    """From `start` back and from `end` on, until neither splits a code point."""
    while start > 0 and _continues(window, start):
        start -= 1
    while end < len(window) and _continues(window, end):
        end += 1
    return window[start:end]


def _continues(window: bytes, at: int) -> bool:
    return at < len(window) and window[at] >> 6 == _CONTINUATION
