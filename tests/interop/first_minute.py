"""The program is told nothing and serves its example resources; an Envoy and a gRPC client are pointed at it as they are."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from processes import Processes, free_port
from web import Ask, Traffic, get, wait_for

DEMO = pathlib.Path(__file__).parents[2] / "config" / "demo"


class Checkout:
    """A copy of the files at other ports, in which somebody may edit."""

    def __init__(self, folder):
        self.folder, self.demo = pathlib.Path(folder), pathlib.Path(folder) / "config" / "demo"
        self.ports = {name: free_port() for name in ["18000", "19000", "10000", "9901"]}
        shutil.copytree(DEMO, self.demo)
        for path in self.demo.rglob("*.*"):
            text = path.read_text()
            for port, other in self.ports.items():
                text = text.replace(f":{port}", f":{other}").replace(f"port_value: {port}", f"port_value: {other}")
            path.write_text(text)

    def edit(self, name, old, new, rename=False):
        """In place, or as editors do that write a new file and put it in the place of the old one."""
        path = self.demo / "resources" / name
        text = path.read_text()
        assert text.count(old) == 1, (name, old)
        target = path.with_suffix(".tmp") if rename else path
        target.write_text(text.replace(old, new))
        if rename:
            target.rename(path)


def is_soon(what, condition):
    took = wait_for(what, condition)
    print(f"  {what}: {took:.2f} s")
    assert took < 1, f"{what}: {took} s"


def run(options):
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(folder)
        try:
            first_minute(options, processes, Checkout(folder))
        except BaseException:
            processes.show_logs()
            raise
        finally:
            processes.stop()


def first_minute(options, processes, checkout):
    quiet = {name: value for name, value in os.environ.items() if name != "CARGO_MANIFEST_DIR"}
    processes.start("weir", os.path.abspath(options.weir), cwd=checkout.folder, env={**quiet, "NO_COLOR": "1"})
    admin = checkout.ports["19000"]
    wait_for("the relay is up", lambda: get(admin, "/healthz").good)
    sources = json.loads(get(admin, "/files").body)
    wait_for("the files are read", lambda: all(source["state"] == "ready" for source in json.loads(get(admin, "/files").body)))
    assert not any(source["errors"] for source in sources), sources

    base = str(1000 + free_port() % 30000)
    processes.start("envoy", options.envoy, "-c", str(checkout.demo / "envoy.yaml"), "--base-id", base,
                    "--concurrency", "1", "-l", "warning")
    web, about = Ask(int(checkout.ports["10000"])), Ask(int(checkout.ports["10000"]), "/weir/clients")
    wait_for("the Envoy routes", lambda: web.body() == "ok\n")
    assert "envoy-1" in about.body(), about.body()
    # It logs warnings and errors, and has listeners and clusters now.
    said = (processes.folder / "envoy.log").read_text()
    assert not said, said

    def clusters():
        return {web.answer().headers["x-demo-cluster"] for _ in range(40)}

    assert clusters() == {"blue", "green"}
    traffic = Traffic(web, about)
    checkout.edit("routes.yaml", "prefix_rewrite: /healthz", "prefix_rewrite: /upstreams")
    is_soon("an edited route leads elsewhere", lambda: web.body().startswith("["))
    checkout.edit("routes.yaml", "weight: 3", "weight: 0", rename=True)
    is_soon("an edited weight counts", lambda: clusters() == {"green"})
    checkout.edit("routes.yaml", "virtual_hosts:\n      - name: everybody\n        domains: [\"*\"]\n        routes:\n          #", "oops:\n          #")
    wait_for("the fault is told", lambda: any(source["errors"] for source in json.loads(get(admin, "/files").body)))
    traffic.flows()
    clients = json.loads(get(admin, "/clients").body)["clients"]
    assert not [kind for client in clients for kind in client["types"] if kind["last_nack"]], clients
    traffic.stop()
    traffic.check()
    print(f"  {traffic.asked} requests, none failed")

    # The relay answers for its health, and nothing else needs to be there.
    client = processes.start(
        "grpc", sys.executable, str(pathlib.Path(__file__).parent / "grpc_client.py"), "/grpc.health.v1.Health/Check",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "GRPC_XDS_BOOTSTRAP": str(checkout.demo / "grpc_bootstrap.json")})
    client.stdin.write("xds:///weir-demo\n")
    client.stdin.flush()
    assert client.stdout.readline() == "\x08\x01\n"
