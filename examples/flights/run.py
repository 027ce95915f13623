"""The main job: a model's script works on real tables through guarded tools.

    python examples/flights/run.py [--yes] [--out FOLDER]

It prints what the script gave, every call it made, and where chart, report and mail
lie. Sending the mail asks in the terminal; `--yes` says yes to it, and where there
is no terminal the answer is no: the script is told, and still ends well.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from mail_server import Mailbox, open_mailbox
from rich.console import Console
from rich.table import Table
from tools import tools

from substrate import ApprovalAnswer, ApprovalDecision, FileBlobStore, run_script
from substrate.capabilities.approval import TerminalApproval
from substrate.kernel.tools.approval import ApprovalRequest
from substrate.kernel.tools.chain import ChainRunResult

HERE = Path(__file__).parent


async def say_yes(_request: ApprovalRequest) -> ApprovalAnswer:
    """What `--yes` answers."""
    return ApprovalAnswer(ApprovalDecision.APPROVED, decided_by="--yes")


async def job(out: Path, *, yes: bool) -> int:
    """Run the script; 0 where it ended well."""
    code = (HERE / "script.py").read_text(encoding="utf-8")
    store = FileBlobStore(out / "artifacts")
    async with open_mailbox(out) as mailbox:
        result = await run_script(
            code,
            tools=tools(out, mailbox.port),
            approve=say_yes if yes else TerminalApproval(),
            store=store,
        )
        kept = [await keep(store, out, file.path, file.artifact_ref) for file in result.files]
    show(result, [path for path in kept if path], mailbox, out)
    return 0 if result.status == "ok" else 1


async def keep(store: FileBlobStore, out: Path, path: str, ref: str | None) -> Path | None:
    """Copy a media file of the script out of the store."""
    if ref is None:
        return None
    target = out / Path(path).name
    target.write_bytes(await store.resolve(ref))
    return target


def show(result: ChainRunResult, files: list[Path], mailbox: Mailbox, out: Path) -> None:
    """Print the value, the trace, and where things lie."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(f"[bold]{result.status}[/] in {result.duration_ms / 1000:.1f} s")
    console.print(result.value if result.error is None else result.error, markup=False)
    table = Table("call", "status", "reason", "ran", "risk", "decided by", "wait ms", "run ms")
    for record in result.call_trace:
        table.add_row(
            record.tool,
            record.status,
            record.reason or "",
            record.ran,
            "" if record.risk is None else record.risk.name,
            record.decided_by or "",
            f"{record.wait_ms:.0f}",
            f"{record.run_ms:.0f}",
        )
    console.print(table)
    for record in result.call_trace:
        if record.status != "ok":
            console.print(f"{record.tool}: {record.message}", markup=False)
    for path in (*files, out / "report.md", *mailbox.received):
        if path.exists():
            console.print(str(path), markup=False, soft_wrap=True)
    if not mailbox.received:
        console.print("no mail was sent")


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Find out when to fly, on real tables.")
    parser.add_argument("--yes", action="store_true", help="approve what asks")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="where results go")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("mail-*.eml"), out / "report.md"):
        old.unlink(missing_ok=True)
    # Its own folder, so that it warns of nothing where the home cannot be written.
    os.environ.setdefault("MPLCONFIGDIR", str(out / "matplotlib"))
    return asyncio.run(job(out, yes=options.yes))


if __name__ == "__main__":
    sys.exit(main())
