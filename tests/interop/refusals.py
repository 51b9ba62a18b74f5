"""The control plane sends what an Envoy refuses, and later something good: requests go on, the relay shows the refusal, and the
control plane, whose other clients might see it otherwise, hears nothing of it."""

from certificates import Certificate, self_signed
from house import House
from resources import (
    STAMP_HEADER, certificate_secret, endpoints, extension, host, on_demand, route_to, scope, stamp, type_of)
from web import backend, wait_for
from world import World


def changes(house, envoy):
    """What is changed, to something that is refused, then to something good, and what shows that this is in use."""
    cluster = house.cluster("a", timeout=2)
    cluster.ClearField("eds_cluster_config")
    yield ("a cluster of endpoints from nowhere", cluster, house.cluster("a", timeout=3),
           lambda: envoy.has_cluster("a", timeout=3))

    yield ("a port that there is not", endpoints("a", 70000), endpoints("a", backend("other")),
           lambda: house.plain.body() == "other")

    listener = house.plain_listener("")
    yield ("a listener without a label", listener, house.plain_listener("good"),
           lambda: envoy.shows('"stat_prefix": "good"', "dynamic_listeners"))

    twice = house.plain_routes()
    twice.virtual_hosts.append(host("again", "*", route_to("a")))
    yield "two hosts for everything", twice, house.plain_routes("b"), lambda: house.plain.body() == "b"

    yield ("two scopes for the same", scope("first", "two", "blue"), scope("first", "one", "green"),
           lambda: house.scoped("one").body() == "b")

    certificate = self_signed("shown")
    yield ("a key that is none", certificate_secret("shown", Certificate(certificate.pem, "no key")),
           certificate_secret("shown", certificate), lambda: house.tls.answer().certificate == certificate.pem)

    yield ("an extension of another type", extension("stamp", on_demand()), extension("stamp", stamp("good")),
           lambda: house.plain.answer().headers[STAMP_HEADER] == "good")


def run(options, source, upstream):
    with World.open(options, source, upstream) as world:
        house = House(world)
        envoy = world.envoy("envoy-1")
        house.wait_until_open()
        traffic = world.traffic(*house.asks())
        for what, bad, good, in_use in changes(house, envoy):
            kind = type_of(bad)
            world.plane.apply(bad)
            wait_for(f"{what} is refused", lambda: kind in world.relay.refused())
            traffic.flows()
            assert not in_use()
            world.plane.apply(good)
            wait_for(f"{what}: the good one is in use", in_use)
            wait_for(f"{what}: the refusal is over", lambda: kind not in world.relay.refused())
        world.end(traffic)
