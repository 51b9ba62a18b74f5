//! The built program: its commands and flags, and the messages for invalid ones.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use weir_testkit::folder::Folder;

use crate::WEIR;

fn weir(folder: &Folder, line: &[&str]) -> Command {
    let mut command = Command::new(WEIR);
    command.args(line).current_dir(&folder.0).env_remove("CARGO_MANIFEST_DIR").env_remove("WEIR_LOG");
    command.env("TMPDIR", &folder.0).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

fn output(folder: &Folder, line: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = weir(folder, line).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

const GOOD: &str =
    "listen: [{address: '127.0.0.1:1'}]\nadmin: {address: '127.0.0.1:1'}\nupstream: {files: resources}\n";

#[test]
fn the_version_says_what_the_program_was_built_from() {
    let folder = Folder::new("version");
    let (code, out, _) = output(&folder, &["--version"]);
    assert_eq!((code, out), (0, format!("weir {}\n", weir::build_facts::LINE)));
    assert_eq!(output(&folder, &["version"]).1, format!("weir {}\n", weir::build_facts::LINE));
    let (code, out, _) = output(&folder, &["-V"]);
    assert!(code == 0 && out.contains(weir::build_facts::TARGET), "{out}");
}

#[test]
fn check_tells_every_fault_with_its_place_and_its_exit_code_says_whether_there_are_any() {
    let folder = Folder::new("check");
    folder.write(
        "relay.yaml",
        "listen: [{address: nowhere}]\nupstream: {files: none}\nlimits: {linger: ${LINGER}, resource_timer: 1s}\n",
    );
    let (code, out, said) = output(&folder, &["check", "--config", "relay.yaml"]);
    assert_eq!((code, out.as_str()), (1, "relay.yaml: 1 fault\n"));
    assert!(said.starts_with("error: relay.yaml:3:19: invalid list or mapping in brackets: "), "{said}");

    folder.write(
        "relay.yaml",
        "listen: [{address: nowhere}]\nupstream: {files: none}\nlimits: {lingre: 1s, resource_timer: 1s}\n",
    );
    let (code, out, said) = output(&folder, &["check", "--config", "relay.yaml"]);
    let lines: Vec<_> = said.lines().map(|line| line.split(": ").take(3).collect::<Vec<_>>().join(": ")).collect();
    let expected = [
        "warning: relay.yaml:3:38: limits.resource_timer",
        "error: relay.yaml:1:20: listen[0].address",
        "error: relay.yaml:2:19: upstream.files",
        "error: relay.yaml:3:10: limits.lingre",
    ];
    let verdict = "relay.yaml: 3 faults, 1 warning\n";
    assert_eq!((code, out.as_str(), lines.as_slice()), (1, verdict, expected.map(String::from).as_slice()));
    let (code, out, said) = output(&folder, &["check", "--quiet", "relay.yaml"]);
    assert!(code == 1 && out == verdict && said.lines().count() == 3 && !said.contains("warning"), "{said}");

    std::fs::create_dir(folder.0.join("resources")).unwrap();
    folder.write("relay.yaml", &GOOD.replace("admin: {address: '127.0.0.1:1'}\n", "limits: {resource_timer: 1s}\n"));
    let (code, out, said) = output(&folder, &["--config", "relay.yaml", "check"]);
    assert!(code == 0 && out.starts_with("old-style names\n  1. files resources\n"), "{out}");
    assert!(
        said.starts_with("warning: relay.yaml:2:26: limits.resource_timer: ") && said.lines().count() == 1,
        "{said}"
    );
    assert!(out.ends_with("\nrelay.yaml: valid, 1 warning\n") && !out.contains("file_bytes"), "{out}");
    assert_eq!(output(&folder, &["check", "relay.yaml"]), (code, out, said));
    let (code, out, _) = output(&folder, &["check", "relay.yaml", "--all"]);
    assert!(code == 0 && out.contains("\n  file_bytes ") && out.contains("\ndrain\n  delay "), "{out}");
    assert_eq!(
        output(&folder, &["check", "relay.yaml", "--quiet"]),
        (0, "relay.yaml: valid, 1 warning\n".into(), String::new())
    );
    let mut child =
        weir(&folder, &["check", "--quiet", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text = std::fs::read(folder.0.join("relay.yaml")).unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &text).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!((done.status.code(), &*done.stdout), (Some(0), &b"-: valid, 1 warning\n"[..]));

    let (code, _, said) = output(&folder, &["check", "--config", "none.yaml"]);
    assert_eq!((code, said.as_str()), (2, "error: cannot read none.yaml: no such file or folder\n"));
    let (code, _, said) = output(&folder, &["check"]);
    assert!(code == 2 && said.contains("missing configuration: expected --config FILE"), "{said}");
}

#[test]
fn a_configuration_that_cannot_be_used_ends_the_program_with_every_fault() {
    let folder = Folder::new("faults");
    folder.write("relay.yaml", GOOD);
    let (code, _, said) = output(&folder, &["--config", "relay.yaml"]);
    let fault =
        "error: relay.yaml:2:18: admin.address: duplicate address 127.0.0.1:1: already listen[0].address in line 1\n";
    assert_eq!((code, said.as_str()), (2, fault));
}

#[test]
fn addresses_of_the_command_line_go_before_those_of_a_configuration_and_of_the_demo() {
    let folder = Folder::new("listen");
    folder.write("relay.yaml", &GOOD.replace("'127.0.0.1:1'}\nupstream", "'127.0.0.1:2'}\nupstream"));
    for line in [&["--config", "relay.yaml"][..], &["--log", "info"]] {
        let line = [line, &["--listen", "[::]:0", "--admin", ":0"]].concat();
        let mut child = weir(&folder, &line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let sent = { lines }.find(|line| line.contains("weir started")).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(sent.contains("listen=\"[::]:") && sent.contains("admin=127.0.0.1:"), "{line:?}: {sent}");
    }
    let (code, _, said) = output(&folder, &["--listen", "here"]);
    assert!(code == 2 && said.contains("invalid address \"here\": expected an IP address and a port"), "{said}");
}

#[test]
fn flags_are_rejected_where_they_would_do_nothing() {
    let folder = Folder::new("flags");
    for (line, part) in [
        (&["--config", "relay.yaml", "schema"][..], "--config has no effect on schema"),
        (&["--config", "relay.yaml", "get", "clusters"], "--config has no effect on get"),
        (
            &["--config", "relay.yaml", "check", "other.yaml"],
            "a configuration file before check and one after it: expected one of them",
        ),
        (&["check", "relay.yaml", "--quiet", "--as", "uid:1"], "cannot be used with"),
        (&["check", "relay.yaml", "--against", ":1", "--as", "uid:1"], "cannot be used with"),
        (&["--listen", ":1", "check"], "--listen and --admin have no effect on check"),
        (&["watch", "clusters", "--config", "relay.yaml"], "unexpected argument '--config'"),
    ] {
        let (code, out, said) = output(&folder, line);
        assert!(code == 2 && out.is_empty() && said.contains(part), "{line:?}: {said}");
    }
}

#[test]
fn schema_and_completions_are_printed() {
    let folder = Folder::new("printed");
    let (code, out, said) = output(&folder, &["schema"]);
    let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["limits"]["properties"]["linger"]["default"], "30s");
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = output(&folder, &["completions", shell]);
        assert!(code == 0 && out.contains("completions") && out.contains("config"), "{shell}: {out}");
    }
    let (code, out, said) = output(&folder, &["man", "pages"]);
    assert_eq!((code, out.as_str(), said.as_str()), (0, "", ""));
    let page = |name: &str| std::fs::read_to_string(folder.0.join("pages").join(name)).unwrap().replace("\\-", "-");
    assert!(page("weir.1").contains("weir-get(1)") && page("weir-get.1").contains("--quiet-period"));
    folder.write("file", "");
    let (code, _, said) = output(&folder, &["man", "file/pages"]);
    assert!(code == 2 && said.contains("cannot write manual pages to file/pages"), "{said}");
    let (code, _, said) = output(&folder, &["completions", "shell"]);
    assert!(code == 2 && said.contains("bash"), "{said}");
}

#[test]
fn key_says_how_the_nodes_of_a_file_or_of_the_standard_input_split() {
    let folder = Folder::new("key");
    std::fs::create_dir(folder.0.join("resources")).unwrap();
    folder.write("relay.yaml", &GOOD.replace("admin: {address: '127.0.0.1:1'}", "views: {key: [cluster]}"));
    let nodes = [("a", "web"), ("b", "web"), ("c", "api")];
    let line = |(id, cluster): (&str, &str)| format!("{}\n", serde_json::json!({"id": id, "cluster": cluster}));
    folder.write("nodes", &nodes.map(line).concat());
    let of_file = output(&folder, &["key", "--config", "relay.yaml", "nodes"]);
    let rows: Vec<Vec<_>> = of_file.1.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
    assert_eq!(of_file.0, 0, "{}", of_file.2);
    assert_eq!(rows[0], ["nodes,", "2", "keys"]);
    assert_eq!(rows[2..5], [vec!["nodes", "cluster"], vec!["2", "web"], vec!["1", "api"]]);
    let mut command = weir(&folder, &["--config", "relay.yaml", "key"]);
    let of_input = command.stdin(std::fs::File::open(folder.0.join("nodes")).unwrap()).output().unwrap();
    assert_eq!(String::from_utf8(of_input.stdout).unwrap(), of_file.1);
    folder.write("nodes", "{\"id\": \"a\"}\n{\"id\":");
    let (code, out, said) = output(&folder, &["key", "--config", "relay.yaml", "nodes"]);
    assert!(code == 2 && out.is_empty() && said.starts_with("error: line 2: no JSON at column "), "{said}");
}

#[test]
fn snapshot_says_what_is_wrong_with_the_files() {
    let folder = Folder::new("snapshot");
    folder.write("other", "no state");
    for (line, reason) in [
        (&["show", "--state", "none"][..], "error: no state file at none: expected what state.path"),
        (&["export", "--state", "other", "copy"], "error: cannot use other: it is no state file"),
        (&["import", "--state", "other", "copy"], "error: other exists: move it away first"),
    ] {
        let (code, out, said) = output(&folder, &[&["snapshot"], line].concat());
        assert!(code == 2 && out.is_empty() && said.starts_with(reason), "{line:?}: {said}");
    }
    assert!(!folder.0.join("copy").exists());
    assert_eq!(std::fs::read(folder.0.join("other")).unwrap(), b"no state");
}

/// Each command with wrong arguments: the exit code is the one in docs/exit-codes.md, stdout has nothing that could be taken for a result, and
/// stderr says what was found, and what was expected or what to type instead.
#[test]
fn every_command_that_is_asked_wrongly_says_so_in_one_form_and_ends_by_one_table() {
    let folder = Folder::new("wrongly");
    folder.write(
        "relay.yaml",
        "listen: [{address: '127.0.0.1:1'}]\nupstream: {servers: [{uri: 'http://127.0.0.1:2'}]}\n",
    );
    folder.write("text", "no JSON");
    folder.write(
        "bad.yaml",
        "listen: [{address: 'localhost:18000'}, {address: '127.0.0.1:70000'}]\nupstream: {servers: [{uri: 'http://cp:70000'}]}\n\
         limits: {memory: 1000}\n",
    );
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["--config", "none.yaml"], 2, &["cannot read none.yaml: no such file or folder"]),
        (&["--listen", "127.0.0.1:70000"], 2, &["expected a port of at most 65535"]),
        (&["--listen", "localhost:1"], 2, &["expected an IP address and a port, such as 127.0.0.1:18000"]),
        (&["--admin", "127.0.0.1:65536"], 2, &["expected a port of at most 65535"]),
        (&["check", "none.yaml"], 2, &["cannot read none.yaml: no such file or folder"]),
        (
            &["check", "bad.yaml"],
            1,
            &[
                "listen[0].address: invalid address \"localhost:18000\": expected an IP address and a port",
                "listen[1].address: invalid address \"127.0.0.1:70000\": expected a port of at most 65535",
                "upstream.servers[0].uri: invalid URI \"http://cp:70000\": expected a port of at most 65535",
                "limits.memory: 1000B is too little: expected at least 16MiB",
            ],
        ),
        (&["check", "relay.yaml", "--against", "127.0.0.1:1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["check", "relay.yaml", "--against", "127.0.0.1:65536"], 2, &["--against: invalid URI", "at most 65535"]),
        (&["check", "none.yaml", "--as", "uid:1"], 2, &["cannot read none.yaml"]),
        (&["key", "--config", "none.yaml"], 2, &["cannot read none.yaml"]),
        (&["key", "--config", "relay.yaml", "none"], 2, &["cannot read none: "]),
        (
            &["key", "--config", "relay.yaml", "text"],
            2,
            &["line 1: no JSON at column 2; expected a node as JSON on each line, such as {"],
        ),
        (&["key", "--config", "relay.yaml"], 2, &["no node was given: expected JSON, a node on each line, such as {"]),
        (&["get", "nothing"], 2, &["unknown type \"nothing\": expected lds or listeners, "]),
        (&["get", "clusters", "--server", "127.0.0.1:65536"], 2, &["--server: invalid URI", "at most 65535"]),
        (&["get", "clusters", "--server", ":1"], 2, &["127.0.0.1:1: Connection refused"]),
        (&["watch", "clusters", "--server", ":1", "--timeout", "10ms"], 2, &["never connected to http://127.0.0.1:1"]),
        (&["status", "--admin", ":1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["top", "--admin", ":1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["nacks", "--admin", ":1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["dangling", "--admin", ":1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["brakes", "--admin", ":1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["release", "--admin", ":1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["release", "--view", "a"], 2, &["required arguments", "--generation"]),
        (&["release", "--generation", "1"], 2, &["required arguments"]),
        (&["reload", "--admin", ":1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["key", "--admin", ":1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["key", "--admin", ":1", "--config", "relay.yaml"], 2, &["cannot be used with"]),
        (&["key", "--admin", ":1", "--against", ":1"], 2, &["cannot be used with"]),
        (&["key", "--against", ":1"], 2, &["missing configuration: expected --config FILE"]),
        (&["key", "--config", "relay.yaml", "--against", ":1"], 2, &["expected 2 to 5 nodes with --against, not 0"]),
        (
            &["key", "--config", "relay.yaml", "-o", "json"],
            2,
            &["--output json has no effect on key without --against"],
        ),
        (&["diff", "--client", "a"], 2, &["expected --client twice"]),
        (&["diff", "--client", "a", "--client", "b", "--admin", ":1"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["nacks", "-o", "yaml"], 2, &["invalid value 'yaml'", "table, json"]),
        (&["explain", "--admin", ":1", "--client", "a", "clusters", "b"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["release", "--admin", ":1", "--generation", "1", "--view", "a"], 2, &["cannot reach http://127.0.0.1:1: "]),
        (&["snapshot", "show", "--state", "none"], 2, &["no state file at none: expected what state.path"]),
        (&["snapshot", "show", "--state", "text"], 2, &["cannot use text: it is no state file"]),
        (&["schema", "more"], 2, &["unexpected argument 'more'"]),
        (&["completions", "none"], 2, &["invalid value 'none'"]),
        (&["relay"], 2, &["unrecognized subcommand 'relay'"]),
    ];
    for (line, code, parts) in cases {
        let (ended, out, said) = output(&folder, line);
        assert_eq!(ended, *code, "{line:?}: {said}");
        assert!(out.is_empty() || line[0] == "check", "{line:?}: {out}");
        let first = said.lines().find(|line| !line.starts_with("note: ")).unwrap_or_default();
        assert!(first.starts_with("error: "), "{line:?}: {said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "{line:?}: {part}\n{said}"));
    }
}
