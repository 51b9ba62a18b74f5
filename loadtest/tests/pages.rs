//! The pages name no command and no option that `weir-loadtest` does not have. `tests/pages` has the rest of what is checked.

#[path = "../../tests/pages/commands.rs"]
mod commands;
#[allow(dead_code)] // one file for two programs: tests/pages uses the parts that this one does not
#[path = "../../tests/pages/markdown.rs"]
mod markdown;

use std::path::Path;

#[test]
fn commands_and_options_exist() {
    let program = commands::Program::read("weir-loadtest", Path::new(env!("CARGO_BIN_EXE_weir-loadtest")));
    let found: Vec<_> = markdown::pages().iter().flat_map(|page| program.faults(page)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
