"""A control plane as a process of its own, so that a signal can stop it: what it serves comes in on its standard input, a line for
each resource."""

import base64
import pathlib
import signal
import socket
import subprocess
import sys

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import Default as every_message

from plane import Entry, Plane, entry_of
from processes import free_port
from web import wait_for


class PlaneProcess:
    """What is done to it looks like what is done to a `Plane`. Nobody sees what it is asked or refused."""

    def __init__(self):
        self.port, self.nacks = free_port(), []
        self.process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__)), str(self.port)], stdin=subprocess.PIPE, text=True)
        wait_for("the control plane is up", lambda: socket.create_connection(("127.0.0.1", self.port), 1).close() is None)

    def apply(self, *changes):
        """Each change is a message, or an entry that is shown to everybody."""
        for change in changes:
            entry = change if isinstance(change, Entry) else entry_of(change)
            assert not entry.on_demand, entry
            self.process.stdin.write(base64.b64encode(entry.wrapped().SerializeToString()).decode() + "\n")
        self.process.stdin.flush()

    def hang(self):
        """The kernel goes on to take connections and bytes for it, and that is all."""
        self.process.send_signal(signal.SIGSTOP)

    def stop(self):
        self.process.kill()  # which a stopped process obeys too
        self.process.wait()
        self.process.stdin.close()


def main():
    plane = Plane(int(sys.argv[1]))
    for line in sys.stdin:
        resource = discovery_pb2.Resource.FromString(base64.b64decode(line))
        kind = every_message().FindMessageTypeByName(resource.resource.TypeName())
        message = message_factory.GetMessageClass(kind)()
        resource.resource.Unpack(message)
        plane.apply(Entry(resource.name, message, tuple(resource.aliases)))
    plane.stop()


if __name__ == "__main__":
    main()
