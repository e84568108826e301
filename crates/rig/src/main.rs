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
mod random;
mod scenario;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match arguments::Arguments::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
