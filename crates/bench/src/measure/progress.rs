//! The progress bar of a bench.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows on stderr what is being measured, if stderr is a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar over `steps` measurements of the bench `name`.
    pub(crate) fn new(name: &str, steps: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{prefix} [{elapsed}] {wide_bar} {pos}/{len} {msg}")
                .expect("the template is well formed");
        bar.set_style(style);
        bar.set_prefix(name.to_owned());
        Progress(bar)
    }

    /// Announces the next measurement.
    pub(crate) fn step(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
        self.0.inc(1);
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
