"""An Envoy as gateway before the control plane, which answers liveness calls itself: it wants a token for them, forbids their path, or has no
route for them. One relay has the control plane directly and behind each gateway, each for an authority of its own. A healthy control
plane is never given up, a name that it never mentions becomes absent, and when it is stopped, each gateway notwithstanding, it is found
in time. WEIR_SECONDS is for how long it is healthy."""

import json
import os
import tempfile
import time

from delta_client import DeltaClient
from plane_process import PlaneProcess
from processes import Processes, Relay, base_id, free_port
from resources import endpoints, type_of
from web import get, wait_for

SERVICE = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
METHODS = [SERVICE + "StreamAggregatedResources", SERVICE + "DeltaAggregatedResources"]
FILTERS = "type.googleapis.com/envoy.extensions.filters"
ENDPOINTS = type_of(endpoints("", 0))
HUNG = 30  # seconds after its last word in which a server is found
ABSENT = 60  # seconds in which a name is known to be absent, which it is without a gateway too
KEYS = '{"keys": [{"kty": "oct", "alg": "HS256", "k": "aGVsbG9oZWxsb2hlbGxvaGVsbG9oZWxsb2hlbGxvaGU"}]}'


def route(**match):
    return {"match": match, "route": {"cluster": "plane", "timeout": "0s"}}


WHOLE = [route(prefix=SERVICE)]
JWT = {"name": "jwt", "typed_config": {
    "@type": f"{FILTERS}.http.jwt_authn.v3.JwtAuthentication",
    "providers": {"p": {"issuer": "issuer", "local_jwks": {"inline_string": KEYS}}},
    "rules": [{"match": {"prefix": f"{SERVICE}Weir"}, "requires": {"provider_name": "p"}}]}}
RBAC = {"name": "rbac", "typed_config": {
    "@type": f"{FILTERS}.http.rbac.v3.RBAC",
    "rules": {"action": "ALLOW", "policies": {"streams": {
        "permissions": [{"url_path": {"path": {"exact": method}}} for method in METHODS], "principals": [{"any": True}]}}}}}
ROUTER = {"name": "router", "typed_config": {"@type": f"{FILTERS}.http.router.v3.Router"}}
# By name: HTTP filters and routes.
GATEWAYS = {
    "whole": ([], WHOLE),
    "jwt": ([JWT], WHOLE),
    "rbac": ([RBAC], WHOLE),
    "methods": ([], [route(path=method) for method in METHODS]),
}


class At:
    """A control plane at a port."""

    def __init__(self, port):
        self.port = port


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def listener(name, port):
    filters, routes = GATEWAYS[name]
    manager = {
        "@type": f"{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name, "codec_type": "HTTP2", "stream_idle_timeout": "0s", "http_filters": [*filters, ROUTER],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}}
    return {"name": name, "address": address(port),
            "filter_chains": [{"filters": [{"name": "manager", "typed_config": manager}]}]}


def start_gateways(processes, envoy, plane, gateways):
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    admin = free_port()
    cluster = {
        "name": "plane", "type": "STATIC", "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            options: {"@type": f"type.googleapis.com/{options}", "explicit_http_config": {"http2_protocol_options": {}}}},
        "load_assignment": {"cluster_name": "plane",
                            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(plane.port)}}]}]}}
    made = {"admin": {"address": address(admin)}, "static_resources": {
        "listeners": [listener(name, at.port) for name, at in gateways.items()], "clusters": [cluster]}}
    path = processes.folder / "gateway.json"
    path.write_text(json.dumps(made))
    processes.start("gateway", envoy, "-c", str(path), "--base-id", base_id(), "--concurrency", "1", "-l", "warning")
    wait_for("the gateways are up", lambda: get(admin, "/ready").good)


def name_of(authority, name):
    return f"xdstp://{authority}/envoy.config.endpoint.v3.ClusterLoadAssignment/{name}"


def run(options, upstream):
    with tempfile.TemporaryDirectory() as folder:
        processes, plane = Processes(folder), PlaneProcess()
        try:
            check(options, upstream, processes, plane)
        except BaseException:
            processes.show_logs()
            raise
        finally:
            processes.stop()
            plane.stop()


def check(options, upstream, processes, plane):
    gateways = {name: At(free_port()) for name in GATEWAYS}
    start_gateways(processes, options.envoy, plane, gateways)
    servers = {"plain": plane, **gateways}
    for name in servers:
        plane.apply(endpoints(name_of(name, "known"), 1))
    relay = Relay(processes, options.weir, [At(free_port())], upstream, options.log, servers, "", None, {})

    def given_up():
        lines = (processes.folder / "weir.log").read_text().splitlines()
        lines = [line for line in lines if "server does not answer; closing stream" in line]
        return {name for name, at in servers.items() if any(f"127.0.0.1:{at.port}" in line for line in lines)}

    client, start = DeltaClient(relay.port), time.monotonic()
    present, absent = set(), {}
    client.send(ENDPOINTS, [name_of(server, name) for server in servers for name in ["known", "missing"]])
    while len(present) < len(servers) or len(absent) < len(servers):
        response = client.receive(ABSENT)
        present |= {resource.name for resource in response.resources}
        absent.update((name, time.monotonic() - start) for name in response.removed_resources)
    assert present == {name_of(server, "known") for server in servers}, present
    print("  absent after", {name.split("/")[2]: f"{took:.1f} s" for name, took in absent.items()})

    time.sleep(int(os.environ.get("WEIR_SECONDS", 15)))
    assert not given_up(), given_up()
    assert client.is_silent(0.1)

    plane.hang()
    stopped, found = time.monotonic(), {}

    def all_found():
        for name in given_up() - found.keys():
            found[name] = time.monotonic() - stopped
        return len(found) == len(servers)

    wait_for("a server that hangs is found behind every gateway", all_found, HUNG)
    print("  found after", {name: f"{took:.1f} s" for name, took in found.items()})
    assert client.is_silent(0.1), "what clients hold stays"
    client.close()
