//! Parameters in a URI.

use std::path::PathBuf;

use remanent_pmem::{Durability, Emulation};

use crate::slowdown::Slowdown;
use crate::{Error, Result};

/// Our parameters in a URI.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    /// `size=`: size to which a new pool may grow.
    pub(crate) size: Option<u64>,
    /// `durability=`.
    pub(crate) durability: Option<Durability>,
    /// `journal=`: the pool for the journals of a database that is a file.
    pub(crate) journal: Option<PathBuf>,
    /// `psow=`: whether bytes beside a write stay intact in a power failure; SQLite's own
    /// parameter.
    pub(crate) is_overwrite_safe: bool,
    /// `emulate=`: memory that DRAM emulates, for research.
    pub(crate) emulation: Emulation,
    /// `slowdown=`: time of accesses to the pool in percent, for research.
    pub(crate) slowdown: Slowdown,
    /// `batch=0`: hides batches from SQLite, as if it were built without them.
    pub(crate) is_without_batches: bool,
}

impl Settings {
    /// Calls `parameter` for each key.
    pub(crate) fn read(parameter: impl Fn(&'static str) -> Option<String>) -> Result<Self> {
        if let Some(value) = parameter("db") {
            let reason = format!(
                "not known, since journals could not be told apart by it; a second database in a \
                 pool is named in the path: file:POOL:{value}"
            );
            return Err(Error::Parameter { key: "db", value, reason });
        }
        let size = parameter("size").map(|value| {
            let reason = "no size; write bytes, or a number with K, M, G or T".to_owned();
            bytes(&value).ok_or(Error::Parameter { key: "size", value, reason })
        });
        let durability = parameter("durability").map(|value| {
            value.parse().map_err(|reason| Error::Parameter { key: "durability", value, reason })
        });
        let emulation = parameter("emulate").map(|value| match value.as_str() {
            "none" => Ok(Emulation::None),
            "nvram" => Ok(Emulation::Nvram),
            _ => {
                let reason = "write `none` or `nvram`; `slowdown` makes it slower".to_owned();
                Err(Error::Parameter { key: "emulate", value, reason })
            }
        });
        let slowdown = parameter("slowdown").map(|value| {
            let reason = "write percent, from 100 on".to_owned();
            Slowdown::parse(&value).ok_or(Error::Parameter { key: "slowdown", value, reason })
        });
        let is_off = |key| parameter(key).is_some_and(|value| boolean(&value) == Some(false));
        Ok(Settings {
            size: size.transpose()?,
            durability: durability.transpose()?,
            journal: parameter("journal").map(PathBuf::from),
            is_overwrite_safe: !is_off("psow"),
            emulation: emulation.transpose()?.unwrap_or_default(),
            slowdown: slowdown.transpose()?.unwrap_or_default(),
            is_without_batches: is_off("batch"),
        })
    }
}

/// Parses a boolean as SQLite does (`sqlite3_uri_boolean`): words in any case, and numbers, of
/// which only one byte counts.
fn boolean(text: &str) -> Option<bool> {
    let is_one_of = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    let digits = text.split(|char: char| !char.is_ascii_digit()).next().unwrap_or_default();
    if !digits.is_empty() {
        return Some(digits.parse::<i32>().unwrap_or(0) as u8 != 0);
    }
    match () {
        _ if is_one_of(&["off", "no", "false"]) => Some(false),
        _ if is_one_of(&["on", "yes", "true"]) => Some(true),
        _ => None,
    }
}

/// Parses a number of bytes, with or without a unit.
fn bytes(text: &str) -> Option<u64> {
    let (number, shift) = match text.char_indices().last()? {
        (end, 'K' | 'k') => (&text[..end], 10),
        (end, 'M' | 'm') => (&text[..end], 20),
        (end, 'G' | 'g') => (&text[..end], 30),
        (end, 'T' | 't') => (&text[..end], 40),
        _ => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings> {
        let value = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        Settings::read(|key| value(key).map(str::to_owned))
    }

    #[test]
    fn parameters_are_read_and_others_ignored() {
        let settings = read(&[("size", "8G"), ("durability", "power"), ("cache", "private")]);
        let settings = settings.expect("all is well");
        assert_eq!((settings.size, settings.durability), (Some(8 << 30), Some(Durability::Power)));
        assert_eq!(settings.journal, None);
        assert!(settings.is_overwrite_safe && !settings.is_without_batches);
        assert!(read(&[("batch", "0")]).expect("all is well").is_without_batches);
        let emulated = read(&[("emulate", "nvram")]).expect("all is well");
        assert_eq!(emulated.emulation, Emulation::Nvram);
        for (value, is_on) in [
            ("0", false),
            ("00", false),
            ("256", false),
            ("no", false),
            ("FALSE", false),
            ("Off", false),
            ("nO", false),
            ("1", true),
            ("2x", true),
            ("TRUE", true),
            ("oN", true),
            ("", true),
            ("never", true),
        ] {
            let settings = read(&[("psow", value), ("batch", value)]).expect("all is well");
            assert_eq!(settings.is_overwrite_safe, is_on, "psow={value}");
            assert_eq!(settings.is_without_batches, !is_on, "batch={value}");
        }
        assert_eq!(read(&[("size", "70000")]).expect("all is well").size, Some(70_000));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (key, value) in [
            ("size", "G"),
            ("size", ""),
            ("size", "1.5G"),
            ("size", "99999999T"),
            ("durability", "x"),
            ("db", "orders"),
            ("emulate", "pcm"),
            ("slowdown", "1.5"),
            ("slowdown", "99"),
        ] {
            let error = read(&[(key, value)]).expect_err("it makes no sense").to_string();
            assert!(error.contains(&format!("{key}={value}")), "{error}");
        }
    }
}
