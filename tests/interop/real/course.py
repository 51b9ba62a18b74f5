"""One control plane, an Envoy before it or behind Weir, and traffic; what each step has shown."""

import contextlib
import time

from processes import Processes, Relay, free_port
from real.envoy import RealEnvoy
from real.state import State
from web import Traffic, backend, get, wait_for

PORTS = ["front", "second", "plane", "busy", "more", "more again", "yet more", "sidecar-web", "sidecar-s1", "sidecar-s2",
         "sidecar-s3"]
SAVED = "state: {path: state}\nbrakes: {enabled: true}\n"


class Course:
    """`way` is "direct" or "Weir". Ports have the same names on both ways."""

    def __init__(self, make, options, source, upstream, way, folder):
        self.options, self.source, self.way = options, source, way
        self.ports = {name: free_port() for name in PORTS} | {name: backend(name) for name in ["a", "b"]}
        self.ports["busy"] = backend("busy")  # no other listener can have it
        folder.mkdir()
        (folder / "second").mkdir()
        self.processes, self.second_tier = Processes(folder), Processes(folder / "second")
        self.plane, self.upstream = make(options, self.processes, self.ports, source), upstream
        self.state, self.dumps, self.failures, self.took = State(), {}, {}, {}
        self.relay = self.traffic = self.envoy = None
        self.step_name = "start"

    @property
    def by_weir(self):
        return self.way == "Weir"

    def start_relay(self):
        if self.by_weir:
            self.relay = self.make_relay(self.processes, self.plane, self.plane.SERVER)

    def make_relay(self, processes, server, settings):
        return Relay(processes, self.options.weir, [server], self.upstream, self.options.log, {}, SAVED, None, settings, self.plane.KEY)

    def start_envoy(self, name, server=None):
        server = server or self.relay or self.plane
        node = self.plane.NODE
        self.envoy = RealEnvoy(self.processes, self.options.envoy, name, self.source, server, node, self.plane_reach(server), self.headers(node))
        return self.envoy

    def start_others(self):
        """Envoys that only have to be there."""
        for name, node in getattr(self.plane, "OTHERS", {}).items():
            server = self.relay or self.plane
            RealEnvoy(self.processes, self.options.envoy, name, self.source, server, node, headers=self.headers(node))

    def headers(self, node):
        """What an Envoy with this node shows to the control plane."""
        return self.plane.headers(node) if hasattr(self.plane, "headers") else None

    def plane_reach(self, server):
        """Changes how an Envoy speaks to the control plane itself."""
        return getattr(self.plane, "reach", None) if server is self.plane else None

    def start_traffic(self):
        asks = [self.plane.ask(), self.plane.ask("s1"), self.plane.ask("s2")]
        wait_for("everything is answered", lambda: all(ask.body() for ask in asks), 60)
        self.traffic = Traffic(*asks)

    def stop_traffic(self):
        if self.traffic:
            self.traffic.stop()
            self.failures.setdefault(self.step_name, []).extend(self.traffic.failures)
            self.traffic = None

    def apply(self, **changes):
        for name, value in changes.items():
            setattr(self.state, name, value)
        self.plane.apply(self.state)

    def service(self, name, **changes):
        for key, value in changes.items():
            setattr(self.state.services[name], key, value)
        self.plane.apply(self.state)

    def answers(self, path, body, patience=60):
        return wait_for(f"/{path} is answered by {body}", lambda: self.plane.ask(path).body() == body, patience)

    def has_timeout(self, service, patience=60):
        part, seconds = self.plane.cluster_part(service), f"{self.state.services[service].timeout}s"
        return wait_for(f"{service} has {seconds}", lambda: self.envoy.timeout_of(part) == seconds, patience)

    def run(self, steps):
        """Each step, then what the Envoy has in use once it rests, and which requests have failed meanwhile."""
        try:
            for name, step in steps:
                self.step_name, start = name, time.monotonic()
                step(self)
                if self.traffic:
                    self.traffic.stop()
                    self.failures.setdefault(name, []).extend(self.traffic.failures)
                    self.traffic = Traffic(*self.traffic.asks)
                self.dumps[name] = self.rest()
                self.took[name] = time.monotonic() - start
        except BaseException:
            print(f"--- {self.way}, {self.step_name}", flush=True)
            self.show_relay()
            self.processes.show_logs()
            raise
        finally:
            self.stop_traffic()
            self.second_tier.stop()
            self.processes.stop()

    def show_relay(self):
        for page in ["/upstreams", "/clients"] if self.relay else []:
            with contextlib.suppress(OSError):
                print(page, get(self.relay.admin, page).body[:20000])

    def dump(self):
        comparable = getattr(self.plane, "comparable", str)
        return {section: sorted(map(comparable, texts)) for section, texts in self.envoy.dump(self.ports).items()}

    def rest(self):
        """What is in use, once that has not changed for two seconds."""
        if settled := getattr(self.plane, "settled", None):
            wait_for("the control plane has come to rest", settled, 60)
        last, since = self.dump(), time.monotonic()
        end = since + 30
        while time.monotonic() - since < 2:
            time.sleep(0.2)
            now = self.dump()
            if now != last:
                last, since = now, time.monotonic()
            assert time.monotonic() < end, "the Envoy does not come to rest"
        return last
