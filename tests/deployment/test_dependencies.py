"""The dependencies keep deny.toml: licenses, versions, sources. cargo-deny reads the same file; this needs cargo alone."""

import json
import re
import subprocess
import tomllib
import unittest
from collections import defaultdict

WORDS = re.compile(r"\(|\)|[\w.+-]+|/")


def is_allowed(expression, allowed):
    """Whether the allowed licenses are enough for an SPDX expression. AND binds more than OR, and an exception permits more."""
    words = WORDS.findall(expression)

    def alternatives():
        result = combined()
        while words and words[0] in ("OR", "/"):
            words.pop(0)
            result = combined() or result
        return result

    def combined():
        result = single()
        while words and words[0] == "AND":
            words.pop(0)
            result = single() and result
        return result

    def single():
        word = words.pop(0)
        if word == "(":
            result = alternatives()
            assert words.pop(0) == ")", expression
            return result
        if words and words[0] == "WITH":
            del words[:2]
        return word in allowed

    result = alternatives()
    assert not words, expression
    return result


def packages_of(target):
    """Returns the packages of this platform, those for tests and builds included."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    resolved = {node["id"] for node in found["resolve"]["nodes"]}
    return [one for one in found["packages"] if one["id"] in resolved]


def faults(packages, rules):
    """Returns what deny.toml does not permit."""
    found, versions = [], defaultdict(set)
    sources = {f"registry+{url}" for url in rules["sources"]["allow-registry"]} | {None}
    skipped = [one["crate"].split("@") for one in rules["bans"]["skip"]]
    for one in packages:
        name = f"{one['name']} {one['version']}"
        if not is_allowed(one["license"] or "none", rules["licenses"]["allow"]):
            found.append(f"{name}: license {one['license']}")
        if one["source"] not in sources:
            found.append(f"{name}: source {one['source']}")
        if (one["source"] is None) != (one["name"] in ("weir", "weir-core", "weir-loadtest", "weir-testkit")):
            found.append(f"{name}: path")
        if not any(one["name"] == crate and f"{one['version']}.".startswith(f"{version}.") for crate, version in skipped):
            versions[one["name"]].add(one["version"])
    found += [f"{name}: versions {sorted(of)}" for name, of in versions.items() if len(of) > 1]
    used = {(crate, version) for crate, version in skipped for one in packages
            if one["name"] == crate and f"{one['version']}.".startswith(f"{version}.")}
    return found + [f"{crate}@{version}: skipped, and not there" for crate, version in skipped if (crate, version) not in used]


class Dependencies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open("deny.toml", "rb") as file:
            cls.rules = tomllib.load(file)
        cls.packages = {target: packages_of(target) for target in cls.rules["graph"]["targets"]}

    def test_licenses_versions_and_sources_are_permitted(self):
        for target, packages in self.packages.items():
            self.assertGreater(len(packages), 100)
            self.assertEqual(faults(packages, self.rules), [], target)

    def test_each_allowed_license_is_needed(self):
        needed = {word for packages in self.packages.values() for one in packages for word in WORDS.findall(one["license"])}
        self.assertEqual(set(self.rules["licenses"]["allow"]) - needed, set())

    def test_each_sort_of_fault_is_found(self):
        packages = next(iter(self.packages.values()))
        planted = {"name": "tokio", "version": "0.1.0", "license": "MIT AND (GPL-3.0-only OR AGPL-3.0-only)", "source": "git+https://git.example/tokio"}
        found = "; ".join(faults([*packages, planted], self.rules))
        for fault in ("license MIT AND", "source git+", "tokio: versions ['0.1.0', '1."):
            self.assertIn(fault, found)
        self.assertIn("path", "; ".join(faults([*packages, {**planted, "source": None}], self.rules)))
        without_base64 = [one for one in packages if one["name"] != "base64"]
        self.assertIn("base64@0.22: skipped, and not there", faults(without_base64, self.rules))

    def test_expressions_are_read_as_spdx_has_them(self):
        for expression, expected in {
            "MIT": True, "GPL-2.0-only": False, "MIT/Apache-2.0": True, "GPL-2.0-only OR MIT": True, "MIT AND GPL-2.0-only": False,
            "MIT OR GPL-2.0-only AND LGPL-2.1-only": True, "(MIT OR GPL-2.0-only) AND LGPL-2.1-only": False,
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only": True,
        }.items():
            self.assertEqual(is_allowed(expression, ["MIT", "Apache-2.0"]), expected, expression)
