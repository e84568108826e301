//! `remanent-bench`: Remanent compared with its rivals, and the papers' figures for this machine.
//!
//! `figures` has one module for each bench; `peers` has the contenders, behind common interfaces;
//! `workloads` has the keys. A bench returns a [`report::Report`].

#![deny(unsafe_code)]

mod arguments;
mod cleanup;
mod figures;
mod machine;
mod measure;
mod memory;
mod peers;
mod report;
mod setup;
mod workloads;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    cleanup::install()?;
    let report = (arguments.bench.run)(&arguments.setup)?;
    report.finish(&arguments.out)
}
