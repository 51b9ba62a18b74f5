"""The steps of docs/migrate.md with real Envoys that are at their control plane: a relay beside it, a comparison, one Envoy, the others, and
back. No request fails at any of them."""

import json
import subprocess

from forwarder import Forwarder
from processes import Envoy
from resources import cluster, endpoints, listener, manager, route_to, routes
from web import Ask, backend, get, wait_for
from world import World

ENVOYS = 3
AWAY = 60  # seconds until an Envoy is connected again, which waits longer after each connection that it has lost
KINDS = ["clusters", "endpoints", "listeners", "routes"]


def run(options, source, upstream):
    with World.open(options, source, upstream) as world:
        fleet = Fleet(world)
        fleet.is_at("the control plane", [])

        # 1. The configuration is valid, and how the fleet splits is known.
        weir(options, "check", "--quiet", str(world.relay.config))
        nodes = "".join(json.dumps({"id": f"envoy-{number}", "cluster": "interop"}) + "\n" for number in range(ENVOYS))
        said = weir(options, "key", "--config", str(world.relay.config), given=nodes)
        print("  " + said.strip().splitlines()[-1])

        # 2. Both give the same, and the relay is ready.
        for kind in KINDS:
            direct, relayed = (got(options, port, kind) for port in [world.plane.port, world.relay.port])
            assert direct == relayed and direct, f"{kind}: {direct} directly, {relayed} through the relay"
        wait_for("the relay is ready", lambda: get(world.relay.admin, "/ready").good)
        fleet.traffic.flows()

        # 3. One Envoy, then the others; and each time a change reaches all of them.
        fleet.move([0], world.relay.port)
        fleet.is_at("both", [0])
        fleet.move(range(1, ENVOYS), world.relay.port)
        fleet.is_at("the relay", range(ENVOYS))
        # The view has a stream, however many Envoys there are; types may be tried on another.
        assert len(world.plane.streams) < ENVOYS, f"the control plane has {len(world.plane.streams)} streams"

        # Roll-back, of one and of all; then the relay ends, and nothing is left that needs it.
        fleet.move([0], world.plane.port)
        fleet.is_at("both", range(1, ENVOYS))
        fleet.move(range(1, ENVOYS), world.plane.port)
        fleet.is_at("the control plane", [])
        assert not world.relay.refused(), world.relay.refused()
        world.processes.stop(world.relay.process)
        fleet.changes("after the end of the relay")
        world.end(fleet.traffic)


class Fleet:
    """Envoys whose name for the control plane can be made to lead to the relay."""

    def __init__(self, world):
        self.world, self.servers = world, {name: backend(name) for name in "ab"}
        source = world.source
        self.ways = [Forwarder() for _ in range(ENVOYS)]
        # All get the same listener, so that the port has to be of each one's own choice.
        world.plane.apply(cluster(source, "c0"), endpoints("c0", self.servers["a"]), routes("routes", route_to("c0")),
                          listener(source, "main", 0, manager(source, "routes")))
        for way in self.ways:
            way.lead_to(world.plane.port)
        self.envoys = [Envoy(world.processes, world.options.envoy, f"envoy-{number}", source, way)
                       for number, way in enumerate(self.ways)]
        wait_for("all have a listener", lambda: all(front(envoy) for envoy in self.envoys))
        self.asks, self.at = [Ask(front(envoy)) for envoy in self.envoys], "a"
        wait_for("all have their configuration", self.all_are_there)
        self.traffic = world.traffic(*self.asks)

    def move(self, which, port):
        for way in [self.ways[number] for number in which]:
            way.leave()
            way.lead_to(port)
        wait_for("they are connected again", lambda: all(self.ways[number].reached for number in which), AWAY)

    def is_at(self, where, at_relay):
        """A change reaches everybody, and the relay has the clients that it should have."""
        nodes = {f"envoy-{number}" for number in at_relay}
        wait_for(f"the clients of the relay, with the fleet at {where}", lambda: self.clients() == nodes, AWAY)
        self.changes(f"with the fleet at {where}")

    def clients(self):
        return {client["node"] for client in json.loads(get(self.world.relay.admin, "/clients").body)["clients"]}

    def changes(self, when):
        """The endpoints change, and all Envoys use the new ones."""
        self.at = "b" if self.at == "a" else "a"
        self.world.plane.apply(endpoints("c0", self.servers[self.at]))
        took = wait_for(f"a change reaches all {when}", self.all_are_there)
        print(f"  a change reaches all {when}: {took:.1f} s")
        self.traffic.flows()

    def all_are_there(self):
        return all(ask.body() == self.at for ask in self.asks)


def front(envoy):
    """The port of its listener, or None."""
    listeners = json.loads(get(envoy.admin, "/listeners?format=json").body).get("listener_statuses", [])
    ports = [one["local_address"]["socket_address"]["port_value"] for one in listeners]
    return ports[0] if ports else None


def weir(options, *words, given=None):
    done = subprocess.run([options.weir, *words], input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"weir {' '.join(words)}: {done.returncode}, {done.stdout}{done.stderr}"
    return done.stdout


def got(options, port, kind):
    """What a client gets, without versions: Weir's are its own."""
    text = weir(options, "get", kind, "--server", f"127.0.0.1:{port}", "--cluster", "interop", "--id", "migrate")
    return [line for line in text.splitlines() if not line.startswith("version:")]
