//! Measuring: samples and their statistics, clocks, and the order of contenders.
//!
//! The machine is noisy, so single numbers mean little and ratios mean much. Contenders take turns
//! in one run, a different one begins in each round, and a ratio is the median of the rounds'
//! ratios.

mod anova;
mod progress;
mod samples;
mod timing;
mod windows;

pub(crate) use anova::Anova;
pub(crate) use progress::Progress;
pub(crate) use samples::Samples;
#[cfg(has_berkeley_db)]
pub(crate) use timing::process_cpu;
pub(crate) use timing::{mean_ns, sample_ns, timed, turns};
pub(crate) use windows::{FULL, Windows};
