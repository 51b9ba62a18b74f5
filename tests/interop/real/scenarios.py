"""Real control planes, each put through the same steps directly and through Weir. Dumps have to be equal after each step, and no request may
fail that would not have without Weir."""

import difflib
import functools
import pathlib
import tempfile
import threading

from real import steps
from real.course import Course
from real.go_control_plane import GoControlPlane
from real.java_control_plane import JavaControlPlane
from resources import Source

WAYS = ["direct", "Weir"]


def kinds():
    """By name: what is built for it, and how it is made, for each form in which it runs."""
    for cache in GoControlPlane.CACHES:
        yield f"go-control-plane, {cache}", GoControlPlane, functools.partial(GoControlPlane, cache=cache)
    yield "java-control-plane", JavaControlPlane, JavaControlPlane


def scenarios(wanted):
    for name, plane, make in kinds():
        if wanted == "all" or name.startswith(wanted):
            for variant in plane.VARIANTS:
                source = Source(aggregated=True, delta=variant == "delta")
                yield f"real, {name}, {variant}", run, (name, plane, make, source, variant)


def run(options, name, plane, make, source, upstream):
    plane.build()
    with tempfile.TemporaryDirectory() as folder:
        courses = {way: Course(make, options, source, upstream, way, pathlib.Path(folder, way)) for way in WAYS}
        errors = {}

        def go(way, course):
            try:
                course.run(steps.all_steps())
            except Exception as error:
                errors[way] = error

        threads = [threading.Thread(target=go, args=one) for one in courses.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        compare(courses, plane.EXCEPTIONS)
        if errors:
            raise next(iter(errors.values()))


def compare(courses, exceptions):
    """Prints a row for each step. What differs is an error, unless it is an exception of this control plane."""
    direct, weir = courses.values()
    different = []
    for name, _ in steps.all_steps():
        if name not in direct.dumps or name not in weir.dumps:
            print(f"  {name}: not compared")
            continue
        equal = direct.dumps[name] == weir.dumps[name]
        failed = [len(course.failures.get(name, [])) for course in [direct, weir]]
        print(f"  {name}: dumps {'equal' if equal else 'DIFFER'}; failed requests: {failed[0]} directly, {failed[1]} through Weir; "
              f"{direct.took[name]:.1f} s directly, {weir.took[name]:.1f} s through Weir")
        wrong = [] if equal else [difference(direct.dumps[name], weir.dumps[name])]
        if failed[1] > failed[0]:
            wrong.append(f"failed requests: {weir.failures[name][:5]}")
        if wrong and name in exceptions:
            print(f"    known: {exceptions[name]}")
        elif wrong:
            different.append((name, wrong))
    for name, wrong in different:
        print(f"  {name}:", *wrong, sep="\n    ")
    assert not different, f"differs from the direct run: {[name for name, _ in different]}"


def difference(direct, weir):
    lines = [[f"{section} {text}" for section, texts in dump.items() for text in texts] for dump in [direct, weir]]
    return "\n".join(line[:1500] for line in difflib.unified_diff(*lines, "direct", "Weir", lineterm="", n=0))
