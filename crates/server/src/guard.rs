//! Who guesses passwords: each wrong one from an address is answered later than the one before. A
//! right one that comes while an answer waits is answered together with it. So one connection
//! brings one guess in a second at most. Nobody waits for longer, so a client that knows the
//! password gets in beside others of its address that keep asking with a wrong one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the answer to the first wrong password waits; each further one from the same address twice as long.
const DELAY_FIRST: Duration = Duration::from_millis(100);
/// How long an answer waits at most, also for those that were asked at the same time: those wait
/// for equally long. Less than what clients commonly wait for an answer.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// After so long without a wrong password an address begins anew.
const MEMORY: Duration = Duration::from_secs(60);
/// Addresses that are remembered at a time; beyond, strangers wait as long as the worst.
const ADDRESSES_MAX: usize = 4096;

/// Bits of an IPv6 address that one customer has to himself.
const OWN_BITS: u32 = 64;

/// Wrong passwords, by the address that they came from, or the network of IPv6 addresses.
#[derive(Debug, Default)]
pub(crate) struct Guard(Mutex<HashMap<IpAddr, Guesses>>);

#[derive(Debug)]
struct Guesses {
    count: u32,
    /// When the last answer is given; the next one waits from then on.
    answered: Instant,
}

/// What becomes of a wrong password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Penalty {
    /// How long its answer waits.
    pub(crate) delay: Duration,
    /// Wrong passwords from that address lately, this one included.
    pub(crate) count: u32,
}

impl Guard {
    /// Notes a wrong password.
    pub(crate) fn wrong(&self, address: IpAddr, now: Instant) -> Penalty {
        let (address, mut addresses) = (network_of(address), self.addresses(now));
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            return Penalty { delay: DELAY_MAX, count: 1 };
        }
        let guesses = addresses.entry(address).or_insert(Guesses { count: 0, answered: now });
        if now > guesses.answered + MEMORY {
            guesses.count = 0;
        }
        let delay = DELAY_FIRST.saturating_mul(1 << guesses.count.min(16)).min(DELAY_MAX);
        guesses.count = guesses.count.saturating_add(1);
        // One after the other, as far as the longest wait allows.
        guesses.answered = (guesses.answered.max(now) + delay).min(now + DELAY_MAX);
        Penalty { delay: guesses.answered - now, count: guesses.count }
    }

    /// How long the answer to the right password waits. An address without wrong ones in front is
    /// forgotten: it knows the password.
    pub(crate) fn right(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let (address, mut addresses) = (network_of(address), self.addresses(now));
        let Some(guesses) = addresses.get(&address) else {
            return (addresses.len() >= ADDRESSES_MAX).then_some(DELAY_MAX);
        };
        if guesses.answered > now {
            return Some(guesses.answered - now);
        }
        addresses.remove(&address);
        None
    }

    /// All that are remembered. When they are too many, those without a wrong password for long are
    /// forgotten.
    fn addresses(&self, now: Instant) -> MutexGuard<'_, HashMap<IpAddr, Guesses>> {
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= ADDRESSES_MAX {
            addresses.retain(|_, guesses| now < guesses.answered + MEMORY);
        }
        addresses
    }
}

fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> OWN_BITS << OWN_BITS))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_password_waits_longer_than_the_one_before() {
        let (guard, now) = (Guard::default(), Instant::now());
        let address = IpAddr::from([127, 0, 0, 1]);
        let delays = |count: u32| -> Vec<_> {
            (0..count).map(|_| guard.wrong(address, now).delay.as_millis()).collect()
        };
        // Asked at the same time, they are answered one after the other.
        assert_eq!(delays(4), [100, 300, 700, 1000]);
        assert_eq!(delays(3), [1000, 1000, 1000]);
        let other = guard.wrong(IpAddr::from([127, 0, 0, 2]), now);
        assert_eq!(other, Penalty { delay: DELAY_FIRST, count: 1 });
        let later = now + DELAY_MAX + MEMORY + DELAY_FIRST;
        assert_eq!(guard.wrong(address, later), Penalty { delay: DELAY_FIRST, count: 1 });
        // Whoever has paid for the wrong ones, and knows the right one, begins anew.
        assert_eq!(guard.right(address, later + DELAY_FIRST), None);
        assert_eq!(guard.wrong(address, later), Penalty { delay: DELAY_FIRST, count: 1 });
    }

    #[test]
    fn a_right_password_is_told_no_earlier_than_the_wrong_ones_before() {
        let (guard, now) = (Guard::default(), Instant::now());
        let address = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(guard.right(address, now), None);
        guard.wrong(address, now);
        assert_eq!(guard.right(address, now), Some(DELAY_FIRST));
        // That it was right makes the next guess no cheaper.
        assert_eq!(guard.wrong(address, now).delay, 3 * DELAY_FIRST);
        (0..9).for_each(|_| _ = guard.wrong(address, now));
        assert_eq!(guard.right(address, now), Some(DELAY_MAX));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_mapped_ones_are_those_of_ipv4() {
        let (guard, now) = (Guard::default(), Instant::now());
        let count = |address: &str| guard.wrong(address.parse().unwrap(), now).count;
        assert_eq!([count("2001:db8::1"), count("2001:db8::ffff:2")], [1, 2]);
        assert_eq!(count("2001:db8:0:1::1"), 1);
        assert_eq!([count("192.0.2.1"), count("::ffff:192.0.2.1")], [1, 2]);
    }

    #[test]
    fn a_bounded_number_of_addresses_is_remembered() {
        let (guard, now) = (Guard::default(), Instant::now());
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..ADDRESSES_MAX as u32 + 10 {
            guard.wrong(address(number), now);
        }
        assert_eq!(guard.0.lock().unwrap().len(), ADDRESSES_MAX);
        assert_eq!(guard.wrong(address(u32::MAX), now).delay, DELAY_MAX);
        assert_eq!(guard.right(address(u32::MAX), now), Some(DELAY_MAX));
        let later = now + 2 * MEMORY;
        assert_eq!(guard.right(address(u32::MAX), later), None);
        assert_eq!(guard.wrong(address(u32::MAX), later).delay, DELAY_FIRST);
        assert_eq!(guard.0.lock().unwrap().len(), 1);
    }
}
