//! The result of a run, for people and for programs.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// The result of a run.
pub(crate) struct Report {
    scenario: &'static str,
    seed: u64,
    cuts: u32,
    cuts_in_opening: u32,
    /// Writes acknowledged under load.
    pub(crate) acks: u64,
    /// Acknowledged writes that are gone.
    pub(crate) losses: Vec<String>,
    facts: BTreeMap<String, Vec<f64>>,
}

impl Report {
    pub(crate) fn new(scenario: &'static str, seed: u64) -> Report {
        let facts = BTreeMap::new();
        Report { scenario, seed, cuts: 0, cuts_in_opening: 0, acks: 0, losses: Vec::new(), facts }
    }

    pub(crate) fn cuts(&self) -> u32 {
        self.cuts
    }

    pub(crate) fn count_cut(&mut self, is_in_opening: bool) {
        self.cuts += 1;
        self.cuts_in_opening += u32::from(is_in_opening);
    }

    /// Adds a measured value to those of `name`, which ends with its unit.
    pub(crate) fn add_fact(&mut self, name: &str, value: f64) {
        self.facts.entry(name.to_owned()).or_default().push(value);
    }

    pub(crate) fn print(&self, as_json: bool) -> Result<()> {
        let facts = self.facts.iter().map(|(name, values)| {
            let (median, max) = median_and_max(values);
            (name.clone(), json!({ "median": median, "max": max }))
        });
        if as_json {
            let facts: serde_json::Map<_, _> = facts.collect();
            let report = json!({
                "scenario": self.scenario,
                "seed": self.seed,
                "cuts": self.cuts,
                "cuts_in_opening": self.cuts_in_opening,
                "acks": self.acks,
                "losses": self.losses,
                "facts": facts,
            });
            println!("{report:#}");
            return Ok(());
        }
        println!(
            "{}: {} cuts, {} of them while opening; {} writes acknowledged; {}",
            self.scenario,
            self.cuts,
            self.cuts_in_opening,
            self.acks,
            if self.losses.is_empty() { "none lost" } else { "LOST:" }
        );
        for loss in &self.losses {
            println!("  {loss}");
        }
        for (name, values) in &self.facts {
            let (median, max) = median_and_max(values);
            println!("  {name:<20} median {median:.1}, longest {max:.1}");
        }
        Ok(())
    }
}

fn median_and_max(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
    (at(sorted.len() / 2), at(sorted.len().saturating_sub(1)))
}

/// A progress bar on a terminal; nothing elsewhere.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(cuts: u64, is_wanted: bool) -> Progress {
        if !is_wanted || !std::io::stderr().is_terminal() {
            return Progress(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(cuts);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} cuts, {elapsed}: {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(std::time::Duration::from_millis(250));
        Progress(bar)
    }

    pub(crate) fn say(&self, what: &'static str) {
        self.0.set_message(what);
    }

    pub(crate) fn advance(&self, report: &Report) {
        self.0.inc(1);
        self.0.println(format!("{} cuts, {} writes acknowledged", report.cuts, report.acks));
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Shows the present activity and its duration on a terminal; nothing elsewhere. Disappears when
/// dropped.
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    pub(crate) fn new(is_wanted: bool) -> Spinner {
        if !is_wanted || !std::io::stderr().is_terminal() {
            return Spinner(ProgressBar::hidden());
        }
        let spinner = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {elapsed}: {msg}");
        spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        spinner.enable_steady_tick(std::time::Duration::from_millis(250));
        Spinner(spinner)
    }

    pub(crate) fn say(&self, what: &'static str) {
        self.0.set_message(what);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_longest_are_found() {
        assert_eq!(median_and_max(&[3.0, 1.0, 2.0]), (2.0, 3.0));
        assert_eq!(median_and_max(&[5.0]), (5.0, 5.0));
        assert_eq!(median_and_max(&[]), (0.0, 0.0));
    }
}
