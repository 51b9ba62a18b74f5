"""A headless Chromium, driven by the DevTools protocol."""

import base64
import contextlib
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import websocket

KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "ArrowDown": (40, ""), "ArrowUp": (38, ""), "Tab": (9, "")}


class Browser:
    """One page, with all errors that it has logged."""

    def __init__(self, chromium):
        self.profile = tempfile.mkdtemp(prefix="weir-page-")
        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-port=0", "--remote-allow-origins=*",
             f"--user-data-dir={self.profile}", "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.number, self.errors = 0, []
        port, path = self._address()
        self.socket = websocket.create_connection(f"ws://127.0.0.1:{port}{path}", timeout=60)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Performance"):
            self.call(f"{domain}.enable")

    def _address(self):
        file = pathlib.Path(self.profile, "DevToolsActivePort")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if file.exists() and len(lines := file.read_text().split("\n")) > 1:
                return lines[0], lines[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError("Chromium does not start")

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv())
            self._note(answer)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _note(self, event):
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning"):
                self.errors.append(" ".join(str(value.get("value")) for value in parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
            case "Page.javascriptDialogOpening":
                self.errors.append(f"a script has run: {parameters['message']}")

    def take_errors(self):
        self.run("0")  # whatever was logged before has arrived then
        errors, self.errors = self.errors, []
        return errors

    # What a person does.

    def open(self, url):
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    @contextlib.contextmanager
    def another_tab(self):
        """In front of the page."""
        target = self.call("Target.createTarget", url="about:blank", newWindow=False)["targetId"]
        self.call("Target.activateTarget", targetId=target)
        yield
        self.call("Target.closeTarget", targetId=target)
        self.call("Page.bringToFront")

    def window(self, width, height, dark=False, still=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}, {"name": "prefers-reduced-motion",
                "value": "reduce" if still else "no-preference"}])

    def press(self, key):
        code, text = KEYS[key] if key in KEYS else (ord(key.upper()), key)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        """Once it does not move any more."""
        spots = []
        self.wait(f"{selector} is at rest", lambda: spots.append(self._spot(selector)) or spots[-1] in spots[:-1][-1:])
        spot = spots[-1]
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1)

    def _spot(self, selector):
        return self.run(f"(() => {{ const node = document.querySelector({json.dumps(selector)}); node.scrollIntoView({{block: 'center'}}); "
                        "const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()")

    # What a person sees.

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails'].get('exception', {}).get('description')}")
        return result["result"].get("value")

    def text(self, selector="body"):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def wait(self, what, is_so, seconds=60):
        """`is_so` is a script, or a function."""
        deadline = time.monotonic() + seconds
        while not (is_so() if callable(is_so) else self.run(is_so)):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {what}; the page has:\n{self.text()[:3000]}")
            time.sleep(0.1)

    def wait_text(self, text, selector="body", seconds=60):
        self.wait(f"{text!r} in {selector}", lambda: text in self.text(selector), seconds)

    def metrics(self):
        return {metric["name"]: metric["value"] for metric in self.call("Performance.getMetrics")["metrics"]}

    def screenshot(self, path, is_whole=False):
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        pathlib.Path(path).write_bytes(base64.b64decode(image["data"]))
