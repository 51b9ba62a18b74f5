"""Real Envoys get their configuration through the relay and route traffic, delta and state of the world, without one failed
request through changes of endpoints, clusters and routes, a burst that nobody ordered, and the loss of the control plane."""

import argparse
import http.client
import http.server
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2, config_source_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import duration_pb2

from plane import Plane, packed, type_of

ADS = config_source_pb2.ConfigSource(resource_api_version=config_source_pb2.V3,
                                     ads=config_source_pb2.AggregatedConfigSource())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def address(port):
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address="127.0.0.1", port_value=port))


def cluster(name, timeout=1):
    return cluster_pb2.Cluster(
        name=name, type=cluster_pb2.Cluster.EDS, connect_timeout=duration_pb2.Duration(seconds=timeout),
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(eds_config=ADS))


def endpoints(name, port):
    endpoint = endpoint_components_pb2.Endpoint(address=address(port))
    return endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=[
        endpoint_components_pb2.LocalityLbEndpoints(
            lb_endpoints=[endpoint_components_pb2.LbEndpoint(endpoint=endpoint)])])


def route(to):
    match = route_components_pb2.RouteMatch(prefix="/")
    action = route_components_pb2.RouteAction(cluster=to)
    host = route_components_pb2.VirtualHost(
        name="all", domains=["*"], routes=[route_components_pb2.Route(match=match, route=action)])
    return route_pb2.RouteConfiguration(name="routes", virtual_hosts=[host])


def listener(port):
    router = hcm_pb2.HttpFilter(name="router", typed_config=packed(router_pb2.Router()))
    manager = hcm_pb2.HttpConnectionManager(
        stat_prefix="http", http_filters=[router],
        rds=hcm_pb2.Rds(route_config_name="routes", config_source=ADS))
    network = listener_components_pb2.Filter(name="hcm", typed_config=packed(manager))
    return listener_pb2.Listener(name="main", address=address(port), filter_chains=[
        listener_components_pb2.FilterChain(filters=[network])])


class Backend(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        body = self.server.name.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def backend(name):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    server.name = name
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def get(port, path="/"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


def wait_for(what, condition, patience=30):
    start = time.monotonic()
    while time.monotonic() - start < patience:
        try:
            if condition():
                return time.monotonic() - start
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {patience} s")


class Traffic:
    """Asks all the time, and remembers every answer that was not a good one."""

    def __init__(self, port):
        self.port, self.failures, self.asked, self.stopped = port, [], 0, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopped:
            try:
                status, body = get(self.port)
                if status != 200:
                    self.failures.append((status, body))
            except OSError as error:
                self.failures.append(repr(error))
            self.asked += 1
            time.sleep(0.002)

    def stop(self):
        self.stopped = True
        self.thread.join()


class Processes:
    def __init__(self, folder):
        self.folder, self.running = pathlib.Path(folder), []

    def start(self, name, *command):
        log = open(self.folder / f"{name}.log", "wb")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def stop(self):
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def start_envoy(processes, options, name, variant, relay_port, listener_ports):
    admin = free_port()
    bootstrap = {
        "node": {"id": name, "cluster": "interop"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "dynamic_resources": {
            "ads_config": {"api_type": variant, "transport_api_version": "V3",
                           "grpc_services": [{"envoy_grpc": {"cluster_name": "relay"}}]},
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
        },
        "static_resources": {"clusters": [{
            "name": "relay", "type": "STATIC", "connect_timeout": "1s",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": {"http2_protocol_options": {}}}},
            "load_assignment": {"cluster_name": "relay", "endpoints": [{"lb_endpoints": [{"endpoint": {
                "address": {"socket_address": {"address": "127.0.0.1", "port_value": relay_port}}}}]}]}}]},
    }
    path = processes.folder / f"{name}.json"
    path.write_text(json.dumps(bootstrap))
    base = str(1000 + free_port() % 30000)
    processes.start(name, options.envoy, "-c", str(path), "--base-id", base, "--concurrency", "1", "-l", "warning")
    return admin


def run(variant, options, folder):
    processes = Processes(folder)
    plane = Plane()
    traffic = None
    try:
        ports = {"a": backend("a"), "b": backend("b")}
        front, relay_port, relay_admin = free_port(), free_port(), free_port()
        plane.apply(cluster("c1"), endpoints("c1", ports["a"]), listener(front), route("c1"))
        config = processes.folder / "weir.yaml"
        config.write_text(f"""
listen: [{{address: '127.0.0.1:{relay_port}'}}]
admin: {{address: '127.0.0.1:{relay_admin}'}}
upstream: {{servers: [{{uri: 'http://127.0.0.1:{plane.port}'}}]}}
views: {{key: [cluster]}}
""")
        processes.start("weir", options.weir, "--config", str(config), "--log", "weir=debug")
        wait_for("the relay is up", lambda: get(relay_admin, "/healthz")[0] == 200)
        admin = start_envoy(processes, options, "envoy-1", variant, relay_port, front)
        took = wait_for("the first answer", lambda: get(front) == (200, "a"))
        print(f"  first request routed after {took:.1f} s")
        traffic = Traffic(front)

        for round_ in range(5):
            old, new = f"c{1 + round_}", f"c{2 + round_}"
            plane.apply(endpoints(old, ports["b"]))
            wait_for("endpoints change", lambda: get(front) == (200, "b"))

            plane.apply(cluster(old, timeout=2))

            def active():
                return '"connect_timeout": "2s"' in get(admin, "/config_dump?resource=dynamic_active_clusters")[1]
            took = wait_for("a changed cluster whose endpoints were not sent again is active", active, patience=3)
            print(f"  changed cluster active after {took:.2f} s")

            # A new cluster, the route to it, and the old one gone: at once, and in no good order.
            plane.apply(cluster(new), route(new), (type_of(cluster(old)), old), endpoints(new, ports["a"]))
            wait_for("the route moved", lambda: get(front) == (200, "a"))
            wait_for("the old cluster is gone", lambda: f"{old}::" not in get(admin, "/clusters")[1])

        # The control plane dies. Those who have their configuration go on, and those who come get it.
        plane.stop()
        second = start_envoy(processes, options, "envoy-2", variant, relay_port, front)
        wait_for("an Envoy that came during the outage has its clusters", lambda: f"{new}::" in get(second, "/clusters")[1])

        traffic.stop()
        assert traffic.asked > 200, f"only {traffic.asked} requests"
        assert not traffic.failures, f"{len(traffic.failures)} of {traffic.asked} failed: {traffic.failures[:5]}"
        assert not plane.nacks, plane.nacks
        clients = json.loads(get(relay_admin, "/clients")[1])
        refused = [kind["refused"] for client in clients for kind in client["types"] if kind["refused"]]
        # The second Envoy cannot bind the first one's port, and says so.
        assert all("bind" in reason for reason in refused), refused
        print(f"  {traffic.asked} requests, none failed")
    except BaseException:
        for log in sorted(processes.folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        raise
    finally:
        if traffic:
            traffic.stop()
        processes.stop()
        plane.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--envoy", required=True)
    parser.add_argument("--weir", required=True)
    options = parser.parse_args()
    passed = 0
    for variant in ["DELTA_GRPC", "GRPC"]:
        print(f"Envoy over ADS, {variant}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            run(variant, options, folder)
        passed += 1
    print(f"{passed} passed, 0 failed")


main()
