//! Manual pages, written from the declared options and commands of the programs.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::Command;

/// Writes a page for the program, and one for each of its commands, into a folder, which is created if it does not exist.
pub fn write(program: Command, folder: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write manual pages to {}", folder.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    clap_mangen::generate_to(program.disable_help_subcommand(true), folder).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn the_program_and_each_command_have_a_page_and_a_folder_that_cannot_be_made_is_named() {
        let folder = std::env::temp_dir().join(format!("weir-manual-{}", std::process::id()));
        let program = || {
            let option = Arg::new("of").long("of").help("Whose they are");
            Command::new("weir").about("Relays").subcommand(Command::new("get").about("Gets resources").arg(option))
        };
        write(program(), &folder.join("man")).unwrap();
        let page = |name: &str| fs::read_to_string(folder.join("man").join(name)).unwrap();
        assert!(page("weir.1").contains(".TH weir 1") && page("weir.1").contains("Relays"), "{}", page("weir.1"));
        assert!(page("weir-get.1").contains("Whose they are"), "{}", page("weir-get.1"));
        assert_eq!(fs::read_dir(folder.join("man")).unwrap().count(), 2, "help is in each page");
        let in_a_file = folder.join("man/weir.1/man");
        let error = write(program(), &in_a_file).unwrap_err().to_string();
        assert_eq!(error, format!("cannot write manual pages to {}", in_a_file.display()));
        fs::remove_dir_all(folder).unwrap();
    }
}
