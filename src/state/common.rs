//! The properties that records of views share with the views that are served now.

use weir_core::xds::{HeaderName, SharingKey};

use super::load::{NotUsed, Stored, StoredView, id_of};
use super::records::{HeaderRecord, ViewRecord};
use super::save::{Contents, WrittenSet, WrittenView};
use crate::relay::Views;

/// The properties that all records of some views share.
pub(super) struct Common {
    key_fields: String,
    types: u64,
    shared: bool,
    /// Identifies the key of the hashes.
    hashes: String,
}

impl Common {
    pub(super) fn of(views: &Views, shared: bool) -> Self {
        let fields: Vec<_> = views.shared().rule.fields().iter().map(ToString::to_string).collect();
        let hashes = views.shared().hashes_id().unwrap_or_default();
        Self { key_fields: fields.join(" "), types: views.types().fingerprint(), shared, hashes }
    }

    /// Returns the record of a view, without what changes while it is served.
    pub(super) fn record(&self, key: &SharingKey) -> ViewRecord {
        let Self { key_fields, types, shared, hashes } = self;
        let (key_fields, node) = (key_fields.clone(), key.upstream_node());
        let header = |(name, hash): (&HeaderName, &str)| HeaderRecord { name: name.to_string(), hash: hash.into() };
        let headers: Vec<_> = key.headers().iter().map(header).collect();
        let hashes = if headers.is_empty() { String::new() } else { hashes.clone() };
        ViewRecord { key_fields, types: *types, shared: *shared, node, headers, hashes, ..ViewRecord::default() }
    }

    /// Returns why a view is no longer for the same clients as when it was saved; `Ok` if it is.
    pub(super) fn fits(&self, record: &ViewRecord) -> Result<(), NotUsed> {
        if (&self.key_fields, self.types) != (&record.key_fields, record.types) {
            return Err(NotUsed::OtherKey);
        }
        // Older records do not identify the key of their hashes. It is the present one, unless the file was imported.
        let is_other = !record.hashes.is_empty() && self.hashes != record.hashes;
        if !record.headers.is_empty() && (self.hashes.is_empty() || is_other) {
            return Err(NotUsed::OtherHashes);
        }
        Ok(())
    }
}

/// A view in the file from which nothing was loaded. If it is written, it is written as a whole.
pub(super) fn unwritten(view: &StoredView, views: &Views) -> WrittenView {
    let sets = view.record.sets.iter().map(|set| {
        let known = WrittenSet { number: set.number, count: set.count, ..WrittenSet::default() };
        ((views.types().resolve(&set.type_name), set.class()), known)
    });
    let next_set = view.record.sets.iter().map(|set| set.number.saturating_add(1)).max().unwrap_or_default();
    WrittenView { number: view.number, sets: sets.collect(), next_set, ..WrittenView::default() }
}

/// Returns the contents of a file that was loaded before. All that is written again is written as a whole, and what this process has no more is
/// removed.
pub(super) fn reopened(stored: &Stored, views: &Views) -> Contents {
    let mut contents = stored.contents();
    for view in &stored.views {
        let of = if view.record.shared { views.hub().map(|hub| &**hub) } else { Some(views) };
        let of = of.filter(|of| Common::of(of, view.record.shared).fits(&view.record).is_ok());
        let known = of.and_then(|of| Some((id_of(&view.record, of)?, unwritten(view, of))));
        let Some((id, written)) = known else {
            contents.orphans.push(view.number);
            continue;
        };
        let servers = view.record.servers.clone(); // with when each was heard last
        contents.views.insert(id, WrittenView { servers, ..written });
    }
    contents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_with_headers_is_left_out_if_its_record_has_another_key_of_hashes_and_used_if_it_has_none() {
        for (now, then, fits) in
            [("a", "a", true), ("a", "", true), ("a", "b", false), ("", "a", false), ("", "", false)]
        {
            let (key_fields, hashes) = ("cluster header.x-token".to_owned(), now.to_owned());
            let common = Common { key_fields: key_fields.clone(), types: 1, shared: false, hashes };
            let headers = vec![HeaderRecord { name: "x-token".into(), hash: "4711".into() }];
            let record = ViewRecord { key_fields, types: 1, headers, hashes: then.into(), ..ViewRecord::default() };
            assert_eq!(common.fits(&record).is_ok(), fits, "{now:?} {then:?}");
            let without = ViewRecord { headers: Vec::new(), ..record };
            assert!(common.fits(&without).is_ok(), "{now:?} {then:?}");
        }
    }
}
