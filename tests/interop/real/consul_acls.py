"""Consul with ACLs: each sidecar has a token of its own, shows it as `x-consul-token`, and is judged by it, through one relay as well."""

import json
import pathlib
import tempfile
import threading
import uuid

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf import json_format

from real import report, steps
from real.consul import Consul
from real.course import Course
from real.envoy import AGENT
from resources import type_of
from web import wait_for

HEADER = "x-consul-token"


class ConsulWithAcls(Consul):
    KEY = [*Consul.KEY, f"header.{HEADER}"]
    MANAGER = str(uuid.uuid4())
    ACLS = {"acl": {"enabled": True, "default_policy": "deny", "tokens": {"initial_management": MANAGER, "agent": MANAGER}}}

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.shows, self.tokens = {"X-Consul-Token": self.MANAGER}, {}

    def apply(self, state):
        if not self.tokens:
            self.put("config", {"Kind": "service-intentions", "Name": "*", "Sources": [{"Name": "*", "Action": "allow"}]})
            self.tokens = {name: self.token_for(name) for name in ["web", "s1", "s2", "s3"]}
        super().apply(state)

    def token_for(self, service):
        """What lets it be this service, and read what there is."""
        return json.loads(self.put("acl/token", {"ServiceIdentities": [{"ServiceName": service}]}))

    def revoke(self, service):
        self.put(f"acl/token/{self.tokens[service]['AccessorID']}", method="DELETE")

    def headers(self, node):
        return {HEADER: self.tokens[node["cluster"]]["SecretID"]}


def said(port, node, headers):
    """Asks for all clusters: the status that a new stream ends with, or that there was an answer."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        request = discovery_pb2.DeltaDiscoveryRequest(
            node=json_format.ParseDict({**node, **AGENT}, base_pb2.Node()), type_url=type_of(cluster_pb2.Cluster))
        stream = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).DeltaAggregatedResources(
            endless(request), metadata=list(headers.items()), timeout=20)
        try:
            return f"answered with {len(next(stream).resources)} clusters"
        except grpc.RpcError as error:
            return error.code().name


def endless(request):
    """A stream that the client does not end."""
    yield request
    threading.Event().wait()


def on_both_ways(course, node, headers):
    ways = [said(server.port, node, headers) for server in [course.plane, course.relay]]
    print(f"  {course.step_name}: {ways[0]} directly, {ways[1]} through Weir")
    report.note(course.step_name, *ways)
    return ways


def each_with_its_own_token(course):
    for path, body in [("s1", "a"), ("s2", "b"), ("s3", "a")]:
        course.answers(path, body)
    course.service("s1", backend="b", timeout=3)
    course.answers("s1", "b")
    course.has_timeout("s1")
    views = course.relay.upstreams()
    assert len(views) == 4, f"a view for each sidecar: {len(views)}"
    direct, weir = on_both_ways(course, course.plane.NODE, course.headers(course.plane.NODE))
    assert direct.startswith("answered"), direct
    assert weir == direct, (direct, weir)


def id_of_another(course):
    """The id of `web` with the token of `s1`, then without any."""
    for headers in [course.headers(course.plane.OTHERS["sidecar-s1"]), {}]:
        direct, weir = on_both_ways(course, course.plane.NODE, headers)
        assert direct in ["PERMISSION_DENIED", "UNAUTHENTICATED"] and weir == direct, (direct, weir)
    course.traffic.flows()


def revoked_token(course):
    """The Envoy that runs keeps what it has; a new stream gets nothing, whatever is cached."""
    node = course.plane.NODE
    headers = course.headers(node)
    course.plane.revoke("web")
    course.service("s2", timeout=4)  # Consul looks at the token again when it has something to send
    refused = ["PERMISSION_DENIED", "UNAUTHENTICATED"]
    wait_for("new streams are refused", lambda: said(course.relay.port, node, headers) in refused, 60)
    direct, weir = on_both_ways(course, node, headers)
    assert direct in refused and weir == direct, (direct, weir)
    course.traffic.flows()
    others = course.headers(course.plane.OTHERS["sidecar-s1"])
    assert said(course.relay.port, course.plane.OTHERS["sidecar-s1"], others).startswith("answered"), "others are not concerned"


def run(options, plane, source):
    plane.build()
    with tempfile.TemporaryDirectory() as folder:
        course = Course(ConsulWithAcls, options, source, "delta", "Weir", pathlib.Path(folder, "Weir"))
        made = [steps.start, each_with_its_own_token, id_of_another, revoked_token]
        course.run([(step.__name__.replace("_", " "), step) for step in made])
        failed = {name: failures[:5] for name, failures in course.failures.items() if failures}
        assert not failed, failed
