"""What a blob store in a folder promises beyond the contract: modes, kills, neighbours, leases."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from substrate.kernel.errors import BlobNotFound
from substrate.storage import FileBlobStore

CHILD = """
import asyncio, contextlib, os, sys
from pathlib import Path
from substrate.storage import FileBlobStore

store = FileBlobStore(sys.argv[1])

def say(text):
    print(text, flush=True)

async def heard():
    await asyncio.to_thread(sys.stdin.readline)

"""

HALF_WRITING = """
async def halting():
    yield b"first" * 500_000
    say("half")
    await heard()
    yield b"second"

async def main():
    say(await store.put(halting()))
"""

WRITING_ON = """
async def main():
    n = 0
    while True:
        n += 1
        say(await store.put(n.to_bytes(8, "big") * 20_000))
"""

PINNING = """
async def main():
    ref = await store.put(b"from the child")
    await store.pin(ref, "child")
    say(ref)
    await heard()
    await store.unpin(ref, "child")
    say("unpinned")
"""

PUTTING_WHAT_IS_OLD = """
async def main():
    for n in range(60):
        ref = await store.put(b"contended")
        await store.pin(ref, "child")
        assert await store.resolve(ref) == b"contended"
        await store.unpin(ref, "child")
        digest = ref.removeprefix("sha256:")
        with contextlib.suppress(FileNotFoundError):
            os.utime(store.root / "blobs" / digest[:2] / digest, (0, 0))
    say("done")
"""


@contextlib.contextmanager
def child(script: str, root: Path) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD + script + "\nasyncio.run(main())", str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def temps(root: Path) -> list[Path]:
    return list((root / "blobs").glob("tmp-*"))


def blobs(root: Path) -> list[Path]:
    return list((root / "blobs").glob("??/*"))


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def pins(root: Path) -> list[Path]:
    return list((root / "pins").glob("*/*"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "not" / "yet" / "there"


@pytest.mark.req("artifacts.files")
def test_folders_are_0700_and_files_0600_whatever_the_umask(root: Path) -> None:
    before = os.umask(0)
    try:
        store = FileBlobStore(root)
        asyncio.run(store.pin(asyncio.run(store.put(b"secret")), "lease"))
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert len(modes) == 8
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}


def test_nothing_is_made_before_the_first_put(root: Path) -> None:
    store = FileBlobStore(root)
    assert asyncio.run(store.sweep(0)) == 0
    asyncio.run(store.unpin("sha256:" + "0" * 64, "lease"))
    with pytest.raises(BlobNotFound):
        asyncio.run(store.resolve("sha256:" + "0" * 64))
    assert not root.exists()


def test_a_folder_that_cannot_be_written_is_named_at_the_first_put(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        store = FileBlobStore(root)
        with pytest.raises(NotADirectoryError, match=r"cannot write to its folder.*file") as caught:
            asyncio.run(store.put(b"content"))
        assert caught.value.filename == str(root)


def test_a_lease_time_of_zero_is_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="lease_s must be above 0"):
        FileBlobStore(root, lease_s=0)


def test_a_relative_root_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileBlobStore("store")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    asyncio.run(store.put(b"content"))
    assert store.root == tmp_path / "store"
    assert blobs(store.root)


def test_a_second_store_on_the_folder_finds_what_the_first_put_and_pinned(root: Path) -> None:
    ref = asyncio.run(FileBlobStore(root).put(b"content"))
    asyncio.run(FileBlobStore(root).pin(ref, "lease"))
    again = FileBlobStore(root)
    assert asyncio.run(again.sweep(0)) == 0
    assert asyncio.run(again.resolve(ref)) == b"content"


def test_a_damaged_blob_is_not_found_until_its_content_is_put_again(root: Path) -> None:
    async def main() -> None:
        store = FileBlobStore(root)
        for damage in (b"CONTENT", b"cut"):
            ref = await store.put(b"content")
            blobs(root)[0].write_bytes(damage)
            with pytest.raises(BlobNotFound, match="is damaged"):
                await store.resolve(ref)
            assert await store.put(b"content") == ref
            assert await store.resolve(ref) == b"content"

    asyncio.run(main())


def test_a_failed_pin_leaves_no_pin_behind(root: Path) -> None:
    async def main() -> None:
        store = FileBlobStore(root)
        with pytest.raises(BlobNotFound):
            await store.pin("sha256:" + hashlib.sha256(b"late").hexdigest(), "lease")
        await store.put(b"late")
        assert await store.sweep(0) == 1

    asyncio.run(main())


@pytest.mark.req("artifacts.pins")
def test_the_sweep_drops_the_pins_of_a_crashed_chain_after_the_lease_time(root: Path) -> None:
    async def main() -> None:
        store = FileBlobStore(root, lease_s=1000)
        ref = await store.put(b"content")
        await store.pin(ref, "crashed")
        age(blobs(root)[0], 5000)
        age(pins(root)[0], 900)
        assert await store.sweep(60) == 0
        age(pins(root)[0], 1100)
        assert await store.sweep(60) == 1
        assert not pins(root)
        assert not list((root / "pins").iterdir())

    asyncio.run(main())


def test_pinning_again_renews_the_lease(root: Path) -> None:
    async def main() -> None:
        store = FileBlobStore(root, lease_s=1000)
        ref = await store.put(b"content")
        await store.pin(ref, "long")
        age(blobs(root)[0], 5000)
        age(pins(root)[0], 1100)
        await store.pin(ref, "long")
        assert await store.sweep(60) == 0
        assert await store.resolve(ref) == b"content"

    asyncio.run(main())


@pytest.mark.parametrize("streamed", [False, True])
def test_putting_what_is_there_makes_it_new_for_the_sweep(root: Path, *, streamed: bool) -> None:
    async def main() -> None:
        store = FileBlobStore(root)
        await store.put(b"content")
        age(blobs(root)[0], 5000)

        async def stream() -> AsyncIterator[bytes]:
            yield b"content"

        await store.put(stream() if streamed else b"content")
        assert await store.sweep(60) == 0
        assert not temps(root)
        age(blobs(root)[0], 5000)
        assert await store.sweep(60) == 1

    asyncio.run(main())


def test_the_sweep_leaves_alone_what_is_not_ours(root: Path) -> None:
    async def main() -> None:
        store = FileBlobStore(root)
        await store.put(b"content")
        strange = [root / "notes.txt", root / "blobs" / ".DS_Store", blobs(root)[0].parent / "x"]
        for path in strange:
            path.write_text("not ours")
        assert await store.sweep(0) == 1
        assert all(path.exists() for path in strange)

    asyncio.run(main())


def test_a_writer_killed_half_way_leaves_no_blob_and_the_sweep_removes_its_rest(root: Path) -> None:
    store = FileBlobStore(root)
    with child(HALF_WRITING, root) as process:
        assert hear(process) == "half"
        asyncio.run(store.sweep(0))
        assert len(temps(root)) == 1, "a sweep must not touch what is being written"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert blobs(root) == []
    assert len(temps(root)) == 1
    assert asyncio.run(store.sweep(0)) == 0
    assert temps(root) == []


def test_a_slow_writer_ends_well_though_others_sweep(root: Path) -> None:
    store = FileBlobStore(root)
    with child(HALF_WRITING, root) as process:
        assert hear(process) == "half"
        asyncio.run(store.sweep(0))
        tell(process)
        ref = hear(process)
    assert asyncio.run(store.resolve(ref)) == b"first" * 500_000 + b"second"


@pytest.mark.req("artifacts.files")
@pytest.mark.parametrize("puts", [1, 4, 9])
def test_a_kill_at_any_moment_leaves_only_whole_blobs(root: Path, puts: int) -> None:
    with child(WRITING_ON, root) as process:
        refs = [hear(process) for _ in range(puts)]
        process.send_signal(signal.SIGKILL)
        process.wait()
    for path in blobs(root):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    store = FileBlobStore(root)
    for n, ref in enumerate(refs, 1):
        assert asyncio.run(store.resolve(ref)) == n.to_bytes(8, "big") * 20_000
    asyncio.run(store.sweep(0))
    assert blobs(root) == temps(root) == []


@pytest.mark.req("artifacts.files")
def test_a_pin_of_one_process_holds_against_the_sweep_of_another(root: Path) -> None:
    store = FileBlobStore(root)
    with child(PINNING, root) as process:
        ref = hear(process)
        assert asyncio.run(store.sweep(0)) == 0
        assert asyncio.run(store.resolve(ref)) == b"from the child"
        tell(process)
        assert hear(process) == "unpinned"
        assert asyncio.run(store.sweep(0)) == 1


def test_put_then_pin_of_an_old_blob_never_loses_against_a_sweep(root: Path) -> None:
    async def sweep_until(done: asyncio.Future[str]) -> int:
        store, swept = FileBlobStore(root), 0
        while not done.done():
            swept += await store.sweep(60)
        return swept

    async def main() -> None:
        with child(PUTTING_WHAT_IS_OLD, root) as process:
            done = asyncio.ensure_future(asyncio.to_thread(hear, process))
            assert await sweep_until(done) > 0
            assert await done == "done"

    asyncio.run(main())
