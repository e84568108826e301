//! DRAM with the latency of another memory technology.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use super::latency::Latency;

use super::Medium;
use super::fault::Fault;
use super::frozen::Frozen;
use super::isa::ticks;
use super::mapped::Mapped;
use super::units::{LINE_LEN, lines};
use crate::error::Result;

/// Lines of the modelled last-level cache: 2 MiB, direct-mapped.
const CACHE_LINES: usize = 32_768;

/// A mapped file whose flushes, fences and cache misses take the time of a [`Latency`].
///
/// No flush is executed. The time is spent in a loop on the time-stamp counter, which is calibrated
/// against the clock once in a process. A small direct-mapped model of a cache keeps hits cheap.
#[derive(Debug)]
pub struct Emulated {
    mapped: Mapped,
    write_ticks: u64,
    read_ticks: u64,
    line_ticks: u64,
    /// Time, in ticks, at which the write queue of the device is empty.
    drained_at: AtomicU64,
    cache: Box<[AtomicU32]>,
}

/// Ratio of time-stamp ticks to nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ticks_per_ns: f64,
    /// Ticks of an empty wait: reading the counter, calling, looping.
    overhead_ticks: u64,
}

impl Clock {
    fn get() -> Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(Clock::calibrate)
    }

    fn calibrate() -> Clock {
        let (clock_start, ticks_start) = (Instant::now(), ticks());
        while clock_start.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let ticks_per_ns = (ticks() - ticks_start) as f64 / clock_start.elapsed().as_nanos() as f64;
        let overhead_ticks = (0..1000)
            .map(|_| {
                let start = ticks();
                wait_until(start);
                ticks() - start
            })
            .min()
            .unwrap_or(0);
        Clock { ticks_per_ns, overhead_ticks }
    }

    fn ticks(self, ns: f64) -> u64 {
        (ns * self.ticks_per_ns) as u64
    }
}

#[inline]
fn wait_until(deadline_ticks: u64) {
    while ticks() < deadline_ticks {
        std::hint::spin_loop();
    }
}

impl Emulated {
    pub(crate) fn new(mapped: Mapped, latency: Latency) -> Self {
        let clock = Clock::get();
        let line_ns = match latency.write_bandwidth_mib {
            0 => 0.0,
            mib => LINE_LEN as f64 * 1e9 / (f64::from(mib) * 1_048_576.0),
        };
        let net = |ns: u32| clock.ticks(f64::from(ns)).saturating_sub(clock.overhead_ticks);
        Emulated {
            mapped,
            write_ticks: net(latency.write_latency_ns),
            read_ticks: net(latency.read_latency_ns),
            line_ticks: clock.ticks(line_ns),
            drained_at: AtomicU64::new(0),
            cache: (0..CACHE_LINES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The mapped file underneath.
    pub fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    /// Charges a miss for each line of the range that is not in the modelled cache.
    #[inline]
    fn touch(&self, offset: u64, len: u64) {
        if self.read_ticks == 0 {
            return;
        }
        let (first, count) = lines(offset, len);
        let mut misses = 0;
        for line in first / LINE_LEN..first / LINE_LEN + count {
            let slot = &self.cache[line as usize % CACHE_LINES];
            let tag = (line / CACHE_LINES as u64) as u32 + 1;
            // Relaxed: a model of time, which orders nothing.
            if slot.load(Ordering::Relaxed) != tag {
                slot.store(tag, Ordering::Relaxed);
                misses += 1;
            }
        }
        if misses > 0 {
            // Neighbouring lines overlap as they do in hardware: one latency, then one line a tick.
            wait_until(ticks() + self.read_ticks + (misses - 1) * self.line_ticks);
        }
    }
}

impl Medium for Emulated {
    fn len(&self) -> u64 {
        self.mapped.len()
    }

    fn needs_flush(&self) -> bool {
        true
    }

    #[inline]
    fn load(&self, offset: u64) -> u64 {
        self.touch(offset, 8);
        self.mapped.load(offset)
    }

    #[inline]
    fn store(&self, offset: u64, value: u64) {
        self.touch(offset, 8);
        self.mapped.store(offset, value);
    }

    #[inline]
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.touch(offset, 8);
        self.mapped.compare_exchange(offset, current, new)
    }

    fn compare_exchange_pair(
        &self,
        offset: u64,
        current: [u64; 2],
        new: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]> {
        self.touch(offset, 16);
        self.mapped.compare_exchange_pair(offset, current, new)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        self.touch(offset, bytes.len() as u64);
        self.mapped.read(offset, bytes);
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.touch(offset, bytes.len() as u64);
        self.mapped.write(offset, bytes);
    }

    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        self.mapped.write(offset, bytes);
        self.flush(offset, bytes.len() as u64);
    }

    fn write_zeros(&self, offset: u64, len: u64) {
        self.mapped.write_zeros(offset, len);
    }

    fn view(&self, range: Frozen) -> Cow<'_, [u8]> {
        self.touch(range.offset(), range.len());
        self.mapped.view(range)
    }

    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.touch(offset, bytes.len() as u64);
        self.mapped.equals(offset, bytes)
    }

    #[inline]
    #[track_caller]
    fn flush(&self, offset: u64, len: u64) {
        let now = ticks();
        PENDING.with(|pending| pending.set(now));
        if self.line_ticks > 0 {
            let queued_ticks = lines(offset, len).1 * self.line_ticks;
            // Relaxed: a model of time. All threads share the queue, and so the bandwidth.
            let _ =
                self.drained_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |drained_at| {
                    Some(drained_at.max(now) + queued_ticks)
                });
        }
    }

    #[inline]
    #[track_caller]
    fn fence(&self) {
        let flushed_at = PENDING.with(|pending| pending.replace(0));
        if flushed_at != 0 {
            // Relaxed: as in `flush`.
            let drained_at = self.drained_at.load(Ordering::Relaxed);
            let queue_ticks = drained_at.saturating_sub(flushed_at).saturating_sub(self.line_ticks);
            wait_until(flushed_at + self.write_ticks + queue_ticks);
        }
    }

    fn grow(&self, len: u64) -> Result<()> {
        self.mapped.grow(len)
    }

    fn commit(&self, offset: u64, len: u64) -> Result<()> {
        self.mapped.commit(offset, len)
    }

    fn expect_use(&self, offset: u64, len: u64) {
        self.mapped.expect_use(offset, len);
    }

    fn release(&self, offset: u64, len: u64) -> bool {
        self.mapped.release(offset, len)
    }

    #[track_caller]
    fn sync_file(&self) -> Result<()> {
        self.mapped.sync_file()
    }

    fn prefetch(&self, offset: u64) {
        self.mapped.prefetch(offset);
    }

    fn pause(&self) {
        self.mapped.pause();
    }

    fn thread(&self) -> u64 {
        self.mapped.thread()
    }

    fn fault(&self) -> Option<Fault> {
        self.mapped.fault()
    }
}

thread_local! {
    /// Time of this thread's last flush, in ticks; 0 if it has fenced since. A fence is then free.
    static PENDING: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Measures the mean time of a persist of one line under `latency`, in nanoseconds, against the
/// real clock: how accurate the emulation is on this machine.
///
/// # Errors
///
/// When a scratch file in memory cannot be created.
pub fn measure_persist_ns(latency: Latency, rounds: u32) -> Result<f64> {
    let pool = crate::Options::new()
        .size_max(64 << 20)
        .emulation(crate::Emulation::Latency(latency))
        .create_emulated_in_memory()?;
    let medium = pool.medium();
    let line = medium.len() - LINE_LEN;
    medium.store(line, 0);
    let start = Instant::now();
    for round in 0..rounds {
        medium.store(line, u64::from(round));
        medium.persist(line, LINE_LEN);
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(rounds))
}
