class Skipped(Exception):
    """A scenario cannot run on this machine, and says why."""
