//! Block devices that a program serves over NBD and the kernel attaches.

use std::path::Path;
use std::process::Child;

use anyhow::{Context, Result};

use super::process::{run, start, wait_for_file, wait_until};

/// Starts a server that listens on the Unix socket `socket`, and attaches its export as a kernel
/// device.
pub(crate) fn attach(server: &[&str], socket: &str, device: &str) -> Result<Child> {
    let (program, arguments) = server.split_first().context("the server has no command line")?;
    let mut server = start(program, arguments)?;
    wait_for_file(Path::new(socket), &mut server)?;
    run("nbd-client", &["-unix", socket, device, "-block-size", "4096"])?;
    let name = device.trim_start_matches("/dev/");
    wait_until("the kernel knows the device's size", || {
        let size = std::fs::read_to_string(format!("/sys/block/{name}/size"))?;
        Ok(size.trim().parse::<u64>().is_ok_and(|sectors| sectors > 0))
    })?;
    Ok(server)
}
