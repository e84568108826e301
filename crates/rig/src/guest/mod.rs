//! The life in the guest: prepares the memory, starts and checks a scenario, and puts load on it.

pub(crate) mod nbd;
pub(crate) mod process;
pub(crate) mod resp;
mod storage;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};

use anyhow::{Context, Result, bail};

use crate::measurement;
use crate::message::{GO, Job, Message, Order};
use crate::scenario::{self, Lost, Storage};

/// What the guest's init script asks for.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Life {
    /// Do what the host asks for
    Serve,
    /// Make the memory's file system, if it has none, and mount it
    Prepare,
}

/// Where the file system is mounted that outlives the machine.
const PLACE: &str = "/mnt";
/// The port that leads to the host; the machine has no other.
const PORT: &str = "/dev/vport0p1";

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
            // The host ends the machine once it has read that.
            loop {
                std::thread::park();
            }
        }
    }
}

/// Does what the host orders, and returns once that has ended, or cannot go on.
fn obey(port: Port, lines: &mpsc::Receiver<String>) {
    match receive_order(lines) {
        Ok(Order::Test(job)) => {
            let guest = Guest { port, job };
            let Err(error) = guest.serve(lines);
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

/// The way to the host.
struct Port(Mutex<File>);

impl Port {
    /// Tells the host why nothing goes on.
    fn fail(&self, error: anyhow::Error) {
        match error.downcast::<Lost>() {
            Ok(Lost(losses)) => self.tell(&Message::Lost(losses)),
            Err(error) => self.tell(&Message::Failed(format!("{error:#}"))),
        }
    }

    /// A message that cannot be sent is one of a machine whose host is gone: see `listen`.
    fn tell(&self, message: &Message) {
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        // One write, so that a cut leaves a whole line or one without an end.
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = port.write_all(&line) {
            eprintln!("cannot write to {PORT}: {error}");
        }
    }
}

/// The machine from inside.
pub(crate) struct Guest {
    port: Port,
    job: Job,
}

impl Guest {
    /// Does the host's job, until the power fails.
    fn serve(&self, lines: &mpsc::Receiver<String>) -> Result<std::convert::Infallible> {
        let scenario = scenario::named(&self.job.scenario).map_err(anyhow::Error::msg)?.0;
        match scenario.storage() {
            Storage::Memory => storage::mount_memory(self.is_first(), PLACE)?,
            Storage::Disk => storage::mount_disk(self.is_first(), PLACE)?,
        }
        self.port.tell(&Message::Opening);
        let mut past = self.job.past.clone();
        let opened = scenario.open(self, &past)?;
        if !past.acknowledged.is_empty() {
            past.settled.push(opened.kept.clone());
        }
        self.port.tell(&Message::Checked { kept: opened.kept, facts: opened.facts });
        let answer = lines.recv().context("the host is gone")?;
        if answer != GO {
            bail!("the host said {answer:?}, expected {GO:?}");
        }
        opened.load.run(self, past.round())
    }

    /// Directory on the scenario's storage.
    pub(crate) fn directory(&self) -> PathBuf {
        PathBuf::from(PLACE)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.job.seed
    }

    /// Whether the storage is new.
    pub(crate) fn is_first(&self) -> bool {
        self.job.is_first
    }

    /// Tells the host that so many writes of this round are acknowledged to the writer.
    pub(crate) fn acknowledge(&self, writer: usize, count: u64) {
        self.port.tell(&Message::Acknowledged(writer, count));
    }

    /// Tells the host why nothing goes on.
    pub(crate) fn fail(&self, error: anyhow::Error) {
        self.port.fail(error);
    }
}

/// Lines from the host. When it is gone, the machine ends: nobody else would end it.
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

/// Removes a directory with all that is in it, if it is there.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
