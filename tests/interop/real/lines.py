"""Control planes that are libraries: a small program of ours around each takes resources on its standard input, a line for each."""

import base64
import socket
import subprocess
import threading

from plane import entry_of
from resources import cluster, endpoints, listener, manager, route_to, routes, runtime, type_of
from web import Ask, wait_for



class LinesPlane:
    """Those who inherit say which command runs. What is changed goes out as one change."""
    KEY = ["cluster"]
    NODE = {"id": "envoy-1", "cluster": "interop"}
    SERVER = {}
    VARIANTS = ["delta", "sotw"]
    EXCEPTIONS = {}

    def __init__(self, options, processes, ports, source):
        self.processes, self.ports, self.source, self.sent = processes, ports, source, {}
        self.port = ports["plane"]

    def command(self):
        raise NotImplementedError

    def start(self, state):
        log = open(self.processes.folder / "plane.log", "ab")
        self.taken = threading.Semaphore(0)
        self.process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes.running.append(self.process)
        threading.Thread(target=self.read, args=[self.process.stdout, self.taken], daemon=True).start()
        # What it has comes before its clients do.
        self.sent = {}
        self.apply(state)
        wait_for("the control plane is up", lambda: socket.create_connection(("127.0.0.1", self.port), 1).close() is None, 60)

    @staticmethod
    def read(output, taken):
        for line in output:
            if line == "taken\n":
                taken.release()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def apply(self, state):
        wanted = {(type_of(one), entry_of(one).name): one for one in self.resources(state)}
        lines = ["-" + " ".join(key) for key in self.sent.keys() - wanted.keys()]
        for key, one in wanted.items():
            if self.sent.get(key) != one:
                wrapper = entry_of(one).wrapped()
                lines.append(base64.b64encode(wrapper.SerializeToString()).decode())
        self.process.stdin.write("".join(line + "\n" for line in [*lines, ""]))
        self.process.stdin.flush()
        assert self.taken.acquire(timeout=60), "the change was not taken"
        self.sent = wanted

    def resources(self, state):
        paths = [route_to(name, prefix=f"/{name}") for name in sorted(state.services)]
        yield routes("routes", *paths, route_to(state.route))
        for port in ["front", *([state.second] if state.second else [])]:
            yield listener(self.source, port, self.ports[port], manager(self.source, "routes", label="routes"))
        for name, service in state.services.items():
            yield cluster(self.source, name, service.timeout)
            yield endpoints(name, self.ports[service.backend])
        yield runtime("runtime")

    def ask(self, path="", port="front"):
        return Ask(self.ports[port], f"/{path}")

    def cluster_part(self, service):
        """What is in the name of its cluster."""
        return service
