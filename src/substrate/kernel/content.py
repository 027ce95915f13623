"""Content blocks: what a tool hands back besides structured data.

Every block is a frozen value. Media carry either their bytes (`data`) or a
place where they can be had (`url`); a declared `media_type` is a claim that
result shaping checks, never a fact.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

__all__ = [
    "AudioBlock",
    "ContentBlock",
    "FileBlock",
    "ImageBlock",
    "JsonBlock",
    "MediaBlock",
    "ResourceLink",
    "TextBlock",
]


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    """Text for the model and the script."""

    text: str


class ImageBlock(msgspec.Struct, frozen=True, tag="image"):
    """An image, by its bytes or by a URL."""

    data: bytes | None = None
    url: str | None = None
    media_type: str | None = None


class AudioBlock(msgspec.Struct, frozen=True, tag="audio"):
    """A sound, by its bytes or by a URL."""

    data: bytes | None = None
    url: str | None = None
    media_type: str | None = None


class FileBlock(msgspec.Struct, frozen=True, tag="file"):
    """Any other file, by its bytes, a URL or a provider's file id."""

    data: bytes | None = None
    url: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    name: str | None = None


class ResourceLink(msgspec.Struct, frozen=True, tag="resource_link"):
    """A resource that can be read elsewhere; never fetched by us."""

    uri: str
    name: str | None = None
    description: str | None = None
    media_type: str | None = None
    size: int | None = None


class JsonBlock(msgspec.Struct, frozen=True, tag="json"):
    """A JSON value that stands among the content, apart from `structured_content`."""

    value: Any


MediaBlock: TypeAlias = ImageBlock | AudioBlock | FileBlock
ContentBlock: TypeAlias = TextBlock | ImageBlock | AudioBlock | FileBlock | ResourceLink | JsonBlock
