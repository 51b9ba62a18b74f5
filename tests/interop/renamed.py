"""A listener that gets another name, and keeps its address: in one change of the control plane, as when a gateway is renamed. An Envoy refuses two
listeners on one address, so that it has to lose the old one with the change that brings the new one."""

from processes import free_port
from resources import cluster, endpoints, listener, manager, route_to, routes, type_of
from web import Ask, backend, get, wait_for
from world import World


def run(options, source, upstream):
    with World.open(options, source, upstream) as world:
        front = free_port()
        ask = Ask(front)
        before, after = (listener(source, name, front, manager(source, "routes")) for name in ("before", "after"))
        world.plane.apply(cluster(source, "c0"), endpoints("c0", backend("one")), routes("routes", route_to("c0")), before)
        envoy = world.envoy("envoy-1")
        wait_for("the first answer", lambda: ask.body() == "one")
        for new, old in ((after, before), (before, after)):
            world.plane.apply((type_of(old), old.name), new)
            wait_for("the listener has its new name", lambda: listeners(envoy) == [new.name])
            wait_for("it serves", lambda: ask.body() == "one")
            assert not world.relay.refused(), world.relay.refused()
        world.check()


def listeners(envoy):
    return [line.split("::")[0] for line in get(envoy.admin, "/listeners").body.splitlines()]
