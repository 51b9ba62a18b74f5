"""What the steps of real control planes have shown: each scenario notes its rows in its own process, and one table after all of them has them."""

import json

ROWS = []


def note(step, direct, weir, remark=""):
    """A row of the scenario that this process runs. `remark` is an exception by its name, or why there is nothing to compare."""
    ROWS.append([step, direct, weir, remark])


def write(file):
    file.write(json.dumps(ROWS).encode())
    file.flush()


def read(file):
    file.seek(0)
    text = file.read()
    return json.loads(text) if text else []


def show(ended):
    """Prints the table of what has ended: its name, how it ended, its seconds, and its rows."""
    print("\n| Name | Step | Direct | Through Weir | Exceptions and remarks |\n|---|---|---|---|---|")
    for name, end, seconds, rows in ended:
        for row in [*rows, ["all of it", "", end, f"{seconds:.0f} s"]]:
            print("|", " | ".join(clean(cell) for cell in [name.removeprefix("real, "), *row]), "|")
    print(flush=True)


def clean(cell):
    return " ".join(cell.replace("|", "\\|").split())
