//! TATP (Telecom Application Transaction Processing, description v1.0): the tables' rows, and the
//! keys that transactions ask for. So far what the reading transactions need.

use super::keys::{mix, shuffled};

/// A row of `Subscriber`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscriber {
    pub(crate) s_id: u32,
    pub(crate) bits: [u8; 10],
    pub(crate) hexes: [u8; 10],
    pub(crate) byte2s: [u16; 10],
    pub(crate) msc_location: u32,
    pub(crate) vlr_location: u32,
}

/// A row of `Access_Info`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessInfo {
    pub(crate) s_id: u32,
    pub(crate) ai_type: u8,
    pub(crate) data1: u16,
    pub(crate) data2: u16,
    pub(crate) data3: [u8; 3],
    pub(crate) data4: [u8; 5],
}

/// Numbers without a pattern, the same in every run.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(mix(seed))
    }

    /// One of `low ..= high`.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        low + mix(self.0) % (high - low + 1)
    }

    fn letters<const LEN: usize>(&mut self) -> [u8; LEN] {
        std::array::from_fn(|_| self.within(u64::from(b'A'), u64::from(b'Z')) as u8)
    }
}

/// The subscriber's number as its second key has it: 15 digits.
pub(crate) fn sub_nbr(s_id: u32) -> String {
    format!("{s_id:015}")
}

/// The rows of `Subscriber`, in random order.
pub(crate) fn subscribers(population: u32) -> Vec<Subscriber> {
    let ids: Vec<u32> = (1..=population).collect();
    let mut random = Random::new(1);
    let subscriber = |s_id| Subscriber {
        s_id,
        bits: std::array::from_fn(|_| random.within(0, 1) as u8),
        hexes: std::array::from_fn(|_| random.within(0, 15) as u8),
        byte2s: std::array::from_fn(|_| random.within(0, 255) as u16),
        msc_location: random.within(1, u64::from(u32::MAX)) as u32,
        vlr_location: random.within(1, u64::from(u32::MAX)) as u32,
    };
    shuffled(&ids, ids.len(), 2).into_iter().map(subscriber).collect()
}

/// The rows of `Access_Info` of these subscribers: one to four for each.
pub(crate) fn access_infos(subscribers: &[Subscriber]) -> Vec<AccessInfo> {
    let mut random = Random::new(3);
    let mut rows = Vec::new();
    for subscriber in subscribers {
        let count = random.within(1, 4) as usize;
        let types = shuffled(&[1, 2, 3, 4], count, random.within(0, u64::MAX - 1));
        rows.extend(types.into_iter().map(|ai_type| AccessInfo {
            s_id: subscriber.s_id,
            ai_type,
            data1: random.within(0, 255) as u16,
            data2: random.within(0, 255) as u16,
            data3: random.letters(),
            data4: random.letters(),
        }));
    }
    rows
}

/// A subscriber that a transaction asks for, by the description's non-uniform distribution.
pub(crate) fn s_id(random: &mut Random, population: u32) -> u32 {
    let a = match population {
        0..=1_000_000 => 65_535,
        1_000_001..=10_000_000 => 1_048_575,
        _ => 2_097_151,
    };
    let either = random.within(0, a) | random.within(1, u64::from(population));
    (either % u64::from(population) + 1) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_population_is_that_of_the_description() {
        let subscribers = subscribers(10_000);
        let ids: HashSet<u32> = subscribers.iter().map(|row| row.s_id).collect();
        assert_eq!(ids, (1..=10_000).collect());
        let infos = access_infos(&subscribers);
        let keys: HashSet<(u32, u8)> = infos.iter().map(|row| (row.s_id, row.ai_type)).collect();
        assert_eq!(keys.len(), infos.len());
        assert!((24_500..25_500).contains(&infos.len()), "{}", infos.len());
        assert!(infos.iter().all(|row| (1..=4).contains(&row.ai_type)));
        assert_eq!(sub_nbr(42), "000000000000042");
    }

    #[test]
    fn hot_subscribers_are_asked_for_more_often() {
        let mut random = Random::new(9);
        let mut counts = vec![0u32; 100_001];
        for _ in 0..400_000 {
            counts[s_id(&mut random, 100_000) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let hottest: u32 = counts[..1_000].iter().sum();
        // Others measured 35 % for the hottest hundredth.
        assert!((120_000..160_000).contains(&hottest), "{hottest}");
    }
}
