//! What the scenarios of a subject must have executed: every flush and every fence of its sources.
//!
//! A call that no scenario comes to stands in code that no crash is explored in. Calls are found by
//! their text, and compared with the places that the simulator saw. Calls inside of functions with
//! `#[track_caller]` are seen at the places that those are called from.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;
use remanent_crashsim::Site;
use remanent_crashtest::Subject;

/// How a call that flushes or fences looks.
const CALLS: [&str; 3] = [".fence(", ".fence_with(", ".flush_noted("];
/// The same of those that name a range; without one they are the structures' own.
const CALLS_OF_RANGES: [&str; 2] = [".flush(", ".persist("];

/// Calls that no scenario comes to: the end of the file's path, a part of the line, and why.
const UNREACHED: &[(&str, &str, &str)] = &[
    (
        "structures/src/line_tx/recover.rs",
        "                medium.fence();",
        "bounds what is flushed at once while more than a thousand objects are created, to which nothing leads yet",
    ),
    ("papers/append_list.rs", "stream.flush(", STREAMS),
    ("batch_list/log.rs", "stream.flush(", STREAMS),
    ("papers/table_list.rs", "stream.flush(", STREAMS),
    (
        "pmem/src/heap/sweep.rs",
        "            lane.fence();",
        "frees runs of chunks: `engine/schema-large` comes to it with seeds that drop a table with rows",
    ),
    (
        "pmem/src/heap/recover.rs",
        "self.flush_noted();",
        "flushes something only where the last operation of a lane has ended without a fence",
    ),
];

const STREAMS: &str = "the stream's own: what it flushes is flushed in stream.rs";

/// Calls in the sources of a subject that are not among `sites` and that nothing explains.
pub(crate) fn unreached(subject: &Subject, sites: &BTreeSet<Site>) -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies among the crates");
    let mut files = Vec::new();
    for source in subject.sources {
        let before = files.len();
        collect(&crates.join(source), &mut files);
        assert!(files.len() > before, "no source in {source}");
    }
    let elsewhere = subject.sources_elsewhere;
    let mut missed = Vec::new();
    for file in files {
        let name = file.strip_prefix(crates).expect("found there").display().to_string();
        if elsewhere.iter().any(|path| name.starts_with(path)) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file");
        for (line, code) in calls(&text) {
            let is_seen = |site: &Site| site.line == line && site.file.ends_with(&name);
            if !sites.iter().any(is_seen) && reason(&name, code).is_none() {
                missed.push(format!("{name}:{line}: {}", code.trim()));
            }
        }
    }
    missed
}

fn reason(file: &str, code: &str) -> Option<&'static str> {
    let is_it = |known: &&(&str, &str, &str)| file.ends_with(known.0) && code.contains(known.1);
    UNREACHED.iter().find(is_it).map(|known| known.2)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("a folder of sources");
        let mut entries: Vec<PathBuf> =
            entries.map(|entry| entry.expect("a folder of sources").path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| collect(entry, files));
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        files.push(path.to_owned());
    }
}

/// Lines with a call, by number, outside of comments, tests, and functions that stand for their
/// callers.
fn calls(text: &str) -> Vec<(u32, &str)> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines());
    let mut is_for_caller = false;
    while let Some((number, line)) = lines.next() {
        let code = line.trim_start();
        if code == "#[cfg(test)]" {
            break;
        }
        is_for_caller |= code.starts_with("#[track_caller]");
        let is_function = code.split_whitespace().take(6).any(|word| word == "fn");
        if is_for_caller && is_function {
            is_for_caller = false;
            let end = format!("{}}}", &line[..line.len() - code.len()]);
            if !line.trim_end().ends_with('}') {
                lines.find(|(_, line)| *line == end);
            }
            continue;
        }
        if !code.starts_with("//") && is_call(code) {
            found.push((number, line));
        }
    }
    found
}

fn is_call(code: &str) -> bool {
    let has_range = |call: &&str| code.split(*call).skip(1).any(|rest| !rest.starts_with(')'));
    CALLS.iter().any(|call| code.contains(call)) || CALLS_OF_RANGES.iter().any(has_range)
}

/// Calls are found outside of comments, tests and functions that stand for their callers.
pub(crate) fn find_calls() -> Result<(), Failed> {
    let text = "\
fn a() {
    // x.flush(1);
    x.flush(1);
    x
        .persist(2);
}

#[inline]
#[track_caller]
fn b() {
    x.fence();
}

fn c() { x.fence(); }
fn d() { log.persist()?; }

#[cfg(test)]
mod tests { fn d() { x.fence(); } }
";
    let lines: Vec<u32> = calls(text).into_iter().map(|(line, _)| line).collect();
    if lines == [3, 5, 14] { Ok(()) } else { Err(format!("found in lines {lines:?}").into()) }
}
