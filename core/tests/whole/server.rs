//! The control planes of the world: what their names and contents are. Each has contents of its own.

use weir_core::proto::Any;

use crate::content::{Content, Key, Kind};
use crate::support::server::{self, Name};

pub use crate::support::server::{Health, Removals, Stated};

pub type Server = server::Server<Key>;
pub type ServerStream = server::ServerStream<Key>;
pub type Habit = server::Habit<Kind>;

impl Name for Key {
    type Kind = Kind;
    type Content = Content;

    fn kind(self) -> Kind {
        self.0
    }

    fn text(self) -> String {
        Self::text(self)
    }

    fn read(kind: Kind, text: &str) -> Option<Self> {
        Self::read(kind, text)
    }

    fn kind_of(url: &str) -> Kind {
        Kind::of(url)
    }

    fn url(kind: Kind) -> &'static str {
        kind.url()
    }

    fn is_full_state(kind: Kind) -> bool {
        kind.full_state()
    }

    fn packed(self, content: Content) -> Any {
        content.any(self)
    }

    fn version(content: Content, replica: u64) -> String {
        format!("{}.{replica}", content.serial)
    }
}
