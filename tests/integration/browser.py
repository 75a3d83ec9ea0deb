"""A real Chromium, driven through its debugging pipe: open pages, query them, take pictures."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import shutil
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One tab."""

    def __init__(self, reader: asyncio.StreamReader, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._number, self._session = 0, ""

    async def _call(self, method: str, **params) -> dict:
        self._number += 1
        question = {"id": self._number, "method": method, "params": params}
        if self._session:
            question["sessionId"] = self._session
        os.write(self._writer, json.dumps(question).encode() + b"\0")
        while True:
            raw = await asyncio.wait_for(self._reader.readuntil(b"\0"), 60)
            answer = json.loads(raw[:-1])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    async def open(self, address: str) -> None:
        await self._call("Page.navigate", url=address)

    async def attach(self) -> None:
        target = (await self._call("Target.createTarget", url="about:blank"))["targetId"]
        made = await self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = made["sessionId"]
        await self._call("Page.enable")

    async def value(self, script: str):
        """What an expression is in the page."""
        found = await self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str):
        wrapped = f"(() => {{ try {{ return {script} }} catch {{ return null }} }})()"
        for _ in range(600):  # the page may not be there yet
            if value := await self.value(wrapped):
                return value
            await asyncio.sleep(0.1)
        text = await self.value("document.body.innerText")
        raise AssertionError(f"never: {script}; the page says {text}")

    async def look(self, *, width: int, dark: bool = False) -> None:
        await self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self._call("Emulation.setEmulatedMedia", features=scheme)

    async def picture(self, path: Path) -> None:
        await asyncio.sleep(0.4)  # the bar's movement
        shot = await self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(profile: Path):
    """A browser of its own, gone afterwards."""
    to_read, to_write = os.pipe(), os.pipe()
    arguments = [
        str(PROGRAM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
    ]
    # What Chromium reads from as 3 and writes to as 4; high, so that neither overwrites the other.
    given = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_write[0], to_read[1]))
    # A broker that another test ran in this process has left its limit of memory.
    start = f'ulimit -S -v unlimited; exec "$@" 3<&{given[0]} 4>&{given[1]}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", start, "bash", *arguments],
        pass_fds=given,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for fd in (*given, to_write[0], to_read[1]):
        os.close(fd)
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=2**26)
    pipe = os.fdopen(to_read[0], "rb")
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        page = Page(reader, to_write[1])
        await page.attach()
        yield page
    finally:
        process.kill()
        process.wait()
        transport.close()
        os.close(to_write[1])
