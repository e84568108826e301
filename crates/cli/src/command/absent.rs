//! Subcommands that this command was built without: those of the crash simulator, and `demo`.

use std::process::ExitCode;

/// Crash the pool, the allocator and the structures at every point (in builds with the simulator)
#[cfg(not(feature = "crash-test"))]
#[derive(Debug, clap::Args)]
pub(crate) struct CrashTest {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Damage pools, and see what they answer (in builds with the simulator)
#[cfg(not(feature = "crash-test"))]
#[derive(Debug, clap::Args)]
pub(crate) struct DamageTest {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Kill a database under load, and watch it come back (in builds with the demonstration)
#[cfg(not(feature = "demo"))]
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

#[cfg(not(feature = "crash-test"))]
impl CrashTest {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        refuse("the crash simulator", "crash-test", "crash-test", &self.arguments)
    }
}

#[cfg(not(feature = "crash-test"))]
impl DamageTest {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        refuse("the crash simulator", "crash-test", "damage-test", &self.arguments)
    }
}

#[cfg(not(feature = "demo"))]
impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        refuse("the demonstration", "demo", "demo", &self.arguments)
    }
}

/// Says how to build a command that has it.
fn refuse(what: &str, feature: &str, name: &str, arguments: &[String]) -> anyhow::Result<ExitCode> {
    let arguments: String = arguments.iter().map(|argument| format!(" {argument}")).collect();
    anyhow::bail!(
        "this command was built without {what}; in the source tree, run `cargo run --release \
         --features {feature} -- {name}{arguments}`"
    )
}
