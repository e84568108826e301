//! The rig's program: its command line, and with the feature `client-tests` the machines whose
//! power it cuts.

mod command;
#[cfg(feature = "client-tests")]
mod power_cuts;

use std::process::{Command, Output};

fn rig(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_remanent-rig"))
        .args(arguments)
        .output()
        .expect("the rig's program runs")
}
