//! `remanent-bench`: Remanent measured beside its rivals, and the papers' figures for this machine.
//!
//! `figures` has one module a bench; `peers` the contenders, each behind the interface of what it is
//! compared by; `workloads` the keys. A bench answers with a [`report::Report`].

#![deny(unsafe_code)]

mod cleanup;
mod figures;
mod machine;
mod measure;
mod memory;
mod peers;
mod report;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

/// Measures Remanent beside its rivals, interleaved in one run.
///
/// Prints a table on stdout and writes NAME.json and SVG plots. On a shared machine only the ratios
/// mean something; they are the medians of ratios taken round by round.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    /// What to measure.
    #[arg(value_name = "NAME")]
    bench: Bench,

    /// End within a minute: fewer rounds and smaller data sets (claims say so in their names).
    #[arg(long)]
    quick: bool,

    /// Directory for NAME.json and the plots; made when absent.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    out: PathBuf,

    /// Where pools and other data in memory lie: a tmpfs.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    dir: PathBuf,

    /// Where data that is synced to a real disk lies.
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    disk: PathBuf,

    /// With `line-tx`: measure the paper's aspect too, compiled now by `ag++` (Debian: aspectc++).
    #[arg(long)]
    with_aspectc: bool,

    /// With `berkeley-db`: a directory to measure in, and what to call it. What is called remanent is compared
    /// with the others, and all with the first. Default: --dir, and disks of ours in pools there, without a
    /// file system.
    #[arg(long, value_name = "NAME=DIR", value_parser = named_place)]
    on: Vec<Place>,

    /// With `berkeley-db`: inserts of a sample, and as many updates and deletes. Default: 20,000, and 2,000
    /// with --quick.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,

    /// With `maps` and `disk`: sizes whose numbers mean nothing, to see that it works.
    #[arg(long, hide = true)]
    tiny: bool,
}

const EXAMPLES: &str = "\
Examples:
  remanent-bench primitives --quick          what a fence costs on this machine
  remanent-bench hashmap --out results       the hash map beside TBB and libpmemobj
  remanent-bench maps --quick                the paper's figures; ordered maps beside LMDB and redb
  remanent-bench line-tx --with-aspectc      transactions beside libpmemobj and the paper's aspect
  remanent-bench batch-list --disk /var/tmp  durable puts beside LMDB, SQLite, RocksDB and redb
  remanent-bench disk                        block devices beside libpmemblk and nbdkit (needs fio)
  remanent-bench sqlite --disk /var/tmp      SQLite in a pool beside a real disk and a tmpfs
  remanent-bench berkeley-db --on tmpfs=/dev/shm --on disk=/mnt/disk
  REMANENT_BIN=./remanent remanent-bench kv  the server beside Redis";

/// The benches, by the names they are called with.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Bench {
    /// Ordering methods, fences, bandwidth and latency of memory (nvramdisk, Tables 4 and 5, Figure 7).
    Primitives,
    /// The hash map beside TBB's and one on libpmemobj (NVC-Hashmap, section 5).
    Hashmap,
    /// The paper's hash map and tree (Figures 4 to 7); the ordered map beside std, LMDB and redb.
    Maps,
    /// The process that `maps` kills: fills a map in `--dir` and writes to it for ever.
    #[value(hide = true)]
    MapsWriter,
    /// Cache-line transactions: the paper's bounded buffer beside libpmemobj's (Figures 6 to 8).
    LineTx,
    /// Durable and batched puts on a real disk, beside LMDB, SQLite, RocksDB and redb.
    BatchList,
    /// Block devices: ours, the nvramdisk paper's by its policies, libpmemblk; over NBD beside nbdkit.
    Disk,
    /// Inserts into SQLite by journal mode, on a disk, a tmpfs and in a pool (nvramdisk, Figures 13, 15).
    Sqlite,
    /// Berkeley DB as memcachedb uses it, in one directory beside another (nvramdisk, Figure 11).
    BerkeleyDb,
    /// Time from exec to the first correct GET after a SIGKILL, beside Redis.
    Restart,
    /// Throughput and memory of the server beside Redis, by redis-benchmark.
    Kv,
}

/// How a bench is to run.
struct Setup {
    quick: bool,
    dir: PathBuf,
    disk: PathBuf,
    with_aspectc: bool,
    on: Vec<Place>,
    operations: Option<u64>,
    tiny: bool,
}

/// A directory to measure in.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    path: PathBuf,
}

fn named_place(text: &str) -> Result<Place, String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok(Place { name: name.to_owned(), path: path.into() })
        }
        _ => Err(format!("`{text}` is not a name and a directory, such as tmpfs=/dev/shm")),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    cleanup::install()?;
    let is_line_tx = matches!(arguments.bench, Bench::LineTx);
    ensure!(
        is_line_tx || !arguments.with_aspectc,
        "--with-aspectc is for `line-tx`: no other bench has an aspect"
    );
    let is_berkeley_db = matches!(arguments.bench, Bench::BerkeleyDb);
    ensure!(
        is_berkeley_db || arguments.on.is_empty() && arguments.operations.is_none(),
        "--on and --operations are for `berkeley-db`"
    );
    let setup = Setup {
        quick: arguments.quick,
        dir: arguments.dir,
        disk: arguments.disk,
        with_aspectc: arguments.with_aspectc,
        on: arguments.on,
        operations: arguments.operations,
        tiny: arguments.tiny,
    };
    let report = match arguments.bench {
        Bench::Primitives => figures::primitives::run(&setup),
        Bench::Hashmap => figures::hashmap::run(&setup),
        Bench::Maps => figures::maps::run(&setup),
        Bench::MapsWriter => match figures::maps::write_until_killed(&setup)? {},
        Bench::LineTx => figures::line_tx::run(&setup),
        Bench::BatchList => figures::batch_list::run(&setup),
        Bench::Disk => figures::disk::run(&setup),
        Bench::Sqlite => figures::sqlite::run(&setup),
        Bench::BerkeleyDb => figures::berkeley_db::run(&setup),
        Bench::Restart => figures::restart::run(&setup),
        Bench::Kv => figures::kv::run(&setup),
    }?;
    report.finish(&arguments.out)
}
