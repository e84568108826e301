//! Delays against guessing passwords.
//!
//! Each wrong password from an address is answered later than the one before, up to [`DELAY_MAX`].
//! A right password that arrives while such an answer waits is answered together with it, so the
//! delay does not tell right from wrong, and a connection can try about one password in a second.
//! The delay is bounded, so a client that knows the password gets in although other clients of its
//! address keep sending wrong ones.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Delay of the answer to the first wrong password from an address. It doubles with each further
/// one.
const DELAY_FIRST: Duration = Duration::from_millis(100);
/// Longest delay, also of answers to passwords that were sent at the same time. Shorter than the
/// timeouts that clients commonly have.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// Time without a wrong password after which an address is forgotten.
const MEMORY: Duration = Duration::from_secs(60);
/// Addresses that are remembered at a time. When there are more, an address that is not remembered
/// gets the longest delay.
const ADDRESSES_MAX: usize = 4096;

/// Length in bits of the IPv6 prefix that one customer commonly has: a whole network counts as one
/// address.
const OWN_BITS: u32 = 64;

/// Wrong passwords by address, or by network for IPv6.
#[derive(Debug, Default)]
pub(crate) struct Guard(Mutex<HashMap<IpAddr, Guesses>>);

#[derive(Debug)]
struct Guesses {
    count: u32,
    /// When the last answer is due. The delay of the next one begins then.
    answered: Instant,
}

/// What a wrong password leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Penalty {
    /// Delay of its answer.
    pub(crate) delay: Duration,
    /// Wrong passwords from its address so far, this one included.
    pub(crate) count: u32,
}

impl Guard {
    /// Counts a wrong password.
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
        // Answers are due one after the other, but none later than the longest delay.
        guesses.answered = (guesses.answered.max(now) + delay).min(now + DELAY_MAX);
        Penalty { delay: guesses.answered - now, count: guesses.count }
    }

    /// Delay of the answer to the right password; `None` if there is none. An address with no
    /// answer outstanding is forgotten, because it knows the password.
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

    /// The addresses that are remembered. When there are too many, those whose time is over are
    /// forgotten first.
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
        // Passwords sent at the same time are answered one after the other.
        assert_eq!(delays(4), [100, 300, 700, 1000]);
        assert_eq!(delays(3), [1000, 1000, 1000]);
        let other = guard.wrong(IpAddr::from([127, 0, 0, 2]), now);
        assert_eq!(other, Penalty { delay: DELAY_FIRST, count: 1 });
        let later = now + DELAY_MAX + MEMORY + DELAY_FIRST;
        assert_eq!(guard.wrong(address, later), Penalty { delay: DELAY_FIRST, count: 1 });
        // The right password after all delays ends the address's record.
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
        // A right password during a delay does not shorten the next delay.
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
