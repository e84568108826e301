//! The command line.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::figures::bench::Bench;
use crate::figures::{BENCHES, named};
use crate::setup::Setup;

/// Measures Remanent beside its rivals, interleaved in one run.
///
/// Prints a table on stdout and writes NAME.json and SVG plots. On a shared machine only the ratios
/// mean something; they are the medians of ratios taken round by round.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What to measure.
    #[arg(value_name = "NAME", value_parser = parser_of_names())]
    pub(crate) bench: &'static Bench,

    /// Directory for NAME.json and the plots; made when absent.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    pub(crate) out: PathBuf,

    #[command(flatten)]
    pub(crate) setup: Setup,
}

const EXAMPLES: &str = "\
Examples:
  remanent-bench primitives --quick          what a fence costs on this machine
  remanent-bench hashmap --out results       the hash maps beside TBB, libcuckoo and others
  remanent-bench line-tx --with-aspectc      transactions beside libpmemobj and the paper's aspect
  remanent-bench batch-list --disk /var/tmp  durable puts beside LMDB, SQLite, RocksDB and redb
  remanent-bench berkeley-db --on tmpfs=/dev/shm --on disk=/mnt/disk
  REMANENT_BIN=./remanent remanent-bench kv  the server beside Redis";

fn parser_of_names() -> impl TypedValueParser<Value = &'static Bench> {
    let name =
        |bench: &Bench| PossibleValue::new(bench.name).help(bench.about).hide(bench.is_hidden);
    PossibleValuesParser::new(BENCHES.iter().map(name))
        .try_map(|text| named(&text).ok_or_else(|| format!("there is no bench `{text}`")))
}

impl Arguments {
    /// Refuses options that the bench would ignore.
    ///
    /// # Errors
    ///
    /// When there is one.
    pub(crate) fn check(&self) -> Result<()> {
        for extra in self.setup.extras() {
            let takes = |bench: &&Bench| bench.extras.contains(&extra);
            let takers: Vec<_> = BENCHES.iter().filter(takes).map(|bench| bench.name).collect();
            ensure!(
                takes(&self.bench),
                "{} is for `{}`; `{}` does not take it",
                extra.name(),
                takers.join("`, `"),
                self.bench.name
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Arguments {
        Arguments::try_parse_from(line.split(' ')).expect("it can be parsed")
    }

    #[test]
    fn every_name_is_its_bench() {
        for bench in BENCHES {
            let parsed = parse(&format!("remanent-bench {}", bench.name));
            assert_eq!(parsed.bench.name, bench.name);
            parsed.check().expect("no options were given");
        }
        assert!(Arguments::try_parse_from(["remanent-bench", "nothing"]).is_err());
    }

    #[test]
    fn an_option_is_refused_where_it_means_nothing() {
        parse("remanent-bench line-tx --with-aspectc").check().expect("it is for line-tx");
        parse("remanent-bench berkeley-db --on a=b --operations 3").check().expect("it takes both");
        let refused = |line: &str| parse(line).check().expect_err("it is refused").to_string();
        assert_eq!(
            refused("remanent-bench kv --operations 3"),
            "--operations is for `berkeley-db`; `kv` does not take it"
        );
        assert!(refused("remanent-bench berkeley-db --with-aspectc").contains("`line-tx`"));
    }
}
