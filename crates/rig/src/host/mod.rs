//! The host's part: machines whose power is cut, and the record of what they acknowledged.

mod cpio;
mod disk;
mod image;
mod kernel;
mod machine;
pub(crate) mod measure;
mod report;

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::arguments;
use crate::message::{Job, Message, Order, Past};
use crate::random::Random;
use crate::scenario::{self, Scenario, Storage};
use image::Needs;
use kernel::Kernel;
use machine::{Deadline, Machine, Parts, Silent};
use report::{Progress, Report};

/// Timeout from power-on to the start of the program under test: some ten times what this takes on
/// two idle cores.
const BOOT_MAX: Duration = Duration::from_secs(90);
const CHECK_MAX: Duration = Duration::from_secs(180);
/// Timeout from one acknowledgement to the next.
const LOAD_MAX: Duration = Duration::from_secs(60);

/// One cut in so many falls into the opening after the previous cut.
const OPENING_EVERY: u64 = 5;
/// Delay of such a cut after the beginning of the opening.
const OPENING_US: std::ops::Range<u64> = 0..1_500_000;
/// Delay of a cut after the last awaited acknowledgement: many times the duration of a write, so
/// that the cut may fall anywhere in one.
const DELAY_US: std::ops::Range<u64> = 0..20_000;

/// Runs a scenario.
pub(crate) fn run(arguments: &arguments::Run) -> Result<ExitCode> {
    machine::catch_interrupts()?;
    let scenario = arguments.scenario.0;
    let seed = arguments.seed.unwrap_or_else(|| u64::from(std::process::id()));
    if !arguments.json {
        let (name, cuts) = (scenario.name(), arguments.cuts);
        println!("remanent-rig run {name} --cuts {cuts} --seed {seed} repeats this run");
    }
    let mut place = Place::new(arguments.machine.keep.as_deref())?;
    let mut parts = build(&arguments.machine, &place.path, &Needs::of(&[scenario]))?;
    parts.disk = (scenario.storage() == Storage::Disk).then(|| place.path.join("disk"));
    parts.create_storage()?;
    let mut rig = Rig {
        scenario,
        parts,
        directory: place.path.clone(),
        seed,
        random: Random::of(&[seed]),
        past: Past::default(),
        report: Report::new(scenario.name(), seed),
        progress: Progress::new(arguments.cuts.into(), !arguments.json),
    };
    let outcome = rig.cuts(arguments.cuts);
    rig.progress.finish();
    let report = rig.report;
    if outcome.is_err() && !machine::interrupted() || !report.losses.is_empty() {
        place.stay();
        eprintln!("the memory and what was printed is in {}", place.path.display());
    }
    outcome?;
    report.print(arguments.json)?;
    Ok(if report.losses.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds what every scenario's machine needs, and runs none.
pub(crate) fn check(arguments: &arguments::Machine) -> Result<ExitCode> {
    let place = Place::new(arguments.keep.as_deref())?;
    build(arguments, &place.path, &Needs::of(scenario::ALL))?.command("")?;
    Ok(ExitCode::SUCCESS)
}

/// Boots a machine with all programs and a shell on this terminal.
pub(crate) fn shell(arguments: &arguments::Machine) -> Result<ExitCode> {
    let place = Place::new(arguments.keep.as_deref())?;
    let parts = build(arguments, &place.path, &Needs::of(scenario::ALL))?;
    if !parts.memory.exists() {
        parts.create_storage()?;
    }
    eprintln!("`exit` ends the machine; so does Ctrl-A x, at once");
    let status = parts
        .command("rig.shell")?
        .args(["-chardev", "stdio,id=console,mux=on,signal=off", "-serial", "chardev:console"])
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .status()
        .context("cannot start QEMU")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds everything that a machine needs, except the content of its memory.
fn build(arguments: &arguments::Machine, directory: &Path, needs: &Needs) -> Result<Parts> {
    let kernel = Kernel::find(arguments.kernel.as_deref())?;
    let initrd = directory.join("initrd");
    image::write(&initrd, &kernel, needs)
        .with_context(|| format!("cannot make {}", initrd.display()))?;
    Ok(Parts {
        kernel: kernel.unpack(directory)?,
        initrd,
        memory: directory.join("memory"),
        memory_size: arguments.memory,
        disk: None,
    })
}

/// The place of a run's files.
struct Place {
    path: PathBuf,
    /// Removes the files at the end.
    temporary: Option<tempfile::TempDir>,
}

impl Place {
    fn new(keep: Option<&Path>) -> Result<Place> {
        if let Some(path) = keep {
            std::fs::create_dir_all(path)
                .with_context(|| format!("cannot create {}", path.display()))?;
            return Ok(Place { path: path.to_owned(), temporary: None });
        }
        let temporary = tempfile::Builder::new().prefix("remanent-rig-").tempdir()?;
        Ok(Place { path: temporary.path().to_owned(), temporary: Some(temporary) })
    }

    fn stay(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = temporary.keep();
        }
    }
}

/// A run of a scenario.
struct Rig<'a> {
    scenario: &'a dyn Scenario,
    parts: Parts,
    directory: PathBuf,
    seed: u64,
    random: Random,
    past: Past,
    report: Report,
    progress: Progress,
}

/// The moment of a power cut.
enum Moment {
    /// During the opening after the previous cut.
    Opening { delay: Duration },
    /// Under load, after so many acknowledgements.
    Load { acknowledged: u64, delay: Duration },
    /// After everything was checked, which ends a run.
    Checked,
}

impl Rig<'_> {
    /// Cuts the power `cuts` times, and boots once more to check what the last cut left. Ends at
    /// the first loss.
    fn cuts(&mut self, cuts: u32) -> Result<()> {
        for cut in 0..cuts {
            let moment = self.moment(cut);
            self.boot(cut, &moment)?;
            if !self.report.losses.is_empty() {
                return Ok(());
            }
            self.report.count_cut(matches!(moment, Moment::Opening { .. }));
            self.progress.advance(&self.report);
        }
        self.boot(cuts, &Moment::Checked)
    }

    fn moment(&mut self, cut: u32) -> Moment {
        // Drawn in any case, so that each cut draws the same number of values.
        let (kind, acknowledged) = (self.random.next(), self.random.within(&self.scenario.acks()));
        let mut delay = |range| Duration::from_micros(self.random.within(range));
        let (opening, load) = (delay(&OPENING_US), delay(&DELAY_US));
        // The first boot has nothing to open.
        if cut > 0 && kind.is_multiple_of(OPENING_EVERY) {
            return Moment::Opening { delay: opening };
        }
        Moment::Load { acknowledged, delay: load }
    }

    /// One life of the machine, from power-on to the cut.
    fn boot(&mut self, number: u32, moment: &Moment) -> Result<()> {
        let mut machine = self.turn_on(number)?;
        if let Moment::Opening { delay } = moment {
            std::thread::sleep(*delay);
            return self.cut(machine);
        }
        self.progress.say("checks");
        let deadline = Deadline::new(CHECK_MAX, "what the last cut left was checked");
        self.expect(&mut machine, &deadline, |m| {
            matches!(m, Message::Checked { .. } | Message::Lost(_))
        })?;
        if let Moment::Load { acknowledged, delay } = moment
            && self.report.losses.is_empty()
        {
            self.progress.say("loads");
            machine.send_go()?;
            while self.acknowledged() < *acknowledged && self.report.losses.is_empty() {
                let deadline = Deadline::new(LOAD_MAX, "it was under load");
                self.expect(&mut machine, &deadline, |_| true)?;
            }
            std::thread::sleep(*delay);
        }
        self.cut(machine)
    }

    /// Turns the machine on until it opens what the last cut left.
    ///
    /// An emulated machine hangs in a rare boot, before a program under test runs. Such a boot ends
    /// with a cut, which must lose nothing either, and is repeated once.
    fn turn_on(&mut self, number: u32) -> Result<Machine> {
        let (mut machine, opens) = self.try_to_turn_on(number, "")?;
        let Err(error) = opens else { return Ok(machine) };
        if !error.is::<Silent>() {
            return Err(error);
        }
        eprintln!("{error}\nits power is cut, and it is turned on once more");
        self.report.add_fact("silent_boots", 1.0);
        self.cut(machine)?;
        let opens;
        (machine, opens) = self.try_to_turn_on(number, "-again")?;
        opens.map(|()| machine)
    }

    /// A machine, and whether it got as far as to open what the last cut left.
    fn try_to_turn_on(&mut self, number: u32, again: &str) -> Result<(Machine, Result<()>)> {
        let name = format!("boot-{number:03}{again}");
        let start = Instant::now();
        self.progress.say("boots");
        let mut machine = Machine::start(&self.parts, &self.directory, &name)?;
        machine.send_order(&Order::Test(Job {
            scenario: self.scenario.name().to_owned(),
            seed: self.seed,
            is_first: number == 0,
            past: self.past.clone(),
        }))?;
        let opens = self.expect(&mut machine, &Deadline::new(BOOT_MAX, "it booted"), |m| {
            matches!(m, Message::Opening)
        });
        if opens.is_ok() {
            self.report.add_fact("boot_s", start.elapsed().as_secs_f64());
        }
        Ok((machine, opens))
    }

    fn cut(&mut self, machine: Machine) -> Result<()> {
        let mut random = Random::of(&[!self.seed, self.report.cuts().into()]);
        let (messages, loss) = machine.cut(&mut random)?;
        if let Some(loss) = loss {
            self.report.add_fact("sectors_lost", loss.lost as f64);
            self.report.add_fact("sectors_kept", loss.kept as f64);
        }
        for message in messages {
            self.absorb(message)?;
        }
        Ok(())
    }

    /// Takes messages until the awaited one.
    fn expect(
        &mut self,
        machine: &mut Machine,
        deadline: &Deadline,
        is_expected: impl Fn(&Message) -> bool,
    ) -> Result<()> {
        loop {
            let message = machine.receive(deadline)?;
            let is_last = is_expected(&message);
            self.absorb(message)?;
            if is_last {
                return Ok(());
            }
        }
    }

    fn absorb(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Opening => {}
            Message::Checked { kept, facts } => {
                if !self.past.acknowledged.is_empty() {
                    self.past.kept.push(kept);
                }
                // From here on a cut ends a round, even if nothing is acknowledged yet.
                self.past.acknowledged = vec![0; self.scenario.writers()];
                facts.iter().for_each(|(name, value)| self.report.add_fact(name, *value));
            }
            Message::Acknowledged(writer, count) => {
                let Some(known) = self.past.acknowledged.get_mut(writer) else {
                    bail!("the guest acknowledges writes of a writer {writer} that is not there");
                };
                self.report.acks += count.saturating_sub(*known);
                *known = count.max(*known);
            }
            Message::Noted(writer, note) => {
                self.past.notes.resize(self.scenario.writers(), String::new());
                let Some(known) = self.past.notes.get_mut(writer) else {
                    bail!("the guest has a note of a writer {writer} that is not there");
                };
                *known = note;
            }
            Message::Measured { .. } => bail!("the guest measured something, and was not told to"),
            Message::Lost(losses) => self.report.losses.extend(losses),
            Message::Failed(error) => bail!("in the guest: {error}"),
        }
        Ok(())
    }

    fn acknowledged(&self) -> u64 {
        self.past.acknowledged.iter().sum()
    }
}
