//! The configuration file as it is written: each key with its form, its default and what it is for.

mod access;
mod admin;
mod brakes;
mod clients;
mod limits;
mod listen;
mod permissions;
mod proxy;
mod root;
mod server;
mod state;
mod upstream;

pub(super) use access::{AccessEntry, TypeEntry};
pub(super) use admin::{Admin, AdminTls, OperatorEntry};
pub(super) use brakes::Brakes;
pub(super) use clients::{LoadReports, LoadsMode, Rest, VhdsWildcard, ViewNode, Views};
pub(super) use limits::{Drain, Limits, Reload};
pub(super) use listen::{ClientAuth, Listen, ListenTls, ShownCertificate, TrustDomain};
pub(super) use permissions::{IdentityEntry, PermissionEntry};
pub(super) use proxy::Proxy;
pub(super) use root::Root;
pub(super) use server::{Backoff, HeaderEntry, Headers, KINDS, Keepalive, Liveness, Server, Tls};
pub(super) use state::State;
pub(super) use upstream::{Authority, OnMissing, Upstream};
