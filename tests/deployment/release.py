"""The release folder of the program that is tested, made once for all tests."""

import atexit
import functools
import os
import subprocess
import tempfile
import unittest

WEIR = os.path.abspath(os.environ["WEIR"])
LOADTEST = os.path.join(os.path.dirname(WEIR), "weir-loadtest")
needs_loadtest = unittest.skipUnless(os.access(LOADTEST, os.X_OK), "there is no weir-loadtest beside the program")


@functools.cache
def release():
    """Returns the folder, which is deleted at the end."""
    folder = tempfile.TemporaryDirectory(dir="target")
    atexit.register(folder.cleanup)
    os.chmod(folder.name, 0o755)
    made = os.path.abspath(f"{folder.name}/release")
    subprocess.run(["deploy/release", WEIR, made], check=True)
    return made
