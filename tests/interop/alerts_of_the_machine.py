"""Alerts of what a relay stands on: its files, its machine, and control planes that hang or flap. As in `alerts.py`, each fires alone."""

import pathlib
import resource
import signal
import tempfile
import time

import alerts
import certificates
from alerts import KIND, LISTENERS, MINUTES, SOURCE, Below, Client, Sign, Slow
from plane_process import PlaneProcess
from processes import free_port
from resources import cluster
from web import wait_for
from world import World

WEEK = 7 * 86_400


class FilesOpen(Sign):
    """The share of the files that may be open."""

    def value(self, relay):
        return super().value(relay) / Sign("process_max_fds").value(relay)


RESOURCE = """{{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, "name": "xdstp://files.example/envoy.config.cluster.v3.Cluster/{0}"}}"""


def of_the_machine(world, client, folder, authority):
    relay, count = world.relay, iter(range(1, 100))
    files, shown = folder / "resources", folder / "shown.pem"

    def change():
        world.plane.apply(cluster(SOURCE, "c0", timeout=next(count) + 10))

    def shows(days):
        certificate = authority.sign(addresses=["127.0.0.1"], days=days)
        (folder / "shown.key").write_text(certificate.key)
        shown.write_text(certificate.pem)

    def reload(text):
        relay.config.write_text(text)
        relay.process.send_signal(signal.SIGHUP)

    def answers_late():
        client.delay = 11  # more than ten seconds are slow
        change()

    def answers_at_once():
        client.delay = 0

    def open_files(part):
        """So many for each that is open."""
        opened = len(list(pathlib.Path(f"/proc/{relay.process.pid}/fd").iterdir()))
        _, most = resource.prlimit(relay.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(relay.process.pid, resource.RLIMIT_NOFILE, (int(opened * part), most))

    def largest_file(size):
        resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def stands_still():
        for _ in range(20):
            relay.process.send_signal(signal.SIGSTOP)
            time.sleep(0.6)
            relay.process.send_signal(signal.SIGCONT)
            time.sleep(0.1)

    text = relay.config.read_text()
    soft, _ = resource.prlimit(relay.process.pid, resource.RLIMIT_NOFILE)
    yield ("WeirConfigurationNotTaken", lambda: reload(text + "\nlimits: {streams: none}\n"), Below("weir_config_last_reload_successful", above=-1),
           lambda: reload(text))
    yield "WeirCertificateExpires", lambda: shows(2), Below("weir_tls_certificate_expires_timestamp_seconds", above=-WEEK), lambda: shows(60)
    yield "WeirTlsFilesOutdated", lambda: shown.write_text("none"), Sign("weir_tls_files_outdated"), lambda: shows(60)
    yield ("WeirResourceFiles", lambda: (files / "b.yaml").write_text("{"), Sign("weir_resource_file_errors"),
           lambda: (files / "b.yaml").write_text(RESOURCE.format("b")))
    yield ("WeirStateFileFails", lambda: (largest_file(1), change()), Sign("weir_state_failures_total"),
           lambda: (largest_file(resource.RLIM_INFINITY), change()))
    yield ("WeirOpenFiles", lambda: open_files(1.1), FilesOpen("process_open_fds", above=0.8),
           lambda: resource.prlimit(relay.process.pid, resource.RLIMIT_NOFILE, (soft, soft)))
    yield "WeirChangesSlow", answers_late, Slow("weir_client_reply_acked_lag_seconds_bucket", above=10), answers_at_once
    yield "WeirOverloaded", stands_still, Sign("weir_shard_late_rounds_total", times=MINUTES * 60 / 2 / 14), change  # it stands still for 14 s
    yield "WeirOverloaded", stands_still, Slow("weir_task_lateness_seconds_bucket", above=0.25), change


def run(options):
    authority = certificates.Authority("own")
    with tempfile.TemporaryDirectory() as name:
        one_server(options, pathlib.Path(name), authority)
    hangs(options)
    two_servers(options)


def one_server(options, folder, authority):
    files = folder / "resources"
    files.mkdir()
    (files / "a.yaml").write_text(RESOURCE.format("a"))
    certificate = authority.sign(addresses=["127.0.0.1"], days=60)
    (folder / "shown.key").write_text(certificate.key)
    (folder / "shown.pem").write_text(certificate.pem)
    # The stream of the one client outlives the reload at the beginning.
    more = f"state: {{path: {folder / 'state'}}}\nreload: {{spread: 20m}}"

    def listen(_):
        tls = {"certificate": str(folder / "shown.pem"), "key": str(folder / "shown.key")}
        return [{"address": f"127.0.0.1:{free_port()}", "tls": tls}]

    with World.open(options, SOURCE, more=more, listen=listen) as world:
        world.plane.apply(*(cluster(SOURCE, f"c{number}") for number in range(5)))
        text = world.relay.config.read_text()
        world.relay.config.write_text(text.replace("authorities: {", f"authorities: {{files.example: {{servers: [{{files: {files}}}]}}"))
        client = Client(world.relay.port, kinds=[KIND])
        wait_for("the client has ACKed", lambda: Sign("weir_client_acks_total").value(world.relay) > 0)
        world.relay.process.send_signal(signal.SIGHUP)
        client.ask(KIND, "xdstp://files.example/envoy.config.cluster.v3.Cluster/a")
        wait_for("the file is served", lambda: Sign("weir_resource_files").value(world.relay) == 1)
        alerts.judge_each(options, world, of_the_machine(world, client, folder, authority))
        client.channel.close()


def hangs(options):
    plane = PlaneProcess()
    with World.open(options, SOURCE, planes=[plane]) as world:
        client = Client(world.relay.port, kinds=[KIND])
        wait_for("the client has ACKed", lambda: Sign("weir_client_acks_total").value(world.relay) > 0)
        alerts.judge_each(options, world, [(
            "WeirServerHangs", plane.hang, Sign("weir_upstream_liveness_calls_unanswered_total"),
            lambda: plane.process.send_signal(signal.SIGCONT))])
        client.channel.close()


def two_servers(options):
    with World.open(options, SOURCE, planes=2) as world:
        for plane in world.planes:
            plane.apply(cluster(SOURCE, "c"))
        client = Client(world.relay.port, kinds=[KIND])
        wait_for("the client has ACKed", lambda: Sign("weir_client_acks_total").value(world.relay) > 0)
        switches = Sign("weir_ladder_switches_total")

        def back_and_forth():
            for number in range(3):
                before = switches.value(world.relay)
                world.plane.stop()
                client.ask(LISTENERS, f"new-{number}")
                wait_for("the second is asked", lambda: switches.value(world.relay) > before, patience=60)
                world.bring_back()
                wait_for("the first is asked again", lambda: switches.value(world.relay) > before + 1, patience=60)

        alerts.judge_each(options, world, [
            ("WeirServerUnreachable", world.plane.stop, Sign("weir_ladder_state", 'state="cached"'), world.bring_back),
            ("WeirFlapping", back_and_forth, switches, lambda: None)])
        client.channel.close()
