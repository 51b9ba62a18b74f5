"""Servers that are slow or silent in the three most delicate moments: when the relay starts anew, when the first choice is back, and
when a control plane hangs. Whatever exists goes on to be served, and a server that hangs is left for the next."""

import time

import grpc_by_xds
from failover import service
from grpc_by_xds import Client, grpc_backend
from on_demand import ask_for, virtual_host
from plane import Plane
from plane_process import PlaneProcess
from processes import free_port
from resources import (
    cluster, endpoints, filter_of, listener, manager, on_demand, route_to, routes, routes_elsewhere, type_of)
from web import Ask, backend, wait_for
from world import World

CLUSTERS = [f"c{number:02}" for number in range(40)]
PACE = 1  # seconds between two clusters of a slow control plane
SLOWLY = type_of(cluster(grpc_by_xds.SOURCE, "")), PACE
LATEST = len(CLUSTERS) * PACE + 20  # until such a one has said all, and somebody has taken it in
HUNG = 30  # seconds after which a server that hangs is out of reach, by the defaults


class Avenue:
    """One listener, and forty clusters behind it, each under a path of its own."""

    def __init__(self, world):
        self.world, self.front = world, free_port()
        self.asks = [Ask(self.front, f"/{name}") for name in CLUSTERS]
        port, source = backend("a"), world.source
        for plane in world.planes:
            plane.apply(*(cluster(source, name) for name in CLUSTERS), *(endpoints(name, port) for name in CLUSTERS))
            plane.apply(routes("routes", *(route_to(name, prefix=f"/{name}") for name in CLUSTERS)),
                        listener(source, "front", self.front, manager(source, "routes")))

    def open(self):
        """An Envoy that has everything, and requests to each cluster all the time."""
        self.envoy = self.world.envoy("envoy-1")
        wait_for("each cluster answers", lambda: all(ask.body() == "a" for ask in self.asks), patience=20)
        return self.world.traffic(*self.asks)

    def goes_on(self, traffic, until):
        """No request fails until something is so, and for some time after that."""
        wait_for("it is so", lambda: traffic.check() is None and until(), LATEST)
        for _ in range(10):
            time.sleep(PACE)
            traffic.flows()
        missing = [name for name in CLUSTERS if not self.envoy.has_hosts(name)]
        assert not missing, missing


def run_restart(options, source):
    with World.open(options, source) as world:
        avenue = Avenue(world)
        traffic = avenue.open()
        world.relay.kill()
        world.plane.comes_by_slowly(*SLOWLY)
        world.relay.start()
        avenue.goes_on(traffic, until=lambda: not world.plane.to_come)
        world.end(traffic)


def run_return(options, source):
    with World.open(options, source, planes=2) as world:
        avenue, (first, second) = Avenue(world), world.planes
        first.stop()
        traffic = avenue.open()
        assert second.streams
        world.bring_back(slowly=SLOWLY)
        avenue.goes_on(traffic, until=lambda: not world.plane.to_come and not second.streams)
        world.end(traffic)


def run_stopped(options, source):
    with World.open(options, source, planes=[PlaneProcess(), Plane()]) as world:
        (first, second), front = world.planes, free_port()
        ports = {name: backend(name) for name in ["a", "b"]}
        for plane in world.planes:
            for name, port in ports.items():
                plane.apply(cluster(source, name), endpoints(name, port))
            filters = [filter_of("on-demand", on_demand())]
            plane.apply(listener(source, "front", front, manager(source, "routes", filters=filters)),
                        routes_elsewhere(source, "routes"), virtual_host("known", "a", on_demand=False))
        second.apply(virtual_host("other", "b"))
        known, other = ask_for(front, "known"), ask_for(front, "other")
        world.envoy("envoy-1")
        wait_for("the host that is there from the start", lambda: known.body() == "a")
        traffic = world.traffic(known)
        assert not second.asked, "the second was asked although the first was there"

        first.hang()
        start = time.monotonic()
        answer = other.answer(HUNG)
        assert (answer.status, answer.body) == (200, "b"), answer
        print(f"  served by the second control plane after {time.monotonic() - start:.1f} s")
        world.end(traffic)


def run_stopped_grpc(options):
    source = grpc_by_xds.SOURCE
    with World.open(options, source, planes=[PlaneProcess(), Plane()]) as world:
        first, second = world.planes
        servers = {name: grpc_backend(name) for name in ["a", "b"]}
        ports = {name: port for name, (_, port) in servers.items()}
        for plane in world.planes:
            plane.apply(*service(source, "service", ports["a"]))
        second.apply(*service(source, "other", ports["b"]))
        client = Client(world)
        assert client.ask() == "a", client.answers

        first.hang()
        # The library itself takes a name for absent after 15 s, and believes it when it comes later.
        took = wait_for("the second serves", lambda: client.ask("xds:///other") == "b", HUNG)
        print(f"  served by the second control plane after {took:.1f} s")
        for _ in range(20):
            assert client.ask() == "a", client.answers[-1]
        world.check()
        for server, _ in servers.values():
            server.stop(None)
