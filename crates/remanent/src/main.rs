//! The command `remanent`.
#![forbid(unsafe_code)]

mod command;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
                .with_env_var("REMANENT_LOG")
                .from_env_lossy(),
        )
        .with_writer(std::io::stderr)
        .init();
    match command::Arguments::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
