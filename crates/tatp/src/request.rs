//! Requests, and how often each kind comes.

use crate::{Random, sub_nbr};

/// A transaction that a client is asked for.
#[derive(Clone, Debug)]
pub enum Request {
    /// Read all columns of a subscriber.
    GetSubscriberData {
        /// The subscriber.
        s_id: u32,
    },
    /// Read where calls of an active facility go at some hour.
    GetNewDestination {
        /// The subscriber.
        s_id: u32,
        /// The facility.
        sf_type: u8,
        /// The forwarding begins not later.
        start_time: u8,
        /// And ends later.
        end_time: u8,
    },
    /// Read four columns of an access info.
    GetAccessData {
        /// The subscriber.
        s_id: u32,
        /// The access info.
        ai_type: u8,
    },
    /// Change a subscriber and one of its facilities, in one transaction.
    UpdateSubscriberData {
        /// The subscriber.
        s_id: u32,
        /// The facility.
        sf_type: u8,
        /// The subscriber's new bit.
        bit_1: u8,
        /// The facility's new byte.
        data_a: u16,
    },
    /// Change where a subscriber is.
    UpdateLocation {
        /// The subscriber's number.
        sub_nbr: String,
        /// Where it is.
        vlr_location: u32,
    },
    /// Add a forwarding.
    InsertCallForwarding {
        /// The subscriber's number.
        sub_nbr: String,
        /// The facility.
        sf_type: u8,
        /// When it begins.
        start_time: u8,
        /// When it ends.
        end_time: u8,
        /// Where calls go.
        numberx: String,
    },
    /// Remove a forwarding.
    DeleteCallForwarding {
        /// The subscriber's number.
        sub_nbr: String,
        /// The facility.
        sf_type: u8,
        /// When it begins.
        start_time: u8,
    },
}

/// The seven kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "those of `Request`")]
pub enum Kind {
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
}

impl Kind {
    /// All kinds, with their share of a hundred requests.
    pub const ALL: [(Kind, u64); 7] = [
        (Kind::GetSubscriberData, 35),
        (Kind::GetNewDestination, 10),
        (Kind::GetAccessData, 35),
        (Kind::UpdateSubscriberData, 2),
        (Kind::UpdateLocation, 14),
        (Kind::InsertCallForwarding, 2),
        (Kind::DeleteCallForwarding, 2),
    ];

    /// Its name in the description.
    pub fn name(self) -> &'static str {
        match self {
            Kind::GetSubscriberData => "GET_SUBSCRIBER_DATA",
            Kind::GetNewDestination => "GET_NEW_DESTINATION",
            Kind::GetAccessData => "GET_ACCESS_DATA",
            Kind::UpdateSubscriberData => "UPDATE_SUBSCRIBER_DATA",
            Kind::UpdateLocation => "UPDATE_LOCATION",
            Kind::InsertCallForwarding => "INSERT_CALL_FORWARDING",
            Kind::DeleteCallForwarding => "DELETE_CALL_FORWARDING",
        }
    }
}

/// Draws requests.
#[derive(Clone, Debug)]
pub struct Mix {
    population: u64,
    /// Of the description's non-uniform distribution.
    a: u64,
    random: Random,
}

impl Mix {
    /// Requests for so many subscribers, in the sequence of a seed.
    pub fn new(population: u32, seed: u64) -> Self {
        let a = match population {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        Mix { population: population.into(), a, random: Random::new(seed) }
    }

    /// A subscriber, by the description's non-uniform distribution.
    #[inline]
    pub fn s_id(&mut self) -> u32 {
        let either = self.random.within(0, self.a) | self.random.within(1, self.population);
        (either % self.population + 1) as u32
    }

    /// The next request.
    pub fn draw(&mut self) -> Request {
        let mut left = self.random.within(0, 99);
        for (kind, share) in Kind::ALL {
            match left.checked_sub(share) {
                None => return self.draw_of(kind),
                Some(rest) => left = rest,
            }
        }
        unreachable!("the shares are a hundred");
    }

    /// A request of this kind.
    pub fn draw_of(&mut self, kind: Kind) -> Request {
        let s_id = self.s_id();
        let random = &mut self.random;
        let one_of_four = random.within(1, 4) as u8;
        match kind {
            Kind::GetSubscriberData => Request::GetSubscriberData { s_id },
            Kind::GetNewDestination => Request::GetNewDestination {
                s_id,
                sf_type: one_of_four,
                start_time: random.within(0, 2) as u8 * 8,
                end_time: random.within(1, 24) as u8,
            },
            Kind::GetAccessData => Request::GetAccessData { s_id, ai_type: one_of_four },
            Kind::UpdateSubscriberData => Request::UpdateSubscriberData {
                s_id,
                sf_type: one_of_four,
                bit_1: random.within(0, 1) as u8,
                data_a: random.within(0, 255) as u16,
            },
            Kind::UpdateLocation => Request::UpdateLocation {
                sub_nbr: sub_nbr(s_id),
                vlr_location: random.within(1, u64::from(u32::MAX)) as u32,
            },
            Kind::InsertCallForwarding => Request::InsertCallForwarding {
                sub_nbr: sub_nbr(s_id),
                sf_type: one_of_four,
                start_time: random.within(0, 2) as u8 * 8,
                end_time: random.within(1, 24) as u8,
                numberx: sub_nbr(random.within(1, self.population) as u32),
            },
            Kind::DeleteCallForwarding => Request::DeleteCallForwarding {
                sub_nbr: sub_nbr(s_id),
                sf_type: one_of_four,
                start_time: random.within(0, 2) as u8 * 8,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_subscribers_are_asked_for_more_often() {
        let mut mix = Mix::new(100_000, 9);
        let mut counts = vec![0u32; 100_001];
        for _ in 0..400_000 {
            counts[mix.s_id() as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let hottest: u32 = counts[..1_000].iter().sum();
        // Others measured 35 % for the hottest hundredth.
        assert!((120_000..160_000).contains(&hottest), "{hottest}");
    }
}
