//! Cost of an access on another memory technology.

use std::fmt;

/// Cost of an access to the emulated technology.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Nanoseconds from the flush of a line until the line is durable; a fence waits this long.
    pub write_latency_ns: u32,
    /// Nanoseconds of a load that misses the cache.
    pub read_latency_ns: u32,
    /// Write bandwidth in MiB a second; 0 means unlimited.
    pub write_bandwidth_mib: u32,
}

impl Latency {
    /// Phase-change memory, with the values of BOPL's section 5 and of the usual emulators.
    pub const PCM: Latency =
        Latency { write_latency_ns: 500, read_latency_ns: 150, write_bandwidth_mib: 1024 };
    /// Spin-transfer-torque memory: close to DRAM.
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
