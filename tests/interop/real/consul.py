"""Consul's mesh: the Envoy of one service is the client, and each service behind it has an Envoy of its own. Consul is neither downloaded nor
built here, since modules of it are under no open licence: CONSUL names a program that the user has."""

import http.client
import json
import re

from real import build
from web import Ask, wait_for

# These differ from one Consul to the next: its trust domain, and what it signs.
OWN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|-----BEGIN.*?-----END [A-Z ]+-----(\\n)*")


def node(service):
    return {"id": f"{service}-sidecar-proxy", "cluster": service, "metadata": {"namespace": "default", "partition": "default"}}


class Consul:
    NAME = "consul"
    KEY = ["id", "cluster", "metadata", "user_agent"]
    NODE = node("web")
    OTHERS = {f"sidecar-{name}": node(name) for name in ["s1", "s2", "s3"]}
    # Each method but the delta stream writes a warning into its log.
    SERVER = {"liveness": {"interval": "0s"}}
    VARIANTS = ["delta"]  # it has no other
    ACLS = {}
    EXCEPTIONS = {}

    def __init__(self, options, processes, ports, source):
        self.processes, self.ports, self.port = processes, ports, ports["plane"]
        self.shows = {}  # the headers of requests to its own interface

    @staticmethod
    def program():
        return build.program_of_user("CONSUL", "Consul is not built here, since modules of it are under no open licence")

    @classmethod
    def build(cls):
        cls.program()

    def start(self, state):
        config = self.processes.folder / "consul.json"
        config.write_text(json.dumps({
            "server": True, "bootstrap_expect": 1, "data_dir": str(self.processes.folder / "consul"), "node_name": "n1",
            **self.ACLS, "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "connect": {"enabled": True}, "log_level": "warn",
            "ports": {"http": self.ports["more"], "grpc": self.port, "grpc_tls": -1, "dns": -1, "serf_wan": -1,
                      "serf_lan": self.ports["more again"], "server": self.ports["yet more"]}}))
        self.process = self.processes.start("consul", self.program(), "agent", "-config-file", str(config))
        wait_for("Consul has a leader", lambda: ":" in self.get("status/leader"), 60)
        self.put("config", {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}})
        self.apply(state)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def put(self, path, body=None, method="PUT"):
        """Returns what it answers."""
        def accepted():
            connection = http.client.HTTPConnection("127.0.0.1", self.ports["more"], timeout=10)
            connection.request(method, f"/v1/{path}", json.dumps(body) if body else None, self.shows)
            response = connection.getresponse()
            text.append(response.read().decode())
            connection.close()
            return response.status == 200

        text = []
        try:
            wait_for(f"Consul takes {path}", accepted, 30)
        except AssertionError:
            raise AssertionError(f"Consul does not take {path}: {text[-1:]}") from None
        return text[-1]

    def get(self, path):
        return Ask(self.ports["more"], f"/v1/{path}", tuple(self.shows.items())).answer().body

    def apply(self, state):
        for name, service in sorted(state.services.items()):
            self.put("agent/service/register", instance(name, self.ports[service.backend], {"Port": self.ports[f"sidecar-{name}"]}))
            self.put("config", {"Kind": "service-resolver", "Name": name, "ConnectTimeout": f"{service.timeout}s"})
        routes = [{"Match": {"HTTP": {"PathPrefix": f"/{name}"}}, "Destination": {"Service": name}} for name in sorted(state.services)]
        routes.append({"Match": {"HTTP": {"PathPrefix": "/"}}, "Destination": {"Service": state.route}})
        self.put("config", {"Kind": "service-router", "Name": "front", "Routes": routes})
        upstreams = [{"DestinationName": "front", "LocalBindPort": self.ports["front"]}]
        if state.second:
            upstreams.append({"DestinationName": "s2", "LocalBindPort": self.ports[state.second]})
        self.put("agent/service/register", instance("web", 1, {"Port": self.ports["sidecar-web"], "Proxy": {"Upstreams": upstreams}}))
        for name in {"s1", "s2", "s3"} - state.services.keys():
            if f'"{name}"' in self.get("agent/services"):
                self.put(f"agent/service/deregister/{name}-sidecar-proxy")
                self.put(f"agent/service/deregister/{name}")

    def settled(self):
        """Each check has found what it is about to be well, and the catalog has that too."""
        checks = json.loads(self.get("health/state/any"))
        return all(check["Status"] == "passing" for check in checks)

    def ask(self, path="", port="front"):
        return Ask(self.ports[port], f"/{path}")

    def cluster_part(self, service):
        return f"{service}.default."

    @staticmethod
    def comparable(text):
        return OWN.sub("<own>", text)


def instance(name, port, sidecar):
    """A service that is always healthy, and its proxy, which is too."""
    return {"Name": name, "ID": name, "Address": "127.0.0.1", "Port": port, "Connect": {"SidecarService": {
        "Address": "127.0.0.1", "Checks": [{"Name": "alias", "AliasService": name}], **sidecar}}}
