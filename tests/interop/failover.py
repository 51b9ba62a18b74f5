"""There are two control planes. The first is lost and comes back, and in between the second is asked for what is not held."""

import grpc_by_xds
from grpc_by_xds import Client, grpc_backend
from on_demand import SOON, Street, ask_for, virtual_host
from resources import api_listener, cluster, endpoints, manager, route_to, routes, type_of
from web import backend, wait_for
from world import World


def service(source, name, port):
    """All that a gRPC client needs for a target."""
    return (cluster(source, name), endpoints(name, port), routes(name, route_to(name)),
            api_listener(source, name, manager(source, name)))


def run_grpc(options, upstream):
    source = grpc_by_xds.SOURCE
    with World.open(options, source, upstream, planes=2) as world:
        first, second = world.planes
        servers = {name: grpc_backend(name) for name in ["a", "b", "c"]}
        ports = {name: port for name, (_, port) in servers.items()}
        for plane in world.planes:
            plane.apply(*service(source, "service", ports["a"]))
        client = Client(world)
        assert client.ask() == "a", client.answers
        assert not second.asked, "the second was asked although the first was there"

        first.stop()
        for _ in range(20):
            assert client.ask() == "a", client.answers[-1]
        assert not second.asked, "the second was asked although everything was held"
        second.apply(*service(source, "other", ports["b"]))
        assert client.ask("xds:///other") == "b", client.answers[-1]
        assert (type_of(endpoints("", 0)), "other") in second.asked
        assert client.ask() == "a", client.answers[-1]

        world.bring_back(*service(source, "other", ports["b"]), endpoints("service", ports["c"]))
        took = wait_for("what the first changed while it was away", lambda: client.ask() == "c")
        print(f"  back at the first control plane after {took:.1f} s")
        assert client.ask("xds:///other") == "b", client.answers[-1]
        world.plane.apply(endpoints("other", ports["c"]))
        wait_for("the first changes what came from the second", lambda: client.ask("xds:///other") == "c")
        wait_for("the second is left", lambda: not second.streams)
        client.check("a", "b", "c")
        world.check()
        for server, _ in servers.values():
            server.stop(None)


def run_envoy(options, source):
    with World.open(options, source, planes=2) as world:
        street, (first, second) = Street(world), world.planes
        second.apply(*first.entries.values())
        known, other, beside = ask_for(street.front, "known"), ask_for(street.front, "other"), ask_for(street.side, "known")
        envoy = world.envoy("envoy-1")
        wait_for("hosts that are there from the start", lambda: (known.body(), beside.body()) == ("a", "b"))
        traffic = world.traffic(known, beside)
        assert not second.asked, "the second was asked although the first was there"

        first.stop()
        traffic.flows()
        assert not second.asked, "the second was asked although everything was held"
        answer = other.answer(SOON)
        assert (answer.status, answer.body) == (200, "b"), answer
        assert street.asked("other", second)
        more_traffic = world.traffic(other)
        news = cluster(source, "c"), endpoints("c", backend("c"))
        second.apply(*news)
        wait_for("the second has a new cluster", lambda: envoy.has_cluster("c", timeout=1))
        second.apply(virtual_host("other", "c"))
        wait_for("the second has a route to it", lambda: other.body() == "c")

        world.bring_back(*news, virtual_host("other", "c"), virtual_host("known", "b", on_demand=False))
        took = wait_for("what the first changed while it was away", lambda: known.body() == "b")
        print(f"  back at the first control plane after {took:.1f} s")
        world.plane.apply(virtual_host("other", "a"))
        wait_for("the first changes what came from the second", lambda: other.body() == "a")
        wait_for("the second is left", lambda: not second.streams)
        world.end(more_traffic)
        world.end(traffic)
        assert not world.relay.refused(), world.relay.refused()
