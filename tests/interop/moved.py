"""An Envoy that speaks SotW moves from its control plane to the relay in front of the same one, while clusters change. It states versions
that the relay never gave. It has the changes soon, and at no time misses anything that it held."""

import http.client
import json
import threading
import time

from delta_client import DeltaClient
from forwarder import Forwarder
from go_plane import GoPlane
from plane import Pieces, Plane
from processes import Envoy, free_port
from resources import Source, cluster, endpoints, listener, manager, route_to, routes, runtime, type_of
from web import Ask, backend, get, wait_for
from world import World

SOURCE = Source(aggregated=True, delta=False)
CLUSTERS = [f"c{number}" for number in range(6)]
BACK = 60  # seconds until an Envoy is at its control plane again, which waits longer after each connection that it has lost
WITHIN = 3  # seconds after its connection to the relay, an Envoy has what has changed
ROUNDS = 3
# A second silence is shorter than by default, and much longer than what is between two pieces.
GAP, LIMITS = 2, "limits: {second_silence: 20s}\n"
HABITS = {"compares": Pieces(GAP, compares=True), "compares piece by piece": Pieces(GAP, compares=True, piecewise=True),
          "sends all again": Pieces(GAP, compares=False)}
# A server that removes in a first piece what it adds to in the next one must be known as one that sends pieces.
KNOWN_AS = {"compares piece by piece": {"initial_set": "pieces"}}
IN_PIECES = 180  # seconds until everything is there, even if only silence shows it
AFTERWARDS = 10  # seconds in which nothing is lost after that


def run_go(options, cache, warm):
    with World.open(options, SOURCE, planes=[GoPlane(cache)]) as world:
        move = Move(world)
        for number in range(ROUNDS):
            took = move.there(number, warm)
            print(f"  changes taken after {took:.2f} s")
            assert took < WITHIN, took
            move.back()
        move.end()


def run_pieces(options, habit, warm):
    plane = Plane(pieces=HABITS[habit])
    with World.open(options, SOURCE, planes=[plane], more=LIMITS, server=KNOWN_AS.get(habit)) as world:
        move = Move(world)
        took = move.there(0, warm, patience=IN_PIECES)
        print(f"  changes taken after {took:.2f} s")
        time.sleep(AFTERWARDS)
        move.end()


class Move:
    """An Envoy at the control plane, whose way to it can be made to lead to the relay."""

    def __init__(self, world):
        self.world, self.forwarder, self.timeout = world, Forwarder(), 1
        self.fronts = {"first": free_port(), "second": free_port()}
        port = backend("a")
        world.plane.apply(*self.clusters(CLUSTERS), *(endpoints(name, port) for name in CLUSTERS), *self.listeners(),
                          *(routes(name, *(route_to(one, prefix=f"/{one}") for one in CLUSTERS)) for name in self.fronts))
        self.forwarder.lead_to(world.plane.port)
        self.envoy = Envoy(world.processes, world.options.envoy, "envoy-1", SOURCE, self.forwarder)
        asks = [Ask(front, f"/{name}") for front in self.fronts.values() for name in CLUSTERS]
        wait_for("the Envoy has everything", lambda: all(ask.body() == "a" for ask in asks))
        self.traffic, self.held = world.traffic(*asks), Held(self.envoy)
        assert self.held.first >= {*CLUSTERS, *self.fronts}, self.held.first

    def clusters(self, names):
        return [cluster(SOURCE, name, self.timeout) for name in names]

    def listeners(self):
        return [listener(SOURCE, name, port, manager(SOURCE, name, label=name)) for name, port in self.fronts.items()]

    def there(self, number, warm, patience=20):
        """To a relay that has just been started, and has nothing cached or all that another client subscribes to. Clusters change before
        the Envoy is connected to it, at the same time and soon after. Returns how long after its connection the Envoy has the changes."""
        if number:
            self.world.relay.kill()
            self.world.relay.start()
        other = self.other_client() if warm else None
        self.forwarder.leave()
        self.timeout += 1
        before, same, after = CLUSTERS[1:4]
        self.world.plane.apply(*self.clusters([before]))
        self.forwarder.lead_to(self.world.relay.port)
        wait_for("the Envoy is connected to the relay", lambda: self.forwarder.reached)
        start = self.forwarder.reached
        self.world.plane.apply(*self.clusters([same]))
        time.sleep(0.2)
        self.world.plane.apply(*self.clusters([after]))

        def taken():
            self.check()
            return all(self.envoy.has_cluster(name, self.timeout) for name in [before, same, after])

        wait_for("the changes are taken", taken, patience)
        took = time.monotonic() - start
        self.traffic.flows()
        if other:
            other.close()
        return took

    def other_client(self):
        """Has the view of the relay filled with everything there is."""
        client, wanted = DeltaClient(self.world.relay.port), {}
        wanted[type_of(cluster(SOURCE, ""))] = set(CLUSTERS)
        wanted[type_of(endpoints("", 0))] = set(CLUSTERS)
        wanted[type_of(self.listeners()[0])] = set(self.fronts)
        wanted[type_of(routes(""))] = set(self.fronts)
        wanted[type_of(runtime(""))] = {"runtime"}
        everything = [type_of(cluster(SOURCE, "")), type_of(self.listeners()[0])]
        for kind, names in wanted.items():
            client.send(kind, () if kind in everything else sorted(names))
        while any(wanted.values()):
            response = client.receive(patience=20)
            wanted[response.type_url] -= {resource.name for resource in response.resources}
        return client

    def back(self):
        """To the control plane, which takes nothing away either."""
        self.forwarder.leave()
        self.timeout += 1
        self.world.plane.apply(*self.clusters(CLUSTERS))
        self.forwarder.lead_to(self.world.plane.port)
        wait_for("the Envoy is at the control plane again", lambda: all(
            self.envoy.has_cluster(name, self.timeout) for name in CLUSTERS), BACK)

    def check(self):
        self.traffic.check()
        self.held.check()

    def end(self):
        self.check()
        self.held.stop()
        self.world.end(self.traffic)
        print(f"  looked {self.held.looked} times at what the Envoy has, and all was there")
        assert not self.world.relay.refused(), self.world.relay.refused()


class Held:
    """What an Envoy has: clusters with hosts, listeners, route configurations. Looks all the time whether something is missing, and counts
    on what the Envoy itself counts for what is gone between two looks."""

    COUNTERS = ["cluster_manager.cluster_removed", "listener_manager.listener_removed",
                "cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected"]

    def __init__(self, envoy):
        self.envoy, self.missing, self.looked, self.stopped = envoy, [], 0, False
        self.first, self.counted = self.has(), self.counters()
        assert len(self.counted) == len(self.COUNTERS), self.counted
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def has(self):
        clusters = json.loads(get(self.envoy.admin, "/clusters?format=json").body)["cluster_statuses"]
        listeners = json.loads(get(self.envoy.admin, "/listeners?format=json").body)["listener_statuses"]
        routes = json.loads(get(self.envoy.admin, "/config_dump?resource=dynamic_route_configs").body).get("configs", [])
        with_hosts = {f"route configuration {one['route_config']['name']}" for one in routes if one["route_config"].get("virtual_hosts")}
        return {one["name"] for one in clusters if one.get("host_statuses")} | {one["name"] for one in listeners} | with_hosts

    def counters(self):
        lines = get(self.envoy.admin, "/stats?filter=_removed$|update_rejected$").body.splitlines()
        counters = dict(line.split(": ") for line in lines)
        return {name: counters[name] for name in self.COUNTERS}

    def run(self):
        while not self.stopped:
            try:
                missing, counted = self.first - self.has(), self.counters()
                if missing or counted != self.counted:
                    self.missing.append((time.strftime("%X"), sorted(missing), counted))
                self.looked += 1
            except (OSError, http.client.HTTPException) as error:
                self.missing.append((time.strftime("%X"), repr(error)))
            time.sleep(0.05)

    def check(self):
        assert not self.missing, f"of {self.first} and {self.counted} was missing: {self.missing[:5]}"

    def stop(self):
        self.stopped = True
        self.thread.join()
        self.check()
