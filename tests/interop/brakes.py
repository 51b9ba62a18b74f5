"""A control plane that takes away what it does not mean to: drop by drop, half of it at once, and by restarting empty. Brakes hold it, and no
request fails. What it means passes in the end."""

import json

from processes import free_port
from resources import cluster, endpoints, listener, manager, route_to, routes, type_of
from web import Ask, backend, get, wait_for
from world import World

COUNT = 12
BRAKES = "brakes: {count: 5, grace: 4s, empty_grace: 8s, agree_after: 1s}\n"


def run(options, source, upstream):
    with World.open(options, source, upstream, more=BRAKES) as world:
        front, port = free_port(), backend("0")
        ask = Ask(front)
        clusters = [cluster(source, f"c{number}") for number in range(COUNT)]
        main = listener(source, "main", front, manager(source, "routes"))
        world.plane.apply(*clusters, *(endpoints(f"c{number}", port) for number in range(COUNT)), main,
                          routes("routes", route_to("c0")))
        envoy = world.envoy("envoy-1")
        wait_for("the first answer", lambda: ask.body() == "0")
        traffic = world.traffic(Ask(front))
        names = [(type_of(main), "main"), *((type_of(clusters[0]), f"c{number}") for number in reversed(range(COUNT)))]

        def held():
            brakes = json.loads(get(world.relay.admin, "/brakes").body)
            return sum(of["held"] for of in brakes["sets"])

        world.plane.apply(*names)
        # Four of the clusters are an ordinary part of them.
        wait_for("the listener and the other clusters are held", lambda: held() == COUNT - 4 + 1)
        traffic.flows()
        world.plane.apply(*clusters, main)
        wait_for("what came back is not held any more", lambda: held() == 0)

        for _ in range(2):
            world.plane.stop()
            for name in names:
                world.plane.entries.pop(name, None)
            world.bring_back()
            wait_for("everything is held", lambda: held() == COUNT + 1, patience=30)
            traffic.flows()
        world.plane.apply(*clusters, main)
        wait_for("what came back is not held any more", lambda: held() == 0)
        traffic.flows()

        half = names[1:COUNT // 2 + 1]
        world.plane.remove_at_once(*half)
        wait_for("half of the clusters are held", lambda: held() == len(half))
        traffic.flows()
        assert envoy.has_hosts(half[0][1]), "an Envoy has lost what is held"
        world.plane.apply(*clusters)
        wait_for("what came back is not held any more", lambda: held() == 0)

        world.plane.apply(*names[1:COUNT - 2])
        wait_for("some of it is held", lambda: held() == COUNT - 3 - 4)
        traffic.flows()
        wait_for("what is meant passes after the grace", lambda: held() == 0)
        wait_for("the Envoy has let the clusters go", lambda: not envoy.has_hosts("c5"))
        world.end(traffic)
