"""A headless Chromium that opens a page, by the DevTools protocol: what it logs, asks the network
for, and draws. Nothing is left of it afterwards.
"""

import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_PATIENCE_S = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-extensions",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)


class Page:
    """A page that was opened, and what happened in it."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        """What the console shows as an error, and what a script threw."""
        self.requests: list[str] = []
        """What it asked for, the page itself excepted."""
        self._loaded = False
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = self._hear()
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                result = message["result"]
                assert isinstance(result, dict)
                return result

    def open(self, file: Path) -> None:
        """Open it and wait until it is loaded, its scripts included."""
        self._loaded = False
        self.ask("Page.navigate", url=file.as_uri())
        while not self._loaded:
            self._hear()

    def evaluate(self, expression: str) -> Any:
        """What a script comes to; a promise is waited for."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait for a script to come to something true, frame by frame."""
        deadline = time.monotonic() + _PATIENCE_S
        frame = "new Promise((drawn) => requestAnimationFrame(() => drawn(true)))"
        while self.evaluate(frame) and not self.evaluate(expression):
            assert time.monotonic() < deadline, expression

    def prefer(self, mode: str) -> None:
        """`light` or `dark`, as the reader's system would say."""
        feature = {"name": "prefers-color-scheme", "value": mode}
        self.ask("Emulation.setEmulatedMedia", features=[feature])

    def resize(self, width: int, height: int) -> None:
        """Of the window, in pixels."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def screenshot(self, file: Path) -> None:
        """Of the whole page, as PNG."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _hear(self) -> dict[str, Any]:
        message = json.loads(self._socket.recv())
        assert isinstance(message, dict)
        told = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(told["exceptionDetails"])[:2000])
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "assert", "warning"):
                self.errors.append(json.dumps(told["args"])[:2000])
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.errors.append(json.dumps(told["entry"])[:2000])
            case "Network.requestWillBeSent":
                url = told["request"]["url"]
                if told.get("type") != "Document" and not url.startswith(("data:", "blob:")):
                    self.requests.append(url)
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """An empty page of a Chromium of one's own, which keeps its files in `folder`."""
    assert CHROMIUM is not None
    # Its sockets lie there: a path of pytest's is too long for them.
    with tempfile.TemporaryDirectory(prefix="chromium-") as short, _process(folder, short) as url:
        socket = websocket.create_connection(url, timeout=_PATIENCE_S)
        try:
            yield Page(socket)
        finally:
            socket.close()


@contextmanager
def _process(folder: Path, short: str) -> Iterator[str]:
    """The browser; hands out the address of its first page."""
    assert CHROMIUM is not None
    log = folder / "chromium.log"
    profile = f"--user-data-dir={folder / 'chromium'}"
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": short, "XDG_RUNTIME_DIR": short}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, profile, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    try:
        yield _first_page(process, log)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(_PATIENCE_S)
        _await_end(process.pid)


def _await_end(group: int) -> None:
    """Of all that the browser started."""
    deadline = time.monotonic() + _PATIENCE_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.01)


def _first_page(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Read from its log where it listens, and ask there."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (found := re.search(r"DevTools listening on (ws://[\w.:]+)(/\S+)", log.read_text())):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    socket = websocket.create_connection(found[1] + found[2], timeout=_PATIENCE_S)
    try:
        socket.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
        while (message := json.loads(socket.recv())).get("id") != 1:
            pass
    finally:
        socket.close()
    [page, *_] = [each for each in message["result"]["targetInfos"] if each["type"] == "page"]
    return f"{found[1]}/devtools/page/{page['targetId']}"
