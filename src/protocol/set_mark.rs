//! What a relay says to a relay of a `*` set beside the resources: whether that is all. The protocol has no such word (XLAT-12), so
//! it stands where a server may put what it likes, in the `system_version_info` of a delta response.

/// Whether what was told, up to and with this response, is everything there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetMark {
    Complete,
    Partial,
}

impl SetMark {
    pub fn text(self) -> &'static str {
        match self {
            Self::Complete => "weir.set=complete",
            Self::Partial => "weir.set=partial",
        }
    }

    /// What a server means that may be no relay.
    pub(crate) fn of(text: &str) -> Option<Self> {
        [Self::Complete, Self::Partial].into_iter().find(|mark| mark.text() == text)
    }
}
