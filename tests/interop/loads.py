"""Clients report the load of a cluster to whoever gave it to them, which is the relay, and each request arrives once."""

import time

import grpc_by_xds
from grpc_by_xds import Client, grpc_backend
from resources import api_listener, cluster, endpoints, manager, route_to, routes
from web import wait_for
from world import World


def reporting(source, name):
    made = cluster(source, name)
    made.lrs_server.self.SetInParent()
    return made


def run(options, upstream, mode):
    source = grpc_by_xds.SOURCE
    with World.open(options, source, upstream, more=f"load_reports: {{mode: {mode}}}") as world:
        plane, (server, port) = world.plane, grpc_backend("a")
        plane.apply(reporting(source, "c1"), endpoints("c1", port), routes("routes", route_to("c1")),
                    api_listener(source, "service", manager(source, "routes")))
        clients = [Client(world, node=f"grpc-{number}") for number in [1, 2]]
        asked = 0
        for client, times in [(clients[0], 30), (clients[1], 20)]:
            for _ in range(times):
                assert client.ask() == "a", client.answers[-1]
                asked += 1

        loads = plane.loads
        took = wait_for("every request was reported", lambda: sum(loads.succeeded.values()) >= asked)
        for client in clients:  # while reports flow
            assert client.ask() == "a", client.answers[-1]
            asked += 1
        wait_for("and these too", lambda: sum(loads.succeeded.values()) >= asked)
        time.sleep(2.5)  # two more reports: whatever comes twice would come now
        assert list(loads.succeeded.items()) == [(("c1", "", "here"), asked)], loads.succeeded
        assert list(loads.in_progress.values()) == [0], loads.in_progress
        if mode == "aggregate":
            assert len(loads.nodes) == 1 and loads.nodes[0].startswith("weir-"), loads.nodes
        else:
            assert sorted(loads.nodes) == ["grpc-1", "grpc-2"], loads.nodes
        print(f"  {asked} requests, each reported once; the first after {took:.1f} s")
        world.check()
        server.stop(None)
