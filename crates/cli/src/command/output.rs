//! Output of the command, also when nobody reads it.
//!
//! Standard output may be a pipe whose reader has gone, or a file on a full disk. The command then
//! drops the rest of the output and ends with status 1, without a panic.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first error of standard output.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Whether the output that failed was only for people who watch.
static IS_OPTIONAL: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output, like `println!`; [`end`] reports an error.
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::command::output::line(format_args!($($argument)*))
    };
}
pub(crate) use say;

pub(crate) fn line(text: fmt::Arguments<'_>) {
    if !has_failed() {
        note(writeln!(io::stdout(), "{}", harmless(&text.to_string())));
    }
}

/// The text without characters that control a terminal. Anybody may have chosen the names in a
/// pool.
fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |letter: char| letter.is_control() && letter != '\n';
    if !text.contains(steers) {
        return text.into();
    }
    // As in JSON, which leaves some of them unescaped.
    let escape = |letter: char| match steers(letter) {
        true => format!("\\u{:04x}", u32::from(letter)),
        false => letter.to_string(),
    };
    text.chars().map(escape).collect()
}

/// A name for display, on one line.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    if name.contains('\n') { name.replace('\n', "\\n").into() } else { name.into() }
}

/// Prints a line on standard output for people who watch. If it fails, that is no failure of the
/// command.
pub(crate) fn announce(text: &str) {
    if writeln!(io::stdout(), "{}", harmless(text)).is_err() {
        // Relaxed: a flag that this thread reads at its end.
        IS_OPTIONAL.store(true, Ordering::Relaxed);
    }
}

/// Prints a line on standard error; a failure cannot be reported anywhere.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", harmless(&text.to_string()));
}

/// Whether standard output has failed, so that continuing for it is useless.
pub(crate) fn has_failed() -> bool {
    FAILURE.get().is_some()
}

/// Remembers an error of standard output.
pub(crate) fn note(printed: io::Result<()>) {
    if let Err(error) = printed {
        // The first one counts.
        let _ = FAILURE.set(error);
    }
}

/// The exit status: `code`, unless output was lost.
pub(crate) fn end(code: ExitCode) -> ExitCode {
    // Relaxed: as in `announce`.
    if !has_failed() && !IS_OPTIONAL.load(Ordering::Relaxed) {
        note(io::stdout().flush());
    }
    let Some(error) = FAILURE.get() else { return code };
    // The program that closed the pipe knows.
    if error.kind() != io::ErrorKind::BrokenPipe {
        complain(format_args!("error: cannot write to standard output: {error}"));
    }
    ExitCode::FAILURE
}

/// An error and its causes on one line, without repetitions.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(
        first,
        |text, cause| {
            if text.contains(&cause) { text } else { format!("{text}: {cause}") }
        },
    )
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn causes_are_told_once() {
        let path = std::path::Path::new("/nowhere/a.pool");
        let error = remanent::Pool::options().open(path).map(drop);
        let system = "No such file or directory (os error 2)";
        let error = error.context("cannot serve").unwrap_err();
        assert_eq!(
            describe(&error),
            format!("cannot serve: cannot open /nowhere/a.pool: {system}")
        );
        let error = std::fs::read(path).context("cannot read the password").unwrap_err();
        assert_eq!(describe(&error), format!("cannot read the password: {system}"));
    }
}
