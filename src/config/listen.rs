//! What each listener requires of its connections, and its Unix socket, if it has one.

use std::path::PathBuf;

use super::access::check_network;
use super::checker::Checker;
use super::diagnostic::FilePosition;
use super::form::{FilePath, ListenPlace, Located};
use super::{listen_tls, raw};
use crate::downstream::{
    Account, LONGEST_FOLDER, ListenAddress, ListenOptions, UnixOptions, check_accounts, check_folder, folder_of,
};

pub(super) fn check(raw: &raw::Listen, checker: &mut Checker) -> Option<ListenOptions> {
    let address = raw.address.0.as_ref()?;
    let balancers = raw.proxy_protocol_from.iter().flat_map(|networks| &networks.0);
    let proxy_protocol_from: Vec<_> = balancers.map(|network| check_network(network, checker)).collect();
    let address = match &address.value {
        ListenPlace::Tcp(tcp) => {
            only_of_sockets(raw, checker);
            if raw.tls.is_none() && !tcp.ip().is_loopback() {
                checker.warn(&address.place, UNPROTECTED);
            }
            ListenAddress::Tcp(*tcp)
        }
        ListenPlace::Unix(path) => {
            if let Some(given) = &raw.proxy_protocol_from {
                checker.fault(&given.place, "a Unix socket has no balancers: its clients are processes");
            }
            ListenAddress::Unix(unix(raw, &address.place, path, checker))
        }
    };
    let tls = raw.tls.as_ref().map(|tls| listen_tls::check(tls, checker)).unwrap_or_default();
    Some(ListenOptions { address, proxy_protocol_from, tls })
}

fn only_of_sockets(raw: &raw::Listen, checker: &mut Checker) {
    let places = [place(&raw.mode), place(&raw.owner), place(&raw.group)];
    for place in places.into_iter().flatten() {
        checker.fault(place, "only Unix sockets have this key: expected an address such as unix:/run/weir/weir.sock");
    }
}

fn unix(raw: &raw::Listen, place: &FilePosition, path: &FilePath, checker: &mut Checker) -> UnixOptions {
    let given = |account: &Option<Located<Account>>| account.as_ref().map(|account| account.value.clone());
    let options = UnixOptions {
        path: socket_path(place, path, checker),
        mode: raw.mode.as_ref().map_or(OWN_USER, |mode| mode.value.0),
        owner: given(&raw.owner),
        group: given(&raw.group),
    };
    checker.look(place, || check_accounts(&options));
    options
}

/// Returns the path of a socket. Its folder is checked if files are to be checked.
pub(super) fn socket_path(place: &FilePosition, path: &FilePath, checker: &mut Checker) -> PathBuf {
    let path = checker.path(path);
    let folder = folder_of(&path);
    if folder.as_os_str().len() > LONGEST_FOLDER {
        let reason = format!("path too long for a socket: expected at most {LONGEST_FOLDER} bytes for its folder");
        checker.fault(place, reason);
    } else {
        checker.look(place, || check_folder(folder));
    }
    path
}

fn place<T>(given: &Option<Located<T>>) -> Option<&FilePosition> {
    given.as_ref().map(|given| &given.place)
}

const UNPROTECTED: &str = "no TLS: every machine that reaches this address gets what any client gets, private keys too; expected tls beside it, \
                           or an address on this machine";
/// The mode of a socket that only the relay's own user may use.
const OWN_USER: u32 = 0o600;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn parse(listen: &str) -> Result<Config, String> {
        let text = format!("listen:\n{listen}\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n");
        Config::parse(Path::new("/etc/weir/relay.yaml"), &text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_unix_socket_has_a_path_beside_the_file_and_is_for_the_own_user_by_default() {
        let config = parse(
            "- {address: 'unix:weir.sock'}
- {address: 'unix:/run/weir.sock', mode: '0660', owner: 1000, group: envoy}
- {address: 'unix:/run/other.sock', mode: '777', owner: '7'}",
        );
        let unix =
            |path: &str, mode, owner, group| ListenAddress::Unix(UnixOptions { path: path.into(), mode, owner, group });
        let listen: Vec<_> = config.unwrap().listen.into_iter().map(|listen| listen.address).collect();
        let envoy = Some(Account::Name("envoy".into()));
        assert_eq!(
            listen,
            [
                unix("/etc/weir/weir.sock", 0o600, None, None),
                unix("/run/weir.sock", 0o660, Some(Account::Number(1000)), envoy),
                unix("/run/other.sock", 0o777, Some(Account::Number(7)), None),
            ]
        );
        assert_eq!(listen[1].to_string(), "unix:/run/weir.sock");
    }

    #[test]
    fn keys_of_the_other_kind_of_address_are_faults_at_their_places() {
        let long = format!("- {{address: 'unix:/{}/s'}}", "a".repeat(100));
        for (listen, fault) in [
            ("- {address: ':1', mode: '0600'}", "2:25: listen[0].mode: only Unix sockets have this key"),
            ("- {address: ':1', group: envoy}", "2:26: listen[0].group: only Unix sockets have this key"),
            (
                "- {address: 'unix:/a', proxy_protocol_from: [10.0.0.0/8]}",
                "listen[0].proxy_protocol_from: a Unix socket has no balancers",
            ),
            ("- {address: ':1', proxy_protocol_from: ['::ffff:10.0.0.0/104']}", "expected its IPv4 form 10.0.0.0/8"),
            ("- {address: 'unix:/a', mode: 660}", "invalid mode 660: expected three octal digits in quotes"),
            ("- {address: 'unix:/a', mode: '0680'}", "invalid mode \"0680\": expected three octal digits in quotes"),
            ("- {address: 'unix:/a', mode: '1660'}", "invalid mode \"1660\": expected three octal digits in quotes"),
            ("- {address: 'unix:/a', owner: -1}", "invalid account -1: expected a name, or a number"),
            ("- {address: 'unix:'}", "invalid address \"unix:\": expected the path of a socket"),
            ("- {address: 'unix:@weir'}", "expected the path of a file: names that begin with @ have no permissions"),
            (&long, "listen[0].address: path too long for a socket: expected at most"),
            (
                "- {address: 'unix:/a'}\n- {address: 'unix:/a'}",
                "listen[1].address: duplicate address unix:/a: already listen[0].address in line 2",
            ),
        ] {
            let found = parse(listen).expect_err(listen);
            assert!(found.contains(fault), "{listen}: {found}");
        }
    }

    #[test]
    fn operators_need_an_address_or_a_socket_of_their_own() {
        let with = |admin: &str| parse(&format!("- {{address: 'unix:/run/weir.sock'}}\nadmin: {admin}"));
        let admin = with("{socket: admin.sock, hosts: [weir.example]}").unwrap().admin;
        assert_eq!(
            (admin.address, admin.socket, admin.hosts),
            (None, Some("/etc/weir/admin.sock".into()), vec!["weir.example".into()])
        );
        assert!(with("{address: ':1', socket: /a}").is_ok());
        let found = with("{hosts: [weir.example]}").unwrap_err();
        assert!(found.contains("admin: missing address: expected address, socket or both"), "{found}");
        let found = with("{socket: /run/weir.sock}").unwrap_err();
        assert!(found.contains("duplicate socket /run/weir.sock: already listen[0].address in line 2"), "{found}");
    }
}
