"""Clusters, endpoints, routes and listeners change under traffic; then the control plane is lost."""

from processes import free_port
from resources import cluster, endpoints, listener, manager, route_to, routes, type_of
from web import Ask, backend, wait_for
from world import World


def run(options, source, upstream):
    with World.open(options, source, upstream) as world:
        plane, front = world.plane, free_port()
        ports = {"a": backend("a"), "b": backend("b")}
        ask = Ask(front)

        def main(label):
            return listener(source, "main", front, manager(source, "routes", label=label))

        def route(to):
            return routes("routes", route_to(to))

        plane.apply(cluster(source, "c1"), endpoints("c1", ports["a"]), main("first"), route("c1"))
        envoy = world.envoy("envoy-1")
        took = wait_for("the first answer", lambda: ask.body() == "a")
        print(f"  first request routed after {took:.1f} s")
        traffic = world.traffic(ask)

        slowest = 0
        for round_ in range(5):
            old, new = f"c{1 + round_}", f"c{2 + round_}"
            plane.apply(endpoints(old, ports["b"]))
            wait_for("endpoints change", lambda: ask.body() == "b")

            plane.apply(cluster(source, old, timeout=2))
            took = wait_for("a changed cluster whose endpoints were not sent again is active",
                            lambda: envoy.has_cluster(old, timeout=2), patience=3)
            slowest = max(slowest, took)

            label = f"round-{round_}"
            plane.apply(main(label))
            wait_for("the listener changed", lambda: envoy.shows(f'"stat_prefix": "{label}"', "dynamic_listeners"))

            gone = (type_of(cluster(source, old)), old)
            if source.aggregated:
                # A new cluster, the route to it, and the old one gone: at once, and in no good order.
                plane.apply(cluster(source, new), route(new), gone, endpoints(new, ports["a"]))
                wait_for("the route moved", lambda: ask.body() == "a")
            else:
                # Between streams there is no order, so a control plane for such clients waits for each step to be done.
                plane.apply(cluster(source, new), endpoints(new, ports["a"]))
                wait_for("the new cluster is there", lambda: envoy.has_cluster(new, timeout=1))
                plane.apply(route(new))
                wait_for("the route moved", lambda: ask.body() == "a")
                plane.apply(gone)
            wait_for("the old cluster is gone", lambda: not envoy.has_hosts(old))
        print(f"  changed clusters active after {slowest:.2f} s at most")

        # The control plane dies. Those who have their configuration go on, and those who come get it.
        plane.stop()
        second = world.envoy("envoy-2")
        wait_for("an Envoy that came during the outage has its clusters", lambda: second.has_hosts(new))
        world.end(traffic)
        # The second Envoy cannot bind the first one's port, and says so.
        refused = world.relay.refused()
        assert all("bind" in reason for reason in refused.values()), refused
