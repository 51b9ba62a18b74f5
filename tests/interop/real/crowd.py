"""Many clients in one process, each of which asks for what an Envoy in delta asks for, on a connection of its own.

`python -m real.crowd FILE` reads what they are from a file: the port, the encoded node of a real Envoy, and for each client what its own node has
instead. It prints `complete` when all have everything, `killed NAME` when a line on its standard input has ended one, and `ended NAME: why`
for a stream that the server has ended."""

import asyncio
import base64
import json
import pathlib
import subprocess
import sys
import threading

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

from real.record import CDS, EDS, LDS, METHOD, RDS, endpoints_of, routes_of
from web import wait_for

# So many open their streams at the same time: Istiod lets some 25 in within a second, and ends others.
AT_ONCE, ATTEMPTS = 8, 5


def node_of(template, own):
    """The node of a real Envoy with the id, cluster, locality and metadata of another client."""
    node = base_pb2.Node.FromString(template)
    for field in ["id", "cluster", "locality", "metadata"]:
        node.ClearField(field)
    return json_format.ParseDict(own, node)


class Client:
    def __init__(self, port, name, node):
        self.port, self.name, self.node, self.complete = port, name, node, asyncio.Event()

    async def run(self):
        """A stream that ends before it has brought everything is opened again."""
        for _ in range(ATTEMPTS):
            why = await self.stream()
            if self.complete.is_set():
                break
            await asyncio.sleep(1)
        say(f"ended {self.name}: {why}")

    async def stream(self):
        """Returns why it has ended."""
        self.held, self.asked, self.unsent = {}, {}, self.node
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=options) as channel:
            self.call = channel.stream_stream(METHOD)()
            try:
                await self.ask(CDS)
                while (message := await self.call.read()) is not grpc.aio.EOF:
                    await self.take(discovery_pb2.DeltaDiscoveryResponse.FromString(message))
                return "without an error"
            except grpc.RpcError as error:
                return f"{error.code().name} {error.details()}"
            except asyncio.InvalidStateError:
                return "it had ended before a request"

    async def send(self, **fields):
        node, self.unsent = self.unsent, None  # the first request has it
        await self.call.write(discovery_pb2.DeltaDiscoveryRequest(node=node, **fields).SerializeToString())

    async def ask(self, kind, names=()):
        """Subscribes to these names of a type, or to everything."""
        names, before = set(names), self.asked.get(kind)
        self.asked[kind] = names
        if before is None:
            await self.send(type_url=kind, resource_names_subscribe=sorted(names))
        elif names != before:
            await self.send(type_url=kind, resource_names_subscribe=sorted(names - before), resource_names_unsubscribe=sorted(before - names))

    async def take(self, response):
        kind = response.type_url
        held = self.held.setdefault(kind, {})
        for name in response.removed_resources:
            held.pop(name, None)
        follows = {CDS: endpoints_of, LDS: routes_of}.get(kind)
        for one in response.resources:
            held[one.name] = set(follows(one.resource)) if follows else set()  # the names in it, and not its body
        await self.send(type_url=kind, response_nonce=response.nonce)
        if follows:
            names = set().union(*held.values())
            if names or EDS in self.asked:
                await self.ask({CDS: EDS, LDS: RDS}[kind], names)
        if LDS not in self.asked and CDS in self.held and self.has_all(EDS):
            await self.ask(LDS)
        if LDS in self.held and self.has_all(EDS) and self.has_all(RDS):
            self.complete.set()

    def has_all(self, kind):
        return self.asked.get(kind, set()) <= self.held.get(kind, {}).keys()


def say(line):
    print(line, flush=True)


async def play(wanted):
    template = base64.b64decode(wanted["template"])
    clients = {own["metadata"]["NAME"]: own for own in wanted["nodes"]}
    clients = {name: Client(wanted["port"], name, node_of(template, own)) for name, own in clients.items()}
    tasks, waiting = {}, list(clients.values())
    # The first ones are the oldest, one after another: they are shown in place of the others.
    sizes = [1] * wanted["oldest"] + [AT_ONCE] * (len(waiting) // AT_ONCE + 1)
    for size in sizes:
        now, waiting = waiting[:size], waiting[size:]
        for client in now:
            tasks[client.name] = asyncio.create_task(client.run())
        await asyncio.wait_for(asyncio.gather(*(client.complete.wait() for client in now)), 60)
    say("complete")
    lines = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=read_lines, args=[loop, lines], daemon=True).start()
    while name := await lines.get():
        tasks[name].cancel()
        await asyncio.wait([tasks[name]])
        say(f"killed {name}")


def read_lines(loop, lines):
    """The end of the input is an empty line."""
    for line in sys.stdin:
        loop.call_soon_threadsafe(lines.put_nowait, line.strip())
    loop.call_soon_threadsafe(lines.put_nowait, "")


class Crowd:
    """These clients as a process. `template` is the node of a real Envoy."""

    def __init__(self, processes, name, port, template, nodes, oldest=0):
        file = processes.folder / f"{name}.json"
        file.write_text(json.dumps({"port": port, "template": base64.b64encode(template).decode(), "nodes": nodes, "oldest": oldest}))
        self.names, self.lines = {node["metadata"]["NAME"] for node in nodes}, []
        self.process = processes.start(
            name, sys.executable, "-m", "real.crowd", str(file), cwd=pathlib.Path(__file__).parents[1],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        self.lines.extend(line.strip() for line in iter(self.process.stdout.readline, ""))

    def is_complete(self):
        assert self.process.poll() is None, f"the clients have ended: {self.lines[-5:]}"
        return "complete" in self.lines

    def kill(self, name):
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        wait_for(f"{name} is killed", lambda: f"killed {name}" in self.lines)
        self.names.discard(name)

    def ended(self):
        """The streams that the server has ended."""
        return [line for line in self.lines if line.startswith("ended ")]


if __name__ == "__main__":
    asyncio.run(play(json.loads(pathlib.Path(sys.argv[1]).read_text())))
