//! The main program of the guest: prepares the memory, starts and checks a scenario, and puts load
//! on it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, mpsc};

use anyhow::{Context, Result, bail};

use super::{Guest, PLACE, PORT, Port, process, storage};
use crate::message::{GO, Message, Order};
use crate::scenario::Storage;
use crate::{measurement, scenario};

/// Tasks that the guest's init script starts.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Life {
    /// Execute the host's orders
    Serve,
    /// Create the memory's file system, if there is none, and mount it
    Prepare,
}

pub(crate) fn run(life: Life) -> Result<ExitCode> {
    if std::process::id() > 1 && !Path::new("/modules").is_dir() {
        bail!("this is for the machine that `remanent-rig run` boots, where it may format disks");
    }
    match life {
        Life::Prepare => {
            if storage::mount_memory(false, PLACE).is_err() {
                storage::mount_memory(true, PLACE)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Life::Serve => {
            process::wait_until("the port to the host is there", || Ok(Path::new(PORT).exists()))?;
            let port = File::options()
                .read(true)
                .write(true)
                .open(PORT)
                .with_context(|| format!("cannot open {PORT}, the port to the host"))?;
            let lines = listen(BufReader::new(port.try_clone()?));
            obey(Port(Mutex::new(port)), &lines);
            // The host ends the machine once it has read the message.
            loop {
                std::thread::park();
            }
        }
    }
}

/// Executes the host's orders. Returns when they are done or cannot be continued.
fn obey(port: Port, lines: &mpsc::Receiver<String>) {
    match receive_order(lines) {
        Ok(Order::Test(job)) => {
            let guest = Guest { port, job };
            let Err(error) = serve(&guest, lines);
            guest.fail(error);
        }
        Ok(Order::Measure(name, words)) => {
            if let Err(error) = measure(&port, &name, &words) {
                port.fail(error);
            }
        }
        Err(error) => port.fail(error),
    }
}

fn receive_order(lines: &mpsc::Receiver<String>) -> Result<Order> {
    let line = lines.recv().context("the host sent no order")?;
    serde_json::from_str(&line).with_context(|| format!("{line:?} is no order"))
}

fn measure(port: &Port, name: &str, words: &[String]) -> Result<()> {
    storage::mount_memory(true, PLACE)?;
    port.tell(&Message::Opening);
    port.tell(&measurement::named(name)?.run(Path::new(PLACE), words)?);
    Ok(())
}

/// Executes the host's job until the power is cut.
fn serve(guest: &Guest, lines: &mpsc::Receiver<String>) -> Result<std::convert::Infallible> {
    let scenario = scenario::named(&guest.job.scenario).map_err(anyhow::Error::msg)?.0;
    match scenario.storage() {
        Storage::Memory => storage::mount_memory(guest.is_first(), PLACE)?,
        Storage::Disk => storage::mount_disk(guest.is_first(), PLACE)?,
    }
    guest.port.tell(&Message::Opening);
    let mut past = guest.job.past.clone();
    let opened = scenario.open(guest, &past)?;
    if !past.acknowledged.is_empty() {
        past.kept.push(opened.kept.clone());
    }
    guest.port.tell(&Message::Checked { kept: opened.kept, facts: opened.facts });
    let answer = lines.recv().context("the host is gone")?;
    if answer != GO {
        bail!("the host said {answer:?}, expected {GO:?}");
    }
    opened.load.run(guest, past.round())
}

/// Lines from the host. When the host is gone, the machine ends, because nobody else would end it.
fn listen(mut reader: BufReader<File>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|len| len > 0) {
            let _ = sender.send(line.trim_end().to_owned());
            line.clear();
        }
        eprintln!("the host is gone");
        let _ = process::run("reboot", &["-f"]);
    });
    receiver
}
