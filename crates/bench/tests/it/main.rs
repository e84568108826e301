//! `remanent-bench` from end to end, with sizes whose numbers mean nothing.

#![forbid(unsafe_code)]

mod berkeley_db;
mod disk;
mod hashmap;
mod maps;
mod recovery;
mod rewrites;
mod row_index;
mod skip_list;
mod sqlite;
mod tatp;
mod transactions;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Executes `remanent-bench` with these arguments; results go to `out`.
fn execute(arguments: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remanent-bench"));
    command.args(arguments).arg("--out").arg(out).output().expect("the program can be executed")
}

/// Runs a bench that must succeed and returns what it wrote to `out`.
fn run(arguments: &[&str], out: &Path) -> Value {
    let output = execute(arguments, out);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    report(arguments[0], out)
}

/// The JSON that the bench `name` wrote to `out`.
fn report(name: &str, out: &Path) -> Value {
    let text = std::fs::read_to_string(out.join(format!("{name}.json"))).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

/// The rows or claims of a report.
fn list<'a>(report: &'a Value, name: &str) -> &'a [Value] {
    report[name].as_array().expect("it is a list")
}

/// Whether a series has rows in the report.
fn has_series(report: &Value, series: &str) -> bool {
    list(report, "rows").iter().any(|row| row["series"] == series)
}

/// The value of a claim, if it is in the report and has one.
fn claim(report: &Value, id: &str) -> Option<f64> {
    let claim = list(report, "claims").iter().find(|claim| claim["id"] == id);
    claim.and_then(|claim| claim["value"].as_f64())
}

/// Asserts that a claim is there, with a value above zero.
fn assert_claim(report: &Value, id: &str) {
    let value = claim(report, id);
    assert!(value.is_some_and(|value| value > 0.0), "{id}: {value:?}");
}

/// Asserts that these charts of the bench `name` were drawn into `out`.
fn assert_charts(name: &str, charts: &[&str], out: &Path) {
    for chart in charts {
        let path = out.join(format!("{name}-{chart}.svg"));
        let plot = std::fs::read_to_string(&path).expect("it was drawn");
        assert!(plot.starts_with("<svg"), "{}", path.display());
    }
}

/// A directory for results that goes away with the value.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("the temporary directory is writable")
}

/// The system's directory for temporary files, as an argument.
fn temporary() -> String {
    std::env::temp_dir().to_str().expect("its name is UTF-8").to_owned()
}
