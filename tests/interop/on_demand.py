"""Virtual hosts as resources of their own: some are there from the start, others are asked for when a request needs them."""

from plane import HOSTS, host_of
from processes import free_port
from resources import cluster, endpoints, filter_of, host, listener, manager, on_demand, route_to, routes_elsewhere
from web import Ask, backend, wait_for
from world import World

SOON = 3  # seconds; an Envoy itself has no limit to how long a request waits for its virtual host


def virtual_host(name, to, on_demand=True, under="routes", body_name=None):
    return host_of(under, name, host(body_name or name, f"{name}.test", route_to(to)), on_demand)


def absent_host(to):
    """An Envoy takes hosts away by the name in their body, which has to be the whole one of a host that will go."""
    return virtual_host("absent", to, body_name="routes/absent")


def refused_host():
    bad = virtual_host("known", "a", on_demand=False)
    bad.message.routes[0].ClearField("route")
    return bad


class Street:
    """Two listeners, each with a route configuration whose virtual hosts come from elsewhere."""

    def __init__(self, world):
        self.source, self.plane = world.source, world.plane
        self.front, self.side = free_port(), free_port()
        for name in ["a", "b"]:
            self.plane.apply(cluster(self.source, name), endpoints(name, backend(name)))
        self.plane.apply(
            self.listener("front", self.front, "routes"), routes_elsewhere(self.source, "routes"),
            self.listener("side", self.side, "others"), routes_elsewhere(self.source, "others"),
            virtual_host("known", "a", on_demand=False), virtual_host("other", "b"),
            virtual_host("known", "b", on_demand=False, under="others"))

    def listener(self, name, port, route_name):
        filters = [filter_of("on-demand", on_demand())]
        return listener(self.source, name, port, manager(self.source, route_name, label=name, filters=filters))

    def asked(self, name, plane=None):
        return (HOSTS, f"routes/{name}.test") in (plane or self.plane).asked


def ask_for(port, name):
    return Ask(port, headers=(("host", f"{name}.test"),))


def run(options, source):
    with World.open(options, source) as world:
        street, plane = Street(world), world.plane
        known, other, absent = (ask_for(street.front, name) for name in ["known", "other", "absent"])
        beside = ask_for(street.side, "known")
        envoy = world.envoy("envoy-1")
        took = wait_for("hosts that are there from the start", lambda: (known.body(), beside.body()) == ("a", "b"))
        print(f"  first request routed after {took:.1f} s")
        traffic = world.traffic(known, beside)

        assert not street.asked("other")
        answer = other.answer(SOON)
        assert (answer.status, answer.body) == (200, "b"), answer
        assert street.asked("other"), "the host came without being asked for"
        assert absent.answer(SOON).status == 404
        assert absent.answer(SOON).status == 404, "once more"
        more_traffic = world.traffic(other)

        plane.apply(absent_host("b"))
        wait_for("a host that there was not", lambda: absent.body() == "b")
        plane.apply(virtual_host("known", "b", on_demand=False))
        wait_for("a host changes", lambda: known.body() == "b")
        plane.apply(virtual_host("other", "a"))
        wait_for("a host that was asked for changes", lambda: other.body() == "a")
        plane.apply((HOSTS, "routes/absent"))
        wait_for("a host is gone", lambda: absent.answer(SOON).status == 404)
        plane.apply(absent_host("a"))
        wait_for("a host is back", lambda: absent.body() == "a")

        # The hosts of a route configuration stay when it changes itself.
        changed = routes_elsewhere(source, "routes")
        changed.request_headers_to_remove.append("x-none")
        plane.apply(changed)
        wait_for("the route configuration changed", lambda: envoy.shows("x-none", "dynamic_route_configs"))
        traffic.flows()
        assert not world.relay.refused(), world.relay.refused()

        plane.apply(refused_host())
        wait_for("a host is refused", lambda: HOSTS in world.relay.refused())
        traffic.flows()
        plane.apply(virtual_host("known", "a", on_demand=False))
        wait_for("a good one is in use", lambda: known.body() == "a")
        world.end(more_traffic)
        world.end(traffic)

        # What the relay holds is enough for an Envoy that has nothing, with the hosts that another asked for.
        plane.stop()
        envoy.stop()
        world.envoy("envoy-2")
        wait_for("hosts without a control plane", lambda: (known.body(), beside.body()) == ("a", "b"))
        wait_for("a host that is asked for without a control plane", lambda: other.body() == "a")
