"""What every blob store of ours does."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrate.kernel.blobs import ArtifactStream, BlobStat, BlobStore
from substrate.kernel.errors import BadRef, BlobNotFound
from substrate.storage import FileBlobStore, InMemoryBlobStore

MIB = 1 << 20
KINDS = ("memory", "files")
ABSENT = "sha256:" + "0" * 64
HOSTILE = (
    "",
    "sha256:",
    "sha256:..",
    "sha256:../../../../etc/passwd",
    "sha256:" + "../" * 21 + "a",
    "sha256:" + "A" * 64,
    "sha256:" + "0" * 63,
    "sha256:" + "0" * 65,
    "sha256:" + "0" * 64 + "\n",
    "sha256:" + "0" * 64 + ";json",
    "sha256:" + "٠" * 64,
    "sha512:" + "0" * 64,
    "/etc/passwd",
    "\0",
    "\ud800",
    "x" * 100_000,
)


def make(kind: str, folder: Path) -> BlobStore:
    return InMemoryBlobStore() if kind == "memory" else FileBlobStore(folder / "store")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return make(request.param, tmp_path)


async def stream(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def read(
    store: BlobStore, ref: str, start: int = 0, stop: int | None = None
) -> tuple[bytes, ...]:
    return tuple([chunk async for chunk in store.open(ref, start, stop)])


async def has(store: BlobStore, ref: str) -> bool:
    try:
        await store.stat(ref)
    except BlobNotFound:
        return False
    return True


def test_both_stores_fulfil_the_contract(store: BlobStore) -> None:
    assert isinstance(store, BlobStore)


@pytest.mark.req("artifacts.refs")
@pytest.mark.parametrize("data", [b"", b"a", b"hello" * 1000, bytes(3 * MIB + 1)])
def test_what_was_put_comes_back_under_the_hash_of_its_content(
    store: BlobStore, data: bytes
) -> None:
    async def main() -> None:
        ref = await store.put(data, "text/plain")
        assert ref == "sha256:" + hashlib.sha256(data).hexdigest()
        assert await store.resolve(ref) == data
        assert await store.stat(ref) == BlobStat(ref=ref, size=len(data))
        assert b"".join(await read(store, ref)) == data

    asyncio.run(main())


@pytest.mark.req("artifacts.refs")
def test_equal_content_gives_an_equal_ref_however_it_comes(store: BlobStore) -> None:
    async def main() -> None:
        data = os.urandom(2 * MIB + 7)
        pieces = [data[at : at + 300_000] for at in range(0, len(data), 300_000)]
        refs = {
            await store.put(data),
            await store.put(data, "image/png"),
            await store.put(stream([data])),
            await store.put(stream([b"", *pieces, b""])),
        }
        assert len(refs) == 1
        assert await store.resolve(refs.pop()) == data

    asyncio.run(main())


def test_empty_stream_is_the_empty_blob(store: BlobStore) -> None:
    async def main() -> None:
        ref = await store.put(stream([]))
        assert ref == await store.put(b"")
        assert await store.resolve(ref) == b""
        assert await read(store, ref) == ()

    asyncio.run(main())


@pytest.mark.req("artifacts.streams")
def test_open_gives_chunks_of_at_most_one_mebibyte(store: BlobStore) -> None:
    async def main() -> None:
        ref = await store.put(bytes(2 * MIB + 5))
        assert [len(chunk) for chunk in await read(store, ref)] == [MIB, MIB, 5]
        assert [len(chunk) for chunk in await read(store, ref, 3, MIB + 4)] == [MIB, 1]

    asyncio.run(main())


def test_an_artifact_stream_can_be_read_twice_and_in_part(store: BlobStore) -> None:
    async def main() -> None:
        ref = await store.put(b"0123456789")
        artifact = ArtifactStream(store, ref, size=10, media_type="text/plain")
        assert [chunk async for chunk in artifact] == [b"0123456789"]
        assert [chunk async for chunk in artifact] == [b"0123456789"]
        assert [chunk async for chunk in artifact.read(2, 4)] == [b"23"]

    asyncio.run(main())


@pytest.mark.req("artifacts.streams")
@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=60)
@given(
    data=st.binary(max_size=200),
    start=st.integers(0, 250) | st.integers(0, 10**30),
    stop=st.none() | st.integers(0, 250) | st.integers(0, 10**30),
)
def test_a_range_is_what_a_slice_of_the_content_is(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: bytes, start: int, stop: int | None
) -> None:
    async def main() -> None:
        store = make(kind, tmp_path_factory.getbasetemp())
        ref = await store.put(data)
        assert b"".join(await read(store, ref, start, stop)) == data[start:stop]

    asyncio.run(main())


@pytest.mark.parametrize(("start", "stop"), [(-1, None), (0, -1)])
def test_a_range_that_counts_from_the_end_is_refused(
    store: BlobStore, start: int, stop: int | None
) -> None:
    async def main() -> None:
        ref = await store.put(b"content")
        with pytest.raises(ValueError, match="negative"):
            await read(store, ref, start, stop)

    asyncio.run(main())


@pytest.mark.parametrize("ref", [ABSENT, *HOSTILE], ids=lambda ref: ascii(ref)[:40])
def test_a_ref_that_was_never_put_is_not_found_and_touches_nothing(
    store: BlobStore, tmp_path: Path, ref: str
) -> None:
    async def main() -> None:
        await store.put(b"content")
        before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
        for reading in (store.resolve(ref), store.stat(ref), read(store, ref), read(store, ref, 9)):
            with pytest.raises(BlobNotFound, match="no blob"):
                await reading
        with pytest.raises(BadRef) as caught:
            await store.pin(ref, "lease")
        assert len(str(caught.value)) < 600
        await store.unpin(ref, "lease")
        after = sorted(path for path in tmp_path.rglob("*") if path.is_file())
        assert [path for path in after if path.name != "lock"] == [
            path for path in before if path.name != "lock"
        ]

    asyncio.run(main())


@pytest.mark.req("artifacts.pins")
@pytest.mark.parametrize(
    "lease", ["", "chain", "../../escape", "/etc/x", "a\0b", "\ud800", "é" * 999]
)
def test_a_pinned_blob_outlives_the_sweep_under_any_lease_name(
    store: BlobStore, lease: str
) -> None:
    async def main() -> None:
        ref = await store.put(b"content")
        await store.pin(ref, lease)
        assert await store.sweep(0) == 0
        assert await store.resolve(ref) == b"content"
        await store.unpin(ref, lease)
        await store.sweep(0)
        assert not await has(store, ref)

    asyncio.run(main())


@pytest.mark.req("artifacts.pins")
def test_a_blob_goes_with_its_last_lease_and_not_before(store: BlobStore) -> None:
    async def main() -> None:
        ref = await store.put(b"content")
        await store.pin(ref, "one")
        await store.pin(ref, "two")
        await store.unpin(ref, "one")
        await store.sweep(0)
        assert await has(store, ref)
        await store.unpin(ref, "two")
        await store.sweep(0)
        assert not await has(store, ref)

    asyncio.run(main())


def test_pinning_twice_is_pinning_once(store: BlobStore) -> None:
    async def main() -> None:
        ref = await store.put(b"content")
        await store.pin(ref, "lease")
        await store.pin(ref, "lease")
        await store.unpin(ref, "lease")
        await store.sweep(0)
        assert not await has(store, ref)

    asyncio.run(main())


def test_an_unknown_lease_unpins_nothing(store: BlobStore) -> None:
    async def main() -> None:
        pinned, loose = await store.put(b"pinned"), await store.put(b"loose")
        await store.pin(pinned, "mine")
        await store.unpin(pinned, "yours")
        await store.unpin(loose, "yours")
        assert await has(store, loose)
        assert await store.sweep(0) == 1
        assert await has(store, pinned)

    asyncio.run(main())


def test_the_last_unpin_of_another_does_not_take_what_was_just_put_again(store: BlobStore) -> None:
    async def main() -> None:
        ref = await store.put(b"shared")
        await store.pin(ref, "theirs")
        assert await store.put(b"shared") == ref
        await store.unpin(ref, "theirs")
        await store.pin(ref, "mine")
        assert await store.resolve(ref) == b"shared"

    asyncio.run(main())


def test_who_put_first_finds_his_blob_though_another_put_pinned_and_unpinned_it(
    store: BlobStore,
) -> None:
    async def main() -> None:
        ref = await store.put(b"shared")
        assert await store.put(b"shared") == ref
        await store.pin(ref, "quick")
        await store.unpin(ref, "quick")
        await store.pin(ref, "slow")
        assert await store.resolve(ref) == b"shared"
        await store.unpin(ref, "slow")
        await store.sweep(0)
        assert not await has(store, ref)

    asyncio.run(main())


def test_the_sweep_drops_what_is_old_enough_and_counts_it(store: BlobStore) -> None:
    async def main() -> None:
        assert await store.sweep(0) == 0
        refs = [await store.put(bytes([n])) for n in range(3)]
        await store.pin(refs[0], "lease")
        assert await store.sweep(3600) == 0
        assert await store.sweep(0) == 2
        assert [await has(store, ref) for ref in refs] == [True, False, False]
        assert await store.put(bytes([1])) == refs[1]
        assert await has(store, refs[1])

    asyncio.run(main())


@pytest.mark.req("artifacts.streams")
def test_a_stream_that_was_begun_is_read_to_its_end_though_the_blob_goes(store: BlobStore) -> None:
    async def main() -> None:
        data = os.urandom(3 * MIB)
        ref = await store.put(data)
        chunks = store.open(ref)
        first = await anext(chunks)
        assert await store.sweep(0) == 1
        assert first + b"".join([chunk async for chunk in chunks]) == data

    asyncio.run(main())


def test_a_stream_that_fails_leaves_nothing(store: BlobStore, tmp_path: Path) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield bytes(2 * MIB)
        raise ConnectionError("gone")

    async def main() -> None:
        with pytest.raises(ConnectionError, match="gone"):
            await store.put(failing())
        assert not list(tmp_path.rglob("tmp-*"))
        assert await store.sweep(0) == 0

    asyncio.run(main())


def test_a_cancelled_put_of_a_stream_leaves_nothing(store: BlobStore, tmp_path: Path) -> None:
    async def main() -> None:
        half = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield bytes(2 * MIB)
            half.set()
            await asyncio.Event().wait()

        put = asyncio.ensure_future(store.put(endless()))
        await half.wait()
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        assert not list(tmp_path.rglob("tmp-*"))
        assert await store.sweep(0) == 0

    asyncio.run(main())


def test_a_large_put_lets_the_event_loop_go_on(store: BlobStore) -> None:
    async def main() -> None:
        put = asyncio.ensure_future(store.put(bytes(8 * MIB)))
        await asyncio.sleep(0)  # its first step: had it hashed here, it would be done
        assert not put.done()
        assert await has(store, await put)

    asyncio.run(main())


def test_a_store_serves_several_event_loops_at_once(store: BlobStore) -> None:
    async def work(name: str) -> None:
        for n in range(10):
            data = bytes([n]) * 10
            ref = await store.put(data)
            await store.pin(ref, name)
            assert await store.resolve(ref) == data
            assert await read(store, ref) == (data,)
            await store.unpin(ref, name)

    with ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(asyncio.run, work(f"worker {n}")) for n in range(4)]
        for run in runs:
            run.result(timeout=60)
    asyncio.run(store.sweep(0))
    assert not any(
        asyncio.run(has(store, "sha256:" + hashlib.sha256(bytes([n]) * 10).hexdigest()))
        for n in range(10)
    )


def test_in_memory_bytes_are_kept_and_given_without_a_copy() -> None:
    async def main() -> None:
        store = InMemoryBlobStore()
        for data in (b"small but not interned", bytes(2 * MIB)):
            assert await store.resolve(await store.put(data)) is data

    asyncio.run(main())


def test_in_memory_the_last_unpin_drops_at_once_what_no_sweep_has_seen() -> None:
    async def main() -> None:
        store = InMemoryBlobStore()
        ref = await store.put(b"content")
        await store.pin(ref, "one")
        await store.pin(ref, "two")
        await store.unpin(ref, "one")
        assert await has(store, ref)
        await store.unpin(ref, "two")
        assert not await has(store, ref)

    asyncio.run(main())
