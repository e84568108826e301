//! `remanent demo`: shows what the library can do.

mod chart;
mod recovery;
mod stop;
mod summary;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;

/// Show how a database comes back after its process is killed
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    Recovery(recovery::Recovery),
    /// Be the process that is killed; the command starts itself this way
    #[command(hide = true)]
    Users {
        /// Where the plan and the pool are
        directory: PathBuf,
    },
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.subcommand {
            Subcommand::Recovery(recovery) => recovery.run(),
            Subcommand::Users { directory } => match remanent_tatp::recovery::serve(&directory)? {},
        }
    }
}
