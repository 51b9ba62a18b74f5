//! The proxy before a server.

use serde_json::{Value as Json, json};

use crate::config::form::row::Inner;
use crate::config::form::{FilePath, Form, Located, Needed, ServerUri, ValueReader, section};
use crate::config::yaml::{Node, Scalar, Value};

section! {
    /// An HTTP proxy that is asked for connections (CONNECT). It looks the server's name up.
    ProxyServer {
        /// http:// or https://, a host and a port. A user or a password in it is a fault.
        uri: Needed<ServerUri>, written("http://proxy.example:3128");
        /// File with user:password, relative to the folder of this file. Read for each connection.
        credentials_file: Option<Located<FilePath>>, example("proxy-credentials");
    }
}

/// How the proxy of a server is found.
#[derive(Debug)]
pub(in crate::config) enum Proxy {
    /// By the variables `HTTPS_PROXY` and `NO_PROXY`.
    Environment,
    Server(Box<ProxyServer>),
}

impl Form for Proxy {
    fn read(node: &Node, reader: &mut ValueReader) -> Option<Self> {
        match &node.value {
            Value::Scalar(Scalar::Text(text)) if text == ENVIRONMENT => Some(Self::Environment),
            Value::Scalar(_) => {
                reader.expected(node, "environment, or a mapping with uri");
                None
            }
            _ => ProxyServer::read(node, reader).map(|server| Self::Server(Box::new(server))),
        }
    }

    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": [ENVIRONMENT] }, ProxyServer::schema()] })
    }

    fn name() -> String {
        "map, or `environment`".into()
    }

    fn inner() -> Inner {
        ProxyServer::inner()
    }
}

const ENVIRONMENT: &str = "environment";
