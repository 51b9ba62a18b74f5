"""A relay that is killed, and starts again while its control plane is away: Envoys that run keep their traffic, and a new Envoy starts from what
the relay has on disk. What the control plane has changed meanwhile arrives once it is back."""

import time

from processes import free_port
from resources import cluster, endpoints, listener, manager, route_to, routes
from web import Ask, backend, get, wait_for
from world import World

STATE = "state: {path: state}\n"


def run(options, source, upstream):
    with World.open(options, source, upstream, more=STATE) as world:
        front = free_port()
        ask = Ask(front)
        world.plane.apply(cluster(source, "c0"), endpoints("c0", backend("one")), routes("routes", route_to("c0")),
                          listener(source, "main", front, manager(source, "routes")))
        envoy = world.envoy("envoy-1")
        wait_for("the first answer", lambda: ask.body() == "one")
        traffic = world.traffic(Ask(front))
        wait_until_saved(world.relay)
        world.plane.stop()

        restart(world.relay)
        traffic.flows()
        traffic.stop()
        traffic.check()
        envoy.stop()

        restart(world.relay)
        newcomer = world.envoy("envoy-2")
        wait_for("a new Envoy is live", lambda: get(newcomer.admin, "/ready").good)
        wait_for("it serves", lambda: ask.body() == "one")
        traffic = world.traffic(Ask(front))

        world.bring_back(endpoints("c0", backend("two")))
        wait_for("what has changed meanwhile arrives", lambda: ask.body() == "two", patience=60)
        world.end(traffic)


def restart(relay):
    relay.kill()
    relay.start()
    wait_for("it serves from disk", lambda: "from disk" in get(relay.admin, "/ready").body)


def wait_until_settled(relay):
    def settled():
        types = [kind for view in relay.upstreams() for stream in view["streams"] for kind in stream["types"] if kind["wildcard"]]
        return all(kind["completeness"] in ("settled", "complete") for kind in types)

    wait_for("all sets are settled", settled)


def wait_until_saved(relay):
    wait_until_settled(relay)
    then = time.time()

    def current():
        lines = get(relay.admin, "/metrics").body.splitlines()
        times = [line.split()[1] for line in lines if line.startswith("weir_state_current_timestamp_seconds ")]
        return float(times[0]) > then

    wait_for("everything is saved", current)
