//! `remanent serve`, the command under test, as a process of its own.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::server::{Server, free_address};

/// Names the command to be measured when it is not beside this one.
const PATH_VARIABLE: &str = "REMANENT_BIN";
/// Bytes of a file-system block as `st_blocks` counts them, whatever the file system's own.
const STAT_BLOCK_LEN: u64 = 512;

/// Finds the `remanent` command: `$REMANENT_BIN`, or the one beside this executable.
///
/// # Errors
///
/// When there is none; the text says how to build it.
pub(crate) fn find() -> Result<PathBuf> {
    if let Some(path) = env::var_os(PATH_VARIABLE).map(PathBuf::from) {
        if path.is_file() {
            return Ok(path);
        }
        bail!("{PATH_VARIABLE} names {}, which is not a file", path.display());
    }
    let own = env::current_exe().context("cannot tell where this executable lies")?;
    let path = own.with_file_name("remanent");
    if path.is_file() {
        return Ok(path);
    }
    bail!(
        "there is no `remanent` at {}: build it with `cargo build --release -p remanent-cli`, or name one \
         in {PATH_VARIABLE}",
        path.display()
    )
}

/// Starts `remanent serve` on a free loopback port with its pool at `pool`.
///
/// # Errors
///
/// When it cannot be started.
pub(crate) fn start(program: &Path, pool: &Path) -> Result<Server> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--pool").arg(pool).arg("--listen").arg(address.to_string());
    command.args(["--size", POOL_SIZE_MAX]);
    Server::start(&mut command, address, &pool.with_extension("log"))
}

/// Room for ten million entries and more; the file takes only what is used.
const POOL_SIZE_MAX: &str = "8G";

/// Bytes of storage that the pool file occupies.
///
/// # Errors
///
/// When the file is not there.
pub(crate) fn physical_len(pool: &Path) -> Result<f64> {
    let metadata = fs::metadata(pool).with_context(|| format!("no pool at {}", pool.display()))?;
    Ok((metadata.blocks() * STAT_BLOCK_LEN) as f64)
}
