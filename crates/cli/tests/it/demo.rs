//! `remanent demo recovery`, with sizes whose numbers mean nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::support::{PATIENCE, directory, remanent};

const POLICIES: [&str; 3] = ["wait", "background", "all-pmem"];
const TINY: [&str; 10] = [
    "demo",
    "recovery",
    "--subscribers",
    "2k",
    "--users",
    "2",
    "--kill-after",
    "300ms",
    "--watch",
    "300ms",
];

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn each_policy_answers_again_and_is_drawn() {
    let directory = directory();
    let [pools, svg] = [".", "recovery.svg"].map(|name| path(directory.path(), name));
    let arguments = ["--dir", &pools, "--svg", &svg, "--long-transactions", "5"];
    let output = remanent(&[&TINY[..], &arguments].concat());
    let told = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    // Plain lines: standard output is no terminal.
    assert!(!told.contains(['\u{1b}', '\r', '▁']), "{told}");
    let (_, table) = told.split_once("\npolicy").expect("a table");
    for policy in POLICIES {
        assert!(table.lines().any(|line| line.starts_with(policy)), "{told}");
        for what in [
            "killed at",
            "first answer",
            "5 long transactions resumed",
            "5 long transactions committed",
        ] {
            assert!(told.contains(&format!("{policy}: {what}")), "{policy}, {what}: {told}");
        }
    }
    let drawn = fs::read_to_string(&svg).expect("a drawing");
    assert_well_formed(&drawn);
    POLICIES.iter().for_each(|policy| assert!(drawn.contains(policy), "{policy} is not drawn"));
    assert_only(directory.path(), &["recovery.svg"]);
}

#[test]
fn machines_read_of_statements_that_took_effect_once() {
    let directory = directory();
    let [pools, svg] = [".", "recovery.svg"].map(|name| path(directory.path(), name));
    let chosen = ["--policy", "background,wait", "--in-pool", "40", "--latency", "200ns"];
    let arguments = ["--dir", &pools, "--svg", &svg, "--json"];
    let output = remanent(&[&TINY[..], &chosen, &arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let policies = report["policies"].as_array().expect("a list");
    assert_eq!(policies.len(), 2);
    for (policy, name) in policies.iter().zip(["background", "wait"]) {
        assert_eq!(policy["policy"], name);
        assert_eq!(policy["latency_ns"], 200);
        for number in ["first_answer_ms", "lost_ms", "full_ktps", "in_pool_percent"] {
            assert!(policy[number].as_f64().is_some_and(|number| number > 0.0), "{policy:#}");
        }
        assert!(policy["before"][0]["at_ms"].as_f64() < Some(0.0), "{policy:#}");
        assert!(policy["after"][0]["at_ms"].as_f64() > Some(0.0), "{policy:#}");
        let long = policy["long_transactions"].as_array().expect("a list");
        assert_eq!(long.len(), 3);
        for transaction in long {
            let [acknowledged, resumed, committed, counted] =
                ["acknowledged", "resumed", "committed", "counted"]
                    .map(|number| transaction[number].as_u64().expect("a number"));
            assert!(acknowledged > 0, "{transaction}");
            assert!((acknowledged..=acknowledged + 1).contains(&resumed), "{transaction}");
            assert!(committed > resumed && committed == counted, "{transaction}");
        }
    }
    assert_only(directory.path(), &["recovery.svg"]);
}

#[test]
fn an_interruption_leaves_no_process_and_no_pool() {
    for moment in ["loading", "wait: killed", "wait: first answer"] {
        let directory = directory();
        let pools = path(directory.path(), ".");
        let mut child = Command::new(env!("CARGO_BIN_EXE_remanent"))
            .args(["demo", "recovery", "--subscribers", "20k", "--dir", &pools])
            .args(["--kill-after", "300ms", "--watch", "1m"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let stdout = child.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with(moment)), "it ended before {moment:?}");
        let pid = Pid::from_raw(child.id() as i32).expect("a process id");
        kill_process(pid, Signal::INT).expect("it can be signalled");
        wait_for(&mut child, moment);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{moment}: {output:?}");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.starts_with("interrupted"), "{moment}: {said}");
        assert_only(directory.path(), &[]);
        let left = processes_of(directory.path());
        assert!(left.is_empty(), "{moment}: {left:?}");
    }
}

#[test]
fn sizes_that_make_no_sense_are_explained() {
    for (option, value, advice) in [
        ("--subscribers", "many", "100k"),
        ("--latency", "slow", "200ns"),
        ("--kill-after", "1ms", "100ms"),
        ("--policy", "none", "all-pmem"),
        ("--in-pool", "101", "100"),
    ] {
        let output = remanent(&["demo", "recovery", option, value]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(advice), "{said}");
    }
    let directory = directory();
    let nowhere = path(directory.path(), "nowhere");
    let output = remanent(&[&TINY[..], &["--dir", &nowhere]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nowhere") && said.contains("--dir"), "{said}");
}

fn wait_for(child: &mut Child, moment: &str) {
    let begin = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        assert!(begin.elapsed() < PATIENCE, "{moment}: it does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn assert_only(directory: &Path, names: &[&str]) {
    let entries = fs::read_dir(directory).expect("a directory");
    let found: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(found, names, "what is left in {}", directory.display());
}

/// Command lines of processes that name this directory.
fn processes_of(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().expect("a path in UTF-8");
    let processes = fs::read_dir("/proc").expect("procfs").flatten();
    let lines = processes.filter_map(|of| fs::read_to_string(of.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(directory)).collect()
}

/// Every element of the SVG is closed where it was opened.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    let (mut elements, mut rest) = (0, svg);
    while let Some((_, tag)) = rest.split_once('<') {
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        rest = after;
        let name = tag.split_whitespace().next().expect("a tag has a name");
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{svg}");
        } else if !name.starts_with(['?', '!']) {
            elements += 1;
            assert_eq!(open.is_empty(), elements == 1, "one root: {svg}");
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty() && svg.contains("<polyline"), "{svg}");
}
