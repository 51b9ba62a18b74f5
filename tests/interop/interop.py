"""Real clients get their configuration through the relay and route traffic: Envoys by delta and state of the world, and a gRPC
client. Not one request may fail through changes of endpoints, clusters and routes, a burst that nobody ordered, and the loss
of the control plane."""

import argparse
import http.client
import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, config_source_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import api_listener_pb2, listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import duration_pb2, wrappers_pb2

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
        endpoint_components_pb2.LocalityLbEndpoints(  # gRPC passes over a locality without a weight
            locality=base_pb2.Locality(region="here"), load_balancing_weight=wrappers_pb2.UInt32Value(value=1),
            lb_endpoints=[endpoint_components_pb2.LbEndpoint(endpoint=endpoint)])])


def route(to):
    match = route_components_pb2.RouteMatch(prefix="/")
    action = route_components_pb2.RouteAction(cluster=to)
    host = route_components_pb2.VirtualHost(
        name="all", domains=["*"], routes=[route_components_pb2.Route(match=match, route=action)])
    return route_pb2.RouteConfiguration(name="routes", virtual_hosts=[host])


def listener(port, label="first"):
    router = hcm_pb2.HttpFilter(name="router", typed_config=packed(router_pb2.Router()))
    manager = hcm_pb2.HttpConnectionManager(
        stat_prefix=label, http_filters=[router],
        rds=hcm_pb2.Rds(route_config_name="routes", config_source=ADS))
    network = listener_components_pb2.Filter(name="hcm", typed_config=packed(manager))
    return listener_pb2.Listener(name="main", address=address(port), filter_chains=[
        listener_components_pb2.FilterChain(filters=[network])])


def api_listener():
    router = hcm_pb2.HttpFilter(name="router", typed_config=packed(router_pb2.Router()))
    manager = hcm_pb2.HttpConnectionManager(
        http_filters=[router], rds=hcm_pb2.Rds(route_config_name="routes", config_source=ADS))
    return listener_pb2.Listener(name="service", api_listener=api_listener_pb2.ApiListener(api_listener=packed(manager)))


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


def grpc_backend(name):
    def answer(_request, _context):
        return name.encode()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    handler = grpc.method_handlers_generic_handler("test.Echo", {"Name": grpc.unary_unary_rpc_method_handler(answer)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


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

    def show_logs(self):
        for log in sorted(self.folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)

    def stop(self):
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def start_relay(processes, options, plane, port, admin):
    config = processes.folder / "weir.yaml"
    config.write_text(f"""
listen: [{{address: '127.0.0.1:{port}'}}]
admin: {{address: '127.0.0.1:{admin}'}}
upstream: {{servers: [{{uri: 'http://127.0.0.1:{plane.port}'}}]}}
views: {{key: [cluster]}}
""")
    processes.start("weir", options.weir, "--config", str(config), "--log", "weir=debug")
    wait_for("the relay is up", lambda: get(admin, "/healthz")[0] == 200)


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
        start_relay(processes, options, plane, relay_port, relay_admin)
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

            label = f"round-{round_}"
            plane.apply(listener(front, label))
            wait_for("the listener changed",
                     lambda: f'"stat_prefix": "{label}"' in get(admin, "/config_dump?resource=dynamic_listeners")[1])

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
        processes.show_logs()
        raise
    finally:
        if traffic:
            traffic.stop()
        processes.stop()
        plane.stop()


def run_grpc(options, folder):
    """A gRPC client asks for its resources by name, one type after the other, in the state of the world."""
    processes, plane, servers = Processes(folder), Plane(), []
    try:
        servers = [grpc_backend("a"), grpc_backend("b")]
        ports = {"a": servers[0][1], "b": servers[1][1]}
        relay_port, relay_admin = free_port(), free_port()
        plane.apply(cluster("c1"), endpoints("c1", ports["a"]), api_listener(), route("c1"))
        start_relay(processes, options, plane, relay_port, relay_admin)
        bootstrap = {"xds_servers": [{"server_uri": f"127.0.0.1:{relay_port}",
                                      "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
                     "node": {"id": "grpc-1", "cluster": "interop"}}
        here = pathlib.Path(__file__).parent
        log = open(processes.folder / "grpc.log", "wb")
        client = subprocess.Popen(
            [sys.executable, str(here / "grpc_client.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            text=True, env={**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap)})
        processes.running.append(client)
        answers = []

        def ask():
            client.stdin.write("\n")
            client.stdin.flush()
            answers.append(client.stdout.readline().strip())
            return answers[-1]

        assert ask() == "a", answers
        plane.apply(endpoints("c1", ports["b"]))
        wait_for("endpoints change", lambda: ask() == "b")
        plane.apply(cluster("c1", timeout=2))
        plane.apply(cluster("c2"), endpoints("c2", ports["a"]), route("c2"), (type_of(cluster("c1")), "c1"))
        wait_for("the route moved", lambda: ask() == "a")
        plane.stop()
        for _ in range(20):
            assert ask() == "a", answers[-1]
        assert set(answers) == {"a", "b"}, answers
        assert not plane.nacks, plane.nacks
        print(f"  {len(answers)} calls, none failed")
    except BaseException:
        processes.show_logs()
        raise
    finally:
        processes.stop()
        plane.stop()
        for server, _ in servers:
            server.stop(None)


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
    print("gRPC by xds:///", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run_grpc(options, folder)
    passed += 1
    print(f"{passed} passed, 0 failed")


main()
