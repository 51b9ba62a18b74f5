//! The behaviours by name.

use std::sync::Arc;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::offender::Offender;
use super::{connections, floods, garbage, keys, mix, names, readers, requests, streams};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Behaviour {
    /// 10 connections send 520 MiB of messages that they do not finish
    HalfMessages,
    /// One client requests endpoints of 90,000 made-up names, in delta and in SotW
    MadeUpNames,
    /// Three requests of 31 MiB state versions of resources of made-up types
    StatedVersions,
    /// One stream replaces its 30,000 names as fast as it can
    NameChurn,
    /// Four requests at once consist of 38 MiB of empty names
    EmptyNames,
    /// 1,100 connections send nothing; a relay that the tool starts may have 1,024 open files
    IdleConnections,
    /// One client opens 3,000 streams of load reports
    LoadStreams,
    /// One connection has 3,000 streams, each with a node cluster of its own
    MadeUpNodes,
    /// 20 streams take nothing of what they requested while a set of 10 MiB changes
    NonReaders,
    /// One stream NACKs as fast as it can, with line breaks in its node ID and its messages
    Nacks,
    /// 200 connections send the headers of a request a byte at a time
    SlowHeaders,
    /// Bytes that are no HTTP/2, truncated messages, invalid, giant and repeated names, unknown types, in turn
    Garbage,
    /// Four connections open streams and reset them at once
    RapidReset,
    /// Four connections send headers that never end
    ContinuationFlood,
    /// Four connections send pings, and read no answer
    PingFlood,
    /// Four connections send settings, and read no answer
    SettingsFlood,
    /// 20 streams request a set of 10 MiB and allow one byte at a time
    OneByteWindow,
    /// 500 connections stop in the middle of the HTTP/2 preface
    HalfOpen,
    /// One connection has 100 streams, each with a node cluster and 200,000 made-up names of its own
    NameFloods,
    /// 100 connections have 4,096 streams each, which send one small request and stay
    BareStreams,
    /// 20,000 streams on 10 connections send nothing
    SilentStreams,
    /// One connection opens streams of load reports with 12,000 node clusters in turn; a relay that the tool starts sums reports
    LoadPools,
    /// One connection has 60 streams, each with a node cluster of its own, as new clients have; a relay that the tool starts may have 50 views
    ViewKeys,
    /// 40 connections to the address of probes, which is asked for /healthz, send nothing
    ProbeConnections,
    /// The six before this at once, ten times slower, from one address
    SlowMix,
    /// The same from a thousand addresses of one tenant, if the server has a loopback address; a relay that the tool starts knows two tenants
    ManyAddresses,
}

impl Behaviour {
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub fn help(self) -> String {
        let help = self.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string));
        help.unwrap_or_default()
    }

    /// Returns the limit of open files for a relay during the behaviour, if there is one.
    pub fn open_files(self) -> Option<u32> {
        (self == Self::IdleConnections).then_some(1024)
    }

    /// Returns the limit of views for a relay during the behaviour, if it is about views.
    pub fn views(self) -> Option<u32> {
        self.has_own_keys().then_some(50)
    }

    /// Whether each new honest client has a sharing key of its own.
    pub fn has_own_keys(self) -> bool {
        self == Self::ViewKeys
    }

    /// Whether a relay sums load reports during the behaviour.
    pub fn sums_load_reports(self) -> bool {
        matches!(self, Self::LoadPools | Self::SlowMix | Self::ManyAddresses)
    }

    /// Whether the behaviour needs the server's admin address.
    pub fn needs_admin(self) -> bool {
        self == Self::ProbeConnections
    }

    /// How many addresses the hostile clients have.
    pub fn addresses(self) -> usize {
        if self == Self::ManyAddresses { 1000 } else { 1 }
    }

    /// Whether a relay knows the tenants of clients by their addresses.
    pub fn has_tenants(self) -> bool {
        self == Self::ManyAddresses
    }

    /// Behaves like this until the future is dropped.
    pub async fn play(self, offender: Arc<Offender>) {
        match self {
            Self::HalfMessages => requests::half_messages(offender).await,
            Self::MadeUpNames => names::made_up(offender).await,
            Self::StatedVersions => requests::stated_versions(offender).await,
            Self::NameChurn => names::churn(offender).await,
            Self::EmptyNames => requests::empty_names(offender).await,
            Self::IdleConnections => connections::idle(offender).await,
            Self::LoadStreams => streams::loads(offender).await,
            Self::MadeUpNodes => streams::made_up_nodes(offender).await,
            Self::NonReaders => readers::of_nothing(offender).await,
            Self::Nacks => streams::nacks(offender).await,
            Self::SlowHeaders => connections::slow_headers(offender).await,
            Self::Garbage => garbage::garbage(offender).await,
            Self::RapidReset => floods::resets(offender).await,
            Self::ContinuationFlood => floods::continuations(offender).await,
            Self::PingFlood => floods::pings(offender).await,
            Self::SettingsFlood => floods::settings(offender).await,
            Self::OneByteWindow => readers::of_single_bytes(offender).await,
            Self::HalfOpen => connections::half_open(offender).await,
            Self::NameFloods => keys::name_floods(offender).await,
            Self::BareStreams => streams::bare(offender).await,
            Self::SilentStreams => streams::silent(offender).await,
            Self::LoadPools => keys::load_pools(offender).await,
            Self::ViewKeys => keys::views(offender).await,
            Self::ProbeConnections => connections::to_probes(offender).await,
            Self::SlowMix | Self::ManyAddresses => mix::slow(offender).await,
        }
    }
}
