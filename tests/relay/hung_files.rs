//! Files of servers on a disk that hangs. A pipe to which no process writes plays such a file.

use std::path::PathBuf;
use std::process::Command;

use weir::config::Config;

use super::*;
use crate::certificates::Authority;
use weir_testkit::folder::Folder;

/// A pipe in place of a file. Dropping it lets its readers continue.
pub(super) struct Hung(PathBuf);

impl Hung {
    pub fn at(path: PathBuf) -> Self {
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        Self(path)
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let opened = std::fs::File::options().read(true).write(true).open(&self.0);
        let _ = std::fs::remove_file(&self.0);
        drop(opened); // readers reach the end of the file
    }
}

/// Only the server of the file is unreachable, since a time limit bounds the reading.
#[tokio::test]
async fn a_file_that_hangs_costs_its_server_and_the_next_of_the_list_serves() {
    for (name, keys) in [("token", "tls: {ca: ca.pem}, token_file: token"), ("ca.pem", "tls: {ca: ca.pem}")] {
        let (authority, folder) = (Authority::new(), Folder::with_short_path("tls"));
        if name != "ca.pem" {
            folder.write("ca.pem", &authority.pem);
        }
        let _hung = Hung::at(folder.0.join(name));
        let (unused, mut next) = (Plane::start(&BOTH).await, Plane::start(&BOTH).await);
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
             upstream: {{servers: [{{uri: 'https://localhost:{}', {keys}, connect_timeout: 1s}}, {{uri: 'http://{}'}}]}}\n",
            unused.address.port(),
            next.address
        );
        let config = Config::parse(&folder.0.join("relay.yaml"), &text).unwrap();
        let relay = run(bind(config).await.unwrap(), std::future::pending());
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        say(&next.stream().await, "1", &TWO, &TWO, &[]);
        assert_eq!(client.sent().await.set, ["a", "b"]);
        let upstreams = get(relay.admin, "/upstreams").await;
        assert!(upstreams.contains("the disk has not answered for ") && upstreams.contains(name), "{upstreams}");
    }
}
