//! What the command prints, and what becomes of it where nobody reads it.
//!
//! Standard output may be a pipe whose reader has gone, or a file on a full disk. That is no reason to panic: the rest of
//! the output is dropped, and the command ends with status 1.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first error of standard output.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Whether what could not be printed was for people who watch.
static IS_OPTIONAL: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output, as `println!` does; an error is told by [`end`].
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

/// A text without what would steer a terminal: names in a pool may be anybody's.
fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |letter: char| letter.is_control() && letter != '\n';
    if !text.contains(steers) {
        return text.into();
    }
    // As in JSON, where some come unescaped.
    let escape = |letter: char| match steers(letter) {
        true => format!("\\u{:04x}", u32::from(letter)),
        false => letter.to_string(),
    };
    text.chars().map(escape).collect()
}

/// A name as it is shown: on one line.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    if name.contains('\n') { name.replace('\n', "\\n").into() } else { name.into() }
}

/// Prints a line on standard output that is for people who watch; that nobody does is no failure.
pub(crate) fn announce(text: &str) {
    if writeln!(io::stdout(), "{}", harmless(text)).is_err() {
        // Relaxed: a flag that this thread reads at its end.
        IS_OPTIONAL.store(true, Ordering::Relaxed);
    }
}

/// Prints a line on standard error; there is nobody to tell if that fails.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", harmless(&text.to_string()));
}

/// Whether nobody reads what is printed, so that there is no use in going on for it.
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

/// The status that the command ends with: `code`, unless its output was lost.
pub(crate) fn end(code: ExitCode) -> ExitCode {
    // Relaxed: as in `announce`.
    if !has_failed() && !IS_OPTIONAL.load(Ordering::Relaxed) {
        note(io::stdout().flush());
    }
    let Some(error) = FAILURE.get() else { return code };
    // Who closes a pipe knows.
    if error.kind() != io::ErrorKind::BrokenPipe {
        complain(format_args!("error: cannot write to standard output: {error}"));
    }
    ExitCode::FAILURE
}

/// An error and its causes on one line; what a cause says that was said already is left out.
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
