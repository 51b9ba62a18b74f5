//! `weir status`, `weir explain` and `weir release` as built programs, with a relay on this machine and with one that requires certificates.

use std::process::{Command, Output, Stdio};

use super::admin_tls::World;
use super::examples::{example, phrases};
use super::*;

/// Runs the program, and returns exit code, stdout and stderr.
pub(super) async fn weir(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).env_remove("WEIR_ADMIN").stdin(Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output { status, stdout, stderr } =
        tokio::time::timeout(client::PATIENCE, ended).await.expect("no end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[tokio::test]
async fn status_has_a_line_for_each_ladder_and_client_and_explain_says_why() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let admin = relay.admin.to_string();
    let (code, out, _) = weir(&["status", "--admin", &admin]).await;
    let nothing =
        ": 0 client streams in 0 views\n\nVIEW  CLIENTS  AUTHORITY  STATE  FOR  SERVER\n\n0 of 0 client streams\n";
    assert!(code == 0 && out.contains(", up ") && out.ends_with(nothing), "{out}");

    let mut client = Client::connect(relay.address, Variant::Delta).await;
    let hostile =
        weir_core::proto::node::Node { id: "envoy\u{1b}[2J".into(), cluster: "web".into(), ..Default::default() };
    client.ask_as(&hostile, CDS, &[]);
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    let (_, out, _) = weir(&["status", "--admin", &admin, "--state", "stale"]).await;
    assert!(out.contains(" STALE ") && out.ends_with("\n1 of 1 client stream\n"), "{out}");
    assert!(out.contains("envoy\u{fffd}[2J  1  ") && !out.contains('\u{1b}'), "{out:?}");
    let (documented, shown) = (phrases(&example("weir status")), phrases(&out));
    let last = |of: &[String]| of.last().map(|line| line.trim_end_matches('s').to_owned()); // singular and plural count as equal
    assert_eq!((&documented[0], last(&documented)), (&shown[0], last(&shown)));
    assert!(documented.iter().any(|line| line == "CLIENT SESSION VIEW VARIANT CDS LDS"), "{documented:?}");
    assert!(shown.iter().any(|line| line == "CLIENT SESSION VIEW VARIANT CDS"), "{shown:?}");
    let explain = ["explain", "--admin", &admin, "--client", "1", "clusters", "a"];
    let (code, out, _) = weir(&explain).await;
    let documented = example("weir explain --client envoy-1 clusters cart");
    assert_eq!(phrases(&documented)[1..], phrases(&out)[1..], "the reasons");
    assert!(code == 1 && out.contains("session 1, view ") && out.contains(": unacked\n"), "{code} {out}");
    client.ack(CDS, &[], &sent);
    until("it has answered", async || get(relay.admin, "/clients").await.contains("SYNCED")).await;
    let (_, out, _) = weir(&["status", "--admin", &admin]).await;
    assert!(out.contains("active  ") && out.contains("  SYNCED\n"), "{out}");
    let (code, out, _) = weir(&explain).await;
    assert!(code == 0 && out.contains(": acked\n  - the client subscribes to the wildcard\n"), "{code} {out}");
    let (code, out, _) = weir(&[&explain[..], &["--json"]].concat()).await;
    assert_eq!(
        (code, serde_json::from_str::<serde_json::Value>(&out).unwrap()[0]["verdict"].as_str()),
        (0, Some("acked"))
    );

    let mut other = Client::connect(relay.address, Variant::Sotw).await;
    other.ask(CDS, &[], Some("web"));
    let refused = other.sent().await;
    other.refuse(CDS, &refused);
    until("it has refused", async || get(relay.admin, "/clients").await.contains("NACKED")).await;
    let (_, out, _) = weir(&["status", "--admin", &admin, "--state", "nacked"]).await;
    assert!(out.contains("  NACKED\n") && out.contains("\ntest  "), "{out}");
    let (code, out, _) = weir(&["explain", "--admin", &admin, "--client", "test", "clusters", "a"]).await;
    let rejected =
        "\n  - the client rejected a reply of the type, and it is not known whether because of this resource: no";
    assert!(code == 1 && out.contains(rejected), "{code} {out}");

    troubles_have_commands(&admin).await;

    let (code, _, error) = weir(&["explain", "--admin", &admin, "--client", "nobody", "clusters", "a"]).await;
    assert_eq!(
        (code, error.as_str()),
        (
            2,
            "error: no such client: expected the number of a session or the id of a node, as /clients and weir status have them\n"
        )
    );
    let (code, _, error) = weir(&["status", "--admin", &admin, "--state", "asleep"]).await;
    assert_eq!(
        (code, error.contains("expected synced, not_sent, not_asked, refused, stale or nacked")),
        (2, true),
        "{error}"
    );
    let (code, _, error) = weir(&["status", "--admin", "127.0.0.1:1"]).await;
    assert!(code == 2 && error.starts_with("error: cannot reach http://127.0.0.1:1: "), "{error}");
    let (code, _, error) = weir(&["status", "--admin", &admin, "--ca", "x.pem"]).await;
    assert_eq!((code, error.contains("--ca requires TLS: expected --admin https://…")), (2, true), "{error}");
}

/// One of two clients of a view has NACKed a resource that the other accepts.
async fn troubles_have_commands(admin: &str) {
    let ask = async |line: &[&str]| {
        let (code, out, error) = weir(&[line, &["--admin", admin]].concat()).await;
        assert_eq!(error, "", "{line:?}");
        (code, out)
    };
    let (code, out) = ask(&["nacks"]).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.starts_with("1 of 2 client streams reject CDS in 1 view for "), "{out}");
    assert!(
        out.contains("\n  reason     no") && out.contains("\n  clients    test\n") && out.contains("cluster=web"),
        "{out}"
    );
    let (_, page) = ask(&["nacks", "-o", "json"]).await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&page).unwrap()["total"], 1);
    let words = out.lines().find_map(|line| line.strip_prefix("  views      ")).unwrap().to_owned();
    assert_eq!(ask(&["nacks", "--view", &words]).await.0, 1, "by the words that are shown");
    assert_eq!(ask(&["nacks", "--view", "other"]).await, (0, "no client rejects anything\n".to_owned()));
    let line = " -> weir nacks --type ";
    until("the first lines have it", async || ask(&["status", "--view", &words]).await.1.contains(line)).await;
    let (_, status) = ask(&["status", "--view", &words]).await;
    assert!(status.ends_with("\n2 of 2 client streams\n"), "{status}");
    let (_, page) = ask(&["status", "-o", "json"]).await;
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert_eq!(
        (&page["summary"]["nacked_types"], page["clients"].as_array().unwrap().len()),
        (&1.into(), 2),
        "{page:#}"
    );
    for (line, said) in [
        (&["dangling"][..], "every cluster that routing refers to exists\n"),
        (&["brakes"], "nothing is held\n"),
        (&["release"], "nothing is held\n"),
    ] {
        assert_eq!(ask(line).await, (0, said.to_owned()), "{line:?}");
    }
    let (code, out) = ask(&["key"]).await;
    assert!(code == 0 && out.starts_with("2 client streams in 1 view\n\nFIELD"), "{out}");
    let (code, out) = ask(&["top", "--count", "1"]).await;
    assert!(code == 0 && out.contains(", up ") && !out.contains('\u{1b}'), "{out}");
    let (code, out) = ask(&["diff", "--client", "1", "--client", "1"]).await;
    assert_eq!((code, out.as_str()), (0, "1 and 1 have the same\n"));
    let (code, out) = ask(&["diff", "--client", "1", "--client", "test"]).await;
    assert!(code == 1 && out.starts_with("--- 1\n+++ test\n@@ ") && out.contains("NACKED"), "{out}");
    let (code, page) = ask(&["diff", "--client", "1", "--client", "test", "-o", "json"]).await;
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert_eq!((code, &page["first"], &page["second"]), (1, &"1".into(), &"test".into()));
    let is_nacked = |of: &serde_json::Value| of["name"] == "a" && of["second"]["client_status"] == "NACKED";
    assert!(page["differences"].as_array().unwrap().iter().any(is_nacked), "{page:#}");
    let (code, page) = ask(&["diff", "--client", "1", "--client", "1", "-o", "json"]).await;
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert!(code == 0 && page["differences"].as_array().unwrap().is_empty(), "{page:#}");
    assert!(page["same"].as_u64().unwrap() > 0, "{page:#}");
}

#[tokio::test]
async fn a_relay_elsewhere_is_read_and_changed_with_certificates() {
    let world = World::new().await;
    let admin = format!("https://localhost:{}", world.relay.admin.port());
    let reader = world.operators.sign("reader.example");
    world.folder.write("reader.pem", &reader.certificate);
    world.folder.write("reader.key", &reader.key);
    world.folder.write("own.pem", &world.own.pem);
    let path = |name: &str| world.folder.0.join(name).display().to_string();
    let (ca, cert, key) = (path("own.pem"), path("reader.pem"), path("reader.key"));
    let (code, out, error) = weir(&["status", "--admin", &admin, "--ca", &ca, "--cert", &cert, "--key", &key]).await;
    assert_eq!((code, out.ends_with("0 of 0 client streams\n")), (0, true), "{out}{error}");
    let (code, _, error) = weir(&["status", "--admin", &admin, "--ca", &ca]).await;
    assert_eq!((code, error.contains("--cert is not given")), (2, true), "{error}");

    let operator = world.operators.sign("ada.oncall.example");
    world.folder.write("operator.pem", &operator.certificate);
    world.folder.write("operator.key", &operator.key);
    let (operator_cert, operator_key) = (path("operator.pem"), path("operator.key"));
    let release = |cert, key| {
        let of = ["--generation", "1", "--view", "7e735f75ea494f2f"];
        [&["release", "--admin", &admin, "--ca", &ca, "--cert", cert, "--key", key][..], &of].concat()
    };
    let (code, _, error) = weir(&release(&cert, &key)).await;
    assert!(code == 2 && error.contains("reader.example may change nothing"), "{code} {error}");
    let (code, _, error) = weir(&release(&operator_cert, &operator_key)).await;
    assert_eq!((code, error.as_str()), (1, "error: nothing is held there\n"));
}
