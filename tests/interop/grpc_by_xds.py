"""A gRPC client asks for its resources by name, one type after the other, in the state of the world."""

import json
import os
import pathlib
import subprocess
import sys
from concurrent import futures

import grpc
from envoy.config.listener.v3.listener_pb2 import Listener

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


class Client:
    """Remembers all that it was told. `authorities` are those whose listeners it asks the relay for; `files` are its certificate,
    its key, and who signs for the relay."""

    def __init__(self, world, authorities=(), node="grpc-1", at=None, files=None):
        credentials = {"type": "insecure"}
        if files:
            keys = ["certificate_file", "private_key_file", "ca_certificate_file"]
            credentials = {"type": "tls", "config": dict(zip(keys, files))}
        servers = [{"server_uri": at or f"127.0.0.1:{world.relay.port}",
                    "channel_creds": [credentials], "server_features": ["xds_v3"]}]
        template = f"xdstp://{{}}/{Listener.DESCRIPTOR.full_name}/%s"
        bootstrap = {"xds_servers": servers, "node": {"id": node, "cluster": "interop"},
                     "authorities": {name: {"xds_servers": servers,
                                            "client_listener_resource_name_template": template.format(name)}
                                     for name in authorities}}
        program = pathlib.Path(__file__).parent / "grpc_client.py"
        self.process = world.processes.start(
            "grpc", sys.executable, str(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap)})
        self.answers = []

    def ask(self, target="xds:///service"):
        self.process.stdin.write(f"{target}\n")
        self.process.stdin.flush()
        self.answers.append(self.process.stdout.readline().strip())
        return self.answers[-1]

    def check(self, *names):
        """Every answer was the name of one of these servers, and there was one from each of them."""
        assert set(self.answers) == set(names), self.answers
        print(f"  {len(self.answers)} calls, none failed")


def run(options, upstream):
    with World.open(options, SOURCE, upstream) as world:
        plane, servers = world.plane, [grpc_backend("a"), grpc_backend("b")]
        ports = {"a": servers[0][1], "b": servers[1][1]}
        service = api_listener(SOURCE, "service", manager(SOURCE, "routes"))
        plane.apply(cluster(SOURCE, "c1"), endpoints("c1", ports["a"]), service, routes("routes", route_to("c1")))
        client = Client(world)

        assert client.ask() == "a", client.answers
        plane.apply(endpoints("c1", ports["b"]))
        wait_for("endpoints change", lambda: client.ask() == "b")
        plane.apply(cluster(SOURCE, "c1", timeout=2))
        plane.apply(cluster(SOURCE, "c2"), endpoints("c2", ports["a"]), routes("routes", route_to("c2")),
                    (type_of(cluster(SOURCE, "c1")), "c1"))
        wait_for("the route moved", lambda: client.ask() == "a")
        plane.stop()
        for _ in range(20):
            assert client.ask() == "a", client.answers[-1]
        client.check("a", "b")
        world.check()
        for server, _ in servers:
            server.stop(None)
