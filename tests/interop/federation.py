"""A gRPC client asks for a service of an authority, which has a control plane of its own."""

import grpc_by_xds
from grpc_by_xds import Client, grpc_backend
from resources import api_listener, cluster, endpoints, manager, route_to, routes, type_of
from web import wait_for
from world import World

AUTHORITY = "x"
TARGET = f"xds://{AUTHORITY}/service"


def named(message, name):
    """What the authority calls a resource of the type of this message."""
    return f"xdstp://{AUTHORITY}/{message.DESCRIPTOR.full_name}/{name}"


def service(source, port):
    assignment, held, routing = endpoints("", port), cluster(source, ""), routes("", route_to(""))
    assignment.cluster_name = held.eds_cluster_config.service_name = named(assignment, "service")
    held.name = named(held, "service")
    routing.name = named(routing, "service")
    routing.virtual_hosts[0].routes[0].route.cluster = held.name
    listener = api_listener(source, "", manager(source, routing.name))
    listener.name = named(listener, "service")
    return listener, routing, held, assignment


def run(options, upstream):
    source = grpc_by_xds.SOURCE
    with World.open(options, source, upstream, authorities=[AUTHORITY]) as world:
        servers = {name: grpc_backend(name) for name in ["a", "b", "c"]}
        ports = {name: port for name, (_, port) in servers.items()}
        plane, other = world.plane, world.authorities[AUTHORITY]
        plane.apply(cluster(source, "c1"), endpoints("c1", ports["a"]), routes("routes", route_to("c1")),
                    api_listener(source, "service", manager(source, "routes")))
        other.apply(*service(source, ports["b"]))
        client = Client(world, [AUTHORITY])
        assert client.ask() == "a", client.answers
        assert client.ask(TARGET) == "b", client.answers
        other.apply(*service(source, ports["c"]))
        wait_for("the authority changes its service", lambda: client.ask(TARGET) == "c")

        # Each is asked for what is its own, and the loss of one is nothing to the other.
        assert plane.asked and not [name for _, name in plane.asked if name.startswith("xdstp:")], plane.asked
        mine = {(type_of(message), getattr(message, "cluster_name", "") or message.name) for message in service(source, 1)}
        assert mine == {asked for asked in other.asked if asked[1] != "*"}, other.asked
        plane.stop()
        other.apply(*service(source, ports["b"]))
        wait_for("the authority changes its service again", lambda: client.ask(TARGET) == "b")
        assert client.ask() == "a", client.answers[-1]
        client.check("a", "b", "c")
        world.check()
        for server, _ in servers.values():
            server.stop(None)
