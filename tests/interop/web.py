"""Servers behind the Envoys, and requests to them that must not fail."""

import http.client
import http.server
import itertools
import ssl
import tempfile
import threading
import time
from dataclasses import dataclass, field


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


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # whoever asked knows, and says so


def backend(name, certificate=None):
    """Answers everything with its name. Returns its port."""
    server = Server(("127.0.0.1", 0), Backend)
    server.name = name
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(certificate.key + certificate.pem)
            file.flush()
            context.load_cert_chain(file.name)
        # The handshake belongs to the thread of its connection, and not to the one that accepts them all.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


@dataclass(frozen=True)
class Answer:
    status: int
    body: str
    headers: dict = field(default_factory=dict)
    certificate: str = ""

    @property
    def good(self):
        return self.status == 200


@dataclass(frozen=True)
class Ask:
    """A request that can be made any number of times, each on a connection of its own."""
    port: int
    path: str = "/"
    headers: tuple = ()
    tls: bool = False

    def answer(self, patience=5):
        if self.tls:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=patience, context=ssl._create_unverified_context())
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        try:
            connection.connect()
            shown = ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(True)) if self.tls else ""
            connection.request("GET", self.path, headers=dict(self.headers))
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read().decode(errors="replace"), headers, shown)
        finally:
            connection.close()

    def body(self):
        """What the server behind said; nothing if no server was reached."""
        answer = self.answer()
        return answer.body if answer.good else None


def get(port, path):
    return Ask(port, path).answer()


END = [float("inf")]


def end_within(seconds):
    """From now on: nothing is waited for after that."""
    END[0] = time.monotonic() + seconds


def wait_for(what, condition, patience=10):
    """Until a condition holds, which may be asked of something that is not up yet. Returns how long that took."""
    start = time.monotonic()
    while time.monotonic() - start < patience:
        assert time.monotonic() < END[0], f"{what}: the scenario has had its time"
        try:
            if condition():
                return time.monotonic() - start
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {patience} s")


class Traffic:
    """Asks all the time, one thing after the other, and remembers every answer that was not a good one."""

    def __init__(self, *asks):
        self.asks, self.failures, self.asked, self.stopped = asks, [], 0, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        for ask in itertools.cycle(self.asks):
            if self.stopped:
                return
            try:
                answer = ask.answer()
                if not answer.good:
                    self.failures.append((ask, answer.status, answer.body))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append((ask, repr(error)))
            self.asked += 1
            time.sleep(0.002)

    def flows(self):
        """Some more requests were answered, and none badly."""
        self.goes_on()
        self.check()

    def goes_on(self):
        """Some more requests have ended, whatever the answer was."""
        goal = self.asked + 5 * len(self.asks)
        wait_for("more requests", lambda: self.asked >= goal, 60)

    def check(self):
        assert not self.failures, f"{len(self.failures)} of {self.asked} failed: {self.failures[:5]}"

    def stop(self):
        self.stopped = True
        self.thread.join()
