"""The gateways of one deployment share streams to Istiod: 8 real Envoys and 192 simulated clients in two zones, directly and through Weir, where two
views show Istiod one of their members each. Then keys that leave out what matters: both the command and the audit say so."""

import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass

from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format

from processes import Processes, Relay, free_port
from real import report
from real.course import PORTS
from real.crowd import Crowd
from real.envoy import AGENT, RealEnvoy
from real.istiod import Istiod, resource
from real.state import State, change_at_random
from web import Traffic, backend, get, wait_for

ZONES = ["zone-a", "zone-b"]
SIMULATED, REAL, CHANGES = 192, 8, 20
INTERVAL = 10  # seconds between audits
AUDIT = {"interval": f"{INTERVAL}s"}
SHARED = {"preset": "istio-gateway", "node": "member", "audit": AUDIT}
# Whose the clients are, which a key without the whole id needs.
RULE = {"name": "here", "identities": [{"network": "127.0.0.0/8"}], "tenant": "default",
        "free": ["id", "cluster", "locality", "metadata", "user_agent", "extensions", "client_features", "dynamic_parameters", "unknown"]}
MORE = f"permissions: {json.dumps([RULE])}\nbrakes: {{enabled: true}}\n"


def proxy(kind, name, ip, workload="gateway", zone=ZONES[0], labels=None):
    """The node of an Envoy as Istio's agent makes it."""
    return {"id": f"{kind}~{ip}~{name}.default~default.svc.cluster.local", "cluster": f"{workload}.default",
            "locality": {"region": "region", "zone": zone},
            "metadata": {**Istiod.NODE["metadata"], "NAME": name, "INSTANCE_IPS": ip, "WORKLOAD_NAME": workload,
                         "LABELS": labels or {"istio": workload}}}


def gateway(number):
    """One of the deployment."""
    name = f"gateway-{number:03}"
    return proxy("router", name, f"10.1.0.{number + 1}", zone=zone_of(name))


def zone_of(name):
    return ZONES[int(name.rpartition("-")[2]) % len(ZONES)]


class IstiodWithMore(Istiod):
    """`more` are resources beside those of the state."""
    more = ()

    def resources(self, state):
        yield from super().resources(state)
        yield from self.more

    def shown(self):
        """The names of the proxies whose streams it has, with one entry for each stream."""
        clients = json.loads(get(self.ports["more"], "/debug/connections").body).get("clients") or []
        return [re.sub(r"\.default-\d+$", "", client["connectionId"]) for client in clients]


class Way:
    """All gateways, before their own Istiod or behind Weir. The real ones of one way listen at the same port."""

    def __init__(self, options, name, folder, source):
        folder.mkdir()
        self.options, self.name, self.source, self.processes = options, name, source, Processes(folder)
        self.ports = {port: free_port() for port in PORTS} | {port: backend(port) for port in ["a", "b"]}
        self.plane = IstiodWithMore(options, self.processes, self.ports, source)
        self.relay, self.envoys, self.traffic = None, [], None
        self.others = []  # processes of other relays before its Istiod

    def start(self, state, template):
        self.plane.start(state)
        self.began = self.used()
        server = self.plane
        if self.name == "Weir":
            server = self.relay = Relay(
                self.processes, self.options.weir, [self.plane], "delta", self.options.log, {}, MORE, None, {}, SHARED)
        nodes = [gateway(number) for number in range(SIMULATED)]
        self.crowd = Crowd(self.processes, "crowd", server.port, template, nodes, len(ZONES))
        wait_for("all clients have everything", self.crowd.is_complete, 150)
        for number in range(SIMULATED, SIMULATED + REAL):
            self.envoys.append(RealEnvoy(
                self.processes, self.options.envoy, f"envoy-{number}", self.source, server, gateway(number)))
        asks = [self.plane.ask(), self.plane.ask("s1"), self.plane.ask("s2")]
        wait_for("each Envoy is ready", lambda: all(self.is_ready(envoy) for envoy in self.envoys), 60)
        wait_for("everything is answered", lambda: all(ask.body() for ask in asks), 60)
        self.started, self.traffic = self.used(), Traffic(*asks)

    def is_ready(self, envoy):
        return get(envoy.admin, "/ready").good and str(self.ports["front"]) in get(envoy.admin, "/listeners").body

    def used(self):
        return used_by(self.plane.process)

    def dumps(self):
        return [envoy.dump(self.ports) for envoy in self.envoys]

    def leave(self):
        """Its clients end; Istiod and the relay stay."""
        self.traffic.stop()
        self.processes.stop(self.crowd.process, *(envoy.process for envoy in self.envoys))
        for one in [self.crowd, *self.envoys]:
            self.processes.running.remove(one.process)


def used_by(process):
    """Seconds of processor time, and MiB of memory that are resident."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    resident = int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), resident * os.sysconf("SC_PAGE_SIZE") / 2**20


def run(options, plane, source):
    plane.build()
    with tempfile.TemporaryDirectory() as folder:
        ways = [Way(options, name, pathlib.Path(folder, name), source) for name in ["direct", "Weir"]]
        direct, weir = ways
        try:
            template, state = node_of_an_envoy(options, direct, source), State()
            for way in ways:
                way.start(state, template)
            streams = len(wait_for_two(weir))
            report.note(f"{SIMULATED + REAL} gateways", f"{len(direct.plane.shown())} streams", f"{streams} streams")
            changes(direct, weir, state)
            show_costs(direct, weir)
            nothing_is_reported(weir.relay)
            for way in ways:
                way.leave()
            planted(options, direct, state, template)
        except BaseException:
            for processes in [one for way in ways for one in [way.processes, *way.others]]:
                processes.show_logs()
            raise
        finally:
            for way in ways:
                if way.traffic:
                    way.traffic.stop()
                for processes in [*way.others, way.processes]:
                    processes.stop()


def node_of_an_envoy(options, way, source):
    """What a real Envoy says of itself, so that those that are simulated say the same."""
    class Nobody:
        port = free_port()

    envoy = RealEnvoy(way.processes, options.envoy, "template", source, Nobody, gateway(0))
    wait_for("an Envoy shows its node", lambda: get(envoy.admin, "/server_info").good, 30)
    said = json.loads(get(envoy.admin, "/server_info").body)["node"]
    envoy.stop()
    way.processes.running.remove(envoy.process)
    return json_format.ParseDict(said, base_pb2.Node(), ignore_unknown_fields=True).SerializeToString()


def wait_for_two(weir):
    """The members that are shown, while no audit has a stream of its own and no member changes."""
    seen = []

    def are_two():
        seen[:] = weir.plane.shown()
        return len(seen) == len(ZONES)

    try:
        wait_for("a stream for each zone", are_two, 60)
    except AssertionError:
        raise AssertionError(f"a stream for each zone: {len(seen)}, {sorted(seen)[:10]}") from None
    return sorted(seen)


def changes(direct, weir, state):
    """Changes at random, the same on each way. With each third one the member that is shown for one of the zones is killed."""
    dice, killed = random.Random(46), []
    for number in range(1, CHANGES + 1):
        victim = None
        if number % 3 == 0:
            victim = next(name for name in wait_for_two(weir) if zone_of(name) == ZONES[len(killed) % len(ZONES)])
            assert victim in weir.crowd.names, f"{victim} is shown, and has not been there for the longest time"
            for way in [direct, weir]:
                way.crowd.kill(victim)
            killed.append(victim)
        change_at_random(dice, state)
        for way in [direct, weir]:
            way.plane.apply(state)
        time.sleep(1)
        if victim:
            wait_for(f"another one is shown instead of {victim}", lambda: victim not in weir.plane.shown(), 30)
            wait_for(f"the dumps are equal after change {number}", lambda: direct.dumps() == weir.dumps(), 60)
    failed = [len(way.traffic.failures) for way in [direct, weir]]
    equal = compare(direct, weir)
    report.note(f"{CHANGES} changes, {len(killed)} members killed", f"{failed[0]} failed",
                f"{failed[1]} failed, {equal} of {REAL} dumps equal")
    print(f"  {CHANGES} changes, shown members killed: {killed}; failed requests: {failed[0]} of {direct.traffic.asked} directly, "
          f"{failed[1]} of {weir.traffic.asked} through Weir; {equal} of {REAL} dumps equal")
    assert equal == REAL, "dumps differ"
    assert failed[1] <= failed[0], weir.traffic.failures[:5]
    ended = weir.crowd.ended()
    assert not ended, f"streams to the relay have ended: {ended[:5]}"


def compare(direct, weir):
    """How many have what their twin has, once nothing changes any more. The first that does not is printed."""
    try:
        wait_for("the dumps are equal", lambda: direct.dumps() == weir.dumps(), 30)
    except AssertionError:
        pass
    time.sleep(2)
    pairs = list(zip(direct.dumps(), weir.dumps()))
    for one, other in pairs:
        if one != other:
            different = {section: [text[:1500] for text in set(one[section]) ^ set(other[section])] for section in one}
            print(f"  in one of both: {different}")
            break
    return sum(one == other for one, other in pairs)


def show_costs(direct, weir):
    """A table for docs/record/performance.md."""
    ends = [way.used() for way in [direct, weir]]
    relay = used_by(weir.relay.process)
    rows = [("Istiod, processor time until all have everything, s", [way.started[0] - way.began[0] for way in [direct, weir]]),
            (f"Istiod, processor time of {CHANGES} changes, s", [end[0] - way.started[0] for way, end in zip([direct, weir], ends)]),
            ("Istiod, resident memory, MiB", [end[1] for end in ends])]
    print(f"\n| {SIMULATED + REAL} gateways in {len(ZONES)} zones | Directly | Behind Weir |\n|---|---|---|")
    for name, (one, other) in rows:
        print(f"| {name} | {one:.1f} | {other:.1f} |")
        report.note(name, f"{one:.1f}", f"{other:.1f}")
    print(f"| Weir, processor time of all of it, s | | {relay[0]:.1f} |\n| Weir, resident memory, MiB | | {relay[1]:.1f} |\n")
    report.note("Weir, processor time and memory", "", f"{relay[0]:.1f} s, {relay[1]:.1f} MiB")


def audits(relay):
    """What the metrics say of audits, by series."""
    lines = [line.rsplit(" ", 1) for line in get(relay.admin, "/metrics").body.splitlines() if line.startswith("weir_audit")]
    return {series: float(value) for series, value in lines}


EQUAL, DIFFERS, DIFFERING = 'weir_audits_total{result="equal"}', 'weir_audits_total{result="differs"}', "weir_audit_views_differing"


def nothing_is_reported(relay):
    wait_for("an audit has compared a view", lambda: audits(relay).get(EQUAL), 90)
    found = audits(relay)
    print(f"  audits: {found}")
    report.note("audits, most of them while everything changed", "", str({series: count for series, count in found.items() if count}))
    assert found.get(DIFFERS) == 0 and found.get(DIFFERING) == 0, found


@dataclass
class Plant:
    """Two proxies that get different things, and a key by which they share. `field` is what it leaves out."""
    name: str
    field: str
    left_out: list
    nodes: list
    resources: list

    def key(self):
        return [{"id": {"part": 1, "of": "~"}}, "cluster", "locality", {"metadata": {"except": self.left_out}}, "tenant"]


OWN = ["NAME", "INSTANCE_IPS"]


def plants():
    labels = {"istio": "gateway"}
    yield Plant("label of a selector", "LABELS", [*OWN, "LABELS"],
                [proxy("router", "edge-1", "10.2.0.1", "edge", labels={**labels, "tier": "edge"}),
                 proxy("router", "edge-2", "10.2.0.2", "edge", labels=labels)],
                [listens("edge", {"tier": "edge"}, 7001)])
    yield Plant("target port other than the port", "INSTANCE_IPS", OWN,
                [proxy("router", "target-1", "10.3.0.1", "target"), proxy("router", "target-2", "10.3.0.2", "target")],
                [listens("target", {"istio": "target"}, 7002), resource("ServiceEntry", "target", {
                    "hosts": ["target.test"], "location": "MESH_INTERNAL", "resolution": "STATIC",
                    "ports": [{"number": 7002, "targetPort": 7003, "name": "http", "protocol": "HTTP"}],
                    "endpoints": [{"address": "10.3.0.1"}]})])
    yield Plant("headless service with sidecars", "INSTANCE_IPS", OWN,
                [proxy("sidecar", f"headless-{number}", f"10.4.0.{number}", "headless", labels={"app": "headless"}) for number in [1, 2]],
                [resource("ServiceEntry", "headless", {
                    "hosts": ["headless.test"], "location": "MESH_INTERNAL", "resolution": "NONE",
                    "ports": [{"number": 7004, "name": "tcp", "protocol": "TCP"}], "workloadSelector": {"labels": {"app": "headless"}}}),
                 *(resource("WorkloadEntry", f"headless-{number}", {"address": f"10.4.0.{number}", "labels": {"app": "headless"}})
                   for number in [1, 2])])


def listens(name, selector, port):
    return resource("Gateway", name, {"selector": selector, "servers": [
        {"port": {"number": port, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}]})


def planted(options, way, state, template):
    """Each has a relay of its own, and all audits run at the same time."""
    chosen = list(plants())
    way.plane.more = [one for plant in chosen for one in plant.resources]
    way.plane.apply(state)
    time.sleep(2)
    relays, start = [], time.monotonic()
    for number, plant in enumerate(chosen):
        folder = way.processes.folder / f"planted-{number}"
        folder.mkdir()
        processes = Processes(folder)
        way.others.append(processes)
        relay = Relay(processes, options.weir, [way.plane], "delta", options.log, {}, MORE, None, {},
                      {"key": plant.key(), "node": "member", "audit": AUDIT})
        crowd = Crowd(way.processes, f"planted-{number}", relay.port, template, plant.nodes, len(plant.nodes))
        wait_for(f"the clients of {plant.name} have everything", crowd.is_complete, 60)
        relays.append(relay)
    missed = []
    for plant, relay in zip(chosen, relays):
        said = key_against(options, relay, way.plane, plant)
        took = reported(relay, plant, start)
        report.note(f"planted: {plant.name}", "", f"{plant.field}: by the command: {'yes' if said else 'NO'}; by the audit: {took}")
        print(f"  {plant.name}: `weir key --against` names {plant.field}: {said}; the audit: {took}")
        if not said or took == "NO":
            missed.append(plant.name)
    assert not missed, f"not found: {missed}"


def key_against(options, relay, plane, plant):
    """Whether the command says that these nodes are served different things, and names the field."""
    nodes = relay.config.parent / "nodes.json"
    nodes.write_text("".join(json.dumps({**node, **AGENT}) + "\n" for node in plant.nodes))
    ended = subprocess.run([options.weir, "key", "--config", str(relay.config), "--against", f"http://127.0.0.1:{plane.port}", str(nodes)],
                           capture_output=True, text=True, timeout=90)
    print("   ", ended.stdout[-2000:].replace("\n", "\n    "), ended.stderr[-1000:])
    return ended.returncode == 1 and plant.field in ended.stdout


def reported(relay, plant, start):
    """How long the audit took to name the field, from the start of its relay: one interval, two comparisons, and a client's quiet time."""
    def names_it():
        return audits(relay).get(DIFFERING) and plant.field in get(relay.admin, "/problems").body

    try:
        wait_for("the audit has reported it", names_it, max(1, start + INTERVAL + 80 - time.monotonic()))
        return f"{time.monotonic() - start:.0f} s at most"
    except AssertionError:
        print("   ", get(relay.admin, "/problems").body[:3000], audits(relay))
        return "NO"
