//! What an access costs on another technology.

use std::fmt;

/// What an access to the emulated technology costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Nanoseconds from the flush of a line until it is durable, which is what a fence waits for.
    pub write_latency_ns: u32,
    /// Nanoseconds that a load which misses the cache waits.
    pub read_latency_ns: u32,
    /// Write bandwidth in MiB a second; 0 means unlimited.
    pub write_bandwidth_mib: u32,
}

impl Latency {
    /// Phase-change memory, as BOPL's section 5 and the usual emulators assume it.
    pub const PCM: Latency =
        Latency { write_latency_ns: 500, read_latency_ns: 150, write_bandwidth_mib: 1024 };
    /// Spin-transfer-torque memory: near DRAM.
    pub const STT_MRAM: Latency =
        Latency { write_latency_ns: 120, read_latency_ns: 50, write_bandwidth_mib: 8192 };
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "write {} ns, read {} ns, {} MiB/s",
            self.write_latency_ns, self.read_latency_ns, self.write_bandwidth_mib
        )
    }
}
