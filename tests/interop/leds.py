"""The endpoints of a cluster are members of a collection (LEDS), and come one by one from a control plane of their own."""

from envoy.config.core.v3 import base_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components, endpoint_pb2
from google.protobuf import wrappers_pb2

from plane import Entry
from processes import free_port
from resources import address, cluster, listener, manager, route_to, routes, type_of
from web import Ask, backend, wait_for
from world import World

AUTHORITY = "x"
FOLDER = f"xdstp://{AUTHORITY}/{components.LbEndpoint.DESCRIPTOR.full_name}/house"


def elsewhere(source, name):
    """Endpoints that are whatever is in the collection."""
    leds = components.LedsClusterLocalityConfig(leds_config=source.config(), leds_collection_name=f"{FOLDER}/*")
    return endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=[components.LocalityLbEndpoints(
        locality=base_pb2.Locality(region="here"), load_balancing_weight=wrappers_pb2.UInt32Value(value=1),
        leds_cluster_locality_config=leds)])


def member(name, port):
    return Entry(f"{FOLDER}/{name}", components.LbEndpoint(endpoint=components.Endpoint(address=address(port))))


def run(options, source):
    with World.open(options, source, authorities=[AUTHORITY]) as world:
        plane, other, front = world.plane, world.authorities[AUTHORITY], free_port()
        other.apply(member("one", backend("a")))
        plane.apply(elsewhere(source, "house"), cluster(source, "house"), routes("routes", route_to("house")),
                    listener(source, "front", front, manager(source, "routes")))
        world.envoy("envoy-1")
        ask = Ask(front)
        wait_for("the first member", lambda: ask.body() == "a")
        traffic = world.traffic(ask)
        other.apply(member("two", backend("b")))
        wait_for("a second member", lambda: "b" in {ask.body() for _ in range(20)})
        other.apply((type_of(components.LbEndpoint), f"{FOLDER}/one"))
        wait_for("the first has gone", lambda: {ask.body() for _ in range(20)} == {"b"})
        assert {name for kind, name in other.asked if kind == type_of(components.LbEndpoint)} == {f"{FOLDER}/*"}
        assert not [name for _, name in plane.asked if name.startswith("xdstp:")], plane.asked

        # Both control planes go, and nobody notices.
        plane.stop()
        other.stop()
        traffic.flows()
        world.end(traffic)
        assert not world.relay.refused(), world.relay.refused()
