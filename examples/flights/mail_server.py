"""A real SMTP server on this machine that keeps every mail as a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP


@dataclass
class Mailbox:
    """Where received mails lie: `mail-1.eml`, `mail-2.eml` … in `folder`."""

    folder: Path
    port: int = 0
    received: list[Path] = field(default_factory=list[Path])

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        """Keep one mail; the name is the one that the server looks for."""
        path = self.folder / f"mail-{len(self.received) + 1}.eml"
        path.write_bytes(envelope.content)
        self.received.append(path)
        return "250 kept"


@asynccontextmanager
async def open_mailbox(folder: Path) -> AsyncGenerator[Mailbox]:
    """Serve SMTP on a free port of 127.0.0.1 until the block ends."""
    mailbox = Mailbox(folder)
    loop = asyncio.get_running_loop()

    def protocol() -> SMTP:
        return SMTP(mailbox, hostname="localhost", loop=loop)

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        server.close()
        await server.wait_closed()
