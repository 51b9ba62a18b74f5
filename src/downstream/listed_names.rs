//! How many names the SotW requests of one stream list.

use std::collections::HashMap;

use weir_core::xds::TypeTable;
use xxhash_rust::xxh3::xxh3_64;

/// How many names the last request of each type had, by a hash of the type's name. URLs are no keys: a client may spell that of one type in any
/// number of ways.
#[derive(Debug, Default)]
pub(super) struct ListedNames(HashMap<u64, usize>);

impl ListedNames {
    /// Records how many names a request has. Returns how many the last request of its type had.
    pub(super) fn replace(&mut self, type_url: &str, table: &TypeTable, names: usize) -> usize {
        let kind = xxh3_64(table.resolve(type_url).name().as_bytes());
        self.0.insert(kind, names).unwrap_or_default()
    }

    /// Forgets all lists.
    pub(super) fn clear(&mut self) {
        self.0 = HashMap::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i10_however_many_spellings_a_client_has_for_a_type_only_its_last_list_is_remembered() {
        let (table, mut listed) = (TypeTable::new(), ListedNames::default());
        for names in 0..1000 {
            let url = format!("{names}/envoy.config.cluster.v3.Cluster");
            assert_eq!(listed.replace(&url, &table, names + 1), names, "the last list counts in any spelling");
        }
        assert_eq!(listed.0.len(), 1);
        assert_eq!(listed.replace("a/own.Type", &table, 1) + listed.replace("b/own.Type", &table, 1), 0);
        assert_eq!(listed.0.len(), 3, "types outside of the table differ by their prefixes");
        listed.clear();
        assert!(listed.0.is_empty());
    }
}
