"""What a script asks of its artifacts, read from method calls that Monty hands over."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pydantic_monty as monty

from substrate.capabilities.sandboxes.monty_values import ARTIFACTS, from_guest
from substrate.kernel.sandbox import ArtifactPut, ArtifactRead

__all__ = ["asked"]


def asked(
    snapshot: monty.FunctionSnapshot, handles: Mapping[uuid.UUID, monty.ClassInstance]
) -> ArtifactRead | ArtifactPut:
    """What a method call asks for; the guest is not trusted to have checked anything."""
    method, call_id, object_id = snapshot.function_name, snapshot.call_id, snapshot.object_id
    args, kwargs = snapshot.args, dict(snapshot.kwargs)
    if object_id == ARTIFACTS.id and method == "put":
        data, media_type = _bound(args, kwargs, {"data": _MISSING, "media_type": None})
        if data is _MISSING or not isinstance(media_type, str | None):
            msg = "artifacts.put(data, media_type=None) takes the data and a text"
            raise TypeError(msg)
        return ArtifactPut(id=call_id, data=from_guest(data, handles), media_type=media_type)
    handle = handles.get(object_id) if object_id is not None else None
    if handle is None or method not in ("text", "lines"):
        msg = f"there is no method {method!r:.50}"
        raise AttributeError(msg)
    start, stop = _bound(args, kwargs, {"start": 0, "stop": None})
    if type(start) is not int or not (stop is None or type(stop) is int):
        msg = f"{method}(start=0, stop=None) takes whole numbers"
        raise TypeError(msg)
    unit = "text" if method == "text" else "lines"
    return ArtifactRead(id=call_id, ref=handle.value.ref, unit=unit, start=start, stop=stop)


_MISSING = object()


def _bound(args: tuple[Any, ...], kwargs: dict[str, Any], known: dict[str, Any]) -> list[Any]:
    placed = dict(zip(known, args, strict=False))
    if len(args) > len(known) or placed.keys() & kwargs.keys() or kwargs.keys() - known.keys():
        msg = f"takes {', '.join(known)}"
        raise TypeError(msg)
    return list({**known, **placed, **kwargs}.values())
