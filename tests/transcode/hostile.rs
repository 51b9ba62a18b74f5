//! Random and mutated input in every format. `WEIR_FUZZ_ROUNDS=1000000` makes it run longer.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;
use weir::transcode::document::{Format, read_resources};
use weir::transcode::{Strictness, Transcoder, UnknownAny, parse_json, yaml};

use super::corpus;
use message_rules::check_message;

/// Shared with the fuzz targets.
#[path = "../../fuzz/src/targets/message_rules.rs"]
mod message_rules;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % sides.max(1)
    }

    fn slice<'a>(&mut self, of: &'a [u8]) -> &'a [u8] {
        let start = self.roll(of.len());
        &of[start..start + self.roll((of.len() - start).min(200) + 1)]
    }
}

const WORDS: &[&str] = &[
    "\"",
    "'",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ":",
    ",",
    "\n",
    "\n- ",
    "\n---\n",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "|\n",
    "null",
    "true",
    "\"@type\": \"type.googleapis.com/google.protobuf.Any\", ",
    "\"value\": ",
    "1e400",
    "-1",
    "18446744073709551616",
    ".nan",
    "NaN",
    "0x",
    "\\u0000",
    "\\",
    "\0",
    "\u{feff}",
    "\u{2028}",
    "é",
    "[type.googleapis.com/google.protobuf.Struct] {",
    "#",
    "1.5s",
    "\"-0.000000001s\"",
    "\"9999-12-31T23:59:60Z\"",
    "[a.b]: 1",
    "\x08\x01",
    "\x0a\x04",
    "\x7f",
    "\x0b",
    "\x0c",
];

fn mutated(dice: &mut Dice, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = inputs[dice.roll(inputs.len())].clone();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len() + 1);
        match dice.roll(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.roll(8),
            1 if at < bytes.len() => bytes[at] = dice.roll(256) as u8,
            2 => _ = bytes.drain(at..bytes.len().min(at + dice.roll(20))),
            3 => {
                let other = &inputs[dice.roll(inputs.len())];
                let part = dice.slice(other).to_vec();
                bytes.splice(at..at, part);
            }
            4 => {
                let part = dice.slice(&bytes).to_vec();
                let times = dice.roll(5);
                bytes.splice(at..at, part.repeat(times));
            }
            5 => bytes.truncate(at),
            _ => {
                let word = WORDS[dice.roll(WORDS.len())].as_bytes();
                bytes.splice(at..at, word.repeat(1 + dice.roll(3)));
            }
        }
    }
    bytes
}

#[test]
fn mutated_input_never_panics_and_what_is_read_comes_back() {
    let rounds: usize = std::env::var("WEIR_FUZZ_ROUNDS").map_or(2_000, |rounds| rounds.parse().expect("a number"));
    let seed = std::env::var("WEIR_FUZZ_SEED").map_or(0x9e37_79b9_7f4a_7c15, |seed| seed.parse().expect("a number"));
    let transcoder = Transcoder::envoy();
    let samples = corpus();
    let (mut binary, mut json, mut text, mut files) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for sample in &samples {
        let bytes = transcoder.from_json(&sample.message, &sample.json, Strictness::Strict).unwrap();
        let yaml = transcoder.to_yaml(&sample.message, &bytes, UnknownAny::Refuse).unwrap();
        text.push(transcoder.to_text(&sample.message, &bytes, UnknownAny::Refuse).unwrap().into_bytes());
        json.push(sample.json.to_string().into_bytes());
        let indented = yaml.lines().map(|line| format!("  {line}\n")).collect::<String>();
        files.push(format!("resources:\n- \"@type\": t/{}\n{indented}", sample.message).into_bytes());
        files.push(format!("[{{\"@type\": \"t/{}\", {}]", sample.message, &sample.json.to_string()[1..]).into_bytes());
        binary.push(bytes.to_vec());
    }
    let mut dice = Dice(seed);
    for round in 0..rounds {
        let message = &samples[dice.roll(samples.len())].message;
        let before = dice.0;
        let one = || {
            let bytes = mutated(&mut dice, &binary);
            check_message(&transcoder, message, &bytes);
            let _ = read_resources(&transcoder, Format::Binary, &bytes);
            let input = mutated(&mut dice, &json);
            if let Ok(value) = parse_json(&input) {
                for strictness in [Strictness::Strict, Strictness::Lenient] {
                    for sample in &samples {
                        if let Ok(bytes) = transcoder.from_json(&sample.message, &value, strictness) {
                            check_message(&transcoder, &sample.message, &bytes);
                        }
                    }
                }
            }
            let input = mutated(&mut dice, &text);
            if let Ok(input) = std::str::from_utf8(&input) {
                for sample in &samples {
                    if let Ok(bytes) = transcoder.from_text(&sample.message, input) {
                        check_message(&transcoder, &sample.message, &bytes);
                    }
                }
            }
            let input = mutated(&mut dice, &files);
            for format in [Format::Yaml, Format::Json, Format::Text] {
                let _ = read_resources(&transcoder, format, &input);
            }
        };
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(one)) {
            eprintln!("round {round}: the dice stood at {before}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("a JSON number", |number| number.is_finite()).prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[-~:#&*!|>'\"%@`{}\\[\\],? \n\t0-9eExy.]{0,8}".prop_map(Value::from),
        prop::sample::select(vec![
            "yes",
            "no",
            "null",
            "~",
            "true",
            "1e3",
            "0x1f",
            "0o7",
            ".inf",
            "<<",
            "---",
            "...",
            "1_000",
            "12:30:45",
            "2026-01-01",
            "=",
            "",
            " ",
            "\n",
            "a: b",
            "- a"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,8}|[-~:#&*!|>'\"<? 0-9\n]{0,4}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
    #[test]
    fn any_json_comes_back_from_yaml(json in any_json()) {
        let text = yaml::write(&json).unwrap();
        let back = yaml::parse_all(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let wanted = if json.is_null() { vec![] } else { vec![json] };
        prop_assert_eq!(back, wanted, "{}", text);
    }

    #[test]
    fn any_json_is_a_value_of_a_struct(json in any_json()) {
        let transcoder = Transcoder::envoy();
        let bytes = transcoder.from_json("google.protobuf.Value", &json, Strictness::Strict).unwrap();
        let back = transcoder.to_json("google.protobuf.Value", &bytes, UnknownAny::Refuse).unwrap();
        let again = transcoder.from_json("google.protobuf.Value", &back, Strictness::Strict).unwrap();
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn any_text_ends_without_a_panic(text in "\\PC{0,60}|[-:{}\\[\\]&*!|>'\"a1 \n,#%@?<]{0,60}") {
        let transcoder = Transcoder::envoy();
        for format in [Format::Yaml, Format::Json, Format::Text, Format::Binary] {
            let _ = read_resources(&transcoder, format, text.as_bytes());
        }
    }

    #[test]
    fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let transcoder = Transcoder::envoy();
        for message in ["google.protobuf.Any", "google.protobuf.Struct", "envoy.config.cluster.v3.Cluster", "google.protobuf.Duration"] {
            check_message(&transcoder, message, &bytes);
        }
    }
}
