"""What a media file is, told from its first bytes, and what it is called in the workspace.

A declared media type is a claim of whoever made the data. The types that we vouch
for stand in one table of literal signatures; what is not among them is text if it
is UTF-8, else `application/octet-stream`. A claim decides only between types that
look alike from outside (an `.xlsx` is a zip, a `.csv` is text).
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple, TypeAlias

import msgspec

__all__ = ["Sniffed", "sniff", "workspace_name"]


class Sniffed(NamedTuple):
    """A media type without parameters, and the file extension that goes with it, without dot."""

    media_type: str
    extension: str


def sniff(data: bytes, declared: str | None) -> Sniffed:
    """What `data` is. `declared` is believed only as far as the bytes bear it out.

    Never raises. Text is valid UTF-8 that does not begin with control characters
    (in its first 1,445 bytes; white space, form feed and escape are fine). Empty
    data is text. A gigabyte of text takes 1 to 4 seconds.
    """
    claim = declared.partition(";")[0].strip().lower() if declared else ""
    for media_type, extension, parts, near in _SIGNATURES:
        if all(data.startswith(part, at) for at, part in parts) and near in data[:_NEAR_BYTES]:
            return _refined(data, claim, Sniffed(media_type, extension))
    if not _is_text(data):
        return Sniffed("application/octet-stream", "bin")
    return _text(data, claim)


def workspace_name(identifier: str, n: int, extension: str) -> str:
    """`<identifier>_<n>.<extension>`, safe as a file name on any system.

    Of the identifier at most 40 characters are kept; what is not an ASCII letter,
    digit or `_` becomes `_`. An extension loses all but ASCII letters and digits.
    """
    stem = re.sub(r"[^A-Za-z0-9_]", "_", identifier[:_STEM_CHARS]) or "tool"
    return f"{stem}_{n}.{re.sub(r'[^A-Za-z0-9]', '', extension) or 'bin'}"


_STEM_CHARS = 40
_NEAR_BYTES = 64
_HEADER_BYTES = 1445  # how far MIME section 5.2 looks for what is no text
_STEP_BYTES = 1 << 20

_Signature: TypeAlias = "tuple[str, str, tuple[tuple[int, bytes], ...], bytes]"

# Media type, extension, the bytes that stand at an offset, the bytes that stand somewhere
# in the first 64. First match wins. "MIME" is the WHATWG MIME Sniffing Standard, section 6.
# A signature that text could begin with is made longer than its source has it.
_SIGNATURES: tuple[_Signature, ...] = (
    # Images.
    ("image/png", "png", ((0, b"\x89PNG\r\n\x1a\n"),), b""),  # MIME 6.1; W3C PNG 5.2
    ("image/jpeg", "jpg", ((0, b"\xff\xd8\xff"),), b""),  # MIME 6.1
    ("image/gif", "gif", ((0, b"GIF87a"),), b""),  # MIME 6.1
    ("image/gif", "gif", ((0, b"GIF89a"),), b""),  # MIME 6.1
    ("image/webp", "webp", ((0, b"RIFF"), (8, b"WEBPVP")), b""),  # MIME 6.1; RFC 9649
    # MIME 6.1 has "BM" alone; the four reserved bytes are zero: BITMAPFILEHEADER.
    ("image/bmp", "bmp", ((0, b"BM"), (6, b"\0\0\0\0")), b""),
    ("image/x-icon", "ico", ((0, b"\0\0\1\0"),), b""),  # MIME 6.1
    ("image/tiff", "tiff", ((0, b"II*\0"),), b""),  # TIFF 6.0, section 2
    ("image/tiff", "tiff", ((0, b"MM\0*"),), b""),  # TIFF 6.0, section 2
    ("image/avif", "avif", ((0, b"\0\0"), (4, b"ftypavif")), b""),  # AV1 Image File Format
    ("image/heic", "heic", ((0, b"\0\0"), (4, b"ftypheic")), b""),  # ISO/IEC 23008-12
    # Sound.
    ("audio/mpeg", "mp3", ((0, b"ID3\2"),), b""),  # MIME 6.2 "ID3"; ID3v2.2 3.1
    ("audio/mpeg", "mp3", ((0, b"ID3\3"),), b""),  # MIME 6.2 "ID3"; ID3v2.3 3.1
    ("audio/mpeg", "mp3", ((0, b"ID3\4"),), b""),  # MIME 6.2 "ID3"; ID3v2.4 3.1
    ("audio/mpeg", "mp3", ((0, b"\xff\xfb"),), b""),  # ISO/IEC 11172-3: MPEG-1 layer III
    ("audio/mpeg", "mp3", ((0, b"\xff\xfa"),), b""),  # the same with CRC
    ("audio/mpeg", "mp3", ((0, b"\xff\xf3"),), b""),  # ISO/IEC 13818-3: MPEG-2 layer III
    ("audio/mpeg", "mp3", ((0, b"\xff\xf2"),), b""),  # the same with CRC
    ("audio/wav", "wav", ((0, b"RIFF"), (8, b"WAVE")), b""),  # MIME 6.2 (there audio/wave)
    ("audio/aiff", "aiff", ((0, b"FORM"), (8, b"AIFF")), b""),  # MIME 6.2
    ("audio/midi", "mid", ((0, b"MThd\0\0\0\6"),), b""),  # MIME 6.2
    ("audio/flac", "flac", ((0, b"fLaC\0"),), b""),  # RFC 9639
    ("audio/flac", "flac", ((0, b"fLaC\x80"),), b""),  # the same, no further metadata
    ("audio/mp4", "m4a", ((0, b"\0\0"), (4, b"ftypM4A ")), b""),  # MP4 registration authority
    # Video and what holds either.
    ("application/ogg", "ogg", ((0, b"OggS\0"),), b""),  # MIME 6.2; RFC 3533 section 6
    ("video/quicktime", "mov", ((0, b"\0\0"), (4, b"ftypqt  ")), b""),  # QuickTime File Format
    ("video/mp4", "mp4", ((0, b"\0\0"), (4, b"ftyp")), b""),  # MIME 6.2.1; ISO/IEC 14496-12 4.3
    ("video/webm", "webm", ((0, b"\x1a\x45\xdf\xa3"),), b"webm"),  # MIME 6.2.2; RFC 8794
    ("video/matroska", "mkv", ((0, b"\x1a\x45\xdf\xa3"),), b"matroska"),  # RFC 9559
    ("video/x-msvideo", "avi", ((0, b"RIFF"), (8, b"AVI ")), b""),  # MIME 6.2 (video/avi)
    # Documents and data.
    ("application/pdf", "pdf", ((0, b"%PDF-"),), b""),  # MIME 7.1; ISO 32000-2 7.5.2
    (
        "application/vnd.sqlite3",
        "sqlite",
        ((0, b"SQLite format 3\0"),),
        b"",
    ),  # SQLite database header
    ("application/vnd.apache.parquet", "parquet", ((0, b"PAR1\x15"),), b""),  # Parquet format
    ("application/vnd.apache.arrow.file", "arrow", ((0, b"ARROW1\0\0"),), b""),  # Arrow IPC
    # Archives.
    ("application/zip", "zip", ((0, b"PK\3\4"),), b""),  # MIME 6.4; PKWARE APPNOTE 4.3.7
    ("application/zip", "zip", ((0, b"PK\5\6"),), b""),  # an empty one: APPNOTE 4.3.16
    ("application/gzip", "gz", ((0, b"\x1f\x8b\x08"),), b""),  # MIME 6.4; RFC 1952 2.3.1
    ("application/x-bzip2", "bz2", ((0, b"BZh"), (4, b"1AY&SY")), b""),  # bzip2 block magic
    ("application/x-xz", "xz", ((0, b"\xfd7zXZ\0"),), b""),  # The .xz File Format 2.1.1.1
    ("application/zstd", "zst", ((0, b"\x28\xb5\x2f\xfd"),), b""),  # RFC 8878 section 3.1.1
    ("application/x-7z-compressed", "7z", ((0, b"7z\xbc\xaf\x27\x1c"),), b""),  # 7zFormat.txt
    ("application/x-tar", "tar", ((257, b"ustar\0"),), b""),  # POSIX.1-2001 pax, ustar
    ("application/x-tar", "tar", ((257, b"ustar  \0"),), b""),  # the same by GNU tar
)

# Sniffed type → claimed types that look like it from outside, with their extension
# and the bytes that must be found somewhere in data of that type.
_REFINED: dict[str, dict[str, tuple[str, bytes]]] = {
    "application/zip": {
        # ECMA-376 part 2 (package) and part 1 (names of the main parts).
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": (
            "docx",
            b"word/document",
        ),
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": (
            "xlsx",
            b"xl/workbook",
        ),
        "application/vnd.openxmlformats-officedocument.presentationml.presentation": (
            "pptx",
            b"ppt/presentation",
        ),
        # OpenDocument packages and EPUB OCF: the type stands in the file itself.
        "application/vnd.oasis.opendocument.text": (
            "odt",
            b"mimetypeapplication/vnd.oasis.opendocument.text",
        ),
        "application/vnd.oasis.opendocument.spreadsheet": (
            "ods",
            b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet",
        ),
        "application/vnd.oasis.opendocument.presentation": (
            "odp",
            b"mimetypeapplication/vnd.oasis.opendocument.presentation",
        ),
        "application/epub+zip": ("epub", b"mimetypeapplication/epub+zip"),
    },
    "application/ogg": {"audio/ogg": ("ogg", b""), "video/ogg": ("ogv", b"")},  # RFC 5334
    "video/mp4": {"audio/mp4": ("m4a", b"")},  # RFC 4337
    "video/webm": {"audio/webm": ("weba", b"")},  # WebM Container Guidelines
}

# Extensions of text that may be claimed; any other `text/…` is kept with "txt".
_TEXT_EXTENSIONS = {
    "text/calendar": "ics",
    "text/css": "css",
    "text/csv": "csv",
    "text/html": "html",
    "text/javascript": "js",
    "text/markdown": "md",
    "text/tab-separated-values": "tsv",
    "text/xml": "xml",
}

_TEXT_TYPE = re.compile(r"text/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")  # RFC 6838 section 4.2
# "Binary data bytes", MIME section 3, which leaves escape to the colours of terminals.
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def _refined(data: bytes, claim: str, found: Sniffed) -> Sniffed:
    """The claimed type where it is another name or a kind of the one found."""
    extension, evidence = _REFINED.get(found.media_type, {}).get(claim, ("", b""))
    return Sniffed(claim, extension) if extension and evidence in data else found


def _text(data: bytes, claim: str) -> Sniffed:
    if claim == "application/json" and _is_json(data):
        return Sniffed(claim, "json")
    if _TEXT_TYPE.fullmatch(claim):
        return Sniffed(claim, _TEXT_EXTENSIONS.get(claim, "txt"))
    return Sniffed("text/plain", "txt")


def _is_text(data: bytes) -> bool:
    if _BINARY.search(data, 0, _HEADER_BYTES):
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(data), _STEP_BYTES):  # never a whole second copy
            decoder.decode(data[at : at + _STEP_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)  # walks over it, builds nothing
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
