"""A relay that is played: serves the page with its policy, a picture each second, and answers in the shapes of docs/admin-api.md.

It shows the page what a real relay seldom has at once: 10,000 clients, hostile names, a stuck client, NACKs, held removals. By itself,
for work on the page: `tests/page/stub.py [--clients 10000] [--port 8080]`."""

import argparse
import base64
import hashlib
import http.server
import json
import math
import pathlib
import re
import threading
import time
import urllib.parse

PAGE = pathlib.Path(__file__).parents[2] / "src/admin/page/page.html"

CLUSTER = "envoy.config.cluster.v3.Cluster"
ENDPOINTS = "envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "envoy.config.listener.v3.Listener"
ROUTES = "envoy.config.route.v3.RouteConfiguration"
SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"
SHORT = {"clusters": CLUSTER, "endpoints": ENDPOINTS, "listeners": LISTENER, "routes": ROUTES, "secrets": SECRET}

HTML = "<img src=x onerror=alert(1)>"
HOSTILE = [
    HTML, "<script>alert(2)</script>", "\u202eabc\u05d0\u05d1\u05d2 right-to-left", "long-" + "x" * 240, '"\'><svg/onload=alert(3)>', "javascript:alert(4)//",
    "line\nbreak", "עברית-מעטפת",
]
STUCK, NACKING = "web-checkout-7", "batch-importer-3"
REASON = "Error adding/updating cluster(s) cart-v2: cannot create an EDS cluster without an EDS config"
VIEWS = [("7e735f75ea494f2f", "web", 0.55), ("a2b2746f5950a4d2", "batch", 0.3), ("19c0ffee12345678", "payments", 0.15)]
SERVERS = ["http://cp-1.eu.example:18000", "http://cp-2.eu.example:18000"]


class World:
    def __init__(self, clients=500, is_hostile=False):
        self.clients, self.is_hostile = clients, is_hostile
        self.is_troubled = True
        self.alter = lambda picture: picture
        self.begin("first")

    def begin(self, instance):
        """As a process that has just started."""
        self.instance, self.started, self.pushes, self.changes = instance, time.time(), {}, {}

    def push(self, kind):
        """A change of this type, which spreads within some seconds."""
        self.pushes[kind] = time.time()
        self.changes[kind] = self.changes.get(kind, 0) + 1

    def spread(self, kind):
        age = time.time() - self.pushes.get(kind, 0)
        sent, acked = (min(1, 1 / (1 + math.exp(-(age - middle) * 2.4)) + (age > middle * 2.4)) for middle in (1.6, 2.8))
        return int(self.clients * sent), int(self.clients * acked), None if acked == 1 else age

    # What clients there are.

    def nodes(self):
        special = [STUCK, NACKING] if self.is_troubled else []
        if self.instance != "first":
            special.reverse()  # clients connect in another order, so that the same session is another client
        return special + (HOSTILE if self.is_hostile else [])

    def view_of(self, session):
        special = {STUCK: 0, NACKING: 1}
        return VIEWS[special.get(self.nodes()[session - 1], session % 3) if session <= len(self.nodes()) else session % 3]

    def client(self, session):
        nodes, view = self.nodes(), self.view_of(session)
        node = nodes[session - 1] if session <= len(nodes) else f"{view[1]}-{session}"
        state, behind, nack, waits = "SYNCED", None, None, None
        if node == STUCK:
            state, behind, waits = "STALE", 42.3 + time.time() - self.started, "ack"
        elif node == NACKING or self.is_nacking(session):
            state, nack = "NACKED", REASON  # it has answered, so it is not behind
        elif node in HOSTILE:
            state, behind, waits = "STALE", 30.0 + time.time() - self.started, "endpoints"
        kinds = []
        for kind in (CLUSTER, ENDPOINTS, LISTENER, ROUTES):
            is_it = state != "SYNCED" and kind == (CLUSTER if nack else LISTENER if waits == "ack" else ROUTES)
            kinds.append({
                "type": kind, "state": state if is_it else "SYNCED", "wildcard": kind in (CLUSTER,
                    LISTENER), "names": 0 if kind in (CLUSTER, LISTENER) else 12,
                "pending": 1 if is_it and waits == "endpoints" else 0, "waits_for": waits if is_it else None, "sent_version": "1.mEzBnNYtPYzgkH9_ZKNyO1",
                "sent_seconds": (behind or 17.2) if is_it else 311.2, "acked_version": "1.fDaLspbOaDZFMqb6nH4ix1" if is_it else "1.mEzBnNYtPYzgkH9_ZKNyO1",
                "behind_seconds": behind if is_it else None, "last_nack": nack if is_it else None, "nacked": bool(nack and is_it)})
        return {
            "session": session, "peer": f"10.1.{session // 250}.{session % 250}:47320",
            "identity": "spiffe://example.org/ns/shop/sa/" + view[1], "node": node,
            "user_agent": "envoy 1.36.2", "view": view[0], "variant": "delta", "connected_seconds": int(311 + time.time() - self.started),
            "state": state,
            "behind_seconds": behind, "unread_seconds": None, "unsupported_requests": 0, "types": kinds}

    def is_nacking(self, session):
        """One of forty, all of the second view."""
        return self.is_troubled and session > len(self.nodes()) and session % 39 == 1

    def nacking(self):
        return [session for session in range(1, self.clients + 1, 39) if self.is_nacking(session)]

    def behind(self):
        clients = [self.client(session) for session in range(1, len(self.nodes()) + 1)]
        return sorted((client for client in clients if client["behind_seconds"]), key=lambda client: -client["behind_seconds"])[:20]

    # The picture.

    def picture(self):
        age, all_clients = time.time() - self.started, self.clients
        behind, trouble = self.behind(), self.is_troubled
        types = []
        for kind, share in ((CLUSTER, 1), (ENDPOINTS, 1), (LISTENER, 1), (ROUTES, 0.98), (SECRET, 0.4)):
            sent, acked, spreading = (int(part * share) if part is not None and at < 2 else part for at, part in enumerate(self.spread(kind)))
            clients, nacked = int(all_clients * share), 0
            if kind == LISTENER and trouble:
                acked, spreading = min(acked, clients - 1), behind[0]["behind_seconds"]
            if kind == CLUSTER and trouble:
                nacked = len(self.nacking()) + 1
                acked = min(acked, clients - nacked)
            types.append({"type": kind, "clients": clients, "sent": sent, "acked": acked, "nacked": nacked, "spreading_seconds": spreading})
        lacking = max(len(behind), *(of["clients"] - of["acked"] for of in types))
        views = []
        for at, (view, cluster, share) in enumerate(VIEWS):
            clients = int(all_clients * share) if at else all_clients - sum(int(all_clients * share) for _, _, share in VIEWS[1:])
            nacked = len(self.nacking()) + 1 if at == 1 and trouble else 0
            stale = min(clients - nacked, max(0, int((lacking - len(behind)) * share)) + (1 if at == 0 and trouble else 0))
            ladders = [{"authority": "", "state": "active", "server": SERVERS[0], "state_seconds": int(age) + 8000, "reason": None}]
            if at == 2 and trouble:
                ladders = [{"authority": "", "state": "active", "server": SERVERS[1], "state_seconds": int(age) + 61, "reason": None}, {
                    "authority": "xds.example", "state": "down", "server": None, "state_seconds": int(age),
                    "reason": "Unavailable: 10.0.0.9:18000: Connection refused (os error 111)"}]
            views.append({
                "view": view, "key_fields": {"cluster": cluster, "locality.region": "eu-west-1"}, "clients": clients,
                "states": {"SYNCED": clients - stale - nacked, "NOT_SENT": 0, "STALE": stale, "NACKED": nacked}, "ladders": ladders,
                "from_disk": None, "resources": [812, 344, 97][at], "servers": [ladders[0]["server"]]})
        work = int(sum(all_clients * (self.changes[kind] - 1) + of for kind, of in ((kind, self.spread(kind)[1]) for kind in self.pushes)))
        totals = {
            "clients": all_clients, "connections": all_clients, "views": 3, "resources": 1253, "cached_bytes": 5_480_000,
            "memory_bytes": int(88e6 + all_clients * 9000 + 4e6 * math.sin(age / 9)),
            "replies": int(age * 40) + work, "reply_bytes": (int(age * 40) + work) * 900, "acks": int(age * 40) + work,
            "nacks": int(age / 9), "responses": int(age * 1.5),
            "streams_accepted": all_clients + int(age / 3), "streams_rejected": 0}
        servers = [
            {"server": SERVERS[0], "connections": 1, "streams": 2, "connected": 2, "last_response_seconds": age % 3, "error": None},
            {"server": SERVERS[1], "connections": 1, "streams": 2, "connected": 1 if trouble else 2, "last_response_seconds": 61.0,
                "error": "stream reset: GOAWAY" if trouble else None}]
        lags = [0.1, 1, 10, 60, None]
        counts = [int(lacking * 0.6), int(lacking * 0.3), max(0, lacking - int(lacking * 0.9) - len(behind)),
            len([one for one in behind if one["behind_seconds"] < 60]),
                  len([one for one in behind if one["behind_seconds"] >= 60])]
        now = time.time()
        return self.alter({
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z",
            "relay": {"instance": self.instance, "version": "0.1.0", "commit": "unknown", "state": "ready", "reasons": [], "changes_at": "unix:/run/weir/admin.sock",
                "uptime_seconds": int(age)},
            "problems": self.problems() if trouble else {"problems": [], "count": 0, "kinds": {}},
            "view_words": {view: f"cluster={cluster} locality.region=eu-west-1" for view, cluster, _ in VIEWS},
            "totals": totals, "servers": servers, "views": views, "more_views": 0, "types": types,
            "lags": [{"up_to_seconds": limit, "clients": number} for limit, number in zip(lags, counts)],
            "laggards": behind, "nacks": self.nacks() if trouble else [], "brakes": self.brakes() if trouble else {"servers": [],
                "sets": [], "sets_count": 0},
            "dangling": [{"view": VIEWS[0][0], "cluster": "web-v2", "seconds": 312,
                "from": [f"{ROUTES} web", f"{ROUTES} {HTML if self.is_hostile else 'web-canary'}"], "from_count": 2}] if trouble else [],
            "more_dangling": 0})

    def problems(self):
        def problem(kind, title, subject, reason, noticed, next, names=(), clients=0):
            return {"kind": kind, "title": title, "subject": subject, "reason": reason, "servers": {"count": 0, "first": []},
                "views": {"count": 1, "first": ["cluster=web"]}, "times": 0, "clients": clients, "names": {"count": len(names), "first": list(names)},
                "since_seconds": 17.2 + time.time() - self.started, "flaps": False, "noticed": noticed, "next": next, "section": f"docs/operations.md#{kind}"}
        hostile = HTML if self.is_hostile else "web-v2"
        all = [
            problem("server_away", "server away", "http://10.0.0.9:18000", "Unavailable: 10.0.0.9:18000: Connection refused (os error 111)",
                "what is not cached is missing", ["weir", "status"], clients=75),
            problem("nacks", "clients NACK", "CDS", REASON, "they keep what they had before", ["weir", "nacks", "--type", CLUSTER], clients=12),
            problem("brake_held", "removals held by brakes", "CDS", "a push would remove much of a set", "nothing: they keep what would be removed",
                ["weir", "brakes"], names=("cart", "checkout")),
            problem("dangling", "routes to clusters that do not exist", "clusters", "no server has them", "requests on these routes fail",
                ["weir", "dangling"], names=("web-v2", hostile)),
            problem("laggards", "clients leave replies unanswered", "LDS", "for more than 10 s", "they keep what they have", ["weir", "top"], clients=1)]
        return {"problems": all, "count": len(all), "kinds": {one["kind"]: 1 for one in all}}

    def in_an_outage(self, picture, count):
        """So many views, whose server is away; nothing else is wrong."""
        error = "Unavailable: tcp connect error: 10.0.0.9:18000: Connection refused (os error 111)"
        views = [{**picture["views"][0], "view": f"{at:016x}", "key_fields": {"cluster": f"team-{at}"}, "clients": self.clients // count,
            "states": {"SYNCED": self.clients // count, "NOT_SENT": 0, "STALE": 0, "NACKED": 0},
            "ladders": [{"authority": "", "state": "cached", "server": None, "state_seconds": 61, "reason": error}]} for at in range(count)]
        servers = [{"server": SERVERS[0], "connections": 0, "streams": count, "connected": 0, "last_response_seconds": 70, "error": error}]
        away = {**self.problems()["problems"][0], "reason": error, "views": {"count": count, "first": ["cluster=team-0"]}, "clients": self.clients}
        types = [{**of, "acked": of["clients"], "sent": of["clients"], "nacked": 0, "spreading_seconds": None} for of in picture["types"]]
        return {**picture, "views": views[:20], "more_views": count - 20, "servers": servers, "types": types, "laggards": [], "nacks": [], "dangling": [],
            "brakes": {"servers": [], "sets": [], "sets_count": 0}, "problems": {"problems": [away], "count": 1, "kinds": {"server_away": 1}}}

    def with_many_nacks(self, picture, clients, views, types):
        """Clients of several views NACK several types, all for one reason."""
        of = [{**self.nacks()[0], "view": f"{view:016x}", "type": kind, "nacked": clients // views} for view in range(views) for kind in types]
        return {**self.in_an_outage(picture, 20), "nacks": of[:20], "laggards": [],
            "types": [{**one, "nacked": clients if one["type"] in types else 0} for one in picture["types"]],
            "view_words": {f"{view:016x}": f"cluster=team-{view}" for view in range(views)},
            "problems": {"problems": [{**self.problems()["problems"][1], "subject": kind} for kind in types], "count": len(types), "kinds": {"nacks": len(types)}}}

    def nacks(self):
        clients, sessions = int(self.clients * VIEWS[1][2]), self.nacking()
        nacked = len(sessions) + 1
        return [{
            "view": VIEWS[1][0], "type": CLUSTER, "clients": clients, "acked": clients - nacked, "nacked": nacked, "pending": 0,
            "nacked_seconds": 17, "user_agents": [],
            "other_versions": 0, "versions": [{
                "version": "1.SosREk8W__fJSXrpDvesj3", "newest": clients, "acked": clients - nacked, "nacked": nacked, "pending": 0,
                "nacked_seconds": 17,
                "nodes": [NACKING, *(self.client(session)["node"] for session in sessions[:9])], "reasons": [{"reason": REASON,
                    "clients": nacked}], "other_reasons": 0,
                "suspected": [{"name": "cart-v2", "clients": nacked}]}]}]

    def brakes(self):
        return {"servers": [{"server": SERVERS[0], "views": 1, "held": 480, "generation": 1763802000123}], "sets_count": 1, "sets": [{
            "view": VIEWS[0][0], "type": CLUSTER, "set": "*", "servers": [SERVERS[0]], "seconds": 41, "generation": 1763802000123,
            "held": 480, "of": 500, "changes": 0,
            "reason": "too much of the set would go", "first_release_seconds": 259, "last_release_seconds": 259, "names": ["cart",
                "checkout", HTML if self.is_hostile else "currency"]}]}

    # Answers to questions.

    def answer(self, path, query):
        """Returns the status and the JSON or text."""
        if path == "/clients" or path == "/laggards":
            behind = self.behind()
            of_state = {"state": lambda one, text: one["state"].lower() == text, "view": lambda one, text: one["view"] == text,
                "node": lambda one, text: text in one["node"]}
            limit = int(query.get("limit", 100))
            found = []
            for client in behind if path == "/laggards" else (self.client(session) for session in range(1, self.clients + 1)):
                if all(matches(client, query[key]) for key, matches in of_state.items() if key in query):
                    found.append(client)
                if len(found) > limit:
                    break
            return 200, {"clients": found[:limit], "open": self.clients, "next": found[limit - 1]["session"] if len(found) > limit else None}
        if path.startswith("/clients/"):
            session = path.removeprefix("/clients/")
            if session.isdigit() and 0 < int(session) <= self.clients:
                return 200, self.client(int(session))
            return 404, "no such client: expected the number of a session or the id of a node, as /clients and weir status have them"
        if path in ("/diff", "/explain"):
            wanted = query.get("client", "")
            sessions = [int(wanted)] if wanted.isdigit() and 0 < int(wanted) <= self.clients else [at for at in range(1,
                self.clients + 1) if self.client(at)["node"] == wanted]
            if not sessions:
                return 404, "no such client: expected the number of a session or the id of a node, as /clients and weir status have them"
            make = self.difference if path == "/diff" else lambda client: self.explanation(client, query)
            return 200, [make(self.client(session)) for session in sessions]
        if path == "/resources":
            found = [one for one in self.resources() if query.get("name", one["name"]) == one["name"] and query.get("contains",
                "") in one["name"]
                     and SHORT.get(query.get("type"), query.get("type", one["type"])) == one["type"]]
            limit = int(query.get("limit", 100))
            return 200, {"resources": found[:limit], "total": len(found), "next": "more" if len(found) > limit else None}
        return 404, "no such page"

    def resources(self):
        names = ["cart", "cart-v2", "checkout", "currency", *(HOSTILE[:2] if self.is_hostile else []), *(f"service-{at}" for at in range(40))]
        return [{
            "view": view, "type": kind, "name": name, "subscription": "wildcard" if kind == CLUSTER else "named", "state": "present",
            "version": "1.S2pWhfBoBmQmDi1UOoQHUQ" if view != VIEWS[2][0] else "1.z_b1A-cnBHZYlFEoYx8ft3", "server": SERVERS[0],
            "state_seconds": 12, "error": None}
            for kind in (CLUSTER, ENDPOINTS, LISTENER) for name in names for view, _, _ in VIEWS]

    def difference(self, client):
        def of(kind):
            is_behind = kind["state"] != "SYNCED"
            names = ["web", HTML] if kind["pending"] else []
            none = {"count": 0, "names": []}
            return {
                "type": kind["type"], "missing": none, "outdated": {"count": len(names), "names": names}, "surplus": none, "unknown": none,
                "unacked_version": kind["sent_version"] if kind["state"] == "STALE" else None,
                "nacked_version": kind["sent_version"] if kind["nacked"] else None,
                "suspected": ["cart-v2"] if kind["nacked"] else [],
                "acked_version": kind["acked_version"] if is_behind else kind["sent_version"]}
        return {"session": client["session"], "node": client["node"], "view": client["view"], "types": [of(kind) for kind in client["types"]]}

    def explanation(self, client, query):
        state = next((kind["state"] for kind in client["types"] if kind["type"] == query["type"]), "SYNCED")
        last = {
            "SYNCED": ("acked", {"code": "acked", "text": "the client has accepted the newest reply of the type"}),
            "NACKED": ("nacked", {"code": "nacked", "text": f"the client rejected a reply: {REASON}", "since_seconds": 17.2}),
            "STALE": ("unacked", {"code": "unacked", "text": "the client has not answered the newest reply of the type",
                "since_seconds": client["behind_seconds"]})}[state]
        return {
            "session": client["session"], "node": client["node"], "view": client["view"], "type": query["type"], "name": query["name"],
            "verdict": last[0], "reasons": [
                {"code": "subscribed_by_wildcard", "text": "the client subscribes to the wildcard"} if query["type"] in (CLUSTER, LISTENER)
                else {"code": "subscribed_by_name", "text": "the client subscribes to the name"},
                {"code": "server_active", "text": f"the server is active: {SERVERS[0]}", "since_seconds": 86211.4},
                {"code": "present", "text": f"version 1.z_b1A-cnBHZYlFEoYx8ft3, from {SERVERS[0]}",
                    "since_seconds": client["behind_seconds"] or 311.2},
                {"code": "sent", "text": "the client was sent this version"}, last[1]]}


def policy(page):
    """As src/admin/page/mod.rs has it."""
    def hash_of(tag):
        content = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"
    return (f"default-src 'none'; style-src {hash_of('style')}; script-src {hash_of('script')}; connect-src 'self'; img-src data:; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/live":
            return self.live()
        if path == "/":
            if "text/html" not in self.headers.get("accept", ""):
                return self.reply(200, "text/plain", "/live")
            page = PAGE.read_text()
            return self.reply(200, "text/html; charset=utf-8", page, {"content-security-policy": policy(page)})
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        status, body = self.server.world.answer(urllib.parse.unquote(path), query)
        self.server.asked.append(self.path)
        text = body if isinstance(body, str) else json.dumps(body)
        self.reply(status, "text/plain" if isinstance(body, str) else "application/json", text)

    def live(self):
        if self.server.refuses:
            return self.reply(503, "text/plain", self.server.refuses)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.server.watchers += 1
        try:
            while not self.server.is_stopping:
                if not self.server.is_silent:
                    self.wfile.write(f"retry: 500\nevent: picture\ndata: {json.dumps(self.server.world.picture())}\n\n".encode())
                self.server.tick.wait(self.server.period)
        finally:
            self.server.watchers -= 1

    def reply(self, status, kind, body, headers={}):
        content = body.encode()
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(content)), "cache-control": "no-store", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, world, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.world, self.port, self.asked, self.period = world, self.server_address[1], [], 1.0
        self.is_stopping, self.is_silent, self.refuses, self.watchers, self.tick = False, False, "", 0, threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        """As when the process ends: streams break, and the port is closed."""
        self.is_stopping = True
        self.tick.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        pass  # a page that was closed


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", type=int, default=500)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--hostile", action="store_true")
    options = options.parse_args()
    world = World(options.clients, options.hostile)
    print(f"http://127.0.0.1:{Server(world, options.port).port}/", flush=True)
    while True:
        for kind in (CLUSTER, ENDPOINTS):
            world.push(kind)
            time.sleep(9)


if __name__ == "__main__":
    main()
