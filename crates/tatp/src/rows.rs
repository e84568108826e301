//! The rows that the tables begin with.

use remanent_engine::{Result, Value};
use remanent_pmem::Medium;

use crate::{Random, Tables};

/// A row of `subscriber`.
#[derive(Clone, Copy, Debug)]
pub struct Subscriber {
    /// Its first key.
    pub s_id: u32,
    /// `bit_1` to `bit_10`.
    pub bits: [u8; 10],
    /// `hex_1` to `hex_10`.
    pub hexes: [u8; 10],
    /// `byte2_1` to `byte2_10`.
    pub byte2s: [u16; 10],
    /// Where it is.
    pub msc_location: u32,
    /// Where it is at present.
    pub vlr_location: u32,
}

/// A row of `access_info`.
#[derive(Clone, Copy, Debug)]
pub struct AccessInfo {
    /// The subscriber.
    pub s_id: u32,
    /// 1 to 4.
    pub ai_type: u8,
    /// A byte.
    pub data1: u16,
    /// A byte.
    pub data2: u16,
    /// Three letters.
    pub data3: [u8; 3],
    /// Five letters.
    pub data4: [u8; 5],
}

/// A row of `special_facility`.
#[derive(Clone, Copy, Debug)]
pub struct SpecialFacility {
    /// The subscriber.
    pub s_id: u32,
    /// 1 to 4.
    pub sf_type: u8,
    /// 1 for 85 of 100.
    pub is_active: u8,
    /// A byte.
    pub error_cntrl: u16,
    /// A byte.
    pub data_a: u16,
    /// Five letters.
    pub data_b: [u8; 5],
}

/// A row of `call_forwarding`.
#[derive(Clone, Copy, Debug)]
pub struct CallForwarding {
    /// The subscriber.
    pub s_id: u32,
    /// The facility.
    pub sf_type: u8,
    /// 0, 8 or 16.
    pub start_time: u8,
    /// Up to eight hours later.
    pub end_time: u8,
    /// 15 digits.
    pub numberx: [u8; 15],
}

/// The subscriber's number as its second key has it: 15 digits.
pub fn sub_nbr(s_id: u32) -> String {
    format!("{s_id:015}")
}

fn text(letters: &[u8]) -> &str {
    std::str::from_utf8(letters).expect("letters and digits are ASCII")
}

impl Subscriber {
    /// Calls `with` with its values, in the order of the columns.
    pub fn with_values<R>(&self, with: impl FnOnce(&[Value<'_>]) -> R) -> R {
        let number = sub_nbr(self.s_id);
        let mut values: Vec<Value<'_>> = Vec::with_capacity(34);
        values.extend::<[Value<'_>; 2]>([self.s_id.into(), number.as_str().into()]);
        values.extend(self.bits.map(Value::from));
        values.extend(self.hexes.map(Value::from));
        values.extend(self.byte2s.map(Value::from));
        values.extend([self.msc_location, self.vlr_location].map(Value::from));
        with(&values)
    }
}

impl AccessInfo {
    /// Calls `with` with its values, in the order of the columns.
    pub fn with_values<R>(&self, with: impl FnOnce(&[Value<'_>]) -> R) -> R {
        with(&[
            self.s_id.into(),
            self.ai_type.into(),
            self.data1.into(),
            self.data2.into(),
            text(&self.data3).into(),
            text(&self.data4).into(),
        ])
    }
}

impl SpecialFacility {
    /// Calls `with` with its values, in the order of the columns.
    pub fn with_values<R>(&self, with: impl FnOnce(&[Value<'_>]) -> R) -> R {
        with(&[
            self.s_id.into(),
            self.sf_type.into(),
            self.is_active.into(),
            self.error_cntrl.into(),
            self.data_a.into(),
            text(&self.data_b).into(),
        ])
    }
}

impl CallForwarding {
    /// Calls `with` with its values, in the order of the columns.
    pub fn with_values<R>(&self, with: impl FnOnce(&[Value<'_>]) -> R) -> R {
        with(&[
            self.s_id.into(),
            self.sf_type.into(),
            self.start_time.into(),
            self.end_time.into(),
            text(&self.numberx).into(),
        ])
    }
}

/// All rows, the same in every run.
#[derive(Clone, Debug)]
pub struct Population {
    /// In random order.
    pub subscribers: Vec<Subscriber>,
    /// One to four for each subscriber.
    pub access_infos: Vec<AccessInfo>,
    /// One to four for each subscriber.
    pub special_facilities: Vec<SpecialFacility>,
    /// None to three for each facility.
    pub call_forwardings: Vec<CallForwarding>,
}

impl Population {
    /// The rows of so many subscribers.
    pub fn new(subscribers: u32) -> Self {
        let mut random = Random::new(1);
        let ids: Vec<u32> = (1..=subscribers).collect();
        let order = random.some(&ids, ids.len());
        let mut population = Population {
            subscribers: Vec::with_capacity(ids.len()),
            access_infos: Vec::new(),
            special_facilities: Vec::new(),
            call_forwardings: Vec::new(),
        };
        for s_id in order {
            population.add(s_id, &mut random);
        }
        population
    }

    fn add(&mut self, s_id: u32, random: &mut Random) {
        self.subscribers.push(Subscriber {
            s_id,
            bits: std::array::from_fn(|_| random.within(0, 1) as u8),
            hexes: std::array::from_fn(|_| random.within(0, 15) as u8),
            byte2s: std::array::from_fn(|_| random.within(0, 255) as u16),
            msc_location: random.within(1, u64::from(u32::MAX)) as u32,
            vlr_location: random.within(1, u64::from(u32::MAX)) as u32,
        });
        let count = random.within(1, 4) as usize;
        for ai_type in random.some(&[1, 2, 3, 4], count) {
            self.access_infos.push(AccessInfo {
                s_id,
                ai_type,
                data1: random.within(0, 255) as u16,
                data2: random.within(0, 255) as u16,
                data3: random.letters(),
                data4: random.letters(),
            });
        }
        let count = random.within(1, 4) as usize;
        for sf_type in random.some(&[1, 2, 3, 4], count) {
            self.special_facilities.push(SpecialFacility {
                s_id,
                sf_type,
                is_active: u8::from(random.within(1, 100) <= 85),
                error_cntrl: random.within(0, 255) as u16,
                data_a: random.within(0, 255) as u16,
                data_b: random.letters(),
            });
            let count = random.within(0, 3) as usize;
            for start_time in random.some(&[0, 8, 16], count) {
                self.call_forwardings.push(CallForwarding {
                    s_id,
                    sf_type,
                    start_time,
                    end_time: start_time + random.within(1, 8) as u8,
                    numberx: std::array::from_fn(|_| b'0' + random.within(0, 9) as u8),
                });
            }
        }
    }

    /// Number of subscribers.
    pub fn count(&self) -> u32 {
        self.subscribers.len() as u32
    }

    /// Number of rows in all four tables.
    pub fn row_count(&self) -> usize {
        self.subscribers.len()
            + self.access_infos.len()
            + self.special_facilities.len()
            + self.call_forwardings.len()
    }

    /// Inserts all rows.
    ///
    /// # Errors
    ///
    /// When a row is there, the pool is full, or the medium met a fault.
    pub fn load<M: Medium>(&self, tables: &Tables<M>) -> Result<()> {
        self.load_while(tables, |_| true)
    }

    /// Inserts all rows, and calls `goes_on` before each thousandth one with the number of rows
    /// that are there. Stops early when it returns false.
    ///
    /// # Errors
    ///
    /// As for [`load`](Population::load).
    pub fn load_while<M: Medium>(
        &self,
        tables: &Tables<M>,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<()> {
        let (mut count, mut is_stopped) = (0usize, false);
        let mut is_wanted = || {
            is_stopped |= count.is_multiple_of(1_000) && !goes_on(count);
            count += 1;
            !is_stopped
        };
        for row in self.subscribers.iter().take_while(|_| is_wanted()) {
            row.with_values(|values| tables.subscriber.insert(values))?;
        }
        for row in self.access_infos.iter().take_while(|_| is_wanted()) {
            row.with_values(|values| tables.access_info.insert(values))?;
        }
        for row in self.special_facilities.iter().take_while(|_| is_wanted()) {
            row.with_values(|values| tables.special_facility.insert(values))?;
        }
        for row in self.call_forwardings.iter().take_while(|_| is_wanted()) {
            row.with_values(|values| tables.call_forwarding.insert(values))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_population_is_that_of_the_description() {
        let population = Population::new(10_000);
        let ids: HashSet<u32> = population.subscribers.iter().map(|row| row.s_id).collect();
        assert_eq!(ids, (1..=10_000).collect());
        let infos = &population.access_infos;
        let keys: HashSet<_> = infos.iter().map(|row| (row.s_id, row.ai_type)).collect();
        assert_eq!(keys.len(), infos.len());
        assert!((24_500..25_500).contains(&infos.len()), "{}", infos.len());
        let facilities = &population.special_facilities;
        let keys: HashSet<_> = facilities.iter().map(|row| (row.s_id, row.sf_type)).collect();
        assert_eq!(keys.len(), facilities.len());
        assert!((24_500..25_500).contains(&facilities.len()), "{}", facilities.len());
        let active = facilities.iter().filter(|row| row.is_active == 1).count();
        assert!((0.83..0.87).contains(&(active as f64 / facilities.len() as f64)));
        let forwardings = &population.call_forwardings;
        assert!((36_000..39_000).contains(&forwardings.len()), "{}", forwardings.len());
        assert!(forwardings.iter().all(|row| keys.contains(&(row.s_id, row.sf_type))));
        let keys: HashSet<_> =
            forwardings.iter().map(|row| (row.s_id, row.sf_type, row.start_time)).collect();
        assert_eq!(keys.len(), forwardings.len());
        assert_eq!(sub_nbr(42), "000000000000042");
    }
}
