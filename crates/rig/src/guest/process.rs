//! Programs in the guest.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Timeout, longer than anything that is waited for takes in an emulated machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a program to its end, and returns its output, whether or not it succeeds.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<Output> {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))
}

/// Runs a program that must succeed, and returns what it wrote to standard output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = output(program, arguments)?;
    if !output.status.success() {
        bail!("{program} {} failed: {}", arguments.join(" "), said(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Output and exit status of a program in one line.
pub(crate) fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().replace('\n', " / ");
    format!("{}: {} {}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Starts a program that stays; its messages go to the console.
pub(crate) fn start(program: &str, arguments: &[&str]) -> Result<Child> {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {program}"))
}

/// Waits until a started program has created a file, such as its socket.
pub(crate) fn wait_for_file(path: &Path, child: &mut Child) -> Result<()> {
    wait_until(&format!("{} is there", path.display()), || {
        if let Some(status) = child.try_wait()? {
            bail!("what should make {} ended with {status}", path.display());
        }
        Ok(path.exists())
    })
}

/// Waits until `is_so` returns true; an error names `what` was waited for.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > PATIENCE {
            bail!("waited for {} s in vain until {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
