//! A parsed command line, with the description that it was parsed by.

use std::io::{self, Write as _};

use clap::{Arg, ArgMatches, Command, Parser};

use super::args::{CompletionsArgs, ManArgs};
use super::build::Build;

/// A parsed command line.
#[derive(Debug)]
pub struct Invocation {
    pub(super) command: Command,
    pub(super) matches: ArgMatches,
}

impl Invocation {
    /// Parses the process's command line and environment. `-V` prints the version only, `--version`
    /// all facts of the build. `serve -h` lists the flags `usual`, `serve --help` all. An invalid command
    /// line ends the process.
    #[must_use]
    pub fn parse<A: Parser>(build: &Build, usual: &[&str]) -> (A, Self) {
        let is_usual = |arg: &Arg| arg.get_long().is_some_and(|flag| usual.contains(&flag));
        // clap keeps texts for the whole process, which parses once.
        let mut command = A::command().long_version(&*build.long_version().leak()).mut_subcommand("serve", |serve| {
            serve.mut_args(|arg| {
                let is_hidden = !is_usual(&arg);
                arg.hide_short_help(is_hidden)
            })
        });
        let matches = command.get_matches_mut();
        let args = A::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
        (args, Self { command, matches })
    }

    /// Writes the completion script of a shell to standard output.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print_completions(&self, args: CompletionsArgs) -> io::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(args.shell, &mut self.command.clone(), self.command.get_name(), &mut script);
        io::stdout().write_all(&script)
    }

    /// Writes the manual pages of all commands into a folder, or the main page to standard output.
    ///
    /// # Errors
    /// The folder or standard output cannot be written.
    pub fn write_man(&self, args: &ManArgs) -> io::Result<()> {
        // The version of the pages is the short one.
        let command = self.command.clone().long_version(None);
        match &args.folder {
            Some(folder) => {
                let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
                written.map_err(|error| {
                    let text = format!("cannot write manual pages to {}: {error}", folder.display());
                    io::Error::new(error.kind(), text)
                })
            }
            None => clap_mangen::Man::new(command).render(&mut io::stdout()),
        }
    }
}
