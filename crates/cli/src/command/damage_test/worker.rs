//! Judging damaged pools in separate processes, so that panics and hangs are distinguished from
//! answers.

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use remanent_crashtest::damage::{Answers, Originals, Subject, judge};
use serde_json::{Value, json};

/// Bytes by which a worker, or the file of a pool, may grow while one damaged pool is judged.
const GROWTH_MAX: u64 = 256 << 20;

/// The outcome of one damaged pool.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) seed: u64,
    pub(super) end: End,
}

#[derive(Clone, Debug)]
pub(super) enum End {
    /// The pool answered: the verdict of the worker.
    Judged(Value),
    /// The process died: its last output.
    Died(String),
    /// The process did not end in time.
    Hung,
}

/// The work of a worker: judges the pools of `seeds`, and prints a line for each.
pub(super) fn work(
    subject: &dyn Subject,
    directory: &Path,
    seed: u64,
    pools: u64,
) -> anyhow::Result<()> {
    let originals = Originals::make(subject, directory)?;
    let mut stdout = std::io::stdout().lock();
    let mut peak = peak_len();
    for seed in seed..seed + pools {
        let verdict = judge(subject, &originals, directory, seed)?;
        let grown = peak_len().saturating_sub(peak).max(verdict.growth);
        peak = peak_len();
        let line = json!({
            "damage": verdict.damage.to_string(),
            "was_killed": verdict.was_killed,
            "contradictions": verdict.contradictions,
            "refused": verdict.refused,
            "read": answers(&verdict.read),
            "reread": answers(&verdict.reread),
            "grown": grown > GROWTH_MAX,
        });
        writeln!(stdout, "{line}")?;
    }
    Ok(())
}

fn answers(answers: &Answers) -> Value {
    json!({
        "right": answers.right,
        "errors": answers.errors,
        "absent": answers.absent,
        "older": answers.older,
        "wrong": answers.wrong,
        "endless": answers.endless,
        "first": answers.first,
        "first_error": answers.first_error,
    })
}

/// The peak memory of this process in bytes.
fn peak_len() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// A directory in memory, if possible; removed with its content.
struct Scratch(PathBuf);

impl Scratch {
    fn make(name: &str) -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let directory = parent.join(format!("remanent-damage-{}-{name}", std::process::id()));
        std::fs::create_dir(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Scratch(directory))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes workers judge the pools of `seeds`. A worker that dies or hangs is replaced.
pub(super) fn supervise(
    kind: &str,
    seeds: Range<u64>,
    patience: Duration,
) -> anyhow::Result<Vec<Outcome>> {
    let scratch = Scratch::make(&format!("{kind}-{}", seeds.start))?;
    let mut outcomes = Vec::new();
    let mut seed = seeds.start;
    while seed < seeds.end {
        let mut worker = Worker::start(kind, seed..seeds.end, &scratch.0)?;
        let first = seed;
        while seed < seeds.end {
            let end = worker.next(patience);
            let goes_on = matches!(end, End::Judged(_));
            outcomes.push(Outcome { seed, end });
            seed += 1;
            if !goes_on {
                break;
            }
        }
        let said = worker.end();
        // A worker that cannot even begin would be restarted without end.
        if let (true, Some(End::Died(_))) = (seed == first + 1, outcomes.last().map(|o| &o.end))
            && said.contains("error: ")
        {
            bail!("a worker failed: {said}");
        }
        if let Some(Outcome { end: End::Died(last), .. }) = outcomes.last_mut() {
            *last = said;
        }
    }
    Ok(outcomes)
}

/// A process that judges pools.
struct Worker {
    child: Child,
    lines: Receiver<String>,
    errors: thread::JoinHandle<String>,
}

impl Worker {
    fn start(kind: &str, seeds: Range<u64>, directory: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program)
            .args(["damage-test", "--structure", kind])
            .args(["--seed", &seeds.start.to_string()])
            .args(["--pools", &(seeds.end - seeds.start).to_string(), "--work-in"])
            .arg(directory)
            .envs([("REMANENT_LOG", "off"), ("RUST_BACKTRACE", "0")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a worker")?;
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
        });
        let errors = thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            lines.take(40).collect::<Vec<_>>().join("\n")
        });
        Ok(Worker { child, lines, errors })
    }

    fn next(&mut self, patience: Duration) -> End {
        match self.lines.recv_timeout(patience) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(verdict) => End::Judged(verdict),
                Err(_) => End::Died(line),
            },
            Err(RecvTimeoutError::Timeout) => End::Hung,
            Err(RecvTimeoutError::Disconnected) => End::Died(String::new()),
        }
    }

    /// Ends the process, and returns its output on standard error.
    fn end(mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.errors.join().unwrap_or_default()
    }
}
