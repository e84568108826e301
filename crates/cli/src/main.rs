//! The command `remanent`.
#![forbid(unsafe_code)]

mod command;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use command::output;

fn main() -> ExitCode {
    remanent::pmem::ignore_file_size_signal();
    start_log();
    let code = match command::Arguments::try_parse() {
        Ok(arguments) => arguments.run().unwrap_or_else(|error| {
            let (told, advice) = (output::describe(&error), command::advice(&error));
            output::complain(format_args!("error: {told}{advice}"));
            ExitCode::FAILURE
        }),
        // Includes the output of `--help` and `--version`.
        Err(told) => {
            output::note(told.print());
            ExitCode::from(told.exit_code() as u8)
        }
    };
    output::end(code)
}

/// Writes messages to standard error, in colour on a terminal.
fn start_log() {
    let may_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
                .with_env_var("REMANENT_LOG")
                .from_env_lossy(),
        )
        .with_ansi(may_colour && std::io::stderr().is_terminal())
        // A log that cannot be written, for example on a full disk, must not end the server that it
        // describes.
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .init();
}
