//! Runs the fuzz targets on the inputs in `fuzz/corpus`, with the stable compiler and without a fuzzer.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use targets::TARGETS;

#[path = "../fuzz/src/targets/mod.rs"]
mod targets;

#[test]
fn every_kept_input_of_every_target_still_holds() {
    for target in TARGETS {
        let inputs = inputs(target.name);
        assert!(inputs.len() >= 10, "{}: {} inputs", target.name, inputs.len());
        for (name, input) in inputs {
            eprintln!("{} {name}", target.name); // shown if the next line panics
            (target.run)(&input);
        }
    }
}

#[test]
fn each_folder_of_the_corpus_is_that_of_a_target_and_small() {
    let folders = fs::read_dir("fuzz/corpus").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(folders.collect::<BTreeSet<_>>(), names);
    for target in TARGETS {
        let bytes: usize = inputs(target.name).iter().map(|(_, input)| input.len()).sum();
        assert!(bytes < 200_000, "{}: {bytes} bytes", target.name);
    }
}

fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(Path::new("fuzz/corpus").join(target)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}
