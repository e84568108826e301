//! Measuring: samples and their statistics, clocks, and the order of contenders.
//!
//! The machine is noisy, so a number means little and a ratio much: contenders take turns in one
//! run, the one that begins changes every round, and a ratio is the median of the rounds' ratios.

mod anova;
mod progress;
mod samples;
mod timing;

pub(crate) use anova::Anova;
pub(crate) use progress::Progress;
pub(crate) use samples::Samples;
#[cfg(has_berkeley_db)]
pub(crate) use timing::process_cpu;
pub(crate) use timing::{mean_ns, sample_ns, timed, turns};
