"""What a media file is told to be, and what it is called."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import sqlite3
import struct
import tarfile
import wave
import zipfile
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.agents.tools.media import sniff, workspace_name

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels)


def wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(100))
    return file.getvalue()


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "content")
    return file.getvalue()


def tar(kind: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        archive.addfile(tarfile.TarInfo("name"))
    return file.getvalue()


def sqlite() -> bytes:
    database = sqlite3.connect(":memory:")
    try:
        database.execute("create table t (x)")
        return database.serialize()
    finally:
        database.close()


MADE: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "png": (png, "image/png", "png"),
    "wav": (wav, "audio/wav", "wav"),
    "zip": (lambda: zipped("a"), "application/zip", "zip"),
    "empty zip": (zipped, "application/zip", "zip"),
    "gzip": (lambda: gzip.compress(b"content"), "application/gzip", "gz"),
    "bzip2": (lambda: bz2.compress(b"content"), "application/x-bzip2", "bz2"),
    "xz": (lambda: lzma.compress(b"content"), "application/x-xz", "xz"),
    "pax tar": (lambda: tar(tarfile.PAX_FORMAT), "application/x-tar", "tar"),
    "gnu tar": (lambda: tar(tarfile.GNU_FORMAT), "application/x-tar", "tar"),
    "sqlite": (sqlite, "application/vnd.sqlite3", "sqlite"),
}

BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "image/jpeg", "jpg"),
    (b"GIF87a\1\0\1\0", "image/gif", "gif"),
    (b"GIF89a\1\0\1\0", "image/gif", "gif"),
    (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp", "webp"),
    (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "image/bmp", "bmp"),
    (b"\0\0\1\0\1\0\x10\x10", "image/x-icon", "ico"),
    (b"II*\0\x08\0\0\0", "image/tiff", "tiff"),
    (b"MM\0*\0\0\0\x08", "image/tiff", "tiff"),
    (b"\0\0\0\x20ftypavif\0\0\0\0", "image/avif", "avif"),
    (b"\0\0\0\x18ftypheic\0\0\0\0", "image/heic", "heic"),
    (b"ID3\4\0\0\0\0\0\x0a", "audio/mpeg", "mp3"),
    (b"\xff\xfb\x90\x64\0\0", "audio/mpeg", "mp3"),
    (b"FORM\0\0\0\x2eAIFFCOMM", "audio/aiff", "aiff"),
    (b"MThd\0\0\0\6\0\1", "audio/midi", "mid"),
    (b"fLaC\0\0\0\x22", "audio/flac", "flac"),
    (b"\0\0\0\x1cftypM4A \0\0\0\0", "audio/mp4", "m4a"),
    (b"OggS\0\2\0\0\0\0", "application/ogg", "ogg"),
    (b"\0\0\0\x14ftypqt  \0\0\0\0", "video/quicktime", "mov"),
    (b"\0\0\0\x20ftypisom\0\0\2\0", "video/mp4", "mp4"),
    (b"\x1a\x45\xdf\xa3\x9fB\x86\x81\1B\xf7\x81\1B\x82\x84webm", "video/webm", "webm"),
    (b"\x1a\x45\xdf\xa3\xa3B\x86\x81\1B\x82\x88matroska", "video/matroska", "mkv"),
    (b"RIFF\0\1\0\0AVI LIST", "video/x-msvideo", "avi"),
    (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "application/pdf", "pdf"),
    (b"PAR1\x15\x04\x15\x10", "application/vnd.apache.parquet", "parquet"),
    (b"ARROW1\0\0\xff\xff\xff\xff", "application/vnd.apache.arrow.file", "arrow"),
    (b"\x28\xb5\x2f\xfd\x24\x07", "application/zstd", "zst"),
    (b"7z\xbc\xaf\x27\x1c\0\4", "application/x-7z-compressed", "7z"),
)


@pytest.mark.req("artifacts.media")
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("declared", [None, "", "text/plain", "image/jpeg", "nonsense"])
def test_a_real_file_is_told_by_its_bytes_whatever_was_declared(
    name: str, declared: str | None
) -> None:
    build, media_type, extension = MADE[name]
    assert sniff(build(), declared) == (media_type, extension)


@pytest.mark.req("artifacts.media")
@pytest.mark.parametrize(("data", "media_type", "extension"), BEGINNINGS)
def test_a_known_beginning_gives_its_type_and_corrects_a_wrong_one(
    data: bytes, media_type: str, extension: str
) -> None:
    assert sniff(data, None) == (media_type, extension)
    assert sniff(data + bytes(100), "image/png") == (media_type, extension)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "BMW sales in 2024",
        "ID3 tags are a nuisance",
        "MM* and II*",
        "PK",
        "fLaC is a format",
        "GIF",
        "RIFF is short for it",
        "PAR1 is a file",
        "BZh91 is a number",
        "Grüße aus Köln 🌍",
        "\ufeffwith a byte order mark",
        "\x1b[31mred\x1b[0m\f\t\r\n",
        "<svg xmlns='http://www.w3.org/2000/svg'/>",
    ],
)
def test_utf8_text_is_text_though_it_begins_like_a_signature_or_claims_to_be_an_image(
    text: str,
) -> None:
    for declared in (None, "image/png", "image/svg+xml", "application/octet-stream"):
        assert sniff(text.encode(), declared) == ("text/plain", "txt")


@pytest.mark.parametrize(
    ("declared", "media_type", "extension"),
    [
        ("text/csv", "text/csv", "csv"),
        ("Text/HTML; charset=utf-8", "text/html", "html"),
        (" text/markdown ", "text/markdown", "md"),
        ("text/x-python", "text/x-python", "txt"),
        ("text/../../etc", "text/plain", "txt"),
        ("text/", "text/plain", "txt"),
        ("text/a b", "text/plain", "txt"),
        ("application/json", "text/plain", "txt"),
        ("application/json5", "text/plain", "txt"),
    ],
)
def test_a_declared_text_type_is_kept_where_it_is_well_formed(
    declared: str, media_type: str, extension: str
) -> None:
    assert sniff(b"a,b\n1,2\n", declared) == (media_type, extension)


@pytest.mark.parametrize("text", ['{"a": 1}', "[1, 2]\n", "null", " 3.5 "])
def test_declared_json_is_kept_where_it_is_json(text: str) -> None:
    assert sniff(text.encode(), "application/json; charset=utf-8") == ("application/json", "json")
    assert sniff(text.encode(), None) == ("text/plain", "txt")


@pytest.mark.parametrize("text", ['{"a": 1', "", "hello", "[" * 100_000])
def test_declared_json_that_is_none_is_plain_text(text: str) -> None:
    assert sniff(text.encode(), "application/json") == ("text/plain", "txt")


@pytest.mark.req("artifacts.media")
@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"text\0with a null",
        b"\xff\xfeh\0i\0",
        b"caf\xe9",
        b"cut in a character \xc3",
        b"x" * (1 << 20) + b"\x80",
        b"\xed\xa0\x80",
    ],
)
def test_what_is_neither_known_nor_utf8_is_octets(data: bytes) -> None:
    for declared in (None, "text/plain", "application/json", "image/png"):
        assert sniff(data, declared) == ("application/octet-stream", "bin")


def test_a_character_across_the_border_of_two_steps_is_no_fault() -> None:
    assert sniff(b"x" * ((1 << 20) - 1) + "é".encode(), None) == ("text/plain", "txt")


def test_an_office_file_keeps_its_declared_type_where_its_parts_are_there() -> None:
    workbook = zipped("[Content_Types].xml", "xl/workbook.xml")
    assert sniff(workbook, XLSX) == (XLSX, "xlsx")
    assert sniff(workbook, None) == ("application/zip", "zip")
    assert sniff(zipped("readme.txt"), XLSX) == ("application/zip", "zip")
    assert sniff(b"a,b\n", XLSX) == ("text/plain", "txt")


@pytest.mark.parametrize(
    ("data", "declared", "extension"),
    [
        (b"OggS\0\2", "audio/ogg", "ogg"),
        (b"OggS\0\2", "video/ogg", "ogv"),
        (b"\0\0\0\x20ftypisom", "audio/mp4", "m4a"),
        (b"\x1a\x45\xdf\xa3\x9fB\x82\x84webm", "audio/webm", "weba"),
    ],
)
def test_a_container_keeps_the_declared_kind_of_its_content(
    data: bytes, declared: str, extension: str
) -> None:
    assert sniff(data, declared) == (declared, extension)


@given(st.binary(max_size=300), st.none() | st.text(max_size=30))
def test_any_bytes_and_any_claim_give_a_plain_type_and_extension(
    data: bytes, declared: str | None
) -> None:
    found = sniff(data, declared)
    assert re.fullmatch(r"[a-z]+/[a-z0-9!#$&^_.+-]+", found.media_type)
    assert re.fullmatch(r"[a-z0-9]+", found.extension)


@pytest.mark.parametrize(
    ("identifier", "n", "extension", "name"),
    [
        ("plot", 0, "png", "plot_0.png"),
        ("get_image2", 12, "jpg", "get_image2_12.jpg"),
        ("größe", 1, "png", "gr__e_1.png"),
        ("../../etc/passwd", 0, "txt", "______etc_passwd_0.txt"),
        ("x" * 100, 3, "wav", "x" * 40 + "_3.wav"),
        ("", 0, "", "tool_0.bin"),
        ("plot", 0, ".PNG/..", "plot_0.PNG"),
    ],
)
def test_a_workspace_name_tells_tool_number_and_type(
    identifier: str, n: int, extension: str, name: str
) -> None:
    assert workspace_name(identifier, n, extension) == name


@given(st.text(max_size=80), st.integers(0, 10**6), st.text(max_size=20))
def test_a_workspace_name_is_one_safe_path_segment(identifier: str, n: int, extension: str) -> None:
    name = workspace_name(identifier, n, extension)
    assert re.fullmatch(r"[A-Za-z0-9_]{1,40}_[0-9]+\.[A-Za-z0-9]+", name)
