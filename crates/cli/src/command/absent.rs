//! The subcommands of the crash simulator, in a command that was built without it.

use std::process::ExitCode;

/// Crash the pool, the allocator and the structures at every point (in builds with the simulator)
#[derive(Debug, clap::Args)]
pub(crate) struct CrashTest {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Damage pools, and see what they answer (in builds with the simulator)
#[derive(Debug, clap::Args)]
pub(crate) struct DamageTest {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl CrashTest {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        refuse("crash-test", &self.arguments)
    }
}

impl DamageTest {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        refuse("damage-test", &self.arguments)
    }
}

/// Says how to build a command that has it.
fn refuse(name: &str, arguments: &[String]) -> anyhow::Result<ExitCode> {
    let arguments: String = arguments.iter().map(|argument| format!(" {argument}")).collect();
    anyhow::bail!(
        "this command was built without the crash simulator; in the source tree, run `cargo run \
         --release --features crash-test -- {name}{arguments}`"
    )
}
