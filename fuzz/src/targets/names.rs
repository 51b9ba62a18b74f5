//! Resource names.

use std::collections::BTreeMap;

use weir_core::xds::{Authority, Name, Xdstp, authority_of_template};

/// Two names, each on a line. The canonical form is a fixed point, keeps the parts of a name, and is equal for equal parts alone; a name is
/// a member of the collection that contains it, and of no other one.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (one, other) = text.split_once('\n').unwrap_or((text, ""));
    let [name, other_name] = [one, other].map(Name::canonical);
    assert_eq!(Name::canonical(name.as_str()), name);
    match (Xdstp::parse(one), Xdstp::parse(other)) {
        (Ok(parts), Ok(others)) => assert_eq!(parts == others, name == other_name, "{one} and {other}"),
        (Ok(_), Err(_)) => {}
        (Err(_), _) => assert_eq!(name.as_str(), one, "not readable, so unchanged"),
    }
    if let Ok(parts) = Xdstp::parse(one) {
        assert_eq!(Xdstp::parse(name.as_str()).as_ref(), Ok(&parts));
        assert_eq!(Some(Authority::of(&name)), authority_of_template(one).map(Authority::Named));
        assert_ne!(name.is_glob(), name.collection().is_some());
    }
    let both = BTreeMap::from([(name.clone(), ()), (other_name.clone(), ())]);
    for glob in [&name, &other_name].into_iter().filter_map(Name::collection) {
        assert!(glob.is_glob());
        assert_eq!(Name::canonical(glob.as_str()), glob);
        let members: Vec<_> = glob.members_in(&both).map(|(name, ())| name).collect();
        let expected: Vec<_> = both.keys().filter(|name| name.collection().as_ref() == Some(&glob)).collect();
        assert_eq!(members, expected);
    }
}
