//! The relay without a configuration: it serves the example resources of `config/demo/`.
//!
//! In a checkout the files are served from there. Elsewhere the program copies them to a temporary folder, which it deletes at its end
//! unless a file was changed.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::config::Config;

/// Addresses to listen on instead of the defaults. The files contain the addresses, so they are then copied.
#[derive(Debug, Clone, Copy, Default)]
pub struct Places {
    /// The address for clients.
    pub listen: Option<SocketAddr>,
    /// The address for operators.
    pub admin: Option<SocketAddr>,
}

/// The configuration for the example resources. Dropping it deletes the copies that it has made, unless one was changed.
pub struct Demo {
    /// The configuration that serves the example resources.
    pub config: Config,
    folder: PathBuf,
    copies: Option<Copies>,
}

impl Demo {
    /// Finds the example resources in the checkout, or writes the embedded ones to a temporary folder.
    pub fn new(places: Places) -> anyhow::Result<Self> {
        let elsewhere = places.listen.is_some() || places.admin.is_some();
        let (folder, copies) = match checkout().filter(|_| !elsewhere) {
            Some(folder) => (folder, None),
            None => {
                let copies = Copies::write(places).context("cannot write the example resources")?;
                (copies.folder.clone(), Some(copies))
            }
        };
        Ok(Self { config: Config::from_file(&folder.join(CONFIG))?, folder, copies })
    }

    /// Returns the text for the end of the program: where the copies are, if one was changed.
    pub fn farewell(&self) -> Option<String> {
        let changed = self.copies.as_ref().filter(|copies| copies.are_changed())?;
        Some(format!("Your changes are still in {}.", changed.folder.display()))
    }

    /// Returns the greeting: the addresses of the relay, and commands to try, in which the program is called `program`.
    pub fn greeting(&self, clients: SocketAddr, admin: Option<SocketAddr>, program: &str) -> String {
        let folder = self.folder.display();
        let copies = if self.copies.is_some() { ", which are copies for you to edit" } else { "" };
        let server = match clients == DEFAULT {
            true => String::new(),
            false => format!(" --server http://{clients}"),
        };
        let mut out = format!("Weir serves the example resources in {folder}/resources{copies}.\n\n");
        let _ = writeln!(out, "  clients  {clients}  (Envoy, gRPC, whatever speaks xDS)"); // writing to a String does not fail
        if let Some(admin) = admin {
            let _ = writeln!(out, "  admin    http://{admin}/ is a page for browsers, and lists all paths for curl");
        }
        let _ = write!(
            out,
            "
What there is:  {program} get listeners{server}
Follow it:      {program} watch routes{server}
With an Envoy:  envoy -c {folder}/envoy.yaml
                curl -i localhost:10000/
With gRPC:      GRPC_XDS_BOOTSTRAP={folder}/grpc_bootstrap.json, and xds:///weir-demo for the target

Edit {folder}/resources/routes.yaml, and clients have it within a second.
With a control plane of your own: {program} --config FILE, and config/relay.yaml explains every key.
"
        );
        out
    }
}

/// Returns the folder in the current checkout, or in the one from which cargo runs the program.
fn checkout() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(|folder| Path::new(&folder).join(FOLDER));
    [Some(PathBuf::from(FOLDER)), cargo].into_iter().flatten().find(|folder| folder.join(CONFIG).is_file())
}

/// Files that are deleted when this is dropped, unless they were changed.
struct Copies {
    folder: PathBuf,
    files: Vec<(&'static str, String)>,
}

impl Copies {
    fn write(places: Places) -> io::Result<Self> {
        let listen = settled(places.listen.unwrap_or(DEFAULT))?;
        let admin = settled(places.admin.unwrap_or(DEFAULT_ADMIN))?;
        let files = FILES.iter().map(|(name, text)| (*name, moved(name, text, listen, admin))).collect();
        let this = Self { folder: fresh_folder()?, files };
        std::fs::create_dir(this.folder.join(RESOURCES))?;
        for (name, text) in &this.files {
            std::fs::write(this.folder.join(name), text)?;
        }
        Ok(this)
    }

    fn are_changed(&self) -> bool {
        let count = |folder: PathBuf| std::fs::read_dir(folder).map_or(0, Iterator::count);
        let entries = count(self.folder.clone()) + count(self.folder.join(RESOURCES));
        let untouched = |(name, text): &(&str, String)| {
            std::fs::read_to_string(self.folder.join(name)).is_ok_and(|now| now == *text)
        };
        entries != self.files.len() + 1 || !self.files.iter().all(untouched)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if !self.are_changed() {
            let _ = std::fs::remove_dir_all(&self.folder); // the rest is small, and the system deletes it
        }
    }
}

/// Creates a new folder that only the current user can access.
fn fresh_folder() -> io::Result<PathBuf> {
    let base = std::env::temp_dir();
    for number in 0.. {
        let folder = base.join(format!("weir-demo-{}-{number}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_FOLDERS => {}
            created => return created.map(|()| folder),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Replaces port 0 by a free port, because the address is written into files.
fn settled(address: SocketAddr) -> io::Result<SocketAddr> {
    match address.port() {
        0 => std::net::TcpListener::bind(address)?.local_addr(),
        _ => Ok(address),
    }
}

/// Replaces the addresses in a file's text.
fn moved(name: &str, text: &str, listen: SocketAddr, admin: SocketAddr) -> String {
    let mut text = text.to_owned();
    // In two steps, by way of characters that no file contains: a new address may be equal to an old one.
    for (default, word) in [(DEFAULT, "\u{1}"), (DEFAULT_ADMIN, "\u{2}")] {
        text = text.replace(&default.to_string(), &format!("{word}a"));
        let parts = format!("address: {}, port_value: {}", default.ip(), default.port());
        text = text.replace(&parts, &format!("{word}b"));
    }
    for (address, word) in [(listen, "\u{1}"), (admin, "\u{2}")] {
        let place = if name == CONFIG { address } else { SocketAddr::new(reachable(address.ip()), address.port()) };
        text = text.replace(&format!("{word}a"), &place.to_string());
        text = text.replace(&format!("{word}b"), &format!("address: \"{}\", port_value: {}", place.ip(), place.port()));
    }
    text
}

/// Returns an address that clients on this machine can connect to.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

const FOLDER: &str = "config/demo";
const CONFIG: &str = "relay.yaml";
const RESOURCES: &str = "resources";
const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 18000);
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 19000);
const MOST_FOLDERS: usize = 100;
const FILES: &[(&str, &str)] = &[
    (CONFIG, include_str!("../config/demo/relay.yaml")),
    ("envoy.yaml", include_str!("../config/demo/envoy.yaml")),
    ("grpc_bootstrap.json", include_str!("../config/demo/grpc_bootstrap.json")),
    ("grpc_listener.yaml", include_str!("../config/demo/grpc_listener.yaml")),
    ("resources/listeners.yaml", include_str!("../config/demo/resources/listeners.yaml")),
    ("resources/routes.yaml", include_str!("../config/demo/resources/routes.yaml")),
    ("resources/clusters.yaml", include_str!("../config/demo/resources/clusters.yaml")),
    ("resources/endpoints.yaml", include_str!("../config/demo/resources/endpoints.yaml")),
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::transcode::document::{Format, read_resources};
    use crate::transcode::{Transcoder, UnknownAny, type_name};

    #[test]
    fn every_file_of_the_folder_is_in_the_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
        let mut found = BTreeSet::new();
        for (part, under) in [(folder.clone(), ""), (folder.join(RESOURCES), "resources/")] {
            for entry in std::fs::read_dir(part).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file() {
                    found.insert(format!("{under}{}", entry.file_name().to_str().unwrap()));
                }
            }
        }
        assert_eq!(found, FILES.iter().map(|(name, _)| name.to_string()).collect());
    }

    #[test]
    fn the_resources_are_what_an_envoy_and_a_grpc_client_need() {
        let transcoder = Transcoder::envoy();
        let mut names = BTreeMap::new();
        for (file, text) in
            FILES.iter().filter(|(name, _)| name.starts_with(RESOURCES) || *name == "grpc_listener.yaml")
        {
            let resources = read_resources(&transcoder, Format::Yaml, text.as_bytes());
            for resource in resources.unwrap_or_else(|error| panic!("{file}: {error}")) {
                let (_, kind) = resource.type_url.rsplit_once('.').unwrap();
                let json =
                    transcoder.to_json(type_name(&resource.type_url), &resource.body, UnknownAny::Refuse).unwrap();
                let name = json["name"].as_str().or(json["clusterName"].as_str()).unwrap().to_owned();
                names.entry(kind.to_owned()).or_insert_with(BTreeSet::new).insert(name);
            }
        }
        let of = |kind: &str| names[kind].iter().map(String::as_str).collect::<Vec<_>>();
        let of_grpc = "xdstp://demo/envoy.config.listener.v3.Listener/weir-demo";
        assert_eq!(of("Listener"), ["web", of_grpc]);
        assert_eq!(of("RouteConfiguration"), ["web", "weir-demo"]);
        assert_eq!(of("Cluster"), ["blue", "green", "weir-demo"]);
        assert_eq!(of("ClusterLoadAssignment"), of("Cluster"));
    }

    #[test]
    fn copies_have_the_addresses_that_are_listened_at_and_go_unless_they_were_changed() {
        let places = Places {
            listen: Some("127.0.0.1:19000".parse().unwrap()),
            admin: Some("127.0.0.1:18000".parse().unwrap()), // the two defaults swapped
        };
        let demo = Demo::new(places).unwrap();
        assert_eq!((demo.config.listen[0].address.tcp(), demo.config.admin.address), (places.listen, places.admin));
        let read = |name: &str| std::fs::read_to_string(demo.folder.join(name)).unwrap();
        assert!(read("resources/endpoints.yaml").contains("address: \"127.0.0.1\", port_value: 18000"));
        assert!(read("envoy.yaml").contains("port_value: 19000") && !read("envoy.yaml").contains("18000"));
        assert!(read("grpc_bootstrap.json").contains("\"127.0.0.1:19000\""));
        let greeting = demo.greeting(places.listen.unwrap(), places.admin, "weir");
        assert!(greeting.contains("weir get listeners --server http://127.0.0.1:19000"), "{greeting}");
        let folder = demo.folder.clone();
        drop(demo);
        assert!(!folder.exists());

        let demo = Demo::new(places).unwrap();
        let folder = demo.folder.clone();
        std::fs::write(folder.join("resources/more.yaml"), "resources: []").unwrap();
        drop(demo);
        assert!(folder.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
