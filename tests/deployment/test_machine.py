"""What runs without a cluster: the unit of systemd, the root file system of the image, and the alert rules as an object."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
import urllib.request

import yaml

from relay_configuration import RelayConfiguration, seconds
from release import release

WEIR = os.environ["WEIR"]
UNIT = "deploy/systemd/weir.service"
SOCKET = "deploy/systemd/weir.socket"
# What is at /etc/weir/relay.yaml until an operator puts another file there.
CONFIGURATION = "deploy/image/relay.yaml"
# Of systemd-analyze security, times ten: what PrivateNetwork=, IPAddressDeny= and their like would bring is what a relay needs. One tenth of it is the
# one call of @resources that the unit allows: a thread may give itself less weight, and without CAP_SYS_NICE not more.
EXPOSURE = 16


def read(path):
    with open(path) as file:
        return file.read()


@unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze: the unit is NOT checked")
class SystemdUnit(unittest.TestCase):
    def analyze(self, text, *arguments, socket=None):
        """Returns whether systemd-analyze accepts a unit, and its socket if there is one, and what it says."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, content in (("weir.service", text.replace("/usr/bin/weir", os.path.abspath(WEIR))), ("weir.socket", socket)):
                if content is not None:
                    paths.append(f"{folder}/{name}")
                    with open(paths[-1], "w") as file:
                        file.write(content)
            done = subprocess.run(["systemd-analyze", *arguments, *paths], capture_output=True, text=True)
            return done.returncode == 0, done.stdout + done.stderr

    def setUp(self):
        self.text, self.socket = read(UNIT), read(SOCKET)

    def test_systemd_understands_every_line(self):
        self.assertEqual(self.analyze(self.text, "verify"), (True, ""))
        _, said = self.analyze(self.text.replace("Restart=on-failure", "Restart=sometimes"), "verify")
        self.assertIn("sometimes", said)

    def test_systemd_understands_every_line_of_the_socket(self):
        self.assertEqual(self.analyze(self.text, "verify", socket=self.socket), (True, ""))
        _, said = self.analyze(self.text, "verify", socket=self.socket.replace("Backlog=65535", "Backlog=long"))
        self.assertIn("ignoring: long", said)
        _, said = self.analyze(self.text, "verify", socket=self.socket.replace("=[::]:18000", "=nowhere:18000"))
        self.assertIn("nowhere:18000", said)

    def test_the_socket_has_addresses_of_the_configuration_alone(self):
        """Others would be an error when the relay starts."""
        sockets = re.findall(r"^ListenStream=(.*)$", self.socket, re.M)
        listen = [one["address"] for one in yaml.safe_load(read(CONFIGURATION))["listen"]]
        self.assertEqual(sockets, [re.sub(r"^:", "[::]:", address) for address in listen])
        self.assertEqual(re.findall(r"^Accept=", self.socket, re.M), [], "one process for all connections is the default")

    def test_the_relay_may_notify_systemd(self):
        self.assertRegex(self.text, r"(?m)^Type=notify$")
        self.assertIn("AF_UNIX", re.search(r"^RestrictAddressFamilies=(.*)$", self.text, re.M)[1].split())

    def test_it_is_hardened(self):
        judge = ["security", "--offline=true", f"--threshold={EXPOSURE}"]
        is_accepted, said = self.analyze(self.text, *judge)
        self.assertTrue(is_accepted, said)
        calls = ("SystemCallFilter=@system-service", "SystemCallFilter=setpriority")
        for line in ("ProtectSystem=strict", "CapabilityBoundingSet=", *calls, "NoNewPrivileges=yes"):
            self.assertIn(f"\n{line}\n", self.text)
        is_accepted, _ = self.analyze(self.text.replace("CapabilityBoundingSet=\n", ""), *judge)
        self.assertFalse(is_accepted)

    def test_it_waits_until_the_relay_has_drained(self):
        stop = seconds(re.search(r"TimeoutStopSec=(\S+)", self.text)[1])
        self.assertGreater(stop, RelayConfiguration("{}").drain_seconds())


@unittest.skipUnless(shutil.which("systemd-socket-activate"), "there is no systemd-socket-activate: sockets are NOT passed by systemd")
class SocketOfSystemd(unittest.TestCase):
    def test_the_relay_accepts_at_a_socket_that_systemd_has_opened(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/weir.sock"
            with open(f"{folder}/relay.yaml", "w") as file:
                file.write(f"listen: [{{address: 'unix:{path}', mode: '0777'}}]\nupstream: {{files: '{os.path.abspath('config/demo/resources')}'}}\n")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.bind(f"{folder}/notify")
                manager.settimeout(30)
                command = ["systemd-socket-activate", "--listen", path, "--setenv", f"NOTIFY_SOCKET={folder}/notify"]
                with subprocess.Popen([*command, os.path.abspath(WEIR), "--config", file.name], stderr=subprocess.PIPE, text=True) as process:
                    try:
                        self.assertIn("Listening on", process.stderr.readline())
                        with socket.socket(socket.AF_UNIX) as client:  # which starts the relay
                            client.connect(path)
                            client.settimeout(30)
                            client.sendall(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
                            self.assertEqual(client.recv(9), b"HTTP/1.1 ")
                        self.assertEqual(manager.recv(4096), f"READY=1\nSTATUS=serving unix:{path}\n".encode())
                    finally:
                        process.send_signal(signal.SIGTERM)
                    said = process.stderr.read()
                    self.assertEqual(process.wait(timeout=30), 0)
                self.assertIn("inherited socket used", said)
                self.assertTrue(manager.recv(4096).startswith(b"STOPPING=1\n"))
                self.assertTrue(os.path.exists(path), "the socket is not the relay's")


# Ways to run a program in another root as a user without rights. The first one that works here is taken.
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec chroot --userspec=65532:65532 "$0" "$@"'
WAYS = {
    "in a root that cannot be written": ["unshare", "--mount", "--propagation", "private", "sh", "-c", READ_ONLY],
    "with chroot": ["chroot", "--userspec=65532:65532"],
    "in a user namespace": ["unshare", "--user", "--map-user=65532", "--map-group=65532", "--root"],
}


# The program of the image with the arguments of its check.
HEALTHCHECK = json.loads(re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", read("Dockerfile"), re.M)[1])


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(dir="target")
        cls.addClassCleanup(cls.folder.cleanup)
        os.chmod(cls.folder.name, 0o755)
        cls.root = os.path.abspath(f"{cls.folder.name}/root")
        subprocess.run(["deploy/image/rootfs", f"{release()}/weir", cls.root], check=True)
        for what, way in WAYS.items():
            # In the machine's own root: what the image lacks is no reason to skip it.
            if subprocess.run([*way, "/", "/bin/true"], capture_output=True).returncode == 0:
                print(f"the image runs {what}")
                cls.way = way
                return
        raise unittest.SkipTest("neither chroot nor a user namespace is permitted: the image is NOT run")

    def run_inside(self, *arguments, **environment):
        command = [*self.way, self.root, "/usr/bin/weir", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
        return done.returncode, done.stdout, done.stderr

    def size(self):
        """Returns the bytes of all files, and those of the program."""
        sizes = {f"{folder}/{name}": os.lstat(f"{folder}/{name}").st_size for folder, _, names in os.walk(self.root) for name in names}
        return sum(sizes.values()), sizes[f"{self.root}/usr/bin/weir"]

    def test_the_program_runs_without_anything_else_in_it(self):
        self.assertFalse(os.path.exists(f"{self.root}/bin/sh"))
        code, out, err = self.run_inside("--version")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^weir \d")

    def test_its_own_configuration_is_valid(self):
        code, out, err = self.run_inside("check", "--config", "/etc/weir/relay.yaml")
        self.assertEqual(code, 0, err)
        self.assertIn("files /etc/weir/demo", out)
        exposed = re.search(r"^EXPOSE (.*)$", read("Dockerfile"), re.M)[1].split()
        self.assertEqual(sorted(exposed), sorted(re.findall(r'":(\d+)"', read(f"{self.root}/etc/weir/relay.yaml"))))

    def test_it_starts_as_another_user_than_root_and_serves(self):
        text = read(f"{self.root}/etc/weir/relay.yaml")
        with open(f"{self.root}/etc/weir/free-ports.yaml", "w") as file:
            file.write(re.sub(r'(127\.0\.0\.1)?:1[89]0\d\d"', '127.0.0.1:0"', text))
        command = [*self.way, self.root, "/usr/bin/weir", "--config", "/etc/weir/free-ports.yaml", "--log-format", "json"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                lines = (json.loads(line) for line in process.stderr)
                started = next(line for line in lines if line["message"] == "weir started")
                users = re.search(r"^Uid:(.*)$", read(f"/proc/{process.pid}/status"), re.M)[1].split()
                self.assertNotIn("0", users)
                for path in ("healthz", "ready", "metrics"):
                    with urllib.request.urlopen(f"http://{started['probes']}/{path}", timeout=10) as answer:
                        self.assertEqual(answer.status, 200)
                for surface in ("admin", "probes"):
                    self.assertEqual(self.run_inside(*HEALTHCHECK[1:], WEIR_ADMIN=started[surface]), (0, "ready\n", ""))
                with urllib.request.urlopen(f"http://{started['admin']}/server_info", timeout=10) as answer:
                    profile = json.load(answer)["build"]["profile"]
            finally:
                process.send_signal(signal.SIGTERM)
            process.stderr.read()
            self.assertEqual(process.wait(timeout=30), 0)
        self.assertEqual(self.run_inside(*HEALTHCHECK[1:], WEIR_ADMIN=started["admin"])[0], 2)
        size, program = self.size()
        print(f"the image has {size:,} bytes, {program:,} of them the program ({profile})")
        self.assertLess(size - program, 8_000_000)
        if profile == "release":  # a debug program is larger, and nobody ships it
            self.assertLess(size, 50_000_000)

    def test_its_health_check_asks_the_address_of_its_configuration(self):
        self.assertEqual(HEALTHCHECK[:2], ["/usr/bin/weir", "status"])
        admin = yaml.safe_load(read(f"{self.root}/etc/weir/relay.yaml"))["admin"]["address"]
        self.assertIn(f"[default: http://{admin}]", self.run_inside("status", "--help")[1])


class Dockerfile(unittest.TestCase):
    """What can be said of the Dockerfile where there is no builder."""

    def setUp(self):
        self.text = read("Dockerfile")

    def copied(self):
        """Returns what is copied from the repository."""
        lines = re.findall(r"^COPY (?!--from)(.*)$", self.text, re.M)
        return [path for line in lines for path in line.split()[:-1]]

    def test_each_file_that_it_copies_is_there_and_is_sent_to_the_builder(self):
        sent = [line[1:] for line in read(".dockerignore").splitlines() if line.startswith("!")]
        for path in self.copied():
            self.assertTrue(os.path.exists(path), path)
            self.assertTrue(any(path == one or path.startswith(f"{one}/") for one in sent), f"{path} is ignored")
        self.assertEqual([one for one in sent if not any(path == one or path.startswith(f"{one}/") for path in self.copied())], [])

    def test_cargo_accepts_what_the_layer_of_dependencies_has(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in re.search(r"((?:^COPY .*\n)+)^RUN mkdir", self.text, re.M)[1].replace("COPY", "").split():
                if os.path.isfile(path):
                    os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
                    shutil.copy(path, f"{folder}/{path}")
            steps = re.search(r"^RUN (mkdir(?:.*\\\n)+)", self.text, re.M)[1].split("&& cargo")[0]
            subprocess.run(["sh", "-c", steps.replace("\\\n", "")], check=True, cwd=folder)
            done = subprocess.run(["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"], cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            targets = {(target["name"], *target["kind"]) for one in json.loads(done.stdout)["packages"] for target in one["targets"]}
        self.assertLessEqual({("weir", "lib"), ("weir", "bin"), ("weir_core", "lib"), ("build-script-build", "custom-build"), ("weir_loadtest", "lib"), ("weir_testkit", "lib")}, targets)

    def test_it_has_the_compiler_of_the_manifest_and_a_user_without_rights(self):
        wanted = re.search(r'^rust-version = "(.*)"$', read("Cargo.toml"), re.M)[1]
        self.assertIn(f"FROM rust:{wanted}-bookworm ", self.text)
        self.assertRegex(self.text, r"(?m)^USER 65532:65532$")


class AlertRules(unittest.TestCase):
    def test_the_operators_object_has_the_rules_of_the_file(self):
        """The schema of PrometheusRule is in no package: `spec` has the same form as a file of rules, which promtool checks elsewhere."""
        rule = yaml.safe_load(subprocess.run(["deploy/prometheus/rule"], check=True, capture_output=True).stdout)
        self.assertEqual(rule["spec"], yaml.safe_load(read("deploy/prometheus/weir-alerts.yaml")))
        self.assertEqual((rule["apiVersion"], rule["kind"]), ("monitoring.coreos.com/v1", "PrometheusRule"))
