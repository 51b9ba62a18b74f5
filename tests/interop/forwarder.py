"""What an Envoy takes for its management server: connections to it end at one server, and later at another."""

import contextlib
import socket
import threading
import time


class Forwarder:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock, self.target, self.open, self.reached = threading.Lock(), None, [], None
        threading.Thread(target=self.accept, daemon=True).start()

    def leave(self):
        """Cuts all connections, and takes no more of them."""
        with self.lock:
            self.target, self.reached, cut, self.open = None, None, self.open, []
        for connection in cut:
            close(connection)

    def lead_to(self, port):
        with self.lock:
            self.target = port

    def accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self.listener.accept()
                self.connect(client)

    def connect(self, client):
        with self.lock:
            if self.target is None:
                return close(client)
            try:
                server = socket.create_connection(("127.0.0.1", self.target), 1)
            except OSError:
                return close(client)
            server.settimeout(None)
            self.reached = self.reached or time.monotonic()
            self.open += [client, server]
        for source, target in [(client, server), (server, client)]:
            threading.Thread(target=pump, args=(source, target), daemon=True).start()

    def close(self):
        self.leave()
        close(self.listener)


def pump(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    close(source)
    close(target)


def close(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
