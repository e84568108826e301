//! The power-cut rig: a machine with persistent memory whose power fails while Remanent works in it.
//!
//! One program with two lives. On the host it boots Debian's kernel in QEMU with an NVDIMM, kills
//! the machine at a random moment, and boots it again (`host`). In the guest it starts what is under
//! test, puts load on it, tells the host what was acknowledged, and after the next boot checks what
//! is left (`guest`). What is started, loaded and checked is a scenario (`scenario`); what is only measured there,
//! since it needs the guest's kernel, is a measurement (`measurement`). docs/power-cuts.md says
//! what this shows and what it does not.
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
