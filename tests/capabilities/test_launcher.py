"""The walls around a Monty worker: what is claimed is active."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pydantic_monty as monty
import pytest

from substrate.capabilities.sandboxes.launcher import Launcher, launcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="layers are Linux's")

_SECRET = "SUBSTRATE_TEST_SECRET"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    monkeypatch.setenv(_SECRET, "open sesame")
    launcher.cache_clear()
    yield launcher()
    launcher.cache_clear()


def _worker(path: str | None) -> tuple[monty.Monty, monty.MontySession, list[int]]:
    """A pool, a session, and the processes of its worker, the outermost first."""
    pool = monty.Monty(binary_path=path, max_processes=1).__enter__()
    session = pool.checkout().__enter__()
    assert session.feed_run("1 + 1") == 2
    pid = session.worker_pid
    assert pid is not None
    pids = [pid]
    while children := Path(f"/proc/{pids[-1]}/task/{pids[-1]}/children").read_text().split():
        pids += [int(child) for child in children]
    return pool, session, pids


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _limit(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return line.removeprefix(name).split()[1]


def test_every_layer_that_is_claimed_is_active(found: Launcher) -> None:
    pool, session, pids = _worker(found.path)
    try:
        inmost = pids[-1]
        assert pids[0] != os.getpid()
        for pid in pids:
            assert _SECRET not in Path(f"/proc/{pid}/environ").read_text()
        if "rlimits" in found.layers:
            assert _limit(inmost, "Max core file size") == "0"
            assert _limit(inmost, "Max file size") == "0"
            assert _limit(inmost, "Max address space") == str(4 * 1024**3)
        if "process-group" in found.layers:
            assert all(os.getpgid(pid) != os.getpgid(0) for pid in pids)
        if "no-capabilities" in found.layers:
            assert int(_status(inmost)["CapEff"], 16) == 0
            assert int(_status(inmost)["CapBnd"], 16) == 0
            assert _status(inmost)["NoNewPrivs"] == "1"
        if "namespaces" in found.layers:
            for space in ("user", "pid", "net", "ipc", "uts", "mnt"):
                inside, ours = (Path(f"/proc/{pid}/ns/{space}") for pid in (inmost, "self"))
                assert inside.readlink() != ours.readlink()
            seen = {path.name for path in Path(f"/proc/{inmost}/root").iterdir()}
            assert seen <= {"monty", "usr", "lib", "lib64"}
    finally:
        session.__exit__(None, None, None)
        pool.__exit__(None, None, None)
    assert not any(Path(f"/proc/{pid}/root").exists() for pid in pids)


def test_a_killed_worker_takes_everything_inside_its_walls_with_it(found: Launcher) -> None:
    pool, session, pids = _worker(found.path)
    with pool:
        watched = [os.pidfd_open(pid) for pid in pids]
        os.kill(pids[0], signal.SIGKILL)
        for fd in watched:
            assert _ended(fd)
            os.close(fd)
        with pytest.raises(monty.MontyCrashedError):
            session.feed_run("1 + 1")
        with pool.checkout() as another:
            assert another.feed_run("1 + 1") == 2


def _ended(fd: int) -> bool:
    return bool(select.select([fd], [], [], 10)[0])


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_bubblewrap_is_used_where_it_works(found: Launcher) -> None:
    assert "namespaces" in found.layers or not _bubblewrap_works()


def _bubblewrap_works() -> bool:
    command = ["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.mark.usefixtures("anew")
def test_a_bubblewrap_that_fails_claims_no_layer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o700)
    _with_programs(monkeypatch, bwrap=str(broken))
    found = launcher()
    assert "process-group" in found.layers
    assert "namespaces" not in found.layers


@pytest.mark.usefixtures("anew")
def test_without_helpers_the_limits_still_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_programs(monkeypatch, bwrap=None, setsid=None)
    assert launcher().layers == ("process", "empty-env", "rlimits")


@pytest.mark.usefixtures("anew")
def test_without_a_proc_file_system_the_plain_worker_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _with_programs(monkeypatch, bwrap=None, setsid=None)
    monkeypatch.delattr(os, "memfd_create")
    assert launcher() == Launcher(None, ("process", "empty-env"))


@pytest.fixture
def anew() -> Iterator[None]:
    launcher.cache_clear()
    yield
    launcher.cache_clear()


def _with_programs(monkeypatch: pytest.MonkeyPatch, **given: str | None) -> None:
    which = shutil.which

    def found(name: str, path: str | None = None) -> str | None:
        return given[name] if name in given else which(name, path=path)

    monkeypatch.setattr(shutil, "which", found)


def test_a_terminals_interrupt_does_not_reach_a_worker(found: Launcher) -> None:
    if "process-group" not in found.layers:
        pytest.skip("no process group of its own here")
    pool, session, pids = _worker(found.path)
    with pool:
        assert all(os.getsid(pid) != os.getsid(0) for pid in pids)
        session.__exit__(None, None, None)
