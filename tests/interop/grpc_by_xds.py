"""A gRPC client asks for its resources by name, one type after the other, in the state of the world."""

import json
import os
import pathlib
import subprocess
import sys
from concurrent import futures

import grpc

from resources import Source, api_listener, cluster, endpoints, manager, route_to, routes, type_of
from web import wait_for
from world import World

SOURCE = Source(aggregated=True, delta=False)


def grpc_backend(name):
    """Answers every call with its name. Returns the server, which lives as long as it is held, and its port."""
    def answer(_request, _context):
        return name.encode()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    handler = grpc.method_handlers_generic_handler("test.Echo", {"Name": grpc.unary_unary_rpc_method_handler(answer)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def start_client(world):
    bootstrap = {"xds_servers": [{"server_uri": f"127.0.0.1:{world.relay.port}",
                                  "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
                 "node": {"id": "grpc-1", "cluster": "interop"}}
    program = pathlib.Path(__file__).parent / "grpc_client.py"
    return world.processes.start(
        "grpc", sys.executable, str(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap)})


def run(options, upstream):
    with World.open(options, SOURCE, upstream) as world:
        plane, servers = world.plane, [grpc_backend("a"), grpc_backend("b")]
        ports = {"a": servers[0][1], "b": servers[1][1]}
        service = api_listener(SOURCE, "service", manager(SOURCE, "routes"))
        plane.apply(cluster(SOURCE, "c1"), endpoints("c1", ports["a"]), service, routes("routes", route_to("c1")))
        client, answers = start_client(world), []

        def ask():
            client.stdin.write("\n")
            client.stdin.flush()
            answers.append(client.stdout.readline().strip())
            return answers[-1]

        assert ask() == "a", answers
        plane.apply(endpoints("c1", ports["b"]))
        wait_for("endpoints change", lambda: ask() == "b")
        plane.apply(cluster(SOURCE, "c1", timeout=2))
        plane.apply(cluster(SOURCE, "c2"), endpoints("c2", ports["a"]), routes("routes", route_to("c2")),
                    (type_of(cluster(SOURCE, "c1")), "c1"))
        wait_for("the route moved", lambda: ask() == "a")
        plane.stop()
        for _ in range(20):
            assert ask() == "a", answers[-1]
        assert set(answers) == {"a", "b"}, answers
        assert not plane.nacks, plane.nacks
        print(f"  {len(answers)} calls, none failed")
        for server, _ in servers:
            server.stop(None)
