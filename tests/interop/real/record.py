"""Records what a control plane sends to one client, in the form of `weir-loadtest record`, whose client has neither the metadata that Istiod and
Consul want nor a second stream. tests/relay/recordings.rs replays the files."""

import queue
import re
import tempfile
import threading
import time
from collections import Counter

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

from processes import Processes, free_port
from real import build
from real.consul import Consul
from real.course import PORTS
from real.envoy import AGENT
from real.istiod import Istiod
from real.java_control_plane import JavaControlPlane
from real.state import State
from resources import Source, type_of
from web import wait_for

HEADER = b"weir-loadtest recording 1\n"
METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
CDS, EDS, LDS, RDS = map(type_of, [
    cluster_pb2.Cluster, endpoint_pb2.ClusterLoadAssignment, listener_pb2.Listener, route_pb2.RouteConfiguration])
PEM = re.compile(rb"-----BEGIN.*?-----END [A-Z ]+-----", re.DOTALL)
# What is in no file, beside keys and certificates in this form, which become placeholders.
SECRET = [b"-----BEGIN", b"PRIVATE KEY"]
# Bytes that a file may have, since it is in the repository.
LARGEST = 70_000
# No server has given it, so that it sends everything, and says of what it lacks that it is gone.
NO_VERSION = "unknown"


class Recorder:
    """An Envoy in delta, over aggregated streams. `also` are types of which it wants everything, beside those of an Envoy."""

    def __init__(self, port, node, also=()):
        self.port, self.node, self.also = port, json_format.ParseDict({**node, **AGENT}, base_pb2.Node()), also
        self.held, self.asked = {}, {}  # by type: the resources by name, and the names that are subscribed to
        self.records, self.last, self.ended = [], time.monotonic(), None

    def open(self):
        """Starts the recording again with a new stream, which states what the client holds."""
        self.records, self.out, self.ended = [], queue.Queue(), None
        before, self.asked = self.asked, {}
        # A server that is not up yet is waited for, and the time between two attempts is short.
        channel = grpc.insecure_channel(f"127.0.0.1:{self.port}", options=[
            ("grpc.max_reconnect_backoff_ms", 200), ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.use_local_subchannel_pool", 1)])
        self.began = time.monotonic()
        responses = channel.stream_stream(METHOD)(iter(self.out.get, None), wait_for_ready=True)
        for kind in before or [CDS, *self.also]:
            self.ask(kind, before.get(kind))
        threading.Thread(target=self.read, args=[responses], daemon=True).start()

    def read(self, responses):
        try:
            for message in responses:
                self.note(False, message)
                self.take(discovery_pb2.DeltaDiscoveryResponse.FromString(message))
                self.last = time.monotonic()
        except grpc.RpcError as error:
            self.ended = error

    def ask(self, kind, names=None):
        """Subscribes to these names of a type, or to everything."""
        names, before = set(names or []), self.asked.get(kind)
        if before is None:
            stated = {name: NO_VERSION for name in self.held.get(kind, {})}
            self.send(type_url=kind, resource_names_subscribe=sorted(names), initial_resource_versions=stated)
        elif names != before:
            self.send(type_url=kind, resource_names_subscribe=sorted(names - before), resource_names_unsubscribe=sorted(before - names))
        self.asked[kind] = names

    def send(self, **fields):
        """The first request that is recorded has the node, as every one that is sent has."""
        request = discovery_pb2.DeltaDiscoveryRequest(node=self.node, **fields)
        sent = request.SerializeToString()
        if self.records:
            request.ClearField("node")
        self.note(True, request.SerializeToString())
        self.out.put(sent)

    def take(self, response):
        kind = response.type_url
        held = self.held.setdefault(kind, {})
        for name in response.removed_resources:
            held.pop(name, None)
        held.update({one.name: one.resource for one in response.resources})
        self.send(type_url=kind, response_nonce=response.nonce)
        if kind == CDS:
            self.follow(EDS, endpoints_of, held)
        if kind == LDS:
            self.follow(RDS, routes_of, held)
        if LDS not in self.asked and CDS in self.held and self.asked.get(EDS, set()) <= self.held.get(EDS, {}).keys():
            self.ask(LDS)

    def follow(self, kind, names_in, held):
        names = {name for one in held.values() for name in names_in(one)}
        if names or kind in self.asked:
            self.ask(kind, names)

    def note(self, is_request, message):
        self.records.append((time.monotonic() - self.began, is_request, message))

    def rests(self, seconds, patience=60):
        wait_for("the control plane has said everything", lambda: time.monotonic() - self.last > seconds, patience)

    def write(self, path):
        """Keys and certificates become a placeholder of the same length. The wait for a server that was not up yet is left out."""
        data = bytearray(HEADER)
        first = next(at for at, is_request, _ in self.records if not is_request)
        for at, is_request, message in self.records:
            at = max(0, at - max(0, first - 0.1))
            message = PEM.sub(lambda match: b"placeholder ".ljust(len(match[0]), b"."), message)
            record = number(1, int(at * 1e9)) + (number(2, 1) if is_request else b"") + number(3, 1) + b"\x22" + varint(len(message)) + message
            data += varint(len(record)) + record
        sizes = Counter()
        for _, is_request, message in self.records:
            sizes["requests" if is_request else discovery_pb2.DeltaDiscoveryResponse.FromString(message).type_url] += len(message)
        assert len(data) < LARGEST, f"{len(data)} bytes: {sizes}"
        assert not any(mark in data for mark in SECRET), "it has a key or a certificate"
        path.write_bytes(data)
        print(f"  {path.name}: {len(data)} bytes, {len(self.records)} messages; at the end {({kind: sorted(held) for kind, held in self.held.items()})}")


def endpoints_of(resource):
    cluster = cluster_pb2.Cluster.FromString(resource.value)
    return [cluster.eds_cluster_config.service_name or cluster.name] if cluster.type == cluster_pb2.Cluster.EDS else []


def routes_of(resource):
    listener = listener_pb2.Listener.FromString(resource.value)
    for chain in [*listener.filter_chains, listener.default_filter_chain]:
        for one in chain.filters:
            manager = http_connection_manager_pb2.HttpConnectionManager()
            if one.typed_config.Unpack(manager) and manager.rds.route_config_name:
                yield manager.rds.route_config_name


def varint(value):
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def number(field, value):
    return bytes([field << 3]) + varint(value)


def start(plane, state, recorder):
    """What it sends to a client that has just come."""


def habits(plane, state, recorder):
    """A cluster changes and its endpoints do not; then they do; then a service goes, and comes back."""
    state.services["s1"].timeout = 3
    say(plane, state, recorder)
    state.services["s1"].backend = "b"
    say(plane, state, recorder)
    gone = state.services.pop("s3")
    say(plane, state, recorder)
    state.services["s3"] = gone
    say(plane, state, recorder)


def say(plane, state, recorder):
    plane.apply(state)
    time.sleep(0.3)
    recorder.rests(0.5)


def restart(plane, state, recorder):
    """It is killed. The recording is of what the client is sent afterwards."""
    plane.kill()
    wait_for("the stream has ended", lambda: recorder.ended)
    recorder.open()
    plane.start(state)
    recorder.last = time.monotonic()
    recorder.rests(8)


# What is recorded of whom, and types beside those of an Envoy. Of Istiod's own it is the table of names: what its agent is sent as
# `istio.mesh.v1alpha1.ProxyConfig` consists of certificates.
RECORDINGS = {
    "istiod-start": (Istiod, start, ["type.googleapis.com/istio.networking.nds.v1.NameTable"]),
    "consul-restart": (Consul, restart, []),
    "java-control-plane-habits": (JavaControlPlane, habits, [])}


def run(options, make, name):
    _, happens, also = RECORDINGS[name]
    make.build()
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(folder)
        try:
            ports = {port: free_port() for port in [*PORTS, "a", "b"]}
            plane, state = make(options, processes, ports, Source(aggregated=True, delta=True)), State()
            plane.start(state)
            recorder = Recorder(plane.port, plane.NODE, also)
            recorder.open()
            wait_for("the first routes", lambda: recorder.held.get(RDS), 60)
            recorder.rests(3)
            happens(plane, state, recorder)
            assert not recorder.ended, recorder.ended
            (build.FOLDER / "recordings").mkdir(exist_ok=True)
            recorder.write(build.FOLDER / "recordings" / name)
        except BaseException:
            processes.show_logs()
            raise
        finally:
            processes.stop()
