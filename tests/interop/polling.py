"""An Envoy that polls for everything, in JSON: it routes, follows changes of each type it has, and outlives the control plane."""

import json

from processes import free_port
from resources import Polling, cluster, endpoints, listener, manager, route_to, routes
from web import Ask, backend, get, wait_for
from world import World

SOURCE = Polling()


def run(options, upstream):
    with World.open(options, SOURCE, upstream) as world:
        plane, front = world.plane, free_port()
        ports = {"a": backend("a"), "b": backend("b")}
        ask = Ask(front)

        def main(label):
            return listener(SOURCE, "main", front, manager(SOURCE, "routes", label=label))

        plane.apply(cluster(SOURCE, "c1"), endpoints("c1", ports["a"]), main("first"), routes("routes", route_to("c1")))
        envoy = world.envoy("envoy-1")
        took = wait_for("the first answer", lambda: ask.body() == "a")
        print(f"  first request routed after {took:.1f} s")
        traffic = world.traffic(ask)

        slowest = 0
        for round_ in range(5):
            old, new = f"c{1 + round_}", f"c{2 + round_}"
            plane.apply(endpoints(old, ports["b"]))
            slowest = max(slowest, wait_for("endpoints change", lambda: ask.body() == "b"))
            label = f"round-{round_}"
            plane.apply(main(label))
            wait_for("the listener changed", lambda: envoy.shows(f'"stat_prefix": "{label}"', "dynamic_listeners"))
            plane.apply(cluster(SOURCE, new), endpoints(new, ports["a"]))
            wait_for("the new cluster is there", lambda: envoy.has_cluster(new, timeout=1))
            plane.apply(routes("routes", route_to(new)))
            wait_for("the route moved", lambda: ask.body() == "a")
        print(f"  changed endpoints in use after {slowest:.2f} s at most")

        # The control plane dies. Those who poll go on, and are told that nothing is new.
        plane.stop()
        before = polls(world)
        wait_for("polls go on", lambda: polls(world)["polls"] > before["polls"] + 20)
        after = polls(world)
        assert after["transcoded"] == before["transcoded"] and after["ok"] == before["ok"], (before, after)
        assert after["not_modified"] > before["not_modified"], (before, after)
        world.end(traffic)

        stats = get(envoy.admin, "/stats?filter=update_(rejected|success)").body
        rejected = {line for line in stats.splitlines() if "update_rejected" in line and not line.endswith(": 0")}
        assert not rejected, rejected


def polls(world):
    return json.loads(get(world.relay.admin, "/rest").body)
