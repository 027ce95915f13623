"""What a tool returned, made fit to carry: small values inline, large ones by reference.

Text and structured content are measured apart. The value that the script gets
(structured content if there is any, else text) is offloaded with its ref; the
other is cut to a preview. Media become files. Whatever happens here, the tool has
run: shaping never turns its success into an error.
"""

from __future__ import annotations

import codecs
import logging
import os
from pathlib import Path
from typing import Any, Literal, cast

from substrate.agents.tools.deadline import STEP_S, DeadlineExceededError, OnLate, run_bounded
from substrate.agents.tools.identifiers import identifier_of
from substrate.agents.tools.media import sniff, workspace_name
from substrate.agents.tools.session import InvokerSession
from substrate.agents.tools.shown import clean, cut, preview, said
from substrate.agents.tools.threads import run_in_thread
from substrate.kernel.content import (
    AudioBlock,
    ContentBlock,
    FileBlock,
    ImageBlock,
    JsonBlock,
    MediaBlock,
    TextBlock,
)
from substrate.kernel.sandbox import MEDIA_ROOT
from substrate.kernel.secrets import hide
from substrate.kernel.tools.chain import ChainFile, InvocationResult
from substrate.kernel.tools.tools import ToolExecutionResult
from substrate.kernel.values import encode, json_text, plain

__all__ = ["bytes_of", "shape_result", "short_result", "text_of", "unshaped"]

_OFF_LOOP = 1024 * 1024
_NUMBERS = (int, bool, float)
_SLICE = 256 * 1024
_ONE_COPY = 32 * 1024 * 1024  # copied in a few milliseconds

_log = logging.getLogger("substrate.invoker")


async def shape_result(
    output: ToolExecutionResult,
    tool: str,
    session: InvokerSession,
    leave: OnLate,
    secrets: frozenset[str],
    *,
    is_chain: bool = False,
) -> InvocationResult:
    """The result of a tool that ran, bounded by `max_inline_result_bytes`.

    Its value is whole; its text and preview, which are shown, are without `secrets`.
    """
    shaper = _Shaper(identifier_of(tool), session, leave, secrets, is_chain=is_chain)
    text = clean(output.text)
    if _is_wide(output.structured_content) or any(map(_is_wide_block, output.content)):
        structured, rest = await run_in_thread(_structured, output)
    else:
        structured, rest = _structured(output)
    status = "error" if output.is_error else "ok"
    result = InvocationResult(
        status=status,
        reason="tool_error" if output.is_error else None,
        ran="yes",
        text=text,
        structured=structured,
        empty=structured is None and not output.content,
    )
    if rest or shaper.is_large(text) or structured is not None:
        result = await shaper.shape(result, rest)
    return result


def short_result(output: ToolExecutionResult, session: InvokerSession) -> InvocationResult | None:
    """The result of a tool that returned one short text or number; None for every other."""
    value = output.structured_content
    if output.is_error:
        return None
    if not output.content and type(value) in _NUMBERS:
        return InvocationResult(status="ok", ran="yes", text=json_text(value), structured=value)
    if len(output.content) != 1 or value is not None:
        return None
    block = output.content[0]
    if not isinstance(block, TextBlock) or not block.text.isascii():
        return None
    if len(block.text) > session.policy.max_inline_result_bytes:
        return None
    return InvocationResult(status="ok", ran="yes", text=block.text)


def unshaped(
    output: ToolExecutionResult, error: Exception, session: InvokerSession
) -> InvocationResult:
    """The result of a tool that ran and returned what cannot be carried."""
    text = f"(the tool ran; what it returned cannot be carried: {said(error)})"
    text = cut(text, max(session.policy.max_inline_result_bytes, len("(the tool ran)")))
    return InvocationResult(
        status="error" if output.is_error else "ok",
        reason="tool_error" if output.is_error else None,
        ran="yes",
        text=text,
    )


def _structured(output: ToolExecutionResult) -> tuple[Any, list[ContentBlock]]:
    """The structured content in plain form, and the blocks that are no text."""
    rest: list[ContentBlock] = [
        block for block in output.content if not isinstance(block, TextBlock)
    ]
    value = output.structured_content
    if value is None and len(rest) == 1 and isinstance(rest[0], JsonBlock):
        value, rest = rest[0].value, []
    if value is None:
        return None, rest
    try:
        return plain(value), rest
    except BaseException as error:  # of whatever objects lie in it
        return f"(the tool's value has no plain form: {clean(said(error))[:300]})", rest


_WIDE = 1000


def _is_wide(value: Any) -> bool:
    """Whether a walk over a value may take long: many members, or one that has many."""
    if not isinstance(value, dict | list | tuple):
        return False
    if isinstance(value, dict):
        members = list(cast("dict[Any, Any]", value).values())
    else:
        members = cast("list[Any]", value)
    return len(members) > _WIDE or any(
        isinstance(member, dict | list | tuple) and len(cast("list[Any]", member)) > _WIDE
        for member in members
    )


def _is_wide_block(block: ContentBlock) -> bool:
    return isinstance(block, JsonBlock) and _is_wide(block.value)


class _Shaper:
    """One result on its way to the caller."""

    def __init__(
        self,
        identifier: str,
        session: InvokerSession,
        leave: OnLate,
        secrets: frozenset[str],
        *,
        is_chain: bool,
    ) -> None:
        self._secrets = secrets
        self._identifier = identifier
        self._session = session
        self._leave = leave
        self._limit = session.policy.max_inline_result_bytes
        # what a model reads of a chain was bounded by the chain itself
        self._most_text = session.policy.max_output_bytes if is_chain else self._limit

    def is_large(self, text: str) -> bool:
        return len(text) > self._limit or (not text.isascii() and len(text.encode()) > self._limit)

    async def shape(self, result: InvocationResult, rest: list[ContentBlock]) -> InvocationResult:
        text, structured = result.text, result.structured
        ref: str | None = None
        shown: str | None = None
        if structured is not None:
            structured, ref, shown = await self._shape_structured(structured)
            text = self._beside(text, structured)
        elif self.is_large(text):
            text, ref, shown = await self._shape_text(text)
        files, kept = await self._shape_media(rest)
        return InvocationResult(
            status=result.status,
            reason=result.reason,
            ran=result.ran,
            text=text,
            structured=structured,
            preview=shown,
            artifact_ref=ref,
            files=files,
            content=kept,
            empty=result.empty,
        )

    def _beside(self, text: str, structured: Any) -> str:
        """The text that stands beside structured content: bounded, never missing."""
        if self._session.store is not None and self.is_large(text):
            return cut(text, self._most_text)
        if text or structured is None:
            return text
        shown = hide(structured, self._secrets)
        return json_text(shown) if self._session.store is None else preview_json(shown, self._limit)

    async def _shape_structured(self, value: Any) -> tuple[Any, str | None, str | None]:
        try:
            data = encode(value)
        except (ValueError, RecursionError):  # lone surrogates in it
            value = _cleaned(value)
            data = encode(value)
        if len(data) <= self._limit or self._no_store():
            return value, None, None
        if len(data) > _OFF_LOOP:
            shown = await run_in_thread(self._previewed, value)
        else:
            shown = self._previewed(value)
        ref, failed = await self._offload(data, "json", "application/json", len(data))
        return None, ref, self._noted(shown, failed)

    async def _shape_text(self, text: str) -> tuple[str, str | None, str | None]:
        if self._no_store():
            return text, None, None
        data = await bytes_of(text)
        shown = cut(text[: self._limit + 1], self._limit, len(data))
        ref, failed = await self._offload(data, "text", "text/plain; charset=utf-8", len(data))
        shown = self._noted(shown, failed)
        return shown, ref, shown

    def _noted(self, shown: str, failed: str | None) -> str:
        if failed is None:
            return shown
        return cut(f"[only this preview: {failed}] {shown}", self._limit)

    def _previewed(self, value: Any) -> str:
        return preview(hide(value, self._secrets), self._limit)

    def _no_store(self) -> bool:
        if self._session.store is not None:
            return False
        if not self._session.warned:
            self._session.warned = True
            _log.warning("there is no artifact store: large results are carried whole")
        return True

    async def _offload(
        self, data: bytes, kind: Literal["text", "json", "bytes"], media_type: str, size: int
    ) -> tuple[str | None, str | None]:
        """The ref of what was stored, or why it was not."""
        session = self._session

        async def put() -> str:
            store = session.store
            assert store is not None
            blob = await store.put(data, media_type)
            return await session.issue(blob, kind, media_type, size)

        try:
            return await self._bounded(put()), None
        except DeadlineExceededError:
            failed = f"the artifact store gave no answer within {STEP_S:g}s"
        except Exception as error:  # the tool has run: its success stands
            failed = f"the artifact store failed ({type(error).__name__})"
        _log.warning("a result of %s was not stored: %s", self._identifier, failed)
        return None, failed

    async def _bounded(self, coro: Any) -> str:
        return await run_bounded(coro, STEP_S, self._leave)

    async def _shape_media(
        self, rest: list[ContentBlock]
    ) -> tuple[tuple[ChainFile, ...], tuple[ContentBlock, ...]]:
        files: list[ChainFile] = []
        kept: list[ContentBlock] = []
        for block in rest:
            if isinstance(block, ImageBlock | AudioBlock | FileBlock) and block.data is not None:
                file = await self._file(block, bytes(block.data))
                files.append(file)
                if file.artifact_ref is None:  # its bytes lie nowhere else
                    kept.append(block)
            else:
                kept.append(block)
        return tuple(files), tuple(kept)

    async def _file(self, block: MediaBlock, data: bytes) -> ChainFile:
        session = self._session
        found = sniff(data, block.media_type)
        name = workspace_name(self._identifier, session.media_count, found.extension)
        session.media_count += 1
        ref: str | None = None
        if session.store is not None:
            ref, _ = await self._offload(data, "bytes", found.media_type, len(data))
        if session.media_root is not None:
            try:
                await run_in_thread(_write, Path(session.media_root) / name, data)
            except OSError as error:  # the tool has run: its success stands
                _log.warning("a media file could not be written: %s", error.strerror)
        return ChainFile(f"{MEDIA_ROOT}/{name}", found.media_type, ref)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def preview_json(value: Any, limit: int) -> str:
    """Strict JSON of a value where it fits, else a preview of it."""
    text = json_text(value)
    return text if len(text.encode()) <= limit else preview(value, limit)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(k): _cleaned(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


async def bytes_of(text: str) -> bytes:
    """UTF-8 of a text; a long one off the loop and in slices, since encoding holds the interpreter."""
    if len(text) <= _OFF_LOOP:
        return text.encode()
    return await run_in_thread(_encode_slices, text)


def _encode_slices(text: str) -> bytes:
    if len(text) <= _ONE_COPY and text.isascii():
        return text.encode()  # one copy of memory
    return b"".join(text[start : start + _SLICE].encode() for start in range(0, len(text), _SLICE))


async def text_of(data: bytes) -> str:
    """The text of UTF-8 bytes; a long one off the loop and in slices."""
    if len(data) <= _OFF_LOOP:
        return data.decode()
    return await run_in_thread(_decode_slices, data)


def _decode_slices(data: bytes) -> str:
    if len(data) <= _ONE_COPY and data.isascii():
        return data.decode("ascii")
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(data)
    parts = [decoder.decode(view[start : start + _SLICE]) for start in range(0, len(data), _SLICE)]
    return "".join(parts) + decoder.decode(b"", final=True)
