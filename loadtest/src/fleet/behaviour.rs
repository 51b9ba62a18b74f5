//! How a client subscribes, and what it does wrong.

use std::fmt;

use crate::checks::Check;
use crate::observe::Conduct;
use crate::wire::Variant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Behaviour {
    /// An Envoy with aggregated delta: all clusters and listeners, and the endpoints and routes that they name.
    EnvoyAdsDelta,
    /// An Envoy with aggregated SotW.
    EnvoyAdsSotw,
    /// An Envoy with a stream for clusters, one for listeners, and one for each name of endpoints and routes.
    EnvoyPerType,
    /// A gRPC library: SotW, listeners by name, and from there routes, clusters and endpoints.
    Grpc,
    /// Reads one message each half second, through a small window.
    SlowReader,
    /// Reads everything and ACKs nothing.
    NeverAcker,
    /// NACKs each response after its first of a type.
    Nacker,
    /// Connects again after each period.
    Flapper,
    /// ACKs with a nonce that no response had.
    WrongNonce,
    /// Connects and requests nothing. Every other one opens a stream.
    Zombie,
    /// Unsubscribes from half of its endpoints and subscribes again, once each period.
    SubscriptionChurn,
}

/// Where subscriptions start, and how they spread over streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    Ads,
    PerType,
    Grpc,
}

impl Behaviour {
    pub const ALL: [Self; 11] = [
        Self::EnvoyAdsDelta,
        Self::EnvoyAdsSotw,
        Self::EnvoyPerType,
        Self::Grpc,
        Self::SlowReader,
        Self::NeverAcker,
        Self::Nacker,
        Self::Flapper,
        Self::WrongNonce,
        Self::Zombie,
        Self::SubscriptionChurn,
    ];

    pub fn follow(self) -> Follow {
        match self {
            Self::EnvoyPerType => Follow::PerType,
            Self::Grpc => Follow::Grpc,
            _ => Follow::Ads,
        }
    }

    /// Returns the variant; some behaviours have only one.
    pub fn variant(self, wanted: Option<Variant>) -> Variant {
        match self {
            Self::EnvoyAdsDelta => Variant::Delta,
            Self::EnvoyAdsSotw | Self::Grpc => Variant::Sotw,
            Self::EnvoyPerType => wanted.unwrap_or(Variant::Sotw),
            _ => wanted.unwrap_or(Variant::Delta),
        }
    }

    /// Whether clients of this behaviour do only what real clients do.
    pub fn behaves(self) -> bool {
        matches!(self, Self::EnvoyAdsDelta | Self::EnvoyAdsSotw | Self::EnvoyPerType | Self::Grpc)
    }

    /// Whether the client requests anything.
    pub fn subscribes(self) -> bool {
        self != Self::Zombie
    }

    pub fn conduct(self) -> Conduct {
        Conduct { behaves: self.behaves(), name: self.name() }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::EnvoyAdsDelta => "envoy-ads-delta",
            Self::EnvoyAdsSotw => "envoy-ads-sotw",
            Self::EnvoyPerType => "envoy-per-type",
            Self::Grpc => "grpc",
            Self::SlowReader => "slow-reader",
            Self::NeverAcker => "never-acker",
            Self::Nacker => "nacker",
            Self::Flapper => "flapper",
            Self::WrongNonce => "wrong-nonce",
            Self::Zombie => "zombie",
            Self::SubscriptionChurn => "subscription-churn",
        }
    }

    /// Whether the client should have everything in the end.
    pub fn converges(self) -> bool {
        !matches!(self, Self::NeverAcker | Self::Nacker | Self::WrongNonce | Self::Zombie)
    }

    /// Whether a check makes sense for the behaviour.
    pub fn is_subject_to(self, check: Check) -> bool {
        match check {
            Check::Convergence => self.converges(),
            // Not for other clients: their types come over streams of their own, in any order, or, with gRPC, they find clusters by their routes.
            Check::MakeBeforeBreak => self.follow() == Follow::Ads && !matches!(self, Self::Nacker),
            _ => true,
        }
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn a_behaviour_has_one_name_on_the_command_line_and_in_reports() {
        for behaviour in Behaviour::ALL {
            assert_eq!(behaviour.to_possible_value().unwrap().get_name(), behaviour.name());
            assert!(!behaviour.behaves() || behaviour.converges(), "{behaviour}");
        }
    }
}
