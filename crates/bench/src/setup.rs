//! What the command line tells a bench: how much to measure, and where.

use std::path::PathBuf;

use clap::Args;

/// How a bench is to run.
#[derive(Args)]
pub(crate) struct Setup {
    /// End within a minute (`hashmap`: three), with fewer rounds and smaller data sets (claims say
    /// so in their names).
    #[arg(long)]
    pub(crate) quick: bool,

    /// Where pools and other data in memory lie: a tmpfs.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) dir: PathBuf,

    /// Where data that is synced to a real disk lies.
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub(crate) disk: PathBuf,

    /// With `line-tx`: measure the paper's aspect too, compiled now by `ag++` (Debian: aspectc++).
    #[arg(long)]
    pub(crate) with_aspectc: bool,

    /// With `berkeley-db`: a directory to measure in, and what to call it. What is called remanent
    /// is compared with the others, and all with the first. Default: --dir, and disks of ours in
    /// pools there, without a file system.
    #[arg(long, value_name = "NAME=DIR", value_parser = named_place)]
    pub(crate) on: Vec<Place>,

    /// With `berkeley-db`: inserts of a sample, and as many updates and deletes. Default: 20,000,
    /// and 2,000 with --quick.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,

    /// With `recovery`: the paper's five million subscribers, instead of one.
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,

    /// With `hashmap`, `maps`, `row-index`, `skip-list`, `tatp` and `disk`: sizes whose numbers
    /// mean nothing, to see that it works.
    #[arg(long, hide = true)]
    pub(crate) tiny: bool,
}

/// Options that only some benches take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    WithAspectc,
    On,
    Operations,
    Full,
}

impl Extra {
    /// The option as it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Extra::WithAspectc => "--with-aspectc",
            Extra::On => "--on",
            Extra::Operations => "--operations",
            Extra::Full => "--full",
        }
    }
}

impl Setup {
    /// Which of the extra options were given.
    pub(crate) fn extras(&self) -> impl Iterator<Item = Extra> {
        let given = [
            (Extra::WithAspectc, self.with_aspectc),
            (Extra::On, !self.on.is_empty()),
            (Extra::Operations, self.operations.is_some()),
            (Extra::Full, self.full),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(extra, _)| extra)
    }
}

/// A directory to measure in.
#[derive(Clone, Debug)]
#[cfg_attr(not(has_berkeley_db), allow(dead_code, reason = "only Berkeley DB's figures use it"))]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

fn named_place(text: &str) -> Result<Place, String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok(Place { name: name.to_owned(), path: path.into() })
        }
        _ => Err(format!("`{text}` is not a name and a directory, such as tmpfs=/dev/shm")),
    }
}
