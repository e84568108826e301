//! Sizes and durations as people write them.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// `64G`, `512M`, `1.5T` or plain bytes; units are powers of 1024, with or without `iB` or `B`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let unit = unit.to_ascii_uppercase();
    let shift = match unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit) {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("`{text}` is no size; write for example 512M, 8G or 1.5T")),
    };
    scale(number, (1u64 << shift) as f64)
        .ok_or_else(|| format!("`{text}` is no size; write for example 512M, 8G or 1.5T"))
}

/// Like [`parse_size`], for values that must not be 0.
pub(crate) fn parse_size_at_least_1(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("there is no room in 0 bytes; write for example 512M or 8G".to_owned()),
        bytes => Ok(bytes),
    }
}

/// `127.0.0.1:6380`, `[::1]:6380` or `localhost:6380`. If a name has several addresses, an IPv4
/// address is preferred.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let parts = text.rsplit_once(':');
    let Some((host, port)) = parts.filter(|(host, _)| !host.is_empty() && !host.contains(':'))
    else {
        return Err(format!(
            "`{text}` is no address; write HOST:PORT, such as localhost:6380 or [::1]:6380"
        ));
    };
    let port =
        port.parse().map_err(|_| format!("`{port}` is no port, which is a number up to 65535"))?;
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| format!("the host `{host}` is not found: {error}"))?;
    let address = found.min_by_key(SocketAddr::is_ipv6);
    address.ok_or_else(|| format!("the host `{host}` has no address"))
}

/// `30s`, `250ms`, `50us`, `5m` or `2h`; a plain number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let unit_us = match unit {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" | "" => 1e6,
        "m" | "min" => 60e6,
        "h" => 3600e6,
        _ => return Err(format!("`{text}` is no duration; write for example 500ms, 30s or 5m")),
    };
    scale(number, unit_us)
        .map(Duration::from_micros)
        .ok_or_else(|| format!("`{text}` is no duration; write for example 500ms, 30s or 5m"))
}

/// Bytes as people read them: `1.5 GiB`.
pub(crate) fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let step = (bytes.ilog2() / 10).min(UNITS.len() as u32);
    let value = bytes as f64 / (1u64 << (10 * step)) as f64;
    format!("{value:.1} {}", UNITS[step as usize - 1])
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn scale(number: &str, factor: f64) -> Option<u64> {
    let value = number.parse::<f64>().ok()? * factor;
    (value.is_finite() && value < u64::MAX as f64).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512M", 512 << 20),
            ("8G", 8 << 30),
            ("8 GiB", 8 << 30),
            ("8gb", 8 << 30),
            ("1.5T", 3 << 39),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "8X", "-1", "1.2.3", "999999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_is_no_size() {
        assert_eq!(parse_size_at_least_1("1K"), Ok(1024));
        for text in ["0", "0G", "0.0001"] {
            assert!(
                parse_size_at_least_1(text).is_err_and(|why| why.contains("0 bytes")),
                "{text}"
            );
        }
    }

    #[test]
    fn addresses_are_read() {
        for (text, address) in [
            ("127.0.0.1:6380", "127.0.0.1:6380"),
            ("[::1]:0", "[::1]:0"),
            ("localhost:6380", "127.0.0.1:6380"),
        ] {
            assert_eq!(parse_address(text), Ok(address.parse().unwrap()), "{text}");
        }
        for (text, why) in [
            ("localhost", "HOST:PORT"),
            ("::1", "HOST:PORT"),
            (":6380", "HOST:PORT"),
            ("", "HOST:PORT"),
            ("localhost:65536", "no port"),
            ("localhost:", "no port"),
            ("no-such-host.invalid:1", "not found"),
        ] {
            let error = parse_address(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn durations_are_read() {
        for (text, ms) in
            [("250ms", 250), ("30s", 30_000), ("2", 2_000), ("1.5m", 90_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["50us", "50 µs"] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(50)), "{text}");
        }
        for text in ["", "s", "3 days", "-1s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_written() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3 << 29, "1.5 GiB"),
            (64 << 30, "64.0 GiB"),
        ] {
            assert_eq!(human_size(bytes), text);
        }
    }
}
