"""Clients beside those that all other scenarios have: an older Envoy, and gRPC in Go and Java. gRPC asks a small control plane through the relay."""

import argparse
import json
import os
import subprocess

from grpc_by_xds import SOURCE, grpc_backend
from real import build, report
from resources import api_listener, cluster, endpoints, manager, route_to, routes, type_of
from web import get, wait_for
from world import World


class GrpcGo:
    NAME = "grpc-go"
    # When a route moves, it may send a call to the new cluster before it has that; directly as well, for one of a hundred moves.
    OWN = "unknown cluster selected for RPC"

    @staticmethod
    def build():
        build.go_client()

    @staticmethod
    def command():
        return [build.go_client()]


class GrpcJava:
    NAME = "grpc-java"
    OWN = None

    @staticmethod
    def build():
        build.java_program("grpc-java", "grpc-java")

    @staticmethod
    def command():
        return ["java", "-Xmx256m", "-cp", build.java_program("grpc-java", "grpc-java"), "Main"]


class Client:
    """Each line is a target to ask, and it prints what it was told."""

    def __init__(self, world, command):
        bootstrap = {"xds_servers": [{"server_uri": f"127.0.0.1:{world.relay.port}", "channel_creds": [{"type": "insecure"}],
                                      "server_features": ["xds_v3"]}],
                     "node": {"id": "grpc-1", "cluster": "interop"}}
        file = world.processes.folder / "bootstrap.json"
        file.write_text(json.dumps(bootstrap))
        self.process = world.processes.start("grpc", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                             env={**os.environ, "GRPC_XDS_BOOTSTRAP": str(file)})
        self.answers = []

    def ask(self):
        self.process.stdin.write("xds:///service\n")
        self.process.stdin.flush()
        self.answers.append(self.process.stdout.readline().strip())
        return self.answers[-1]

    def gets(self, name):
        wait_for(f"{name} answers", lambda: self.ask() == name, 60)


def run_grpc(options, language, upstream):
    """The first answer, a change of endpoints, a route to another cluster, a relay that is killed and starts again, and a change after that."""
    language.build()
    with World.open(options, SOURCE, upstream, more="state: {path: state}\n") as world:
        plane, servers = world.plane, [grpc_backend("a"), grpc_backend("b")]
        ports = {"a": servers[0][1], "b": servers[1][1]}
        plane.apply(cluster(SOURCE, "c1"), endpoints("c1", ports["a"]), routes("routes", route_to("c1")),
                    api_listener(SOURCE, "service", manager(SOURCE, "routes")))
        client = Client(world, language.command())
        assert client.ask() == "a", client.answers
        plane.apply(endpoints("c1", ports["b"]))
        client.gets("b")
        plane.apply(cluster(SOURCE, "c2"), endpoints("c2", ports["a"]), routes("routes", route_to("c2")), (type_of(cluster(SOURCE, "c1")), "c1"))
        client.gets("a")

        world.relay.kill()
        for _ in range(20):
            assert client.ask() == "a", client.answers[-1]
        plane.apply(endpoints("c2", ports["b"]))
        world.relay.start()
        client.gets("b")
        own = [answer for answer in client.answers if language.OWN and language.OWN in answer]
        assert set(client.answers) - set(own) == {"a", "b"}, set(client.answers)
        agents = {one["user_agent"] for one in json.loads(get(world.relay.admin, "/clients").body)["clients"]}
        print(f"  {len(client.answers)} calls, {len(own)} failed; it calls itself {agents}")
        report.note("calls", "", f"{len(own)} of {len(client.answers)} failed", f"known: {language.OWN}" if own else "")
        world.check()
        for server, _ in servers:
            server.stop(None)


def run_older_envoy(options, plane, run, *arguments):
    """The same steps as the usual Envoy."""
    run(argparse.Namespace(**{**vars(options), "envoy": str(build.older_envoy())}), plane, *arguments)
