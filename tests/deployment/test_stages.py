"""The stages of .ci/run, played: what fails, what takes too long, and what a signal ends."""

import os
import pathlib
import pty
import signal
import subprocess
import tempfile
import time
import unittest

STAGES = pathlib.Path(".ci/stages").absolute()
PATIENCE = 60  # seconds until a wait is an error

# A command that notes its process and that of a child, and then lasts. With `stubborn` both take no notice of a request to end.
LASTS = """
lasts() {
    [ "${2:-}" != stubborn ] || trap '' TERM
    sleep 1000 &
    echo "$BASHPID $!" > "$1.part"
    mv "$1.part" "$1"
    while :; do wait || true; done
}
"""


def is_there(pid):
    """Whether a process runs: one that has ended and that nobody has waited for does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def listen_to_signals():
    """A program that was started in the background, or by nohup, ignores these, and so would a shell below it."""
    for signal_ in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signal_, signal.SIG_DFL)


class Stages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "tmp").mkdir()

    def start(self, script, terminal=None, **variables):
        """Starts a script of stages in a process group of its own, or as the one that has the terminal."""
        path = self.folder / "script"
        path.write_text(f"set -euo pipefail\n. '{STAGES}'\n{LASTS}\n{script}\n")
        command = ["bash", str(path)]
        if terminal is not None:
            command = ["setsid", "--ctty", "--wait", *command]
        started = subprocess.Popen(command, cwd=self.folder, env=os.environ | {"TMPDIR": str(self.folder / "tmp"), **variables},
                                   stdin=terminal or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True, preexec_fn=listen_to_signals)
        self.addCleanup(started.stdout.close)
        self.addCleanup(started.kill)
        return started

    def finished(self, started):
        printed, _ = started.communicate(timeout=PATIENCE)
        self.assertEqual(list((self.folder / "tmp").iterdir()), [], "it removes its files")
        return started.returncode, printed

    def run_script(self, script, **variables):
        return self.finished(self.start(script, **variables))

    def wait_for(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.02)

    def processes(self, name):
        """Waits until a command that lasts has begun, and returns its processes."""
        path = self.folder / name
        self.wait_for(path.exists, f"{name} begins")
        found = [int(pid) for pid in path.read_text().split()]
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in found if is_there(pid)])
        return found

    def assert_ended(self, *processes):
        self.wait_for(lambda: not any(map(is_there, processes)), "all processes of the stages end")

    def rows(self, printed):
        """Returns the results of the table by stage."""
        lines = printed.split("\nStage ")[-1].splitlines()[1:]
        return {line[:52].strip(): line[62:] for line in lines if not line.startswith("    ")}

    def test_stages_that_pass_have_their_rows_and_what_they_print(self):
        code, printed = self.run_script("""
            says() { echo "$1 has run"; echo 'the last one is not tested' >&2; }
            leaves() { [ -z "${missing:-}" ] || exit 1; not_run 'there is nothing to do'; }
            stage_beside beside says beside
            stage first says first
            stage second leaves
            stage_wait""")
        self.assertEqual(code, 0, printed)
        self.assertIn("first has run\n", printed)
        self.assertIn("beside has run\n", printed)
        self.assertIn("    within it: the last one is not tested\n", printed)
        self.assertEqual(self.rows(printed), {
            "beside": "passed", "first": "passed", "second": "NOT RUN: there is nothing to do", "All of it": "passed"})

    def test_a_stage_ends_at_its_first_command_that_fails_and_ends_the_script(self):
        code, printed = self.run_script("""
            fails() { (exit 3); echo 'goes on'; }
            stage first true
            stage second fails
            stage third true""")
        self.assertEqual(code, 3, printed)
        self.assertNotIn("goes on", printed)
        rows = self.rows(printed)
        self.assertEqual((rows["first"], rows["second"]), ("passed", "FAILED with 3"))
        self.assertNotIn("third", rows)
        self.assertIn("did NOT run", rows["All of it"])

    def test_a_stage_that_fails_beside_others_fails_the_script(self):
        code, printed = self.run_script("stage_beside beside bash -c 'echo its words; exit 4'\nstage first true\nstage_wait\nstage second true")
        self.assertEqual(code, 1, printed)
        self.assertIn("its words\n", printed)
        self.assertEqual(self.rows(printed)["beside"], "FAILED with 4")
        self.assertNotIn("second", self.rows(printed))

    def test_a_stage_that_takes_too_long_is_ended_with_its_processes_and_has_failed(self):
        started = self.start("stage quick sleep 0.1\nSTAGE_LIMIT=4 stage slow lasts one\nstage next true")
        processes = self.processes("one")
        code, printed = self.finished(started)
        self.assert_ended(*processes)
        self.assertEqual(code, 124, printed)
        rows = self.rows(printed)
        self.assertEqual((rows["quick"], rows["slow"]), ("passed", "FAILED: took longer than 4 s"))
        self.assertNotIn("next", rows)

    def test_what_does_not_end_when_it_is_asked_to_is_killed(self):
        started = self.start("stage slow lasts one stubborn", STAGE_LIMIT="4", STAGE_GRACE="1")
        processes = self.processes("one")
        code, printed = self.finished(started)
        self.assert_ended(*processes)
        self.assertEqual((code, self.rows(printed)["slow"]), (124, "FAILED: took longer than 4 s"), printed)

    def test_a_stage_beside_others_has_the_limit_too(self):
        started = self.start("stage_beside slow lasts one\nstage_wait", STAGE_LIMIT="4")
        processes = self.processes("one")
        code, printed = self.finished(started)
        self.assert_ended(*processes)
        self.assertEqual((code, self.rows(printed)["slow"]), (1, "FAILED: took longer than 4 s"), printed)

    def test_a_signal_ends_what_runs_and_prints_the_table(self):
        for number, (signal_, expected) in enumerate(((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129))):
            with self.subTest(signal_.name):
                started = self.start(f"stage first true\nstage_beside beside lasts beside{number}\nstage slow lasts slow{number}\nstage next true")
                processes = self.processes(f"beside{number}") + self.processes(f"slow{number}")
                started.send_signal(signal_)
                code, printed = self.finished(started)
                self.assert_ended(*processes)
                self.assertEqual(code, expected, printed)
                rows = self.rows(printed)
                stopped = "stopped before its end"
                self.assertEqual((rows["first"], rows["beside"], rows["slow"]), ("passed", stopped, stopped))
                self.assertIn("FAILED", rows["All of it"])

    def test_a_signal_while_others_are_waited_for_ends_them(self):
        started = self.start("stage_beside beside lasts one stubborn\necho waits > waits\nstage_wait", STAGE_GRACE="1")
        processes = self.processes("one")
        self.wait_for((self.folder / "waits").exists, "the script waits")
        started.send_signal(signal.SIGTERM)
        code, printed = self.finished(started)
        self.assert_ended(*processes)
        self.assertEqual((code, self.rows(printed)["beside"]), (143, "stopped before its end"), printed)

    def test_ctrl_c_in_a_terminal_ends_what_runs(self):
        keyboard, terminal = pty.openpty()
        self.addCleanup(os.close, keyboard)
        started = self.start("stage_beside beside lasts one\nstage slow lasts two", terminal)
        os.close(terminal)
        processes = self.processes("one") + self.processes("two")
        os.write(keyboard, b"\x03")
        code, printed = self.finished(started)
        self.assert_ended(*processes)
        self.assertEqual((code, self.rows(printed)["slow"]), (130, "stopped before its end"), printed)
