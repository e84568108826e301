//! Outcomes of the damaged pools of a kind, counted.

use serde_json::{Value, json};

use super::worker::{End, Outcome};
use crate::command::output::say;

/// Pools of one kind, by outcome.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The part of them without a checksum.
    unprotected: Option<&'static str>,
    pools: u64,
    right: u64,
    told: u64,
    absent: u64,
    older: u64,
    wrong: u64,
    disturbed: u64,
    unnoticed: u64,
    panics: u64,
    hangs: u64,
    grown: u64,
    /// Seed and outcome of each pool with an outcome that must not happen.
    remarkable: Vec<(u64, String)>,
    /// Seed and outcome of all other pools.
    others: Vec<(u64, String)>,
}

impl Tally {
    pub(super) const HEADINGS: &str = "kind                 pools  right   told absent  older  wrong  \
         disturbed unnoticed panics  hangs  grown";

    pub(super) fn new(unprotected: Option<&'static str>) -> Self {
        Tally { unprotected, ..Tally::default() }
    }

    pub(super) fn add(&mut self, outcome: Outcome) {
        self.pools += 1;
        let (is_remarkable, what) = match &outcome.end {
            End::Died(said) => {
                self.panics += 1;
                (true, format!("the process died: {}", said.replace('\n', " ")))
            }
            End::Hung => {
                self.hangs += 1;
                (true, "the process did not end in time".to_owned())
            }
            End::Judged(verdict) => (self.add_verdict(verdict), describe(verdict)),
        };
        let list = if is_remarkable { &mut self.remarkable } else { &mut self.others };
        list.push((outcome.seed, what));
    }

    /// Counts a pool that answered. Returns whether its outcome is remarkable.
    fn add_verdict(&mut self, verdict: &Value) -> bool {
        let read = |what: &str| verdict["read"][what].as_u64().unwrap_or(0);
        let reread = |what: &str| verdict["reread"][what].as_u64().unwrap_or(0);
        let misled = ["absent", "older", "wrong", "endless"];
        let misleading = misled.iter().any(|what| read(what) > 0);
        let is_told = read("errors") > 0 || !verdict["refused"].is_null();
        let is_noticed = verdict["contradictions"].as_u64() != Some(0);
        let is_disturbed = reread("wrong") > read("wrong") || reread("endless") > 0;
        let is_grown = verdict["grown"] == true || read("endless") > 0;
        let is_unnoticed = !is_noticed && (misleading || is_disturbed);
        self.right += u64::from(!misleading && !is_told);
        self.told += u64::from(!misleading && is_told);
        self.absent += u64::from(read("absent") > 0);
        self.older += u64::from(read("older") > 0);
        self.wrong += u64::from(read("wrong") > 0);
        self.disturbed += u64::from(is_disturbed);
        self.unnoticed += u64::from(is_unnoticed);
        self.grown += u64::from(is_grown);
        is_unnoticed || is_grown || is_disturbed || read("wrong") > 0
    }

    /// Whether no outcome is a failure: data without a checksum may be answered wrongly.
    pub(super) fn is_sound(&self) -> bool {
        let misled = self.wrong + self.disturbed + self.unnoticed;
        self.panics + self.hangs + self.grown == 0 && (misled == 0 || self.unprotected.is_some())
    }

    pub(super) fn print(&self, kind: &str, verbose: bool) {
        say!(
            "{kind:<20} {:>5} {:>6} {:>6} {:>6} {:>6} {:>6} {:>10} {:>9} {:>6} {:>6} {:>6}{}",
            self.pools,
            self.right,
            self.told,
            self.absent,
            self.older,
            self.wrong,
            self.disturbed,
            self.unnoticed,
            self.panics,
            self.hangs,
            self.grown,
            self.unprotected.map_or(String::new(), |what| format!("  ({what}: no checksum)")),
        );
        let others = if verbose { &self.others[..] } else { &[] };
        // Wrong answers from data without checksums are expected.
        let is_news = verbose || !self.is_sound();
        for (seed, what) in self.remarkable.iter().chain(others).filter(|_| is_news) {
            say!("  --structure {kind} --seed {seed} --pools 1: {what}");
        }
    }

    pub(super) fn to_json(&self, kind: &str) -> Value {
        let remarkable =
            self.remarkable.iter().map(|(seed, what)| json!({"seed": seed, "what": what}));
        json!({
            "kind": kind,
            "unprotected": self.unprotected,
            "pools": self.pools,
            "right": self.right,
            "told": self.told,
            "absent": self.absent,
            "older": self.older,
            "wrong": self.wrong,
            "disturbed": self.disturbed,
            "unnoticed": self.unnoticed,
            "panics": self.panics,
            "hangs": self.hangs,
            "grown": self.grown,
            "remarkable": remarkable.collect::<Vec<_>>(),
        })
    }
}

/// A verdict in one line.
fn describe(verdict: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut told = text(&verdict["damage"]);
    if verdict["was_killed"] == true {
        told += ", of a killed process";
    }
    told += &match verdict["contradictions"].as_u64() {
        None => "; the check refuses it".to_owned(),
        Some(count) => format!("; the check finds {count}"),
    };
    for (when, answers) in [("read", &verdict["read"]), ("reread", &verdict["reread"])] {
        let counts = ["right", "errors", "absent", "older", "wrong", "endless"];
        let some = counts.iter().filter_map(|what| {
            answers[what].as_u64().filter(|&count| count > 0).map(|count| format!("{count} {what}"))
        });
        told += &format!("; {when}: {}", some.collect::<Vec<_>>().join(", "));
        for first in ["first", "first_error"] {
            if let Some(first) = answers[first].as_str().filter(|_| when == "read") {
                told += &format!(" ({first})");
            }
        }
    }
    if let Some(refused) = verdict["refused"].as_str() {
        told += &format!("; refused: {refused}");
    }
    told
}
