//! `INFO`: the server's state in numbers.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::TABLE;
use super::call::{Call, Handler};
use super::failure::Outcome;
use super::row::{ANYTIME, NO_KEYS, commands};
use crate::Shared;
use crate::statistics::CommandCount;
use crate::store::Store;
use crate::version::{REDIS_VERSION, VERSION};

#[rustfmt::skip]
commands! {
    "info" -1 => info, ANYTIME, &["@slow", "@dangerous"], NO_KEYS,
        "server" "1.0.0" "O(1)" "Get information and statistics about the server";
}

/// The name of a section, whether `INFO` without arguments shows it, and the function that writes
/// it.
type Section<S> = (&'static str, bool, fn(&mut Text, &Shared<S>));

impl<S: Store> Call<'_, S> {
    /// The sections, in Redis's order.
    const SECTIONS: [Section<S>; 11] = [
        ("Server", true, server),
        ("Clients", true, clients),
        ("Memory", true, memory),
        ("Persistence", true, persistence),
        ("Stats", true, stats),
        ("Replication", true, replication),
        ("CPU", true, cpu),
        ("Commandstats", false, command_stats),
        ("Errorstats", true, error_stats),
        ("Cluster", true, cluster),
        ("Keyspace", true, keyspace),
    ];

    fn info(&mut self) -> Outcome {
        let asks_for = |word: &str| (1..self.request.len()).any(|index| self.is_word(index, word));
        let wants_all = asks_for("all") || asks_for("everything");
        let wants_default = self.request.len() == 1 || asks_for("default");
        let mut text = Text::default();
        for (name, is_default, write) in Self::SECTIONS {
            if wants_all || (wants_default && is_default) || asks_for(name) {
                text.section(name);
                write(&mut text, self.shared);
            }
        }
        self.reply.text(&text.0);
        Ok(())
    }
}

/// The lines of `INFO`.
#[derive(Default)]
struct Text(String);

impl Text {
    fn section(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        write!(self.0, "# {name}\r\n").expect("a string takes every character");
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        write!(self.0, "{name}:{value}\r\n").expect("a string takes every character");
    }

    /// Writes a number of bytes, plain and abbreviated.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.line(name, bytes);
        self.line(&format!("{name}_human"), human(bytes));
    }
}

/// A number of bytes as Redis abbreviates it, such as `1.50M`.
fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut unit = 'B';
    for next in ['K', 'M', 'G', 'T', 'P'] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.2}{unit}")
}

fn server<S>(text: &mut Text, shared: &Shared<S>) {
    let uptime_s = shared.uptime_s();
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    text.line("redis_version", REDIS_VERSION);
    text.line("redis_mode", "standalone");
    text.line("remanent_version", VERSION);
    text.line("os", format_args!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    text.line("arch_bits", usize::BITS);
    text.line("process_id", std::process::id());
    text.line("run_id", &shared.run_id);
    text.line("tcp_port", shared.config.listen.port());
    text.line("server_time_usec", now_us);
    text.line("uptime_in_seconds", uptime_s);
    text.line("uptime_in_days", uptime_s / 86_400);
}

fn clients<S>(text: &mut Text, shared: &Shared<S>) {
    text.line("connected_clients", shared.clients.len());
    text.line("maxclients", shared.config.clients_max);
    text.line("client_memory", shared.memory.taken());
    text.line("client_memory_max", shared.memory.max());
    text.line("blocked_clients", 0);
}

fn memory<S: Store>(text: &mut Text, shared: &Shared<S>) {
    let description = shared.keys.store().describe();
    text.bytes("used_memory", description.used_bytes);
    text.bytes("used_memory_rss", resident_bytes());
    text.bytes("maxmemory", description.size_max_bytes);
    text.line("maxmemory_policy", "noeviction");
}

fn persistence<S: Store>(text: &mut Text, shared: &Shared<S>) {
    let description = shared.keys.store().describe();
    text.line("loading", 0);
    text.line("rdb_changes_since_last_save", 0);
    text.line("rdb_bgsave_in_progress", 0);
    text.line("rdb_last_bgsave_status", "ok");
    text.line("aof_enabled", 0);
    text.line("aof_rewrite_in_progress", 0);
    let is_well = shared.keys.store().fault().is_none();
    text.line("aof_last_write_status", if is_well { "ok" } else { "err" });
    text.line("pool_path", &description.path);
    text.line("pool_backing", &description.backing);
    text.line("pool_durability", &description.durability);
    text.line("pool_emulation", &description.emulation);
    text.line("pool_opened_clean", u8::from(description.opened_clean));
    let fault = shared.keys.store().fault();
    text.line("pool_status", if fault.is_some() { "failed" } else { "ok" });
    if let Some(fault) = fault {
        text.line("pool_fault", fault.replace(['\r', '\n'], " "));
    }
    let Some(lag) = shared.keys.store().lag() else {
        text.line("durability", &description.durability);
        return;
    };
    text.line("durability", "batched");
    text.line("lag_bytes", lag.bytes);
    text.line("lag_bytes_max", lag.bytes_max);
    text.line("lag_age_ms_max", lag.age_max.as_millis());
}

fn stats<S>(text: &mut Text, shared: &Shared<S>) {
    let totals = shared.totals();
    text.line("total_connections_received", totals.connections);
    text.line("total_commands_processed", totals.commands);
    text.line("total_net_input_bytes", totals.bytes_in);
    text.line("total_net_output_bytes", totals.bytes_out);
    // Relaxed: only shown to users.
    text.line("rejected_connections", shared.rejected.load(Ordering::Relaxed));
    text.line("expired_keys", 0);
    text.line("evicted_keys", 0);
    // Relaxed: only shown to users.
    text.line("evicted_clients", shared.evicted.load(Ordering::Relaxed));
    text.line("keyspace_hits", totals.hits);
    text.line("keyspace_misses", totals.misses);
    text.line("total_error_replies", totals.errors);
}

fn replication<S>(text: &mut Text, _: &Shared<S>) {
    text.line("role", "master");
    text.line("connected_slaves", 0);
}

fn cpu<S>(text: &mut Text, _: &Shared<S>) {
    // The server has no child processes.
    let process = cpu_times("/proc/self/stat").unwrap_or_default();
    let main = cpu_times(&format!("/proc/self/task/{}/stat", std::process::id()));
    let main = main.unwrap_or_default();
    for (name, seconds) in [
        ("used_cpu_sys", process.system_s),
        ("used_cpu_user", process.user_s),
        ("used_cpu_sys_children", 0.0),
        ("used_cpu_user_children", 0.0),
        ("used_cpu_sys_main_thread", main.system_s),
        ("used_cpu_user_main_thread", main.user_s),
    ] {
        text.line(name, format_args!("{seconds:.6}"));
    }
}

fn command_stats<S>(text: &mut Text, shared: &Shared<S>) {
    for command in TABLE.all() {
        let CommandCount { calls, duration_ns, rejected, failed } =
            shared.statistics.of(command.number);
        if calls + rejected == 0 {
            continue;
        }
        let us = duration_ns / 1000;
        let us_per_call = if calls == 0 { 0.0 } else { duration_ns as f64 / 1e3 / calls as f64 };
        text.line(
            &format!("cmdstat_{}", command.text),
            format_args!(
                "calls={calls},usec={us},usec_per_call={us_per_call:.2},rejected_calls={rejected},\
                 failed_calls={failed}"
            ),
        );
    }
}

fn error_stats<S>(text: &mut Text, shared: &Shared<S>) {
    for (code, count) in shared.statistics.errors() {
        text.line(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn cluster<S>(text: &mut Text, _: &Shared<S>) {
    text.line("cluster_enabled", 0);
}

fn keyspace<S: Store>(text: &mut Text, shared: &Shared<S>) {
    let keys = shared.keys.len().unwrap_or(0);
    if keys > 0 {
        text.line("db0", format_args!("keys={keys},expires=0,avg_ttl=0"));
    }
}

/// Processor time of a process or a thread.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTimes {
    user_s: f64,
    system_s: f64,
}

/// Reads processor time from a file such as `/proc/self/stat`.
fn cpu_times(path: &str) -> Option<CpuTimes> {
    let line = std::fs::read_to_string(path).ok()?;
    // The name, in parentheses, may contain anything. Of the fields behind it, the 12th and 13th
    // are the times.
    let mut fields = line.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut seconds = || {
        let ticks = fields.next()?.parse::<f64>().ok()?;
        Some(ticks / rustix::param::clock_ticks_per_second() as f64)
    };
    Some(CpuTimes { user_s: seconds()?, system_s: seconds()? })
}

/// Memory of this process that is in RAM; 0 if the system does not say.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_abbreviated_as_in_redis() {
        for (bytes, expected) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (966_240, "943.59K"),
            (25_276_502_016, "23.54G"),
        ] {
            assert_eq!(super::human(bytes), expected);
        }
    }
}
