"""Envoy Gateway by itself, with files as its source. It serves at one fixed port, so only one can run at a time."""

import json
import socket
import subprocess

from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2

from real import build
from resources import packed, proves
from web import Ask, wait_for

PORT = 18000
ENVOY = "1.39.1"  # what it would fetch and run; a script that waits is in its place
GATEWAY, OWN = "gateway.networking.k8s.io/v1", "gateway.envoyproxy.io/v1alpha1"


class EnvoyGateway:
    NAME = "envoy-gateway"
    KEY = ["cluster"]
    NODE = {"id": "envoy-1", "cluster": "default/eg"}
    VARIANTS = ["delta", "sotw"]
    AT_ONCE = False
    CHURN = 60  # seconds at most, since its two ways are one after the other
    EXCEPTIONS = {}

    def __init__(self, options, processes, ports, source):
        self.processes, self.ports, self.port = processes, ports, PORT
        self.home, self.files = processes.folder / "gateway", processes.folder / "files"
        self.files.mkdir()
        envoy = self.home / "data" / "envoy-versions" / ENVOY / "bin" / "envoy"
        envoy.parent.mkdir(parents=True)
        envoy.write_text("#!/bin/sh\nexec sleep 3600\n")
        envoy.chmod(0o755)
        made = [build.go_program("envoy-gateway"), "certgen", "--local", "--config-home", self.home]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shown = self.home / "certs" / "envoy"
        self.certificate, self.key, self.ca = (str(shown / file) for file in ["tls.crt", "tls.key", "ca.crt"])
        self.SERVER = {"uri": f"https://127.0.0.1:{PORT}", "tls": {
            "ca": self.ca, "certificate": self.certificate, "key": self.key, "server_name": "envoy-gateway"}}

    @staticmethod
    def build():
        build.go_program("envoy-gateway")

    def start(self, state):
        self.apply(state)
        config = self.processes.folder / "envoy-gateway.yaml"
        host = {"configHome": str(self.home), "dataHome": str(self.home / "data"), "stateHome": str(self.home / "state"),
                "runtimeDir": str(self.home / "run")}
        config.write_text(json.dumps({
            "apiVersion": OWN, "kind": "EnvoyGateway", "gateway": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"},
            "provider": {"type": "Custom", "custom": {
                "resource": {"type": "File", "file": {"paths": [str(self.files)]}},
                "infrastructure": {"type": "Host", "host": host}}},
            "logging": {"level": {"default": "info"}}, "extensionApis": {"enableBackend": True}}))
        self.process = self.processes.start(
            "envoy-gateway", build.go_program("envoy-gateway"), "server", "--config-path", str(config))
        wait_for("Envoy Gateway is up", lambda: socket.create_connection(("127.0.0.1", PORT), 1).close() is None, 60)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def reach(self, cluster):
        proves(cluster, self.certificate, self.key, self.ca)
        context = tls_pb2.UpstreamTlsContext()
        cluster.transport_socket.typed_config.Unpack(context)
        # It speaks nothing older, and an Envoy as a client nothing newer than 1.2 by default.
        context.common_tls_context.tls_params.tls_maximum_protocol_version = common_pb2.TlsParameters.TLSv1_3
        cluster.transport_socket.typed_config.CopyFrom(packed(context))

    def apply(self, state):
        """All files are one, which is replaced whole."""
        new = self.processes.folder / "new"
        new.write_text("\n---\n".join(json.dumps(one) for one in self.resources(state)))
        new.rename(self.files / "all.yaml")

    def resources(self, state):
        # Without a version it would ask for the newest one by the network.
        yield resource(OWN, "EnvoyProxy", "eg", {"provider": {"type": "Host", "host": {"envoyVersion": ENVOY}}})
        yield resource(GATEWAY, "GatewayClass", "eg", {
            "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
            "parametersRef": {"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": "eg", "namespace": "default"}})
        listeners = ["front", *([state.second] if state.second else [])]
        yield resource(GATEWAY, "Gateway", "eg", {"gatewayClassName": "eg", "listeners": [
            {"name": name, "protocol": "HTTP", "port": self.ports[name]} for name in listeners]})
        for name, service in sorted(state.services.items()):
            yield resource(OWN, "Backend", name, {"endpoints": [{"ip": {"address": "127.0.0.1", "port": self.ports[service.backend]}}]})
            yield route(name, f"/{name}", name)
            yield resource(OWN, "BackendTrafficPolicy", name, {
                "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}],
                "timeout": {"tcp": {"connectTimeout": f"{service.timeout}s"}}})
        yield route("default", "/", state.route)

    def ask(self, path="", port="front"):
        return Ask(self.ports[port], f"/{path}")

    def cluster_part(self, service):
        return f"httproute/default/{service}/"


def route(name, prefix, service):
    return resource(GATEWAY, "HTTPRoute", name, {"parentRefs": [{"name": "eg"}], "rules": [{
        "matches": [{"path": {"type": "PathPrefix", "value": prefix}}],
        "backendRefs": [{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": service}]}]})


def resource(version, kind, name, spec):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
