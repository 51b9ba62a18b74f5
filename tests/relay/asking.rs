//! `weir get` and `weir watch`, as built programs, with a scripted control plane and with the relay.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use weir::transcode::document::{Format, read_resources};
use weir::transcode::{Strictness, Transcoder};
use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse, Resource};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;

use crate::client::PATIENCE;
use crate::plane::{Plane, Stream};
use crate::{BOTH, CDS, EDS, TWO, relay, say};

pub(crate) const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// The program with the server to use. It is killed when the test ends.
pub(crate) struct Weir {
    child: Option<Child>,
}

impl Weir {
    fn start(server: SocketAddr, line: &str) -> Self {
        Self::start_at(&format!("http://{server}"), line)
    }

    pub fn start_at(server: &str, line: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(line.split_whitespace()).args(["--server", server]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: Some(command.spawn().unwrap()) }
    }

    /// Returns exit code, stdout and stderr.
    pub async fn end(self) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.output().await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    async fn output(mut self) -> Output {
        let child = self.child.take().unwrap();
        let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
        tokio::time::timeout(PATIENCE, ended).await.expect("no end").unwrap()
    }

    fn stdout(&mut self) -> ChildStdout {
        self.child.as_mut().unwrap().stdout.take().unwrap()
    }

    fn lines(&mut self) -> Lines {
        Lines::of(self.stdout())
    }

    fn sent(&mut self) -> Lines {
        Lines::of(self.child.as_mut().unwrap().stderr.take().unwrap())
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill(); // it may have exited already
            let _ = child.wait();
        }
    }
}

/// The lines that the program prints.
struct Lines(mpsc::UnboundedReceiver<String>);

impl Lines {
    fn of(source: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                let _ = sender.send(line); // the test may be over
            }
        });
        Self(receiver)
    }

    async fn next(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.0.recv()).await.expect("it says nothing").expect("it has ended")
    }

    async fn until(&mut self, part: &str) -> String {
        loop {
            let line = self.next().await;
            if line.contains(part) {
                return line;
            }
        }
    }

    async fn take(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(self.next().await);
        }
        lines
    }
}

/// Returns a resource that is encoded from this JSON by its descriptor.
pub(crate) fn made(type_url: &str, json: Value) -> Any {
    let (_, name) = type_url.split_once('/').unwrap();
    let value = Transcoder::envoy().from_json(name, &json, Strictness::Strict).unwrap();
    Any { type_url: type_url.into(), value }
}

fn cluster(name: &str, timeout: &str) -> Any {
    made(CDS, json!({ "name": name, "type": "EDS", "connectTimeout": timeout }))
}

pub(crate) fn deltas(type_url: &str, version: &str, set: Vec<(&str, Any)>, gone: &[&str]) -> Response {
    let wrap = |(name, any): (&str, Any)| Resource {
        version: version.into(),
        name: name.into(),
        resource: Some(any),
        ..Default::default()
    };
    Response::Delta(DeltaDiscoveryResponse {
        resources: set.into_iter().map(wrap).collect(),
        removed_resources: gone.iter().map(ToString::to_string).collect(),
        type_url: type_url.into(),
        nonce: version.into(),
        ..Default::default()
    })
}

fn sotw(type_url: &str, version: &str, resources: Vec<Any>) -> Response {
    let (version_info, nonce) = (version.to_owned(), version.to_owned());
    Response::Sotw(DiscoveryResponse {
        version_info,
        nonce,
        resources,
        type_url: type_url.into(),
        ..Default::default()
    })
}

pub(crate) fn names_in(request: &Request) -> &[String] {
    match request {
        Request::Sotw(request) => &request.resource_names,
        Request::Delta(request) => &request.resource_names_subscribe,
    }
}

async fn requested(plane: &mut Plane) -> (Stream, Request) {
    let mut stream = plane.stream().await;
    let request = stream.request().await;
    (stream, request)
}

fn rejected(request: &Request) -> bool {
    match request {
        Request::Sotw(request) => request.error_detail.is_some(),
        Request::Delta(request) => request.error_detail.is_some(),
    }
}

#[tokio::test]
async fn get_shows_what_is_there_and_tells_what_is_not() {
    let mut plane = Plane::start(&BOTH).await;
    let get = Weir::start(plane.address, "get clusters a b");
    let (mut stream, request) = requested(&mut plane).await;
    assert_eq!((stream.variant, names_in(&request)), (Variant::Delta, ["a".to_owned(), "b".to_owned()].as_slice()));
    stream.respond(&deltas(CDS, "5", vec![("a", cluster("a", "1s"))], &[]));
    assert!(!rejected(&stream.request().await));
    stream.respond(&deltas(CDS, "6", vec![], &["b"]));
    let (code, out, sent) = get.end().await;
    let expected = "name: a\nversion: \"5\"\nresource:\n  \
                    \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  \
                    connectTimeout: 1s\n  name: a\n  type: EDS\n";
    assert_eq!((code, out.as_str(), sent.as_str()), (1, expected, "error: b does not exist\n"));
}

#[tokio::test]
async fn get_without_names_ends_when_the_server_is_quiet_and_speaks_sotw_where_delta_is_not() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let get = Weir::start(plane.address, "get cds -o json --quiet-period 100ms");
    let (mut stream, request) = requested(&mut plane).await;
    assert!(names_in(&request).is_empty());
    stream.respond(&sotw(CDS, "7", vec![cluster("b", "1s"), cluster("a", "2s")]));
    assert!(!rejected(&stream.request().await));
    let (code, out, sent) = get.end().await;
    assert_eq!((code, sent.as_str()), (0, "note: the server does not support delta; using sotw\n"));
    let shown: Value = serde_json::from_str(&out).unwrap();
    let names: Vec<_> = shown.as_array().unwrap().iter().map(|of| (&of["name"], &of["version"])).collect();
    assert_eq!(names, [(&json!("a"), &json!("7")), (&json!("b"), &json!("7"))]);
    assert_eq!(shown[0]["resource"]["connectTimeout"], "2s");
}

#[tokio::test]
async fn get_without_names_of_what_is_not_there_is_no_failure() {
    let mut plane = Plane::start(&BOTH).await;
    for (options, shown) in [("-o json", "[]\n"), ("-o names", ""), ("-o yaml", "")] {
        let get = Weir::start(plane.address, &format!("get eds --quiet-period 50ms {options}"));
        let (stream, request) = requested(&mut plane).await;
        assert_eq!(names_in(&request), ["*"]);
        stream.respond(&deltas(EDS, "1", vec![], &[]));
        let (code, out, sent) = get.end().await;
        assert_eq!((code, out.as_str()), (0, shown), "{sent}");
        assert!(sent.contains("the server has no envoy.config.endpoint.v3.ClusterLoadAssignment"), "{sent}");
    }
}

#[tokio::test]
async fn get_that_cannot_find_out_ends_with_two_and_shows_what_came() {
    let mut plane = Plane::start(&BOTH).await;
    let get = Weir::start(plane.address, "get eds a b --variant sotw --timeout 10s -o names");
    let (stream, _) = requested(&mut plane).await;
    stream.respond(&sotw(EDS, "1", vec![made(EDS, json!({ "clusterName": "a" }))]));
    let (code, out, sent) = get.end().await;
    let expected = (2, "a\n", "error: no response for b within 10s\n");
    assert_eq!((code, out.as_str(), sent.as_str()), expected);

    let get = Weir::start(plane.address, "get cds --timeout 10s -o json");
    let (_stream, _) = requested(&mut plane).await;
    let (code, out, sent) = get.end().await;
    assert_eq!((code, out.as_str(), sent.as_str()), (2, "", "error: no response within 10s\n"));

    let address = plane.kill().await;
    let (code, _, sent) = Weir::start(address, "get cds").end().await;
    assert!(code == 2 && sent.contains("Unavailable") && sent.contains("refused"), "{sent}");
    let mute = Plane::start(&[]).await;
    let (code, _, sent) = Weir::start(mute.address, "get cds").end().await;
    assert!(code == 2 && sent.contains("using sotw") && sent.contains("Unimplemented"), "{sent}");
    let (code, _, sent) = Weir::start(mute.address, "get cds --variant delta").end().await;
    assert!(code == 2 && !sent.contains("using sotw") && sent.contains("Unimplemented"), "{sent}");
    let (code, _, sent) = Weir::start(mute.address, "get pods --token-file t").end().await;
    assert!(code == 2 && sent.contains("unknown type \"pods\"") && sent.contains("--token-file"), "{sent}");
}

#[tokio::test]
async fn get_asks_the_relay_as_it_asks_a_control_plane() {
    for variant in BOTH {
        let protocol = if variant == Variant::Sotw { "sotw" } else { "delta" };
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, "").await;
        let get = Weir::start(relay.address, &format!("get cds --variant {protocol} -o names --cluster web"));
        let (stream, _) = requested(&mut plane).await;
        say(&stream, "1", &TWO, &TWO, &[]);
        assert_eq!(get.end().await, (0, "a\nb\n".into(), String::new()), "{protocol}");

        // Endpoints that do not exist. The program knows this in SotW too, since it reads errors.
        let get = Weir::start(relay.address, &format!("get eds none --variant {protocol} -o names --cluster other"));
        let (stream, _) = requested(&mut plane).await;
        stream.respond(&deltas(EDS, "1", vec![], &["none"]));
        let (code, out, sent) = get.end().await;
        assert_eq!((code, out.as_str(), sent.as_str()), (1, "", "error: none does not exist\n"), "{protocol}");
    }
}

#[tokio::test]
async fn secrets_are_shown_only_to_who_says_so() {
    let mut plane = Plane::start(&BOTH).await;
    let secret = made(
        SDS,
        json!({ "name": "s", "tlsCertificate": {
            "certificateChain": { "inlineString": "for-all" }, "privateKey": { "inlineString": "hidden" } } }),
    );
    for (options, shows) in
        [("", false), ("-o json", false), ("--show-secrets", true), ("--show-secrets -o json", true)]
    {
        let get = Weir::start(plane.address, &format!("get secrets s {options}"));
        let (stream, _) = requested(&mut plane).await;
        stream.respond(&deltas(SDS, "1", vec![("s", secret.clone())], &[]));
        let (code, out, _) = get.end().await;
        assert_eq!((code, out.contains("hidden"), out.contains("for-all")), (0, shows, true), "{options}: {out}");
    }
    for (output, code) in [("wire", 2), ("text", 0)] {
        let get = Weir::start(plane.address, &format!("get secrets s -o {output}"));
        let (stream, _) = requested(&mut plane).await;
        stream.respond(&deltas(SDS, "1", vec![("s", secret.clone())], &[]));
        let (ended, out, sent) = get.end().await;
        assert_eq!((ended, out.contains("hidden")), (code, false), "{out}");
        assert!(format!("{out}{sent}").contains("--show-secrets"), "{out}{sent}");
    }
}

#[tokio::test]
async fn other_forms_hold_the_same_and_files_can_be_made_of_it() {
    let mut plane = Plane::start(&BOTH).await;
    let mut shown = Vec::new();
    for output in ["text", "wire"] {
        let get = Weir::start(plane.address, &format!("get cds a -o {output}"));
        let (stream, _) = requested(&mut plane).await;
        stream.respond(&deltas(CDS, "5", vec![("a", cluster("a", "1s"))], &[]));
        let Output { status, stdout, .. } = get.output().await;
        assert_eq!(status.code(), Some(0));
        shown.push(stdout);
    }
    let text = "# a, version 5\n[type.googleapis.com/envoy.config.cluster.v3.Cluster] {\n  name: \"a\"\n";
    assert!(shown[0].starts_with(text.as_bytes()), "{}", String::from_utf8_lossy(&shown[0]));
    let read = read_resources(&Transcoder::envoy(), Format::Binary, &shown[1]).unwrap();
    let [resource] = read.as_slice() else { panic!("not one: {read:?}") };
    assert_eq!((resource.name.as_deref(), resource.version.as_deref()), (Some("a"), Some("5")));
    assert_eq!(resource.body, cluster("a", "1s").value);
}

#[tokio::test]
async fn what_has_no_descriptor_is_shown_as_what_it_is() {
    let mut plane = Plane::start(&BOTH).await;
    let own = "type.googleapis.com/my.Own";
    for (body, reason) in [(Any { type_url: own.into(), value: Bytes::from_static(b"\x0a\x01x") }, None), {
        (Any { type_url: CDS.into(), value: Bytes::from_static(b"\xff") }, Some("no envoy.config.cluster.v3.Cluster"))
    }] {
        let type_url = body.type_url.clone();
        let get = Weir::start(plane.address, &format!("get {type_url} x -o json --show-secrets"));
        let (stream, _) = requested(&mut plane).await;
        stream.respond(&deltas(&type_url, "1", vec![("x", body)], &[]));
        let (code, out, sent) = get.end().await;
        let shown: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &shown[0]["name"]), (0, &json!("x")), "{sent}");
        let undecoded = &shown[0]["resource"][weir::transcode::UNDECODED];
        assert!(undecoded["bytes"].is_string(), "{out}");
        assert!(reason.is_none_or(|reason| undecoded["reason"].as_str().unwrap().contains(reason)), "{out}");
    }
}

#[tokio::test]
async fn watch_shows_changes_as_differences_and_removals_by_name() {
    let mut plane = Plane::start(&BOTH).await;
    let mut watch = Weir::start(plane.address, "watch clusters --count 4");
    let mut lines = watch.lines();
    let (mut stream, _) = requested(&mut plane).await;
    stream.respond(&deltas(CDS, "1", vec![("a", cluster("a", "1s")), ("b", cluster("b", "1s"))], &[]));
    let first = lines.take(16).await;
    assert_eq!(first[..3], ["+++ a, version 1", "+name: a", "+version: \"1\""]);
    assert_eq!((first[8].as_str(), first[13].as_str()), ("+++ b, version 1", "+  connectTimeout: 1s"));
    assert!(!rejected(&stream.request().await));
    stream.respond(&deltas(CDS, "2", vec![("a", cluster("a", "2s"))], &["b"]));
    let expected = "--- a, version 1
+++ a, version 2
@@ -1,7 +1,7 @@
 name: a
-version: \"1\"
+version: \"2\"
 resource:
   \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster
-  connectTimeout: 1s
+  connectTimeout: 2s
   name: a
   type: EDS
--- b, version 1, removed";
    let rest = lines.take(expected.lines().count()).await;
    assert_eq!(rest.join("\n"), expected);
    assert_eq!(watch.end().await.0, 0);
}

#[tokio::test]
async fn watch_comes_back_and_tells_only_what_became_different() {
    let mut plane = Plane::start(&BOTH).await;
    let mut watch = Weir::start(plane.address, "watch cds -o names");
    let (mut lines, mut sent) = (watch.lines(), watch.sent());
    let (stream, _) = requested(&mut plane).await;
    sent.until("connected to").await;
    stream.respond(&deltas(CDS, "1", vec![("a", cluster("a", "1s")), ("b", cluster("b", "1s"))], &[]));
    assert_eq!(lines.take(2).await, ["+ a", "+ b"]);
    drop(stream);
    let address = plane.kill().await;
    sent.until("connection lost; retrying").await;
    let mut plane = Plane::start_at(address, &BOTH).await;
    let (stream, request) = requested(&mut plane).await;
    let Request::Delta(request) = request else { panic!("another variant") };
    assert_eq!(request.initial_resource_versions.keys().collect::<Vec<_>>(), ["a", "b"]);
    sent.until("connected to").await;
    // A server that does not know the stated versions sends everything again.
    stream.respond(&deltas(CDS, "1", vec![("a", cluster("a", "1s")), ("c", cluster("c", "1s"))], &["b"]));
    assert_eq!(lines.take(2).await, ["+ c", "- b"]);
}

#[tokio::test]
async fn watch_ends_by_itself_at_its_limits() {
    let mut plane = Plane::start(&BOTH).await;
    // The time limit begins with the process, and includes connecting and the response.
    let watch = Weir::start(plane.address, "watch cds --timeout 10s");
    let (stream, _) = requested(&mut plane).await;
    stream.respond(&deltas(CDS, "1", vec![], &[]));
    let (code, out, sent) = watch.end().await;
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(sent.contains("the server has no envoy.config.cluster.v3.Cluster yet"), "{sent}");
    let watch = Weir::start(plane.address, "watch cds a -o json --count 2 --timeout 10s");
    let (stream, _) = requested(&mut plane).await;
    stream.respond(&deltas(CDS, "1", vec![], &["a"]));
    let (code, out, sent) = watch.end().await;
    assert_eq!((code, out.as_str()), (2, "{\"change\":\"absent\",\"name\":\"a\"}\n"));
    assert!(sent.contains("fewer changes"), "{sent}");
    let nowhere = Plane::start(&BOTH).await.kill().await;
    let (code, _, sent) = Weir::start(nowhere, "watch cds --timeout 300ms").end().await;
    assert!(code == 2 && sent.contains("never connected to"), "{sent}");
    let mute = Plane::start(&[]).await;
    let (code, _, sent) = Weir::start(mute.address, "watch cds").end().await;
    assert!(code == 2 && sent.contains("Unimplemented"), "{sent}");
    let (code, _, sent) = Weir::start(mute.address, "watch cds -o wire").end().await;
    assert!(code == 2 && sent.contains("with weir get only"), "{sent}");
}

#[tokio::test]
async fn a_reader_that_has_had_enough_is_no_failure() {
    let mut plane = Plane::start(&BOTH).await;
    for task in ["get cds a", "watch cds a"] {
        let mut weir = Weir::start(plane.address, task);
        drop(weir.stdout());
        let (stream, _) = requested(&mut plane).await;
        stream.respond(&deltas(CDS, "1", vec![("a", cluster("a", "1s"))], &[]));
        let (code, _, sent) = weir.end().await;
        assert!(code == 0 && !sent.contains("write"), "{task}: {code} {sent}");
    }
}

#[tokio::test]
async fn names_cannot_steer_a_terminal() {
    let mut plane = Plane::start(&BOTH).await;
    let name = "a\u{1b}[2Jb\nc";
    for options in ["get cds -o names --quiet-period 50ms", "get cds --quiet-period 50ms", "watch cds --count 1"] {
        let weir = Weir::start(plane.address, options);
        let (stream, _) = requested(&mut plane).await;
        stream.respond(&deltas(CDS, "1", vec![(name, cluster(name, "1s"))], &[name]));
        let (_, out, sent) = weir.end().await;
        assert!(!out.contains('\u{1b}') && !sent.contains('\u{1b}'), "{options}: {out:?} {sent:?}");
        assert!(!out.contains("\nc"), "{options}: {out:?}");
    }
}
