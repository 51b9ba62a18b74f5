"""The release folder: what the program keeps without its debug lines, and what the file beside it gives back. The files and the package made from it."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import tomllib
import unittest
import urllib.error
import urllib.request

import yaml

from release import LOADTEST, WEIR, needs_loadtest, release


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def read(path):
    with open(path) as file:
        return file.read()


def newest_glibc(program):
    """Returns the version of glibc that the newest symbol of a program needs."""
    needed = set(re.findall(r"GLIBC_([\d.]+)", output("readelf", "--version-info", "--wide", program)))
    return max(needed, key=lambda one: [int(part) for part in one.split(".")])


class Release(unittest.TestCase):
    def setUp(self):
        self.program, self.lines = f"{release()}/weir", f"{release()}/weir.debug"

    def backtrace(self, program):
        """Returns the backtrace of a panic: what takes the number of worker threads from the environment panics if it is 0."""
        environment = {**os.environ, "TOKIO_WORKER_THREADS": "0", "RUST_BACKTRACE": "1", "NO_COLOR": "1"}
        done = subprocess.run([program], env=environment, capture_output=True, text=True)
        self.assertIn("a thread panicked", done.stderr)
        return done.stderr

    def test_the_program_has_the_names_of_functions_and_no_lines(self):
        sections = output("readelf", "--sections", "--wide", self.program)
        self.assertIn(" .symtab ", sections)
        self.assertNotRegex(sections, r" \.debug_(info|line|str) ")
        self.assertLess(os.path.getsize(self.program), os.path.getsize(WEIR))
        self.assertEqual(output(self.program, "--version"), output(WEIR, "--version"))

    def test_a_panic_names_functions_and_the_file_beside_the_program_adds_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = self.backtrace(shutil.copy(self.program, folder))
        self.assertRegex(alone, r"(?m)^ +\d+: weir::main$")
        self.assertNotIn("src/main.rs:", alone)
        self.assertRegex(self.backtrace(self.program), r"(?m)^ +\d+: (weir::)?main\n +at .*/src/main\.rs:\d+:")

    def test_addresses_of_a_profile_lead_to_the_lines_of_the_whole_program(self):
        symbols = [line.split() for line in output("nm", self.program).splitlines()]
        addresses = [one[0] for one in symbols if len(one) == 3 and one[1] in "tT" and "4weir" in one[2]][::100]
        self.assertGreater(len(addresses), 10)
        of = {path: output("addr2line", "--exe", path, *addresses).splitlines() for path in (self.program, self.lines, WEIR)}
        self.assertEqual(of[self.lines], of[WEIR])
        self.assertGreater(len([line for line in of[self.lines] if re.search(r"/src/.*\.rs:\d+", line)]), len(addresses) * 0.9)

    def test_both_files_have_the_build_id_of_the_whole_program(self):
        ids = {re.search(r"Build ID: (\w+)", output("readelf", "--notes", path))[1] for path in (self.program, self.lines, WEIR)}
        self.assertEqual(len(ids), 1)
        named = output("readelf", "--string-dump=.gnu_debuglink", self.program, errors="replace")  # a checksum follows the name
        self.assertIn(" weir.debug", named)

    def test_it_says_what_it_was_built_with_and_needs(self):
        said = read(f"{release()}/BUILD")
        self.assertTrue(said.startswith(output(WEIR, "--version")), said)
        self.assertRegex(said, r"(?m)^rustc version \d")
        self.assertIn(f"needs glibc {newest_glibc(self.program)}\n", said)
        self.assertIn("needs libc.so.6\n", said)

    def test_the_configuration_and_the_units_are_there(self):
        output(self.program, "check", "--quiet", f"{release()}/config/relay.yaml")
        for path in ("LICENSE", "README.md", "CHANGELOG.md", "docs/operations.md", "deploy/prometheus/weir-alerts.yaml"):
            self.assertEqual(read(f"{release()}/{path}"), read(path))
        self.assertIn("weir-status", read(f"{release()}/man/weir.1").replace("\\-", "-"))
        self.assertEqual(sorted(os.listdir(f"{release()}/deploy/systemd")), ["weir.service", "weir.socket", "weir.sysusers"])

    def pages_of(self, name, program):
        commands = set(re.findall(r"^  ([a-z]+) ", output(program, "--help"), re.M)) - {"help"}
        # `weir snapshot` has commands of its own, with pages such as weir-snapshot-show.1
        pages = {page for page in os.listdir(f"{release()}/man") if re.fullmatch(rf"{name}(-(?!loadtest)[a-z]+)?\.1", page)}
        self.assertEqual(pages, {f"{name}.1"} | {f"{name}-{command}.1" for command in commands})

    def test_each_command_has_a_page(self):
        self.pages_of("weir", WEIR)

    @needs_loadtest
    def test_each_command_of_the_load_tool_has_a_page(self):
        self.pages_of("weir-loadtest", LOADTEST)

    def test_the_pages_of_a_load_tool_that_does_not_fit_are_left_out(self):
        version = output(WEIR, "--version").split()[1]
        tools = {
            "there is no weir-loadtest": None,
            "has another version": 'echo "weir-loadtest 0.0.0-other"; test "$1" = --version || touch "$2/weir-loadtest.1"',
            "writes no manual": f'echo "weir-loadtest {version}"; test "$1" = --version || {{ touch "$2/weir-loadtest.1"; exit 2; }}',
        }
        with tempfile.TemporaryDirectory(dir="target") as folder:
            shutil.copy(WEIR, f"{folder}/weir")
            for number, (reason, script) in enumerate(tools.items()):
                made = f"{folder}/{number}"
                if script:
                    with open(f"{folder}/weir-loadtest", "w") as file:
                        file.write(f"#!/bin/sh\n{script}\n")
                    os.chmod(f"{folder}/weir-loadtest", 0o755)
                done = subprocess.run(["deploy/release", f"{folder}/weir", made], check=True, stderr=subprocess.PIPE, text=True)
                self.assertIn(reason, done.stderr)
                self.assertEqual([page for page in os.listdir(f"{made}/man") if "loadtest" in page], [], reason)
                self.assertIn("deploy", os.listdir(made), "the rest is there")


def until_ready(admin):
    """Waits until a relay is ready: it reads its files after it has said where it listens."""
    end = time.monotonic() + 60
    while True:
        try:
            return urllib.request.urlopen(f"{admin}/ready", timeout=30).close()
        except urllib.error.HTTPError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


# Ways to run a program in another root as a user without rights, who may write there what all may.
WAYS = [["chroot", "--userspec=65532:65532"], ["unshare", "--user", "--map-user=65532", "--map-group=65532", "--root"]]


class Artifacts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir="target")
        cls.addClassCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        cls.made, cls.root = os.path.abspath(f"{folder.name}/made"), os.path.abspath(f"{folder.name}/root")
        fast = {**os.environ, "LEVEL": "1", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
        subprocess.run(["deploy/artifacts", release(), cls.made], check=True, env=fast)
        version, machine = re.fullmatch(r"weir (\S+) \(commit \S+, for (\S+)\)\n", output(WEIR, "--version")).groups()
        cls.version, cls.name = version, f"weir-{version}-{machine}"

    def test_all_are_there_with_their_checksums(self):
        parts = ["-components.json", "-debug.tar.gz", "-image.tar.gz", "-notes.md", ".tar.gz"]
        listed = set(os.listdir(self.made)) - {name for name in os.listdir(self.made) if name.endswith(".deb")}
        self.assertEqual(listed, {"SHA256SUMS", *(self.name + part for part in parts)})
        self.assertEqual(any(name.endswith(".deb") for name in os.listdir(self.made)), bool(shutil.which("dpkg-deb")))
        output("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=self.made)
        summed = {line.split()[1] for line in read(f"{self.made}/SHA256SUMS").splitlines()}
        self.assertEqual(summed, set(os.listdir(self.made)) - {"SHA256SUMS"})

    def test_the_notes_are_the_section_of_the_changelog(self):
        notes = read(f"{self.made}/{self.name}-notes.md")
        self.assertTrue(notes.startswith(f"## {self.version}"), notes[:80])
        self.assertEqual(len(re.findall(r"^## ", notes, re.M)), 1)
        self.assertIn(notes, read("CHANGELOG.md"))

    def test_the_components_are_what_is_linked_with_the_checksums_of_the_lock_file(self):
        listed = json.loads(read(f"{self.made}/{self.name}-components.json"))
        self.assertEqual((listed["metadata"]["component"]["name"], listed["metadata"]["component"]["version"]), ("weir", self.version))
        with open("Cargo.lock", "rb") as file:
            lock = {(one["name"], one["version"]): one.get("checksum") for one in tomllib.load(file)["package"]}
        found = {(one["name"], one["version"]): one for one in listed["components"]}
        for of, one in found.items():
            self.assertEqual([lock[of]] if lock[of] else [], [each["content"] for each in one.get("hashes", [])], of)
            self.assertTrue(one["licenses"], of)
        names = {name for name, _ in found}
        self.assertLessEqual({"tokio", "rustls", "aws-lc-rs", "redb", "weir-core"}, names)
        self.assertEqual(names & {"weir", "weir-loadtest", "proptest", "rcgen", "protox", "serde_derive", "envoy-types"}, set())

    def test_what_the_image_has_belongs_to_root_but_for_what_the_relay_writes(self):
        with tarfile.open(f"{self.made}/{self.name}-image.tar.gz") as image:
            owners = {one.name: (one.uid, one.gid) for one in image}
        self.assertEqual(owners.pop("./var/lib/weir"), (65532, 65532))
        self.assertEqual(set(owners.values()), {(0, 0)})
        self.assertIn("./usr/bin/weir", owners)

    def test_the_program_that_is_unpacked_in_an_empty_root_serves_its_demo(self):
        # Empty but for the libraries, which are in the image's root.
        os.mkdir(self.root)
        for part in ("-image.tar.gz", ".tar.gz"):
            subprocess.run(["tar", "--extract", "--file", f"{self.made}/{self.name}{part}", "--directory", self.root], check=True)
        subprocess.run(["rm", "--recursive", f"{self.root}/usr", f"{self.root}/etc"], check=True)
        os.chmod(f"{self.root}/tmp", 0o1777)
        way = next((way for way in WAYS if subprocess.run([*way, "/", "/bin/true"], capture_output=True).returncode == 0), None)
        if way is None:
            self.skipTest("neither chroot nor a user namespace is permitted: the release is NOT run")
        command = [*way, self.root, f"/{self.name}/weir", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                admin = next(found for line in process.stdout if (found := re.search(r"admin +(http://[^/]+)/", line)))[1]
                until_ready(admin)
                with urllib.request.urlopen(f"{admin}/files", timeout=30) as answer:
                    self.assertGreater(json.load(answer)[0]["resources"], 3)
            finally:
                process.send_signal(signal.SIGTERM)
            process.stdout.read()
            self.assertEqual(process.wait(timeout=30), 0)


# In a copy of the machine's root that is gone afterwards: on a disk in memory, over the root itself.
IN_A_COPY = """set -e
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/root"
mount --bind /proc "$0/root/proc"
cp "$1" "$0/root/tmp/weir.deb"
exec chroot "$0/root" sh -ec "$2"
"""
INSTALL = """
dpkg --install /tmp/weir.deb
getent passwd weir
test -z "$(dpkg --verify weir)"
echo '# mine' >> /etc/weir/relay.yaml
dpkg --install /tmp/weir.deb
weir check --quiet /etc/weir/relay.yaml
mkdir --parents /var/lib/weir
dpkg --remove weir
grep '# mine' /etc/weir/relay.yaml
test ! -e /usr/bin/weir
dpkg --purge weir
test ! -e /etc/weir -a ! -e /var/lib/weir
echo all done
"""


@unittest.skipUnless(shutil.which("dpkg-deb"), "there is no dpkg-deb: the Debian package is NOT made")
class DebianPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir="target")
        cls.addClassCleanup(folder.cleanup)
        fast = {**os.environ, "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
        cls.package = os.path.abspath(output("deploy/deb", release(), folder.name, env=fast).strip())
        cls.root = os.path.abspath(f"{folder.name}/root")
        subprocess.run(["dpkg-deb", "--extract", cls.package, cls.root], check=True)

    def test_its_fields_say_what_it_is_and_needs(self):
        version, machine = re.fullmatch(r"weir (\S+) \(commit \S+, for (\w+)-.*\)\n", output(WEIR, "--version")).groups()
        architecture = {"x86_64": "amd64", "aarch64": "arm64"}[machine]
        self.assertEqual(os.path.basename(self.package), f"weir_{version}_{architecture}.deb")
        control = yaml.safe_load(output("dpkg-deb", "--field", self.package).split("\nDescription:")[0])
        self.assertEqual((control["Package"], str(control["Version"]), control["Architecture"]), ("weir", version, architecture))
        newest = newest_glibc(f"{self.root}/usr/bin/weir")
        self.assertEqual(control["Depends"], f"libc6 (>= {newest}), libgcc-s1, systemd | systemd-sysusers")
        size = sum(os.lstat(f"{folder}/{name}").st_size for folder, _, names in os.walk(self.root) for name in names)
        self.assertLess(abs(control["Installed-Size"] * 1024 - size), size / 20)

    def test_its_files_belong_to_root_and_the_configuration_is_the_operators(self):
        listed = [line.split(maxsplit=5) for line in output("dpkg-deb", "--contents", self.package).splitlines()]
        modes = {name.removeprefix("."): (mode, owner) for mode, owner, *_, name in listed}
        self.assertEqual({owner for _, owner in modes.values()}, {"root/root"})
        self.assertEqual({mode for mode, _ in modes.values()}, {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x"})
        self.assertEqual([name for name, (mode, _) in modes.items() if mode == "-rwxr-xr-x" and "/doc/" not in name], ["/usr/bin/weir"])
        self.assertEqual([name for name in modes if name.endswith(".debug")], [])
        self.assertEqual(output("dpkg-deb", "--info", self.package, "conffiles"), "/etc/weir/relay.yaml\n")
        self.assertEqual(read(f"{self.root}/etc/weir/relay.yaml"), read("config/relay.yaml"))
        self.assertIn("/usr/share/man/man1/weir-tap.1.gz", modes)
        self.assertIn("TERMS AND CONDITIONS", read(f"{self.root}/usr/share/doc/weir/copyright"))
        sums = output("dpkg-deb", "--info", self.package, "md5sums")
        self.assertIn("  usr/bin/weir\n", sums)
        subprocess.run(["md5sum", "--check", "--quiet", "--strict", "-"], input=sums, text=True, check=True, cwd=self.root)

    @needs_loadtest
    def test_the_manual_of_the_load_tool_is_there(self):
        self.assertIn("weir-loadtest-clients.1.gz", os.listdir(f"{self.root}/usr/share/man/man1"))

    def test_its_units_fit_its_configuration(self):
        units = f"{self.root}/usr/lib/systemd/system"
        command = re.search(r"^ExecStart=(\S+) --config (\S+)$", read(f"{units}/weir.service"), re.M)
        for path in command.groups():
            self.assertTrue(os.path.exists(self.root + path), path)
        sockets = re.findall(r"^ListenStream=(.*)$", read(f"{units}/weir.socket"), re.M)
        listen = yaml.safe_load(read(f"{self.root}/etc/weir/relay.yaml"))["listen"]
        self.assertEqual(sockets, [one["address"] for one in listen])
        self.assertEqual(read(f"{self.root}/usr/lib/sysusers.d/weir.conf"), read("deploy/systemd/weir.sysusers"))
        with tempfile.TemporaryDirectory() as folder:
            if shutil.which("systemd-analyze"):
                for name in ("weir.service", "weir.socket"):
                    with open(f"{folder}/{name}", "w") as file:
                        file.write(read(f"{units}/{name}").replace("/usr/bin/weir", f"{self.root}/usr/bin/weir"))
                done = subprocess.run(["systemd-analyze", "verify", f"{folder}/weir.service", f"{folder}/weir.socket"], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_unpacked_relay_starts_with_its_configuration(self):
        command = [f"{self.root}/usr/bin/weir", "--config", f"{self.root}/etc/weir/relay.yaml", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}) as process:
            try:
                started = next(line for line in process.stderr if "weir started" in line)
                admin = re.search(r" admin=(\S+)", started)[1]
                with urllib.request.urlopen(f"http://{admin}/healthz", timeout=10) as answer:
                    self.assertEqual(answer.read(), b"ok\n")
            finally:
                process.send_signal(signal.SIGINT)
            process.stderr.read()
            self.assertEqual(process.wait(timeout=30), 0)

    def test_it_is_installed_upgraded_and_removed(self):
        with tempfile.TemporaryDirectory() as folder:
            apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
            with contextlib.suppress(FileNotFoundError):
                if subprocess.run([*apart, IN_A_COPY, folder, self.package, "dpkg --version"], capture_output=True).returncode == 0:
                    done = subprocess.run([*apart, IN_A_COPY, folder, self.package, INSTALL], capture_output=True, text=True)
                    self.assertEqual(done.stdout.splitlines()[-1], "all done", done.stdout + done.stderr)
                    return
        self.skipTest("no copy of the machine's root is permitted, or there is no dpkg: the package is NOT installed")
