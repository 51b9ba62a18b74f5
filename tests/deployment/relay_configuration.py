"""A relay's configuration as the manifests have it, with the defaults of config/relay.yaml."""

import functools
import re
from urllib.parse import urlsplit

import yaml

DURATIONS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
BYTES = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# What a relay closes connections after, beyond the times of `drain`: docs/operations.md#shutdown.
LAST_CONNECTIONS = 7
# config/relay.yaml: the part of the container's memory that a relay uses.
USED = 0.75


def seconds(text):
    parts = re.findall(r"(\d+)\s*(ms|s|m|h|d)", text)
    assert parts, text
    return sum(int(number) * DURATIONS[unit] for number, unit in parts)


def size(value):
    number, unit = re.fullmatch(r"(\d+)\s*(\w*)", str(value)).groups()
    return int(number) * BYTES[unit]


def port_of(address):
    return int(address.rsplit(":", 1)[1])


def is_loopback(address):
    return address.startswith(("127.", "[::1]"))


parse = functools.cache(yaml.safe_load)


@functools.cache
def defaults():
    with open("config/relay.yaml") as file:
        return yaml.safe_load(file)


class RelayConfiguration:
    def __init__(self, text):
        self.text = text
        self.content = parse(text)
        self.defaults = defaults()

    def get(self, section, key):
        """Returns a value of the file, or else its default."""
        return self.content.get(section, {}).get(key, self.defaults[section].get(key))

    def drain_seconds(self):
        """Returns how long the relay may take to end after SIGTERM."""
        return sum(seconds(self.get("drain", key)) for key in ("delay", "grace", "spread")) + LAST_CONNECTIONS

    def client_ports(self):
        """Returns the ports at which clients of other pods connect."""
        return [port_of(one["address"]) for one in self.content["listen"] if not is_loopback(one["address"])]

    def probes_port(self):
        return port_of(self.content["probes"]["address"])

    def servers(self):
        """Returns host and port of each upstream server."""
        uris = [urlsplit(server["uri"]) for server in self.content["upstream"].get("servers", [])]
        return [(uri.hostname, uri.port) for uri in uris]

    def view_key(self):
        return self.content.get("views", {}).get("key")

    def bounds_beyond(self, memory):
        """Returns the bounds of memory in the file that are more than a relay in a container of this size uses for everything."""
        bounds = ["memory", "cached_bytes", "incomplete_request_bytes", "outdated_reply_bytes", "stated_versions_bytes"]
        stated = {key: self.content.get("limits", {}).get(key) for key in bounds}
        def bytes_of(value):
            share = re.fullmatch(r"(\d+)%", str(value))
            return memory * int(share[1]) / 100 if share else size(value)

        return [key for key, value in stated.items() if value and bytes_of(value) > memory * USED]
