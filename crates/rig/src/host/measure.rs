//! Runs a measurement in one machine, whose power is not cut.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use super::image::Needs;
use super::machine::{self, Deadline, Machine};
use super::report::Spinner;
use super::{BOOT_MAX, Place, build};
use crate::arguments;
use crate::message::{Message, Order};
use crate::random::Random;

/// Timeout: some ten times the longest measurement with its defaults, on two idle cores.
const MEASURE_MAX: Duration = Duration::from_secs(2 * 60 * 60);

/// Runs a measurement and prints its result.
pub(crate) fn measure(arguments: &arguments::Measure) -> Result<ExitCode> {
    machine::catch_interrupts()?;
    let measurement = arguments.measurement;
    let place = Place::new(arguments.machine.keep.as_deref())?;
    let mut needs = Needs::default();
    needs.add(measurement.programs(), measurement.modules());
    let parts = build(&arguments.machine, &place.path, &needs)?;
    parts.create_storage()?;
    let spinner = Spinner::new(!arguments.json);
    spinner.say("boots");
    let mut machine = Machine::start(&parts, &place.path, "measurement")?;
    machine.send_order(&Order::Measure(measurement.name(), arguments.words()))?;
    expect(&mut machine, &Deadline::new(BOOT_MAX, "it booted"))?;
    spinner.say("measures; some minutes");
    let measured = expect(&mut machine, &Deadline::new(MEASURE_MAX, "it measured"))?;
    drop(spinner);
    machine.cut(&mut Random::of(&[]))?;
    let Message::Measured { table, report } = measured else {
        bail!("the guest measured nothing, and said {measured:?}");
    };
    match arguments.json {
        true => println!("{report:#}"),
        false => print!("{table}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn expect(machine: &mut Machine, deadline: &Deadline) -> Result<Message> {
    match machine.receive(deadline)? {
        Message::Failed(error) => bail!("in the guest: {error}"),
        message => Ok(message),
    }
}
