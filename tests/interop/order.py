"""A control plane that says everything at once, in any order, some milliseconds apart: no request of a real Envoy fails."""

import os
import random
import time

from processes import free_port
from resources import cluster, endpoints, listener, manager, route_to, routes, type_of
from web import Ask, backend, wait_for
from world import World

BURSTS = int(os.environ.get("WEIR_BURSTS", "60"))


def run(options, source, upstream):
    dice = random.Random(4711)
    with World.open(options, source, upstream) as world:
        plane, front = world.plane, free_port()
        ports = [backend("0"), backend("1")]
        ask = Ask(front)

        def route(to):
            return routes("routes", route_to(to))

        plane.apply(cluster(source, "c0"), endpoints("c0", ports[0]),
                    listener(source, "main", front, manager(source, "routes")), route("c0"))
        world.envoy("envoy-1")
        wait_for("the first answer", lambda: ask.body() == "0")
        traffics = [world.traffic(Ask(front)) for _ in range(4)]
        start = time.monotonic()
        for burst in range(1, BURSTS + 1):
            old, new = f"c{burst - 1}", f"c{burst}"
            changes = [cluster(source, new), endpoints(new, ports[burst % 2]), route(new),
                       (type_of(cluster(source, old)), old), (type_of(endpoints(old, 1)), old)]
            dice.shuffle(changes)
            for change in changes:
                plane.apply(change)
                time.sleep(dice.uniform(0, 0.02))
            if dice.random() < 0.5:
                wait_for("the route moved", lambda: ask.body() == str(burst % 2))
            time.sleep(dice.choice([0, 0.1, 0.5]))
        wait_for("the last route", lambda: ask.body() == str(BURSTS % 2))
        elapsed = time.monotonic() - start
        rate = sum(traffic.asked for traffic in traffics) / elapsed
        for traffic in traffics:
            world.end(traffic)
        print(f"  {BURSTS} bursts in {elapsed:.0f} s, {rate:.0f} requests a second")
