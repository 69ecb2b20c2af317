"""A headless Chromium driven over a pipe: navigate, evaluate, mouse, keyboard, screenshots.

It speaks the DevTools protocol through file descriptors 3 and 4, where a zero byte ends each message, so it needs
only the standard library and the browser. A `Page` keeps the console messages, exceptions and network requests
that the browser reports. Everything runs in one thread: events are read while a call waits for its answer.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["Browser", "Page", "chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--force-color-profile=srgb", "--hide-scrollbars", "--lang=en",
)
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Enter": 13,
        "Tab": 9, "Escape": 27, "PageDown": 34, " ": 32}
SHIFT, CTRL = 8, 2
#: Program that moves the pipes to descriptors 3 and 4, where the browser expects them, and becomes the browser.
EXEC = """\
import fcntl, os, sys
for place, number in zip((3, 4), [fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]]):
    os.dup2(number, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """Return the path of the browser, or None if there is none."""
    chosen = os.environ.get("ACLPOOL_CHROMIUM")
    return chosen or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """A browser process, with a profile that `close` deletes."""

    def __init__(self, path: str) -> None:
        place = "/tmp" if os.access("/tmp", os.W_OK) else None     # a short path, because its sockets need that
        self.profile = tempfile.mkdtemp(prefix="aclpool-chromium-", dir=place)
        to_read, self.writer = os.pipe()
        self.reader, to_write = os.pipe()
        command = [sys.executable, "-c", EXEC, str(to_read), str(to_write), path, *FLAGS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={self.profile}", "about:blank"], pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "HOME": self.profile, "TMPDIR": self.profile},   # the usual folders may be read-only
        )
        for descriptor in (to_read, to_write):
            os.close(descriptor)
        self.rest = b""
        self.number = 0
        self.pages: dict[str, Page] = {}

    def read(self, deadline: float) -> dict[str, Any]:
        """Wait for the next message and return it."""
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reader], [], [], left)[0]:
                raise TimeoutError("the browser sent no answer in time")
            data = os.read(self.reader, 1 << 20)
            if not data:
                raise RuntimeError(f"the browser ended with {self.process.wait()}")
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return dict(json.loads(message))

    def call(self, method: str, session: str | None = None, timeout: float = 300, **params: Any) -> dict[str, Any]:
        """Run a command and return its result; events that arrive before it go to their pages."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self.read(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            page = self.pages.get(answer.get("sessionId", ""))
            if page is not None and "method" in answer:
                page.note(answer["method"], answer["params"])

    def page(self, width: int = 1280, height: int = 900) -> Page:
        """Open a tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self.pages[session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        return page

    def close(self) -> None:
        """End the process and delete the profile."""
        try:
            self.call("Browser.close", timeout=5)
        except (OSError, RuntimeError, TimeoutError):
            self.process.kill()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.reader)
        os.close(self.writer)
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """A tab. Coordinates are CSS pixels of the window."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.browser, self.session, self.target = browser, session, target
        self.errors: list[str] = []
        self.requests: list[str] = []

    def note(self, method: str, params: dict[str, Any]) -> None:
        """Handle an event of the browser: keep it if it is an error or a request."""
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value", one)) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def call(self, method: str, timeout: float = 300, **params: Any) -> dict[str, Any]:
        """Run a command in this tab and return its result."""
        return self.browser.call(method, self.session, timeout, **params)

    def open(self, path: Path, timeout: float = 300) -> None:
        """Load a file and wait until the page says that it is ready (or failed)."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.body && document.body.dataset.state", timeout)

    def js(self, expression: str, timeout: float = 300) -> Any:
        """Return the value of an expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", timeout, expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, expression: str, timeout: float = 300) -> Any:
        """Poll until an expression is true, and return its value."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            value = self.js(expression)
            if value:
                return value
            time.sleep(0.02)
        raise TimeoutError(f"never true: {expression}")

    def settle(self) -> None:
        """Wait until the page has drawn its last change."""
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))")

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        """Set the size of the window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)

    def prefer(self, scheme: str) -> None:
        """Tell the page which colours the system prefers: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Scroll an element into view. Return its left, top, width and height."""
        found = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x, r.y, r.width, r.height]; })()")
        return (found[0], found[1], found[2], found[3])

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send a mouse event: mouseMoved, mousePressed, mouseReleased or mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x: float, y: float) -> None:
        """Move the pointer to a point."""
        self.mouse("mouseMoved", x, y)
        self.settle()

    def click(self, selector: str) -> None:
        """Click the middle of an element."""
        left, top, width, height = self.box(selector)
        self.click_at(left + width / 2, top + height / 2)

    def click_at(self, x: float, y: float) -> None:
        """Click at a point."""
        self.drag(x, y, x, y)

    def drag(self, x0: float, y0: float, x1: float, y1: float, modifiers: int = 0) -> None:
        """Press the button at one point and release it at another."""
        self.mouse("mouseMoved", x0, y0, modifiers=modifiers)
        self.mouse("mousePressed", x0, y0, button="left", buttons=1, clickCount=1, modifiers=modifiers)
        for part in (0.5, 1.0) if (x0, y0) != (x1, y1) else ():
            self.mouse("mouseMoved", x0 + (x1 - x0) * part, y0 + (y1 - y0) * part, button="left", buttons=1,
                       modifiers=modifiers)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1, modifiers=modifiers)
        self.settle()

    def key(self, name: str, modifiers: int = 0) -> None:
        """Press and release a key."""
        text = {"text": name} if len(name) == 1 else {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, modifiers=modifiers,
                      windowsVirtualKeyCode=KEYS.get(name, ord(name[0].upper())), **(text if kind == "keyDown" else {}))
        self.settle()

    def type(self, text: str) -> None:
        """Enter text into the element that has the focus."""
        self.call("Input.insertText", text=text)
        self.settle()

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write the window, or the whole page, to a PNG file."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """Close the tab."""
        self.browser.call("Target.closeTarget", targetId=self.target)
        self.browser.pages.pop(self.session, None)
