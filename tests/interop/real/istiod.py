"""Istiod with files as its source, and an Envoy as a gateway. Without Kubernetes it has neither tokens nor certificates."""

import json
import os
import socket

from real import build
from web import Ask, wait_for

# What Istiod is not to do here: a stock Envoy lacks Istio's own filters, and there is no cluster to speak to.
ENVIRONMENT = {
    "ENABLE_CA_SERVER": "false", "PILOT_CERT_PROVIDER": "none", "XDS_AUTH": "false", "PILOT_ENABLE_METADATA_EXCHANGE": "false",
    "PILOT_ENABLE_ALPN_FILTER": "false", "PILOT_ENABLE_TELEMETRY_LABEL": "false", "PILOT_ENDPOINT_TELEMETRY_LABEL": "false",
    "VALIDATION_WEBHOOK_CONFIG_NAME": "", "INJECTION_WEBHOOK_CONFIG_NAME": "", "PILOT_ENABLE_GATEWAY_API": "false",
    "PILOT_ENABLE_AMBIENT": "false", "POD_NAME": "istiod-1", "POD_NAMESPACE": "istio-system"}


class Istiod:
    NAME = "istiod"
    KEY = ["id", "cluster", "locality", "metadata"]
    NODE = {"id": "router~10.0.0.9~gateway.default~default.svc.cluster.local", "cluster": "gateway.default", "metadata": {
        "NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.30.0", "LABELS": {"istio": "gateway"},
        "INSTANCE_IPS": "10.0.0.9", "NAME": "gateway"}}
    SERVER = {}
    VARIANTS = ["delta", "sotw"]
    EXCEPTIONS = {}

    def __init__(self, options, processes, ports, source):
        self.processes, self.ports, self.port = processes, ports, ports["plane"]
        self.files = processes.folder / "istio"
        self.files.mkdir()

    @staticmethod
    def build():
        build.go_program("istiod")

    def start(self, state):
        self.apply(state)
        mesh = self.processes.folder / "mesh.yaml"
        mesh.write_text('{"accessLogFile": "", "enableTracing": false}')
        at = {name: f"127.0.0.1:{self.ports[name]}" for name in ["plane", "more", "more again"]}
        self.process = self.processes.start(
            "istiod", build.go_program("istiod"), "discovery", "--registries=", f"--configDir={self.files}", f"--meshConfig={mesh}",
            f"--grpcAddr={at['plane']}", "--secureGRPCAddr=", "--httpsAddr=", f"--httpAddr={at['more']}",
            f"--monitoringAddr={at['more again']}", "--ctrlz_port=0", env={**os.environ, **ENVIRONMENT})
        wait_for("Istiod is up", lambda: socket.create_connection(("127.0.0.1", self.port), 1).close() is None, 60)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def apply(self, state):
        """All files are one, which is replaced whole."""
        new = self.files / "new"
        new.write_text("\n---\n".join(json.dumps(one) for one in self.resources(state)))
        new.rename(self.files / "all.yaml")

    def resources(self, state):
        for name, service in sorted(state.services.items()):
            yield resource("ServiceEntry", name, {
                "hosts": [f"{name}.test"], "location": "MESH_EXTERNAL", "resolution": "STATIC",
                "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
                "endpoints": [{"address": "127.0.0.1", "ports": {"http": self.ports[service.backend]}}]})
            yield resource("DestinationRule", name, {
                "host": f"{name}.test", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": f"{service.timeout}s"}}}})
        listeners = ["front", *([state.second] if state.second else [])]
        yield resource("Gateway", "gateway", {"selector": {"istio": "gateway"}, "servers": [
            {"port": {"number": self.ports[name], "name": f"http-{name}", "protocol": "HTTP"}, "bind": "127.0.0.1", "hosts": ["*"]}
            for name in listeners]})
        paths = [{"match": [{"uri": {"prefix": f"/{name}"}}], "route": [to(name)]} for name in sorted(state.services)]
        yield resource("VirtualService", "routes", {
            "hosts": ["*"], "gateways": ["gateway"], "http": [*paths, {"route": [to(state.route)]}]})

    def ask(self, path="", port="front"):
        return Ask(self.ports[port], f"/{path}")

    def cluster_part(self, service):
        return f"|{service}.test"


def to(name):
    return {"destination": {"host": f"{name}.test", "port": {"number": 80}}}


def resource(kind, name, spec):
    return {"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
