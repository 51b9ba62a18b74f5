"""The stages of .ci/run, played: what passes, fails, has nothing to do, takes too long, and what a signal ends."""

import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

STAGES = pathlib.Path(".ci/stages").absolute()


class Stages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, functions, calls, limit=60):
        script = self.folder / "script"
        script.write_text(f"#!/usr/bin/env bash\nset -euo pipefail\nLOGS='{self.folder}/logs' LIMIT={limit}\n{functions}\n. '{STAGES}' \"$@\"\n{calls}\n")
        script.chmod(0o755)
        return subprocess.Popen([script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def play(self, *script, **options):
        """Returns the exit code, what is printed, and the table: the result of each row."""
        started = self.start(*script, **options)
        return self.end(started)

    def end(self, started):
        printed, _ = started.communicate(timeout=60)
        table = (self.folder / "logs/table").read_text()
        self.assertTrue(printed.endswith(table), printed)
        return started.returncode, printed, {line[:16].strip(): line[26:] for line in table.splitlines()[2:]}

    def test_stages_that_pass_are_in_the_table_with_what_they_left_out(self):
        code, printed, rows = self.play("says() { echo 'it has run'; echo 'the last one is not tested'; }\nleaves() { not_run 'nothing to do'; }",
                                        "stage says; stage leaves")
        self.assertEqual(code, 0, printed)
        self.assertIn("it has run\n", printed)
        self.assertIn("    within it: the last one is not tested\n", printed)
        self.assertEqual((rows["says"], rows["leaves"], rows["All of it"]), ("passed", "not run: nothing to do", "passed"))

    def test_a_stage_ends_at_its_first_command_that_fails_and_ends_the_script(self):
        code, printed, rows = self.play("fails() { (exit 3); echo 'goes on'; }\nnext() { true; }", "stage fails; stage next")
        self.assertEqual(code, 3, printed)
        self.assertNotIn("goes on", printed)
        self.assertEqual(rows["fails"], "FAILED with 3")
        self.assertNotIn("next", rows)
        self.assertIn("did NOT run", rows["All of it"])

    def test_no_exit_code_of_a_command_means_that_there_was_nothing_to_do(self):
        for code in (77, 100, 101):  # such as apt-get's
            with self.subTest(code):
                ended, printed, rows = self.play(f"fails() {{ bash -c 'exit {code}'; }}", "stage fails")
                self.assertEqual((ended, rows["fails"]), (code, f"FAILED with {code}"), printed)

    def test_a_stage_that_takes_too_long_is_ended_with_what_it_has_started(self):
        code, printed, rows = self.play("slow() { sleep 1000; }", "stage slow", limit=1)
        self.assertEqual((code, rows["slow"]), (124, "FAILED: took longer than 1 s"), printed)

    def test_a_signal_ends_what_runs_and_prints_the_table(self):
        started = self.start(f"slow() {{ touch '{self.folder}/begun'; sleep 1000; }}\nfirst() {{ true; }}", "stage first; stage slow")
        end = time.monotonic() + 60
        while not (self.folder / "begun").exists():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        started.send_signal(signal.SIGTERM)
        code, printed, rows = self.end(started)
        self.assertEqual((code, rows["first"]), (143, "passed"), printed)
        self.assertIn("FAILED", rows["All of it"])
