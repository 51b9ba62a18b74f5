"""The configuration changes while Envoys run: a control plane takes the place of another, which then ends. No request fails."""

import json

from processes import free_port
from resources import cluster, endpoints, listener, manager, route_to, routes
from warm_start import wait_until_settled
from web import Ask, backend, wait_for
from world import World


def run(options, source, upstream):
    with World.open(options, source, upstream, planes=2, more="reload: {spread: 1s}\n") as world:
        first, second = world.planes
        front = free_port()
        ask = Ask(front)
        first.apply(cluster(source, "c0"), endpoints("c0", backend("one")), routes("routes", route_to("c0")),
                    listener(source, "main", front, manager(source, "routes")))
        second.apply(*first.entries.values())
        world.envoy("envoy-1")
        wait_for("the first answer", lambda: ask.body() == "one")
        assert not second.asked, "the second was asked although the first was there"
        traffic = world.traffic(Ask(front))
        wait_until_settled(world.relay)

        world.relay.reload(without=f'{{"uri": "http://127.0.0.1:{first.port}", "variant": "{upstream}"}}, ')
        wait_for("the first is left", lambda: not first.streams)
        first.stop()
        traffic.flows()
        second.apply(endpoints("c0", backend("two")))
        wait_for("what the second changes arrives", lambda: ask.body() == "two")
        shown = json.dumps(world.relay.upstreams())
        assert str(first.port) not in shown and str(second.port) in shown, shown
        world.end(traffic)
        assert not world.relay.refused(), world.relay.refused()
