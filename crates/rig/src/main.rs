//! The power-cut rig: cuts the power of a machine with persistent memory while Remanent works in
//! it.
//!
//! The program runs on the host and in the guest:
//!
//! - `host` boots Debian's kernel in QEMU with an NVDIMM, kills the machine at a random moment, and
//!   boots it again.
//! - `guest` starts the program under test, puts load on it, reports acknowledgements to the host,
//!   and after the next boot checks what is left.
//! - `scenario` says what is started, loaded and checked.
//! - `measurement` only measures what needs the guest's kernel.
//!
//! docs/power-cuts.md says what the rig shows and what it does not.
#![forbid(unsafe_code)]

mod arguments;
mod guest;
mod host;
mod measurement;
mod message;
mod program;
mod random;
mod scenario;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(run) => host::run(&run),
        Command::Measure(measure) => host::measure::measure(&measure),
        Command::List => {
            for scenario in scenario::ALL {
                println!("{:<16} {}", scenario.name(), scenario.about());
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Check(machine) => host::check(&machine),
        Command::Shell(machine) => host::shell(&machine),
        Command::Guest { life } => guest::serve::run(life),
    }
}
