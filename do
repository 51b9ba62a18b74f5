#!/usr/bin/env bash
# One word for each chore; without a word it lists them. CONTRIBUTING.md says what they need.
set -euo pipefail
cd "$(dirname "$0")"

#: check                    format, lints, and what the core depends on and must not use
check() {
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check
    cargo fmt --manifest-path tests/mutants/Cargo.toml --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    # The core has these dependencies, and neither a clock nor a thread, a file or a socket.
    cargo tree --locked --package weir-core --edges normal,no-proc-macro --prefix none --format '{lib}' | sed 's/ (\*)//' | LC_ALL=C sort -u | diff core/dependencies.txt -
    core/tests/planted/check
    # The fuzz crate compiles; the tests run its targets on the kept inputs.
    cargo check --quiet --manifest-path fuzz/Cargo.toml --target-dir target --locked
    oldest
}

# The oldest compiler is tested where it is the one that is there. Nothing downloads another.
oldest() {
    local wanted
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    case $(rustc --version) in
        "rustc $wanted."*) echo "rust-version $wanted is tested: the compiler is that one" >&2 ;;
        *) echo "rust-version $wanted is NOT tested: the compiler is $(rustc --version)" >&2 ;;
    esac
}

#: test [ARGUMENT…]         all tests but those with real clients; arguments of cargo test in place of --workspace
tests() {
    cargo test --locked "${@:---workspace}"
}

#: fuzz [TARGET [OPTION…]]  a fuzz target, or each of them for a minute
fuzz() {
    if (($#)); then
        exec fuzz/run "$@"
    fi
    local target
    for target in $(fuzz/run); do
        fuzz/run "$target" -max_total_time=60
    done
}

#: bench [NAME OPTION…]     benchmarks: one, or all of them
bench() {
    cargo build --release --locked --workspace
    local built
    built=$(target_folder)/release
    (($#)) || set -- all
    exec "$built/weir-loadtest" bench "$@" --weir "$built/weir"
}

#: docs                     writes the pages and lists that are made from the sources, and checks all pages
docs() {
    WEIR_WRITE=1 cargo test --locked --lib written
    WEIR_WRITE=1 cargo test --locked --package weir-core --test public_items
    cargo test --workspace --locked --test pages --test structure
}

#: release FOLDER           the files of a release, from the commit that is checked out
release() {
    local folder=${1:?a folder that does not exist yet}
    [ ! -e "$folder" ] || { echo "./do release: $folder exists" >&2; exit 2; }
    [ -z "$(git status --porcelain)" ] || { echo './do release: there are files or changes that are not committed' >&2; exit 2; }
    WEIR_COMMIT=$(git rev-parse --short HEAD) cargo build --release --locked --workspace --bin weir --bin weir-loadtest
    work=$(mktemp --directory)
    trap 'rm --recursive --force "$work"' EXIT
    deploy/release "$(target_folder)/release/weir" "$work/release"
    deploy/artifacts "$work/release" "$folder"
    ls -l "$folder"
}

#: ci [STAGE]               what has to pass before a change lands, or one stage of it
ci() {
    exec .ci/run "$@"
}

#: night [PART]             what is too long for that: measures, long histories, all real clients, mutants, fuzzing
night() {
    exec .ci/night "$@"
}

# Wherever cargo has put it.
target_folder() {
    cargo metadata --locked --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
}

list() {
    sed -n 's/^#: /  .\/do /p' do
}

chore=${1:-}
shift $(($# > 0))
case $chore in
    check | fuzz | bench | docs | release | ci | night) "$chore" "$@" ;;
    test) tests "$@" ;;
    '') list ;;
    *)
        printf './do: there is no chore %s. There are:\n' "$chore" >&2
        list >&2
        exit 2
        ;;
esac
