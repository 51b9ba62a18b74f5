"""The real program behind the page, with a control plane and clients of the load tool."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request


class RealRelay:
    """500 clients in three views: one answers nothing, and one rejects what has changed. They run in groups, which can be held up."""

    clients = 500
    stuck_node, stuck_reason = "web-checkout-7", "the client has not answered the newest reply of the type"
    nacking_node, nack_reason = "batch-importer-3", "rejected on purpose"
    resource, resource_presence = "cluster-00007.0", "Present in 3 views"
    texts = ["cluster=fleet-0", "connected, 3 of 3 streams", "99.6 % of 500"]

    def __init__(self, weir, tool):
        self.weir, self.tool = weir, tool
        self.folder = tempfile.TemporaryDirectory(prefix="weir-page-")
        self.kept = [reserved_port() for _ in range(4)]
        clients, admin, origin, control = (kept.getsockname() for kept in self.kept)
        self.address, self.admin, self.control = clients, admin, control
        self.config = pathlib.Path(self.folder.name, "weir.yaml")
        self.config.write_text(f"""
listen: [{{address: "{shown(clients)}"}}]
admin: {{address: "{shown(admin)}"}}
upstream: {{servers: [{{uri: "http://{shown(origin)}"}}]}}
views: {{key: [cluster]}}
""")
        self.processes = []
        try:
            self.start("origin", tool, "origin", "--listen", shown(origin), "--control", shown(control), "--clusters", "40")
            self.relay = self.start("weir", weir, "--config", self.config)
            wait("the relay is up", self.is_up)
            self.fleet("never-acker", 1, self.stuck_node, "fleet-0")
            self.fleet("nacker", 1, self.nacking_node, "fleet-1")
            self.groups = [self.fleet("envoy-ads-delta", count, f"envoy-{name}-{{n}}", "fleet-{n%3}")
                           for name, count in zip("abcde", (98, 100, 100, 100, 100))]
            self.make_trouble()
            [view] = [view["view"] for view in self.picture()["views"] if view["key_fields"] == {"cluster": "fleet-2"}]
            self.view = view
        except BaseException:
            self.close()
            raise

    # What runs.

    def start(self, name, *command):
        with open(pathlib.Path(self.folder.name, f"{name}.log"), "ab") as log:
            process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def fleet(self, behaviour, count, node, cluster):
        return self.start(f"clients-{node}", self.tool, "clients", shown(self.address), "--clients", f"{behaviour}={count}",
                          "--node-id", node, "--node-cluster", cluster, "--duration", "15m")

    def make_trouble(self):
        """Clients reject no set that is their first; so something changes."""
        wait("all clients are there", lambda: self.states() == {"SYNCED": 499, "NOT_SENT": 0, "STALE": 1, "NACKED": 0})
        self.command(f"touch clusters {int(self.resource.split('-')[1].split('.')[0]) + 1}")
        wait("a client rejects it", lambda: self.states() == {"SYNCED": 498, "NOT_SENT": 0, "STALE": 1, "NACKED": 1})

    def stop(self):
        self.relay.terminate()
        self.relay.wait(30)

    def start_again(self):
        """At the same address, as another process."""
        self.relay = self.start("weir", self.weir, "--config", self.config)

    def close(self):
        for process in self.processes:
            process.kill()  # also those that are held up
        for process in self.processes:
            process.wait()
        for kept in self.kept:
            kept.close()
        self.folder.cleanup()

    def logs(self):
        return "".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in sorted(pathlib.Path(self.folder.name).glob("[!c]*.log")))

    # What happens.

    def command(self, line):
        with socket.create_connection(self.control, 10) as control:
            control.sendall(f"{line}\n".encode())
            return control.makefile().readline()

    def spread(self):
        """Changes a route, which one group of clients after the other reads. Yields the percentages of clients that then have answered."""
        held = self.groups[1:]
        try:
            for group in held:
                group.send_signal(signal.SIGSTOP)
            for group in held:
                os.waitid(os.P_PID, group.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # until then some of its threads still answer
            self.command("touch routes 1")
            yield 19
            for percent, group in zip((39, 59, 79, 99.6), self.groups[1:]):
                held.remove(group)
                group.send_signal(signal.SIGCONT)
                yield percent
        finally:
            for group in held:
                group.send_signal(signal.SIGCONT)

    # What it says of itself.

    @property
    def url(self):
        return f"http://{shown(self.admin)}/"

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def is_up(self):
        with contextlib.suppress(OSError):
            return self.get("server_info")["state"] == "ready"

    def picture(self):
        with urllib.request.urlopen(self.url + "live", timeout=10) as events:
            return next(json.loads(line.removeprefix(b"data: ")) for line in events if line.startswith(b"data: "))

    def states(self):
        return self.picture()["totals"]["states"]

    @property
    def new_session(self):
        """Of the stuck client, after the restart. It comes back in its own time."""
        return wait("the stuck client is back", self.stuck_client)["session"]

    def stuck_client(self):
        return next(iter(self.get("clients?node=" + urllib.parse.quote(self.stuck_node))["clients"]), None)


def reserved_port():
    """A bound socket that never listens: it keeps the port from others, over restarts too, and the relay can listen there."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept


def shown(address):
    return f"{address[0]}:{address[1]}"


def wait(what, is_so, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)
    return found
