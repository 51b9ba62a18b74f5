"""A control plane on go-control-plane, as a process of its own, with one of its caches."""

import base64
import pathlib
import shutil
import socket
import subprocess
import threading

from plane import Entry, entry_of
from processes import free_port
from skipped import Skipped
from web import wait_for

HERE = pathlib.Path(__file__).parent
PROGRAM = HERE.parents[1] / "target" / "interop-go-control-plane"
CACHES = ["snapshot", "snapshot-ads", "linear", "mux"]


def build():
    """Once for all scenarios, which may run at the same time. Nothing without Go."""
    if shutil.which("go"):
        PROGRAM.unlink(missing_ok=True)
        subprocess.run(["go", "build", "-o", PROGRAM, "."], cwd=HERE / "go-control-plane")


class GoPlane:
    """What is done to it looks like what is done to a `Plane`. Nobody sees what it is asked."""

    def __init__(self, cache):
        if not shutil.which("go"):
            raise Skipped("there is no Go to build go-control-plane with")
        assert PROGRAM.exists(), "go-control-plane could not be built"
        self.port, self.nacks, self.entries, self.taken = free_port(), [], {}, threading.Semaphore(0)
        self.process = subprocess.Popen(
            [PROGRAM, "-cache", cache, "-port", str(self.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()
        wait_for("go-control-plane is up", lambda: socket.create_connection(("127.0.0.1", self.port), 1).close() is None)

    def read(self):
        for line in self.process.stdout:
            if line == "taken\n":
                self.taken.release()
            else:
                self.nacks.append(line.strip())

    def apply(self, *changes):
        """Each change is a message, or a (type, name) to delete; all of them are one change of its cache."""
        for change in changes:
            if isinstance(change, tuple):
                line = "-" + " ".join(change)
            else:
                entry = change if isinstance(change, Entry) else entry_of(change)
                line = base64.b64encode(entry.wrapped().SerializeToString()).decode()
            self.process.stdin.write(line + "\n")
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.taken.acquire(timeout=10), "the change was not taken"

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
