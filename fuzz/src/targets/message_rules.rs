//! What must hold for any message. `tests/transcode/hostile.rs` checks the same.

use weir::transcode::{Strictness, Transcoder, UnknownAny, yaml};

/// Checks what must hold for any encoded message.
pub fn check_message(transcoder: &Transcoder, message: &str, bytes: &[u8]) {
    let canonical = transcoder.canonical(message, bytes);
    for unknown in [UnknownAny::Refuse, UnknownAny::Wrap] {
        let json = transcoder.to_json(message, bytes, unknown);
        let _ = transcoder.redacted_json(message, bytes, unknown);
        let text = transcoder.to_text(message, bytes, unknown);
        let Ok(canonical) = &canonical else {
            assert!(json.is_err(), "JSON of what has no canonical form: {bytes:?}");
            continue;
        };
        assert_eq!(transcoder.canonical(message, canonical).as_ref(), Ok(canonical), "canonical twice");
        if unknown == UnknownAny::Wrap {
            continue;
        }
        if let Ok(json) = json {
            let of_canonical = transcoder.to_json(message, canonical, unknown);
            assert_eq!(of_canonical.as_ref(), Ok(&json), "JSON of the canonical form");
            let back = transcoder.from_json(message, &json, Strictness::Strict);
            let back = back.unwrap_or_else(|error| panic!("{error}: {json}"));
            assert_eq!(transcoder.to_json(message, &back, unknown).as_ref(), Ok(&json), "JSON and back");
            let yaml = transcoder.to_yaml(message, bytes, unknown).unwrap_or_else(|error| panic!("{error}: {json}"));
            assert_eq!(yaml::parse(&yaml).as_ref(), Ok(&json), "{yaml}");
        }
        if let Ok(text) = text {
            let back = transcoder.from_text(message, &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let again = transcoder.to_text(message, &back, unknown).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(uncommented(&again), uncommented(&text));
        }
    }
}

fn uncommented(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with('#')).collect()
}
