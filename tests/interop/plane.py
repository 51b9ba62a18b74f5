"""A small control plane: it holds resources by type and name, and pushes what changes, in the order it is told."""

import queue
import threading
import time
from concurrent import futures
from dataclasses import dataclass

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import scoped_route_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from envoy.service.load_stats.v3 import lrs_pb2_grpc
from google.protobuf.message import Message

from load_plane import LoadPlane
from resources import Host, packed, type_of

FULL_STATE = {type_of(kind) for kind in [
    cluster_pb2.Cluster, listener_pb2.Listener, scoped_route_pb2.ScopedRouteConfiguration]}
HOSTS = type_of(Host)
# An empty first request means everything. Of virtual hosts these are those of the route configurations that the client has.
EMPTY_IS_WILDCARD = FULL_STATE | {HOSTS}


@dataclass(frozen=True)
class Entry:
    name: str
    message: Message
    aliases: tuple = ()
    on_demand: bool = False  # not shown to those who want everything

    def goes_by(self):
        """The names that it is asked for by; one of them is that of the collection that it is in."""
        folder, _, _ = self.name.rpartition("/")
        return {self.name, *self.aliases, *([f"{folder}/*"] if self.name.startswith("xdstp:") else [])}

    def answers(self, subscription):
        by_name = not subscription.names.isdisjoint(self.goes_by())
        return by_name or (subscription.star and not self.on_demand)

    def wrapped(self):
        version = str(hash(self.message.SerializeToString(deterministic=True)))
        return discovery_pb2.Resource(
            name=self.name, aliases=self.aliases, version=version, resource=packed(self.message))


def host_of(route_name, name, host, on_demand=False):
    """A virtual host as a resource: under its route configuration, and by one alias for each of its domains."""
    aliases = tuple(f"{route_name}/{domain}" for domain in host.domains)
    return Entry(f"{route_name}/{name}", host, aliases, on_demand)


def entry_of(message):
    return Entry(message.cluster_name if hasattr(message, "cluster_name") else message.name, message)


def unresolved(alias):
    """Nothing goes by this alias. A request that waits for it ends with this, and by a removal it would not."""
    return discovery_pb2.Resource(name=alias, aliases=[alias])


@dataclass(frozen=True)
class Pieces:
    """How a control plane cuts what it says first of everything of a type, in delta: one resource in each response, so many seconds
    apart. If it compares, it leaves out what the client states as it is, says in the first piece what does not exist, and is silent
    when there is nothing to say; it cuts what is left, or compares each piece when its turn comes. If it does not compare, it sends
    everything, and never says what does not exist."""
    gap: float
    compares: bool
    piecewise: bool = False


class Subscription:
    def __init__(self):
        self.star = False
        self.names = set()


class Plane(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    def __init__(self, port=0, has=(), slowly=None, pieces=None):
        self.lock = threading.Lock()
        self.entries = {}  # (type, name) -> entry
        self.to_come = []  # what is there, and is not said yet
        self.pieces = pieces
        self.streams = []
        self.version = 0
        self.nacks = []
        self.asked = set()  # (type, name), ever
        self.apply(*has)
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=100))
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(self, self.server)
        self.loads = LoadPlane()
        lrs_pb2_grpc.add_LoadReportingServiceServicer_to_server(self.loads, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        if slowly:
            self.comes_by_slowly(*slowly)
        self.server.start()

    def stop(self):
        for stream in list(self.streams):
            stream["out"].put(None)
        self.server.stop(None).wait()

    def back(self, *changes, slowly=None):
        """The same control plane at the same address, after it was stopped, with all that it had and these changes."""
        return Plane(self.port, [*self.entries.values(), *changes], slowly)

    def comes_by_slowly(self, kind, gap):
        """Like one that is only starting itself: from now on it says resources of this type one by one, so many seconds apart, and
        of none before that it does not exist. In the state of the world it says nothing of the type before it has all."""
        with self.lock:
            self.to_come = [key for key in self.entries if key[0] == kind]
        threading.Thread(target=self.come_by, args=[gap], daemon=True).start()

    def come_by(self, gap):
        while self.to_come:
            time.sleep(gap)
            with self.lock:
                kind, _ = key = self.to_come.pop(0)
                for stream in self.streams:
                    stream["push"](kind, self.entries[key], False)

    def apply(self, *changes):
        """Each change is a message, an entry, or a (type, name) to delete. They go out one after another, without any wait."""
        with self.lock:
            for change in changes:
                self.version += 1
                if isinstance(change, tuple):
                    kind, entry, gone = change[0], self.entries.pop(change), True
                else:
                    entry, gone = change if isinstance(change, Entry) else entry_of(change), False
                    kind = type_of(entry.message)
                    self.entries[kind, entry.name] = entry
                for stream in self.streams:
                    stream["push"](kind, entry, gone)

    def remove_at_once(self, *names):
        """Deletes names of one type, each as (type, name), in one response."""
        with self.lock:
            self.version += 1
            gone = [(name, self.entries.pop((kind, name))) for kind, name in names]
            for stream in self.streams:
                stream["remove"](names[0][0], gone)

    def existing(self, kind, subscription):
        return [entry for (of, _), entry in self.entries.items() if of == kind and entry.answers(subscription)]

    def visible(self, kind, subscription):
        return [entry for entry in self.existing(kind, subscription) if (kind, entry.name) not in self.to_come]

    def StreamAggregatedResources(self, requests, context):
        subscriptions = {}

        def send(kind, names=None):
            full = kind in FULL_STATE
            if full and any(of == kind for of, _ in self.to_come):
                return
            chosen = [entry for entry in self.visible(kind, subscriptions[kind])
                      if full or names is None or entry.name in names]
            if chosen or full:
                stream["out"].put(discovery_pb2.DiscoveryResponse(
                    version_info=str(self.version), nonce=str(self.version), type_url=kind,
                    resources=[packed(entry.message) for entry in chosen]))

        def push(kind, entry, gone):
            subscription = subscriptions.get(kind)
            if subscription and entry.answers(subscription):
                send(kind, {entry.name})

        def remove(kind, gone):
            if kind in subscriptions:
                send(kind)

        def take(request):
            kind, names = request.type_url, set(request.resource_names)
            self.note(kind, names, request)
            first = kind not in subscriptions
            subscription = subscriptions.setdefault(kind, Subscription())
            star = "*" in names or (first and not names and kind in EMPTY_IS_WILDCARD)
            added = names - subscription.names
            changed = first or added or names != subscription.names
            subscription.star, subscription.names = star or (subscription.star and not names), names - {"*"}
            if changed:
                send(kind, None if first else added)

        stream = {"out": queue.Queue(), "push": push, "remove": remove}
        return self.talk(stream, requests, take)

    def DeltaAggregatedResources(self, requests, context):
        subscriptions = {}

        def send(kind, wrapped, removed=()):
            stream["out"].put(discovery_pb2.DeltaDiscoveryResponse(
                nonce=str(self.version), type_url=kind, resources=wrapped, removed_resources=removed))

        def send_pieces(kind, names, gone, stated):
            for number, name in enumerate(names or [None]):
                if number:
                    time.sleep(self.pieces.gap)
                with self.lock:
                    wrapped = name and self.entries[kind, name].wrapped()
                    news = [wrapped] if name and stated.get(name) != wrapped.version else []
                    removed = () if number else gone
                    if news or removed:
                        send(kind, news, removed)

        def push(kind, entry, gone):
            subscription = subscriptions.get(kind)
            if subscription and entry.answers(subscription):
                send(kind, [] if gone else [entry.wrapped()], [entry.name] if gone else [])

        def remove(kind, gone):
            subscription = subscriptions.get(kind)
            removed = [name for name, entry in gone if subscription and entry.answers(subscription)]
            if removed:
                send(kind, [], removed)

        def take(request):
            kind, on, off = request.type_url, set(request.resource_names_subscribe), set(request.resource_names_unsubscribe)
            self.note(kind, on, request)
            first = kind not in subscriptions
            subscription = subscriptions.setdefault(kind, Subscription())
            star = "*" in on or (first and not on and not off and kind in EMPTY_IS_WILDCARD)
            subscription.star = (subscription.star or star) and "*" not in off
            subscription.names = (subscription.names | on) - off - {"*"}
            if not star and not on:
                return
            found = self.visible(kind, subscription)
            news = [entry.wrapped() for entry in found if star or not on.isdisjoint(entry.goes_by())]
            known = {name for entry in self.existing(kind, subscription) for name in entry.goes_by()}
            unknown, lost = on - known - {"*"}, set(request.initial_resource_versions) - known
            if not news and not unknown | lost and any(of == kind for of, _ in self.to_come):
                return  # an empty response would say that there is nothing
            if star and self.pieces:
                stated = request.initial_resource_versions if self.pieces.compares else {}
                names = [one.name for one in news if self.pieces.piecewise or stated.get(one.name) != one.version]
                gone = sorted(lost | unknown) if self.pieces.compares else []
                threading.Thread(target=send_pieces, args=(kind, names, gone, dict(stated)), daemon=True).start()
            elif kind == HOSTS:
                send(kind, news + [unresolved(name) for name in sorted(unknown)], sorted(lost - unknown))
            else:
                send(kind, news, sorted(unknown | lost))

        stream = {"out": queue.Queue(), "push": push, "remove": remove}
        return self.talk(stream, requests, take)

    def note(self, kind, names, request):
        self.asked |= {(kind, name) for name in names}
        if request.HasField("error_detail"):
            self.nacks.append(request.error_detail.message)

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
        try:
            while (response := stream["out"].get()) is not None:
                yield response
        finally:
            with self.lock:
                self.streams.remove(stream)
