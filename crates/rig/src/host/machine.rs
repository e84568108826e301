//! One machine with persistent memory, from power-on to power cut.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::disk;
use super::image::find;
use crate::message::{GO, Message, Order};
use crate::random::Random;

/// Interval at which a wait checks whether it has become useless.
const GLANCE: Duration = Duration::from_millis(100);
/// Bytes of the disk.
const DISK_LEN: u64 = 320 << 20;
/// Number of console lines in an error.
const CONSOLE_LINES: usize = 15;

/// The parts of a machine.
pub(crate) struct Parts {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    /// The file behind the persistent memory; it outlives every machine.
    pub(crate) memory: PathBuf,
    pub(crate) memory_size: u64,
    /// The file behind the disk, if the machine has one.
    pub(crate) disk: Option<PathBuf>,
}

impl Parts {
    /// Creates the empty files behind the memory and the disk.
    pub(crate) fn create_storage(&self) -> Result<()> {
        File::create(&self.memory)
            .and_then(|file| file.set_len(self.memory_size))
            .with_context(|| format!("cannot create {}", self.memory.display()))?;
        let Some(disk) = &self.disk else { return Ok(()) };
        File::create(disk)
            .and_then(|file| file.set_len(DISK_LEN))
            .with_context(|| format!("cannot create {}", disk.display()))
    }

    /// The QEMU command for this machine, without a console.
    ///
    /// The emulation is in software: KVM may exist and not work, and the result does not depend on
    /// speed.
    pub(crate) fn command(&self, kernel_arguments: &str) -> Result<Command> {
        if cfg!(not(target_arch = "x86_64")) {
            bail!(
                "the machine that the rig boots is an x86-64 one, and this program is built for another"
            );
        }
        let mut command = Command::new(find("qemu-system-x86_64", "qemu-system-x86")?);
        let with = |text: &str, path: &Path| {
            let mut argument = OsString::from(text);
            // QEMU ends a value at a comma; a double comma stands for one.
            argument.push(path.to_string_lossy().replace(',', ",,"));
            argument
        };
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-machine", "pc,nvdimm=on", "-accel", "tcg,thread=multi"])
            // Without five levels of page tables, because their walks are emulated, too.
            .args(["-cpu", "max,la57=off", "-smp", "2"])
            .args(["-m", "1G,slots=2,maxmem=32G"])
            .arg("-object")
            .arg(with(
                &format!(
                    "memory-backend-file,id=memory,share=on,size={},mem-path=",
                    self.memory_size
                ),
                &self.memory,
            ))
            .args(["-device", "nvdimm,id=nvdimm,memdev=memory"])
            .args(["-device", "virtio-serial-pci"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initrd)
            // A kernel panic ends the machine, and so its emulator. On a busy host, emulated timers
            // are late, and the kernel must not take them for broken.
            .args([
                "-append",
                &format!("console=ttyS0 quiet panic=-1 no_timer_check {kernel_arguments}"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Ok(command)
    }
}

/// A disk with a write cache. QEMU itself caches nothing: each write and each flush of the guest
/// goes to the socket at once.
fn disk_arguments(socket: &str) -> [String; 4] {
    let node = format!(
        "driver=nbd,node-name=disk,server.type=unix,server.path={socket},cache.direct=on,cache.no-flush=off"
    );
    let device = "virtio-blk-pci,drive=disk,write-cache=on".to_owned();
    ["-blockdev".to_owned(), node, "-device".to_owned(), device]
}

/// A running machine. Dropping it cuts its power.
pub(crate) struct Machine {
    child: Child,
    link: UnixStream,
    messages: Receiver<Message>,
    disk: Option<disk::Served>,
    console: PathBuf,
    errors: PathBuf,
    /// The directory of the socket, whose path must be short.
    _socket: tempfile::TempDir,
}

impl Machine {
    /// Turns on a machine. The names of its files in `directory` begin with `name`.
    pub(crate) fn start(parts: &Parts, directory: &Path, name: &str) -> Result<Machine> {
        let socket = tempfile::Builder::new().prefix("rig-").tempdir()?;
        let path = socket.path().join("link");
        let listener = UnixListener::bind(&path)
            .with_context(|| format!("cannot listen on {}", path.display()))?;
        listener.set_nonblocking(true)?;
        let console = directory.join(format!("{name}.console"));
        let errors = directory.join(format!("{name}.qemu"));
        let text = |path: &Path| path.to_string_lossy().replace(',', ",,");
        let mut command = parts.command("")?;
        let disk = match &parts.disk {
            Some(file) => {
                let path = socket.path().join("disk");
                command.args(disk_arguments(&text(&path)));
                Some(disk::Served::start(file, &path)?)
            }
            None => None,
        };
        let mut child = command
            .args(["-chardev", &format!("file,id=console,path={}", text(&console))])
            .args(["-serial", "chardev:console"])
            .args(["-chardev", &format!("socket,id=link,path={}", text(&path))])
            .args(["-device", "virtserialport,chardev=link,name=rig"])
            .stderr(File::create(&errors)?)
            .spawn()
            .context("cannot start QEMU")?;
        let link = match accept(&listener, &mut child) {
            Ok(link) => link,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                let said = fs::read_to_string(&errors).unwrap_or_default();
                return Err(error.context(format!("QEMU said: {}", said.trim())));
            }
        };
        link.set_nonblocking(false)?;
        let messages = listen(link.try_clone()?);
        Ok(Machine { child, link, messages, disk, console, errors, _socket: socket })
    }

    /// Sends the guest its order.
    pub(crate) fn send_order(&mut self, order: &Order) -> Result<()> {
        self.send(&serde_json::to_string(order)?)
    }

    /// Allows the guest to put load on what it has checked.
    pub(crate) fn send_go(&mut self) -> Result<()> {
        self.send(GO)
    }

    fn send(&mut self, line: &str) -> Result<()> {
        self.link
            .write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("the machine takes no message{}", self.last_words()))
    }

    /// The next message. [`Silent`] if the deadline passes, another error if the machine ends.
    pub(crate) fn receive(&mut self, deadline: &Deadline) -> Result<Message> {
        loop {
            if interrupted() {
                bail!("interrupted");
            }
            match self.messages.recv_timeout(GLANCE) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!(
                        "the machine ended by itself while {}{}",
                        deadline.doing,
                        self.last_words()
                    )
                }
                Err(RecvTimeoutError::Timeout) if deadline.is_over() => {
                    return Err(Silent {
                        allowed: deadline.allowed,
                        doing: deadline.doing,
                        last_words: self.last_words(),
                    }
                    .into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Cuts the power: the machine gets no warning. Returns the messages before the cut, and the
    /// fate of the disk's write cache, which `random` decides.
    pub(crate) fn cut(mut self, random: &mut Random) -> Result<(Vec<Message>, Option<disk::Loss>)> {
        if let Some(disk) = &self.disk {
            disk.wait_for_flush();
        }
        self.child.kill().context("cannot kill QEMU")?;
        self.child.wait()?;
        let loss = self.disk.take().map(|disk| disk.fail(random)).transpose()?;
        // Ends when everything from the socket's other end, which died with QEMU, was read.
        Ok((self.messages.iter().collect(), loss))
    }

    /// The last output of the guest and of QEMU, for an error.
    fn last_words(&self) -> String {
        let read = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (console, errors) = (read(&self.console), read(&self.errors));
        let lines: Vec<&str> = console.lines().chain(errors.lines()).collect();
        let last = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
        if last.is_empty() {
            return format!("; it printed nothing to {}", self.console.display());
        }
        format!("; it printed last (see {}):\n  {}", self.console.display(), last.join("\n  "))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The error of a machine that sent no message before its deadline.
#[derive(Debug)]
pub(crate) struct Silent {
    allowed: Duration,
    doing: &'static str,
    last_words: String,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Silent { allowed, doing, last_words } = self;
        let seconds = allowed.as_secs();
        write!(f, "no message from the machine for {seconds} s while {doing}{last_words}")
    }
}

impl Error for Silent {}

/// A time limit, and a name for what it limits.
pub(crate) struct Deadline {
    begin: Instant,
    allowed: Duration,
    doing: &'static str,
}

impl Deadline {
    pub(crate) fn new(allowed: Duration, doing: &'static str) -> Deadline {
        Deadline { begin: Instant::now(), allowed, doing }
    }

    fn is_over(&self) -> bool {
        self.begin.elapsed() > self.allowed
    }
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C and SIGTERM end waits with an error, so that machines end and files are
/// removed.
pub(crate) fn catch_interrupts() -> Result<()> {
    // Relaxed: it publishes nothing else.
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))
        .context("cannot catch interrupts")
}

pub(crate) fn interrupted() -> bool {
    // Relaxed: as above.
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Accepts QEMU's connection. QEMU connects as soon as it has read its arguments.
fn accept(listener: &UnixListener, child: &mut Child) -> Result<UnixStream> {
    let deadline = Deadline::new(Duration::from_secs(30), "starting");
    loop {
        match listener.accept() {
            Ok((link, _)) => return Ok(link),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => {
                return Err(error.into());
            }
            Err(_) if deadline.is_over() => bail!("QEMU does not connect"),
            Err(_) => {}
        }
        if let Some(status) = child.try_wait()? {
            bail!("QEMU ended with {status}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Receives messages until the other end is gone. A line that the cut has split is no message.
fn listen(link: UnixStream) -> Receiver<Message> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(link);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            if line.last() != Some(&b'\n') {
                return;
            }
            let message = serde_json::from_slice(&line).unwrap_or_else(|error| {
                let line = String::from_utf8_lossy(&line);
                Message::Failed(format!("the guest sent no message but {line:?}: {error}"))
            });
            if sender.send(message).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}
