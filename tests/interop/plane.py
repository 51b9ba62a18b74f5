"""A small control plane: it holds resources by type and name, and pushes what changes, in the order it is told."""

import queue
import threading
from concurrent import futures

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf import any_pb2

PREFIX = "type.googleapis.com/"
FULL_STATE = {"envoy.config.cluster.v3.Cluster", "envoy.config.listener.v3.Listener"}


def type_of(message):
    return PREFIX + message.DESCRIPTOR.full_name


def name_of(message):
    return message.cluster_name if hasattr(message, "cluster_name") else message.name


def packed(message):
    value = any_pb2.Any()
    value.Pack(message, deterministic=True)
    return value


class Subscription:
    def __init__(self):
        self.star = False
        self.names = set()


class Plane(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    def __init__(self, address="127.0.0.1:0"):
        self.lock = threading.Lock()
        self.resources = {}  # (type, name) -> message
        self.streams = []
        self.version = 0
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port(address)
        self.nacks = []
        self.server.start()

    def stop(self):
        for stream in self.streams:
            stream["out"].put(None)
        self.server.stop(None).wait()

    def apply(self, *changes):
        """Each change is a message, or a (type, name) to delete. They go out one after another, without any wait."""
        with self.lock:
            for change in changes:
                self.version += 1
                if isinstance(change, tuple):
                    key = change
                    self.resources.pop(key, None)
                else:
                    key = (type_of(change), name_of(change))
                    self.resources[key] = change
                for stream in self.streams:
                    stream["push"](key)

    def visible(self, url, subscription):
        return {
            name: message
            for (kind, name), message in self.resources.items()
            if kind == url and (subscription.star or name in subscription.names)
        }

    def StreamAggregatedResources(self, requests, context):
        subscriptions = {}

        def send(url, names=None):
            found = self.visible(url, subscriptions[url])
            full = url[len(PREFIX):] in FULL_STATE
            chosen = [m for name, m in found.items() if full or names is None or name in names]
            if chosen or full:
                stream["out"].put(discovery_pb2.DiscoveryResponse(
                    version_info=str(self.version), nonce=str(self.version), type_url=url,
                    resources=[packed(m) for m in chosen]))

        def push(key):
            url, name = key
            subscription = subscriptions.get(url)
            if subscription and (subscription.star or name in subscription.names):
                send(url, {name})

        def take(request):
            if request.HasField("error_detail"):
                self.nacks.append(request.error_detail.message)
            first = request.type_url not in subscriptions
            subscription = subscriptions.setdefault(request.type_url, Subscription())
            names = set(request.resource_names)
            star = "*" in names or (first and not names)
            added = names - subscription.names
            changed = first or added or names != subscription.names
            subscription.star, subscription.names = star or (subscription.star and not names), names - {"*"}
            if changed:
                send(request.type_url, None if first else added)

        stream = {"out": queue.Queue(), "push": push}
        return self.talk(stream, requests, take)

    def DeltaAggregatedResources(self, requests, context):
        subscriptions = {}

        def send(url, messages, removed=()):
            stream["out"].put(discovery_pb2.DeltaDiscoveryResponse(
                nonce=str(self.version), type_url=url, removed_resources=removed,
                resources=[discovery_pb2.Resource(name=name_of(m), version=str(hash(m.SerializeToString())),
                                                  resource=packed(m)) for m in messages]))

        def push(key):
            url, name = key
            subscription = subscriptions.get(url)
            if subscription and (subscription.star or name in subscription.names):
                message = self.resources.get(key)
                send(url, [message] if message else [], [] if message else [name])

        def take(request):
            if request.HasField("error_detail"):
                self.nacks.append(request.error_detail.message)
            first = request.type_url not in subscriptions
            subscription = subscriptions.setdefault(request.type_url, Subscription())
            on, off = set(request.resource_names_subscribe), set(request.resource_names_unsubscribe)
            star = "*" in on or (first and not on and not off)
            subscription.star = (subscription.star or star) and "*" not in off
            subscription.names = (subscription.names | on) - off - {"*"}
            if not star and not on:
                return
            found = self.visible(request.type_url, subscription)
            news = [m for name, m in found.items() if star or name in on]
            gone = [name for name in on - {"*"} if name not in found]
            gone += [name for name in request.initial_resource_versions if name not in found and name not in gone]
            send(request.type_url, news, gone)

        stream = {"out": queue.Queue(), "push": push}
        return self.talk(stream, requests, take)

    def talk(self, stream, requests, take):
        with self.lock:
            self.streams.append(stream)

        def read():
            try:
                for request in requests:
                    with self.lock:
                        take(request)
            except Exception:  # the stream is over, one way or another
                pass
            stream["out"].put(None)

        threading.Thread(target=read, daemon=True).start()
        while (response := stream["out"].get()) is not None:
            yield response
