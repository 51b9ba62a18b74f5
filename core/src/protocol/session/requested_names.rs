//! The names in a request as a set, the errors of names that cannot be requested, and how a client spells what it requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::client::{Client, Variant};
use super::reply::Reply;
use crate::proto::code::{INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED};
use crate::proto::discovery::ResourceLocator;
use crate::protocol::view::NamedError;
use crate::protocol::visits::visit;
use crate::xds::{Name, Type, WILDCARD, Xdstp};

/// The authorities whose names are served, besides old-style names, which have none.
pub type Authorities = Arc<BTreeSet<String>>;

/// A list of names as a set (SOTW-60). `*` is separate.
#[derive(Debug, Default)]
pub(super) struct RequestedNames {
    pub(crate) wildcard: bool,
    /// In canonical form.
    pub(crate) names: BTreeSet<Name>,
    /// The client's spelling of each name that it does not write in canonical form (NAME-16).
    pub(crate) spellings: BTreeMap<Name, Arc<str>>,
    /// Names that cannot be requested, as the client wrote them.
    pub(crate) rejected: BTreeMap<Name, NamedError>,
}

/// What the parsing of names needs.
pub(super) struct NameParser<'a> {
    kind: &'a Type,
    client: &'a Client,
    authorities: &'a Authorities,
}

/// How a client spells its requests of one type, and the errors of names that it cannot request or that have no room.
#[derive(Debug)]
pub(super) struct Wording {
    /// The type URL as this client spells it.
    url: Arc<str>,
    /// The client has named something on this stream, be it `*`: an empty list no longer means the wildcard (SOTW-38, DELTA-19).
    named_once: bool,
    /// Names that cannot be requested. The error itself is kept until it was sent.
    rejected: BTreeMap<Name, Option<Arc<NamedError>>>,
    /// Names that the client subscribes to and for which the view has no room. The error itself is kept until it was sent.
    without_room: BTreeMap<Name, Option<Arc<NamedError>>>,
    /// Some of these are requested again, so they may have got room.
    retries: bool,
    /// How many names of the last SotW list could not be requested.
    rejected_before: usize,
    /// Names that this client does not spell in canonical form, with its spelling (NAME-16).
    spellings: BTreeMap<Name, Arc<str>>,
    /// The bytes of the texts in `rejected` and `spellings`.
    bytes: usize,
}

impl RequestedNames {
    /// Reads names and locators. A locator without parameters counts as its plain name (WIRE-14).
    pub(crate) fn of(names: Vec<String>, locators: Vec<ResourceLocator>, parser: &NameParser) -> Self {
        let mut listed = Self::default();
        for locator in locators {
            match locator.dynamic_parameters.is_empty() {
                true => listed.take(&locator.name, parser),
                false => {
                    listed.refuse(&locator.name, UNIMPLEMENTED, "dynamic parameters are not supported (KEY-18)".into())
                }
            }
        }
        names.iter().filter(|name| !name.is_empty()).for_each(|name| listed.take(name, parser));
        listed
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.wildcard && self.names.is_empty() && self.rejected.is_empty()
    }

    fn take(&mut self, text: &str, parser: &NameParser) {
        if text == WILDCARD {
            self.wildcard = true;
        } else if !Xdstp::is_new_style(text) {
            self.names.insert(text.into());
        } else {
            match parser.read(text) {
                Ok(name) => {
                    if name.as_str() != text {
                        self.spellings.insert(name.clone(), text.into());
                    }
                    self.names.insert(name);
                }
                Err((code, why)) => self.refuse(text, code, why),
            }
        }
    }

    fn refuse(&mut self, name: &str, code: i32, message: String) {
        self.rejected.insert(name.into(), NamedError { code, message });
    }
}

impl<'a> NameParser<'a> {
    pub(super) fn new(kind: &'a Type, client: &'a Client, authorities: &'a Authorities) -> Self {
        Self { kind, client, authorities }
    }

    /// Returns the canonical form of a new-style name, or the status code and the reason why it cannot be requested.
    pub(super) fn read(&self, text: &str) -> Result<Name, (i32, String)> {
        let name = Xdstp::parse(text).map_err(|fault| (INVALID_ARGUMENT, fault.to_string()))?;
        if name.kind != self.kind.message() {
            return Err((
                INVALID_ARGUMENT,
                format!("it names a {} and was asked for as a {}", name.kind, self.kind.name()),
            ));
        }
        if !self.authorities.contains(&name.authority) {
            return Err((NOT_FOUND, format!("no servers are configured for the authority {:?}", name.authority)));
        }
        if name.is_glob() && self.client.variant == Variant::Sotw {
            return Err((NOT_FOUND, "glob collections exist in the delta variant alone".into()));
        }
        Ok(name.to_string().into())
    }
}

impl Wording {
    pub(super) fn new(url: &str) -> Self {
        let (rejected, without_room, spellings) = Default::default();
        let (named_once, retries, rejected_before, bytes) = Default::default();
        Self { url: url.into(), named_once, rejected, without_room, retries, rejected_before, spellings, bytes }
    }

    /// Takes the spellings and errors of a SotW list. Returns how many more names that cannot be requested it has than the last list.
    pub(super) fn take_list(&mut self, list: &mut RequestedNames, reads_errors: bool) -> usize {
        // Each request repeats the list: only what exceeds the last count is new.
        let new = list.rejected.len().saturating_sub(self.rejected_before);
        self.rejected_before = list.rejected.len();
        self.rejected.retain(|name, _| list.rejected.contains_key(name));
        self.without_room.retain(|name, _| list.names.contains(name));
        self.take_errors_of(list, reads_errors);
        self.spellings = std::mem::take(&mut list.spellings);
        self.note_bytes();
        new
    }

    /// Takes the spellings and errors of a delta request.
    pub(super) fn take_changes(&mut self, on: &mut RequestedNames, off: &RequestedNames, reads_errors: bool) {
        self.named_once |= !on.is_empty() || !off.is_empty();
        for name in on.rejected.keys().chain(off.rejected.keys()) {
            self.rejected.remove(name); // a repeated request gets the error again; a name that is no longer requested gets none
        }
        self.take_errors_of(on, reads_errors);
        for name in &on.names {
            self.spellings.remove(name); // the last spelling counts
        }
        self.spellings.append(&mut on.spellings);
        for name in &off.names {
            self.spellings.remove(name);
            self.forget_error(name);
        }
        self.note_bytes();
    }

    /// Counts the bytes again. This is cheap: most clients have neither rejected names nor spellings of their own.
    fn note_bytes(&mut self) {
        let rejected = self.rejected.keys().map(|name| name.as_str().len());
        self.bytes = rejected.chain(self.spellings.values().map(|text| text.len())).sum();
    }

    /// Returns the bytes of names that cannot be requested, and of the client's spellings. The URL counts twice: it is also the name of a type that
    /// is not in the table.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + 2 * self.url.len()
    }

    /// Records the errors of rejected names, for clients that read errors.
    fn take_errors_of(&mut self, list: &RequestedNames, reads_errors: bool) {
        for (name, error) in list.rejected.iter().filter(|_| reads_errors) {
            self.rejected.entry(name.clone()).or_insert_with(|| Some(Arc::new(error.clone())));
        }
    }

    pub(super) fn note_named(&mut self, named: bool) {
        self.named_once |= named;
    }

    pub(super) fn has_named(&self) -> bool {
        self.named_once
    }

    /// Adds the error of a name for which the view has no room, to be sent once.
    pub(super) fn add_without_room(&mut self, name: Name, error: &Arc<NamedError>) {
        self.without_room.entry(name).or_insert_with(|| Some(error.clone()));
    }

    /// Records that a name without room is requested again.
    pub(super) fn note_retry(&mut self) {
        self.retries = true;
    }

    /// Forgets the errors of names that have got room. Only those can have that were requested again.
    pub(super) fn retain_without_room(&mut self, is_refused: impl Fn(&Name) -> bool) {
        if std::mem::take(&mut self.retries) {
            self.without_room.retain(|name, _| {
                visit();
                is_refused(name)
            });
        }
    }

    pub(super) fn forget_error(&mut self, name: &Name) {
        self.rejected.remove(name);
        self.without_room.remove(name);
    }

    /// Returns the errors that have yet to be sent.
    pub(super) fn take_errors(&mut self) -> impl Iterator<Item = (&Name, Arc<NamedError>)> {
        let all = self.rejected.iter_mut().chain(&mut self.without_room);
        all.filter_map(|(name, error)| Some((name, error.take()?)))
    }

    pub(super) fn has_unsent_error(&self) -> bool {
        self.rejected.values().chain(self.without_room.values()).any(Option::is_some)
    }

    pub(super) fn rejects(&self, name: &Name) -> bool {
        self.rejected.contains_key(name)
    }

    /// Returns how many names cannot be requested. Names without room are not among them: they are subscribed.
    pub(super) fn rejected_count(&self) -> usize {
        self.rejected.len()
    }

    /// Changes the type URL and the names of a reply to the client's own spelling.
    pub(super) fn spell(&self, reply: &mut Reply) {
        reply.spell(&self.url, &self.spellings);
    }
}
