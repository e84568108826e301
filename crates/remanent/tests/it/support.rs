//! Processes of the examples, and what they leave in their pools.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use remanent::Pool;
use remanent::pmem::heap::Violation;

/// A directory in memory, so that tests do not wait for a disk.
pub(crate) fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("remanent-examples-").tempdir_in(parent).expect("a directory")
}

/// An example and the pool that it works on.
pub(crate) struct Program {
    executable: PathBuf,
    pool: PathBuf,
}

impl Program {
    pub(crate) fn new(name: &str, directory: &Path) -> Program {
        let test = std::env::current_exe().expect("the test has a path");
        let build = test.ancestors().nth(2).expect("it lies in a folder of the build");
        let executable = build.join("examples").join(name);
        // `cargo test` builds the examples, but `--test it` and `--all-targets` do not.
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
        let is_built = modified(&executable) >= modified(&source.with_extension("rs"));
        assert!(
            is_built,
            "{} is missing or older than its source; `cargo build -p remanent --examples` builds it",
            executable.display()
        );
        Program { executable, pool: directory.join("example.pool") }
    }

    fn spawn(&self, arguments: &[&str], input: String) -> Child {
        let mut command = Command::new(&self.executable);
        command.arg(&self.pool).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the example starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        // It fails once the process has been killed.
        std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        child
    }

    /// Runs the program to its end.
    pub(crate) fn output(&self, arguments: &[&str], input: String) -> Output {
        let mut command = Command::new(&self.executable);
        command.arg(&self.pool).args(arguments).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the example starts");
        child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
        child.wait_with_output().expect("it ends")
    }

    /// Runs the program to its end, which must be a good one, and returns the lines that it prints.
    pub(crate) fn run(&self, arguments: &[&str], input: String) -> Vec<String> {
        let output = self.output(arguments, input);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let printed = String::from_utf8(output.stdout).expect("text");
        printed.lines().map(str::to_owned).collect()
    }

    /// Starts the program, and kills it when it has printed `lines` lines. Returns what it has
    /// printed up to its death.
    pub(crate) fn run_until_killed(
        &self,
        arguments: &[&str],
        input: String,
        lines: usize,
    ) -> Vec<String> {
        let mut child = self.spawn(arguments, input);
        let mut output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut printed: Vec<String> =
            output.by_ref().take(lines).map(|line| line.expect("text")).collect();
        // SIGKILL: the process runs nothing more of its own.
        child.kill().expect("it is there to be killed");
        let status = child.wait().expect("it was killed");
        assert_eq!(status.code(), None, "{arguments:?} ended before it was killed: {printed:?}");
        // A line that is cut off acknowledges nothing, but the program writes whole ones.
        printed.extend(output.map(|line| line.expect("text")));
        printed
    }

    /// Starts the program, and kills it after a time, if it has not ended by then.
    pub(crate) fn run_until_killed_after(&self, arguments: &[&str], delay: Duration) {
        let mut child = self.spawn(arguments, String::new());
        std::thread::sleep(delay);
        child.kill().expect("it is there, or has just ended");
        child.wait().expect("it has ended");
    }

    /// Opens the pool that the program has left, and panics with what is wrong with it.
    pub(crate) fn open_whole_pool(&self) -> Pool {
        let pool = Pool::options().open(&self.pool).expect("the pool opens");
        assert_whole(pool.check().expect("it is read").violations);
        pool
    }
}

/// When a file was changed last; `None` when it is missing.
fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// Panics with what is wrong with a structure.
pub(crate) fn assert_whole(violations: Vec<Violation>) {
    assert!(violations.is_empty(), "{violations:?}");
}
