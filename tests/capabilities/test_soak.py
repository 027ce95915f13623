"""Many chains with faults in all that they touch: afterwards nothing has grown.

SUBSTRATE_SOAK_S says how long, in seconds; 8 without it, 600 in the full tier.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from substrate import (
    ApprovalDecision,
    ChainPolicy,
    FileBlobStore,
    HookEvent,
    HookManager,
    ImageBlock,
    InMemoryBlobStore,
    Toolbox,
    ToolChainTool,
    ToolExecutionResult,
    ToolInvoker,
    tool,
)
from substrate.agents.tools.invoker import InvokerSession
from substrate.agents.tools.session import Scope
from substrate.capabilities.sandboxes import MontySandbox
from substrate.capabilities.sandboxes.monty_run import MontyRun
from substrate.capabilities.tools.chain.bridge import Bridge
from substrate.kernel.blobs import BlobData, BlobStat
from substrate.kernel.context import RunContext
from substrate.kernel.tools.approval import ApprovalRequest
from substrate.kernel.tools.chain import ChainReason, ChainRunResult, ChainStatus

DURATION_S = float(
    os.environ.get("SUBSTRATE_SOAK_S") or (600 if os.environ.get("SUBSTRATE_FULL") else 8)
)
SIDE_BY_SIDE = 8
SETTLE_S = 30.0
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
KEPT_THREADS = Counter({"substrate-blobs": 2 * 4})  # each of two stores starts one when wanted
OURS = (InvokerSession, Scope, MontyRun, Bridge, ChainRunResult)
SLACK_BYTES = 40 * 1024 * 1024  # of the process; a leak of one chain in ten would be more
STATUSES = set(ChainStatus.__args__)
REASONS = {None, *ChainReason.__args__}
POLICY = ChainPolicy(
    total_timeout_s=1.5, call_timeout_s=0.3, approval_timeout_s=0.2, max_tool_calls=12
)


class Faulty:
    """A store that now and then fails, or takes longer than anybody waits."""

    def __init__(self, store: Any, chance: random.Random) -> None:
        self.store = store
        self._chance = chance

    async def _maybe(self) -> None:
        roll = self._chance.random()
        if roll < 0.02:
            msg = "the disk is full"
            raise OSError(msg)
        if roll < 0.03:
            await asyncio.sleep(0.1)

    async def put(self, data: BlobData, media_type: str | None = None) -> str:
        await self._maybe()
        return await self.store.put(data, media_type)

    async def resolve(self, ref: str) -> bytes:
        await self._maybe()
        return await self.store.resolve(ref)

    async def open(self, ref: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        await self._maybe()
        async for part in self.store.open(ref, start, stop):
            yield part

    async def stat(self, ref: str) -> BlobStat:
        return await self.store.stat(ref)

    async def pin(self, ref: str, lease: str) -> None:
        await self._maybe()
        await self.store.pin(ref, lease)

    async def unpin(self, ref: str, lease: str) -> None:
        await self.store.unpin(ref, lease)

    async def sweep(self, older_than_s: float) -> int:
        return await self.store.sweep(older_than_s)


def tools(chance: random.Random) -> list[Any]:
    @tool(risk="safe", effect="pure")
    async def add(a: int, b: int) -> int:
        return a + b

    @tool(risk="safe")
    async def fail() -> None:
        kinds = (ValueError("no"), SystemExit(1), asyncio.CancelledError(), KeyError("k"))
        raise chance.choice(kinds)

    @tool(risk="safe")
    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(9)

    @tool(risk="safe")
    async def stay() -> None:
        for _ in range(3):
            try:
                await asyncio.sleep(0.3)
            except asyncio.CancelledError:
                continue

    @tool(risk="safe")
    def block() -> str:
        time.sleep(chance.choice((0.01, 0.4)))
        return "slept"

    @tool(risk="safe")
    async def large(n: int) -> str:
        return f"{n} " * 4000

    @tool(risk="safe", effect="pure")
    async def size(of: Any) -> int:
        return len(of)

    @tool(risk="safe")
    async def picture() -> ToolExecutionResult:
        return ToolExecutionResult([ImageBlock(PNG)])

    @tool(risk="high")
    async def send(to: str) -> str:
        return to

    return [add, fail, cancel, stay, block, large, size, picture, send]


SCRIPTS = (
    "await add(a=1, b=2)",
    "import asyncio\nsum(await asyncio.gather(*[add(a=n, b=1) for n in range(9)]))",
    "import asyncio\nawait asyncio.gather(*[add(a=n, b=1) for n in range(99)])",
    "try:\n    await fail()\nexcept RuntimeError:\n    pass\n1",
    "import asyncio\nawait asyncio.gather(fail(), add(a=1, b=2), fail())",
    "import asyncio\nawait asyncio.gather(cancel(), cancel(), add(a=1, b=1))",
    "await stay()",
    "await block()",
    "import asyncio\nawait asyncio.gather(block(), stay(), block())",
    "a = await large(n=1)\n[await size(of=a), await a.text(0, 9), await a.lines(0, 1)]",
    "a = await artifacts.put('x' * 9000)\nb = await artifacts.put([1] * 9000)\nawait size(of=[a, b])",
    "p = await picture()\nopen(p['files'][0]['path'], 'rb').read()[:4]",
    "await send(to='a')",
    "while True:\n    pass",
    "a = [0]\nwhile True:\n    a += a",
    "while True:\n    print('x' * 9999)",
    "def f():\n    return f()\nf()",
    "import asyncio\nawait asyncio.sleep(9)",
    "1 +",
    "await nothing()",
    "f = add(a=1, b=2)\n1",
    "await add(a='x', b=2)",
    "x = 1\nwhile x < 3_000_000:\n    x += 1\nx",
)


class Approver:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def request(self, _: ApprovalRequest) -> ApprovalDecision:
        roll = self._chance.random()
        if roll < 0.2:
            await asyncio.sleep(9)
        if roll < 0.3:
            raise OSError
        return ApprovalDecision.APPROVED if roll < 0.8 else ApprovalDecision.DENIED


class Guard:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def check(self, _: Any) -> None:
        if self._chance.random() < 0.01:
            msg = "the guard is out of order"
            raise OSError(msg)


class Counts(NamedTuple):
    """What could grow."""

    tasks: int
    threads: Mapping[str, int]
    processes: int
    descriptors: int
    pins: int
    abandoned: int
    objects: Mapping[str, int]
    resident: int


class World:
    """The invokers and the pool that every chain of the soak shares."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sandbox = MontySandbox(processes=6)
        self.memory, self.files = InMemoryBlobStore(), FileBlobStore(folder)
        self.events = Counter[str]()
        self.ends = Counter[str]()
        self.hooks = HookManager()
        for event in (HookEvent.TOOL_START, HookEvent.TOOL_END):
            self.hooks.register(event, self._note)
        self.chains = [
            ToolChainTool(
                ToolInvoker(
                    Toolbox(tools(self.chance)), Approver(self.chance),
                    Faulty(store, self.chance), POLICY, self.hooks, guards=[Guard(self.chance)],
                ),
                self.sandbox, keep_state=store is self.memory,
            )
            for store in (self.memory, self.files)
        ]  # fmt: skip

    async def _note(self, context: Mapping[str, Any]) -> None:
        self.events["end" if "status" in context else "start"] += 1
        if self.chance.random() < 0.02:
            await asyncio.sleep(0.01)
        if self.chance.random() < 0.01:
            raise ValueError

    async def one(self) -> None:
        """One chain, now and then given up by its caller."""
        chain, code = self.chance.choice(self.chains), self.chance.choice(SCRIPTS)
        ctx = RunContext(session_id=f"scope {self.chance.randrange(4)}")
        running = asyncio.create_task(chain.run(code, ctx=ctx))
        if self.chance.random() < 0.1:
            await asyncio.sleep(self.chance.random() * 0.2)
            running.cancel()
        await asyncio.wait((running,), timeout=60)
        assert running.done(), code
        if running.cancelled():
            self.ends["given up"] += 1
            return
        result = running.result()
        assert result.status in STATUSES
        assert result.reason in REASONS
        assert result.tool_calls == len(result.call_trace)
        self.ends[result.reason or result.status] += 1

    async def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds

        async def lane() -> None:
            while time.monotonic() < until:
                await self.one()

        async with asyncio.TaskGroup() as group:
            for _ in range(SIDE_BY_SIDE):
                group.create_task(lane())
            while time.monotonic() < until:
                await asyncio.sleep(0.5)
                self.kill_a_worker()

    def kill_a_worker(self) -> None:
        found = workers()
        if found:
            os.kill(self.chance.choice(found), signal.SIGKILL)

    async def settled(self) -> Counts:
        """The counts when all that was left behind has ended, and the scopes are closed."""
        until = time.monotonic() + SETTLE_S
        for chain in self.chains:
            for number in range(4):
                await chain._invoker.close_scope(f"scope {number}")
        while time.monotonic() < until and (self.left() or len(asyncio.all_tasks()) > 1):
            await asyncio.sleep(0.05)
        for store in (self.memory, self.files):
            await store.sweep(0)  # what was put and, for a fault, never pinned
        await self.sandbox.aclose()  # the kept workers go, and what they hold
        await asyncio.sleep(1.2)  # as long as an idle thread waits for work
        gc.collect()
        held = Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, OURS))
        names = Counter(re.split("[:_]", thread.name)[0] for thread in threading.enumerate())
        return Counts(
            len(asyncio.all_tasks()), names, len(workers()), len(list(Path("/proc/self/fd").iterdir())),
            self.pins(), self.left(), held, resident(),
        )  # fmt: skip

    def left(self) -> int:
        return sum(len(chain._invoker.abandoned) for chain in self.chains)

    def pins(self) -> int:
        named = [path for path in self.files._folder.pins.rglob("*") if path.is_file()]
        return len(named) + sum(len(held.leases) for held in self.memory._blobs.values())


def workers() -> list[int]:
    """The processes that this one has started, directly or not."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    mine, found = os.getpid(), list[int]()
    for pid in parents:
        above = pid
        while above in parents and above != mine:
            above = parents[above]
        if above == mine and pid != mine:
            found.append(pid)
    return found


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(before: Counts, after: Counts) -> dict[str, Any]:
    """What is more than it was."""
    found: dict[str, Any] = {
        name: (getattr(before, name), getattr(after, name))
        for name in ("tasks", "processes", "descriptors", "pins", "abandoned")
        if getattr(after, name) > getattr(before, name)
    }
    for name, kept in (("threads", KEPT_THREADS), ("objects", Counter[str]())):
        more = Counter[str](getattr(after, name)) - (Counter(getattr(before, name)) | kept)
        if more:
            found[name] = dict(more)
    if after.resident > before.resident + SLACK_BYTES:
        found["resident"] = (before.resident, after.resident)
    return found


@pytest.mark.req("soak", "invariant.8", "invariant.9")
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts by /proc")
def test_nothing_grows_over_many_chains_with_faults(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**9)

    async def main() -> None:
        world = World(tmp_path, seed)
        await world.run(DURATION_S / 3)
        before = await world.settled()
        await world.run(DURATION_S * 2 / 3)
        after = await world.settled()
        found = grown(before, after)
        assert found == {}, f"seed {seed}: {found}; {world.ends}"
        assert world.events["start"] == world.events["end"], seed
        assert sum(world.ends.values()) > DURATION_S, world.ends
        world.hooks.close()

    asyncio.run(main())


@pytest.mark.req("soak")
def test_what_is_left_behind_is_found(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, 1)
        before = await world.settled()
        session = world.chains[0]._invoker.open_session()
        kept = asyncio.create_task(asyncio.sleep(60))
        opened = Path("/proc/self/stat").open()  # noqa: SIM115  # it is to stay open
        found = grown(before, before._replace(tasks=2) if kept.done() else await world.settled())
        assert {"tasks", "descriptors", "objects"} <= found.keys()
        opened.close()
        kept.cancel()
        await session.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("test_soak.SETTLE_S", 0.2)
        asyncio.run(main())
