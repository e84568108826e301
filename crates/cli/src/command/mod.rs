//! The subcommands, one module each.

#[cfg(not(all(feature = "crash-test", feature = "demo")))]
mod absent;
mod advice;
#[cfg(feature = "crash-test")]
mod crash_test;
#[cfg(feature = "crash-test")]
mod damage_test;
mod default_pool;
#[cfg(feature = "demo")]
mod demo;
mod disk;
mod fault;
mod opening;
pub(crate) mod output;
mod pool;
mod serve;
mod units;

use std::process::ExitCode;

pub(crate) use advice::{advice, advice_for};
use clap::{Parser, Subcommand};

#[cfg(not(feature = "demo"))]
use absent::Demo;
#[cfg(not(feature = "crash-test"))]
use absent::{CrashTest, DamageTest};
#[cfg(feature = "crash-test")]
use crash_test::CrashTest;
#[cfg(feature = "crash-test")]
use damage_test::DamageTest;
#[cfg(feature = "demo")]
use demo::Demo;

/// Data structures and a server in memory that survives crashes.
///
/// One pool file holds everything. It is consistent the moment it is opened, whatever killed the
/// process that wrote it.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    subcommand: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Pool(pool::Pool),
    Disk(disk::Disk),
    CrashTest(CrashTest),
    DamageTest(DamageTest),
    Demo(Demo),
}

const EXAMPLES: &str = "\
Examples:
  remanent serve                              serve Redis clients on 127.0.0.1:6380
  redis-cli -p 6380 set greeting hello        durable before OK is answered
  remanent serve --pool /mnt/pmem/my.pool --durability power
  remanent pool info /mnt/pmem/my.pool        what it holds and what it survives
  remanent pool check /mnt/pmem/my.pool       prove that it is whole
  remanent disk create my.pool --size 1G      a block device; serve it with `remanent disk serve`
  remanent crash-test                         crash its own code everywhere, in simulation
  remanent damage-test                        damage pools, and see whether anybody is told something wrong
  remanent demo recovery                      kill a database under load, and watch it come back

Set REMANENT_LOG=info (or debug) for more messages on standard error.";

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.subcommand {
            Command::Serve(serve) => serve.run(),
            Command::Pool(pool) => pool.run(),
            Command::Disk(disk) => disk.run(),
            Command::CrashTest(test) => test.run(),
            Command::DamageTest(test) => test.run(),
            Command::Demo(demo) => demo.run(),
        }
    }
}
