"""A client that speaks delta itself: it sends what it is told to, takes all that comes, and acknowledges it."""

import queue
import threading

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2


class DeltaClient:
    def __init__(self, port):
        self.out, self.responses = queue.Queue(), queue.Queue()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(self.channel)
        self.call = stub.DeltaAggregatedResources(iter(self.out.get, None), wait_for_ready=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for response in self.call:
                self.send(response.type_url, response_nonce=response.nonce)
                self.responses.put(response)
        except grpc.RpcError as error:
            self.responses.put(error)

    def send(self, kind, subscribe=(), stated=None, **more):
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=kind, resource_names_subscribe=subscribe, initial_resource_versions=stated or {}, **more)
        request.node.id, request.node.cluster = "delta-client", "interop"
        self.out.put(request)

    def receive(self, patience=5):
        """The next response."""
        response = self.responses.get(timeout=patience)
        if isinstance(response, Exception):
            raise response
        return response

    def is_silent(self, during):
        try:
            return not self.receive(during)
        except queue.Empty:
            return True

    def close(self):
        self.out.put(None)
        self.channel.close()
