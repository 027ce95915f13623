"""Stores under many hands: threads, other processes, forked children."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from substrate.kernel.blobs import BlobStore
from substrate.kernel.errors import BlobNotFound
from substrate.storage import FileBlobStore, InMemoryBlobStore

CROWD = """
import asyncio, random, sys
from substrate.kernel.errors import BlobNotFound
from substrate.storage import FileBlobStore

async def one(store, dice, refs):
    for _ in range(150):
        ref = dice.choice(refs)
        work = dice.choice([store.pin, store.pin, store.unpin, store.put, store.sweep])
        if work == store.sweep:
            await store.sweep(60)
        elif work == store.put:
            await store.put(dice.choice([b"a", b"b"]))
        else:
            await work(ref, dice.choice(["lease", "other"]))

async def main():
    store, dice = FileBlobStore(sys.argv[1]), random.Random(sys.argv[2])
    refs = [await store.put(b"a"), await store.put(b"b")]
    await asyncio.gather(*(one(store, dice, refs) for _ in range(4)))

asyncio.run(main())
"""


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return InMemoryBlobStore() if request.param == "memory" else FileBlobStore(tmp_path / "store")


def in_threads(works: list[Callable[[], None]]) -> list[BaseException]:
    failed: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return failed


def in_a_forked_child(work: Callable[[], bool]) -> bool:
    """Whether `work` is true there, within ten seconds."""
    child = os.fork()
    if child == 0:
        told = 1
        try:
            told = 0 if work() else 2
        finally:
            os._exit(told)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


@pytest.mark.req("artifacts.pins")
def test_pins_and_unpins_of_one_lease_in_many_threads_never_fail(store: BlobStore) -> None:
    ref = asyncio.run(store.put(b"content"))
    asyncio.run(store.pin(ref, "keeps it"))
    crowd = 4

    def turn(seed: int) -> Callable[[], None]:
        async def main() -> None:
            dice = random.Random(seed)
            for _ in range(150):
                await dice.choice([store.pin, store.unpin])(ref, "lease")
                assert await store.resolve(ref) == b"content"

        return lambda: asyncio.run(main())

    async def sweep() -> None:
        for _ in range(100):
            assert await store.sweep(0) == 0

    works = [turn(seed) for seed in range(crowd)]
    assert in_threads([*works, lambda: asyncio.run(sweep())]) == []
    asyncio.run(store.pin(ref, "lease"))
    asyncio.run(store.unpin(ref, "keeps it"))
    assert asyncio.run(store.sweep(0)) == 0
    assert asyncio.run(store.resolve(ref)) == b"content"


@pytest.mark.req("artifacts.pins")
def test_put_pin_use_unpin_in_many_threads_never_loses_what_is_pinned(store: BlobStore) -> None:
    def turn(seed: int) -> Callable[[], None]:
        async def main() -> None:
            dice = random.Random(seed)
            for n in range(60):
                data = dice.choice([b"a", b"b", b"c"])
                ref = await store.put(data)
                await store.pin(ref, f"{seed}:{n}")
                assert await store.resolve(ref) == data
                await store.unpin(ref, f"{seed}:{n}")

        return lambda: asyncio.run(main())

    async def sweep() -> None:
        for _ in range(60):
            await store.sweep(60)

    assert in_threads([*map(turn, range(4)), lambda: asyncio.run(sweep())]) == []
    asyncio.run(store.sweep(0))


@pytest.mark.req("artifacts.pins")
@pytest.mark.req("artifacts.files")
def test_two_processes_that_pin_unpin_put_and_sweep_the_same_never_fail(tmp_path: Path) -> None:
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", CROWD, str(tmp_path / "store"), str(seed)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(2)
    ]
    for process in crowd:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    store = FileBlobStore(tmp_path / "store")
    ref = asyncio.run(store.put(b"a"))
    for lease in ("lease", "other"):
        asyncio.run(store.unpin(ref, lease))
        asyncio.run(store.unpin("sha256:", lease))
    assert asyncio.run(store.sweep(0)) >= 1
    with pytest.raises(BlobNotFound):
        asyncio.run(store.resolve(ref))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_store_works_in_a_forked_child(store: BlobStore) -> None:
    ref = asyncio.run(store.put(b"parent"))  # its threads are there

    def use() -> bool:
        async def main() -> bool:
            mine = await store.put(b"child")
            await store.pin(mine, "child")
            chunks = [chunk async for chunk in store.open(ref)]
            return await store.resolve(mine) == b"child" and chunks == [b"parent"]

        return asyncio.run(main())

    assert in_a_forked_child(use)
    assert in_a_forked_child(lambda: in_a_forked_child(use))
    assert use()

    async def fork_within_a_loop() -> bool:
        await store.resolve(ref)

        def in_a_thread() -> bool:  # the loop of this one runs on
            return in_threads([lambda: None if use() else sys.exit(1)]) == []

        return in_a_forked_child(in_a_thread)

    assert asyncio.run(fork_within_a_loop())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_others_use_a_store_never_waits_for_their_locks(
    store: BlobStore,
) -> None:
    done = threading.Event()

    def keep_busy() -> None:
        async def main() -> None:
            while not done.is_set():
                ref = await store.put(threading.current_thread().name.encode())
                await store.pin(ref, "busy")
                await store.unpin(ref, "busy")

        asyncio.run(main())

    busy = [threading.Thread(target=keep_busy) for _ in range(2)]
    for thread in busy:
        thread.start()
    try:
        for n in range(10):
            assert in_a_forked_child(
                lambda n=n: asyncio.run(store.put(b"%d" % n)).startswith("sha256:")
            )
    finally:
        done.set()
        for thread in busy:
            thread.join(10)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_throws_away_a_copy_of_a_put_leaves_the_put_alone(tmp_path: Path) -> None:
    store = FileBlobStore(tmp_path / "store")

    async def main() -> None:
        half, go_on = asyncio.Event(), asyncio.Event()

        async def chunks() -> AsyncIterator[bytes]:
            yield b"x" * 2_000_000
            half.set()
            await go_on.wait()
            yield b"y"

        putting = store.put(chunks())
        task = asyncio.create_task(putting)
        await half.wait()

        def throw_away() -> bool:
            try:
                putting.close()
            except RuntimeError:
                return False
            temps = list((store.root / "blobs").glob("tmp-*"))
            time.sleep(0.3)  # the close is done in a thread, and unwaited for
            return len(temps) == 1 == len(list((store.root / "blobs").glob("tmp-*")))

        assert in_a_forked_child(throw_away)
        go_on.set()
        assert await store.resolve(await task) == b"x" * 2_000_000 + b"y"

    asyncio.run(main())
