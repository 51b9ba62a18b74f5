//! Finds commands and options in the pages that a program does not have, by its output for `--help`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::markdown::Page;

/// A program with its commands, each as the list of words that call it; the list of the program itself is empty.
pub struct Program {
    name: String,
    commands: BTreeMap<Vec<String>, Known>,
}

#[derive(Default)]
struct Known {
    options: BTreeSet<String>,
    commands: BTreeSet<String>,
}

impl Program {
    pub fn read(name: &str, binary: &Path) -> Self {
        Self::with(name, |words| {
            let output = std::process::Command::new(binary).args(words).arg("--help").output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        })
    }

    fn with(name: &str, help: impl Fn(&[String]) -> String) -> Self {
        let (mut commands, mut open) = (BTreeMap::new(), vec![Vec::<String>::new()]);
        while let Some(words) = open.pop() {
            let known = Known::parse(&help(&words));
            open.extend(known.commands.iter().map(|command| [words.clone(), vec![command.clone()]].concat()));
            commands.insert(words, known);
        }
        Self { name: name.to_owned(), commands }
    }

    /// Returns the faults of a page in code spans that begin with the program, in shell code blocks, and after prompts.
    pub fn faults(&self, page: &Page) -> Vec<String> {
        let begins = |span: &str| span.split_once(' ').is_some_and(|(first, _)| self.is_named(first));
        let in_spans = page.spans().into_iter().filter(|(_, span)| begins(span));
        let mut faults: Vec<_> =
            in_spans.flat_map(|(line, span)| self.of_line(span).into_iter().map(move |what| (line, what))).collect();
        let mut begun = String::new();
        for line in page.lines.iter().filter(|line| line.block.is_some()) {
            let is_shell = matches!(line.block.as_deref(), Some("sh" | "bash" | "shell"));
            let text = match line.text.trim().strip_prefix("$ ") {
                Some(typed) => typed,
                None if is_shell || !begun.is_empty() => line.text.trim(),
                None => continue,
            };
            if let Some(start) = text.strip_suffix('\\') {
                begun += start;
                continue;
            }
            let whole = std::mem::take(&mut begun) + text;
            faults.extend(self.of_line(&whole).into_iter().map(|what| (line, what)));
        }
        faults.into_iter().map(|(line, what)| page.fault(line, what)).collect()
    }

    fn is_named(&self, word: &str) -> bool {
        word.rsplit('/').next() == Some(&*self.name)
    }

    /// Returns the faults of a shell line.
    fn of_line(&self, line: &str) -> Vec<String> {
        let words: Vec<_> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        let parts = words.split(|word| ["|", "&&", "||", ";", "&", ">", "<"].contains(word));
        parts.filter_map(|part| self.arguments(part)).flat_map(|arguments| self.of_arguments(arguments)).collect()
    }

    /// Returns the arguments of the program, if these words run it.
    fn arguments<'a>(&self, words: &'a [&'a str]) -> Option<&'a [&'a str]> {
        let words = &words[words.iter().take_while(|word| is_before(word)).count()..];
        let (first, rest) = words.split_first()?;
        if self.is_named(first) {
            return Some(rest);
        }
        let is_run = *first == "cargo" && rest.first() == Some(&"run");
        let dashes = rest.iter().position(|word| *word == "--").filter(|_| is_run)?;
        let package = rest[..dashes].iter().position(|word| *word == "-p").and_then(|at| rest.get(at + 1));
        (package.copied().unwrap_or("weir") == self.name).then(|| &rest[dashes + 1..])
    }

    fn of_arguments(&self, arguments: &[&str]) -> Vec<String> {
        let (mut faults, mut command, mut is_value) = (Vec::new(), Vec::<String>::new(), false);
        for word in arguments {
            let word = word.trim_matches(['[', ']', '`', ',', ';', ')', '(']);
            let name = word.split('=').next().unwrap_or_default();
            let is_option = name.starts_with("--") && name.len() > 2;
            if is_option && !self.has_option(&command, name) {
                faults.push(format!("no option {name} of {}", self.shown(&command)));
            }
            let is_word =
                !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
            let known = &self.commands[&command].commands;
            if is_word && !is_value && !known.is_empty() {
                if word == "help" {
                    return faults;
                }
                if !known.contains(word) {
                    faults.push(format!("no command {} {word}", self.shown(&command)));
                    return faults;
                }
                command.push(word.to_owned());
            }
            is_value = is_option && !word.contains('=');
        }
        faults
    }

    /// Whether a command has an option. Options of the commands that contain it count too, since they may come after it.
    fn has_option(&self, command: &[String], option: &str) -> bool {
        let has = |length: usize| self.commands[&command[..length]].options.contains(option);
        ["--help", "--version"].contains(&option) || (0..=command.len()).any(has)
    }

    fn shown(&self, command: &[String]) -> String {
        [vec![self.name.clone()], command.to_vec()].concat().join(" ")
    }
}

/// Whether a word may stand before the name of a program.
fn is_before(word: &str) -> bool {
    ["sudo", "exec", "time"].contains(&word) || word.contains('=') && !word.starts_with('-')
}

impl Known {
    fn parse(help: &str) -> Self {
        let mut known = Self::default();
        let mut is_command = false;
        for line in help.lines() {
            is_command = line == "Commands:" || is_command && !line.is_empty();
            let words = line.trim_start().split([' ', ',', '=', '[', '`', '.']);
            let is_option = line.trim_start().starts_with('-');
            known
                .options
                .extend(words.filter(|word| is_option && word.starts_with("--") && word.len() > 2).map(str::to_owned));
            let command = line.strip_prefix("  ").filter(|rest| is_command && !rest.starts_with(' '));
            known.commands.extend(command.and_then(|rest| rest.split(' ').next()).map(str::to_owned));
        }
        known.commands.remove("help");
        known
    }
}

#[test]
fn a_command_or_an_option_that_does_not_exist_is_found() {
    let program = Program::with("weir", |words| {
        let text = match words {
            [] => {
                "A relay\n\nCommands:\n  get   Gets\n         with --key\n  bench  Measures\n  help  x\n\nOptions:\n      --config <FILE>\n"
            }
            [get] if get == "get" => "Gets\n\nOptions:\n  -q, --quiet  Is quiet\n      --key <KEY>\n",
            [bench] if bench == "bench" => "Measures\n\nCommands:\n  all  All\n",
            _ => "",
        };
        text.to_owned()
    });
    let found = |text: &str| program.faults(&Page::parse("a.md", text));
    let good = "`weir get --quiet`, `weir --config FILE`, `\"weir started\"`, `x weir --no`\n\
        ```sh\nX=1 target/release/weir --config all bench all   # --none\nweir get a b | grep --count x\n\
        cargo run -p other -- --none\ncargo run -- get --key 'a b'\n```\n```text\nweir --none\n```";
    assert_eq!(found(good), [""; 0]);
    assert_eq!(found("`weir get --quite`"), ["a.md:1: no option --quite of weir get"]);
    assert_eq!(found("`weir bench storm`"), ["a.md:1: no command weir bench storm"]);
    assert_eq!(found("`weir got`"), ["a.md:1: no command weir got"]);
    assert_eq!(found("```sh\nweir got\n```"), ["a.md:2: no command weir got"]);
    assert_eq!(found("```text\n$ a && weir get \\\n  --kay x\n```"), ["a.md:3: no option --kay of weir get"]);
    assert_eq!(found("```sh\ncargo run --release -- get --kay=x\n```"), ["a.md:2: no option --kay of weir get"]);
}
