//! What lingers when its last client has left, in case it returns.

/// How scarce memory is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scarcity {
    /// Everything may linger.
    #[default]
    None,
    /// Cached names and a few absent ones may, if their client left with its stream.
    Some,
    /// Nothing may.
    Full,
}

/// How a subscription ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct SubscriptionEnd {
    /// With its stream: the client may return.
    pub(super) with_stream: bool,
    /// There is something that would be lost.
    pub(super) has_any: bool,
}

impl SubscriptionEnd {
    /// The client's stream goes on, so the client can request it again if it needs it after all.
    pub(super) const BY_REQUEST: Self = Self { with_stream: false, has_any: true };

    /// Whether the subscription lingers, if `void` others linger for which nothing is cached. Only a few of these may, because each saves no
    /// more than a request. When memory is scarce, only those that are known to be absent may.
    pub(super) fn lingers(self, is_absent: bool, memory: Scarcity, void: usize) -> bool {
        let is_scarce = memory > Scarcity::None;
        let Self { with_stream, has_any } = self;
        let most = match is_scarce {
            true if is_absent => VOID / 10,
            true => 0,
            false => VOID,
        };
        (with_stream || !is_absent && !is_scarce) && (has_any || void < most)
    }
}

pub(super) const VOID: usize = 1000;
