//! The machine on which the numbers were measured.

use anyhow::{Context, Result};
use serde::Serialize;

/// CPU features that determine the cost of persistence, by their names in the kernel.
const FLAGS: [&str; 6] = ["clwb", "clflushopt", "clflush", "movdir64b", "avx2", "avx512f"];

/// The properties of the machine that explain numbers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    /// Those of [`FLAGS`] that the CPU has.
    flags: Vec<String>,
    hypervisor: bool,
    kernel: String,
    memory_gib: f64,
    huge_pages: String,
    /// Runnable processes in the minute before the bench; above zero, other programs were running.
    load_before: f64,
}

impl Machine {
    /// Reads the properties of the running machine.
    ///
    /// # Errors
    ///
    /// When /proc cannot be read.
    pub(crate) fn detect() -> Result<Self> {
        let cpu_info = read("/proc/cpuinfo")?;
        let flags: Vec<&str> = field(&cpu_info, "flags")
            .or(field(&cpu_info, "Features"))
            .unwrap_or("")
            .split(' ')
            .collect();
        let memory = read("/proc/meminfo")?;
        let memory_kib: f64 = field(&memory, "MemTotal")
            .and_then(first_number)
            .context("no MemTotal in /proc/meminfo")?;
        let huge_pages = read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        Ok(Machine {
            cpu: field(&cpu_info, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            flags: FLAGS
                .iter()
                .filter(|flag| flags.contains(flag))
                .map(|&flag| flag.to_owned())
                .collect(),
            hypervisor: flags.contains(&"hypervisor"),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            memory_gib: (memory_kib / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            huge_pages: bracketed(&huge_pages).unwrap_or("none").to_owned(),
            load_before: first_number(&read("/proc/loadavg")?)
                .context("no number in /proc/loadavg")?,
        })
    }

    /// One line for the head of a table.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} ({} cores{}), {}, Linux {}, {} GiB, load before {}",
            self.cpu,
            self.cores,
            if self.hypervisor { ", virtual" } else { "" },
            self.flags.join(" "),
            self.kernel,
            self.memory_gib,
            self.load_before,
        )
    }
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// The text after `name:` on the first line that has it.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// The number at the beginning of a text.
pub(crate) fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The alternative that the kernel marks with brackets as chosen.
fn bracketed(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemTotalX: 1 kB\nMemTotal:   24 kB\n";
        assert_eq!(field(text, "MemTotal").and_then(first_number), Some(24.0));
        assert_eq!(field(text, "Mem"), None);
        assert_eq!(bracketed("always [madvise] never"), Some("madvise"));
    }

    #[test]
    fn this_machine_has_a_core_and_memory() {
        let machine = Machine::detect().expect("/proc is there");
        assert!(machine.cores > 0 && machine.memory_gib > 0.0);
    }
}
