//! How single values are written.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use postrider_filter_api::Moment;
use postrider_model::{AddressPart, TimeFormat};
use postrider_telemetry::time::{Stamper, TimePattern};
use postrider_upstream::Random;

pub(super) fn text(value: &str, out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(value.as_bytes());
    (!value.is_empty()).then_some(())
}

/// A reason as one word, with underscores for its spaces.
pub(super) fn text_without_spaces(value: &str, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    text(value, out)?;
    let spaces = out.get_mut(start..).into_iter().flatten().filter(|byte| byte.is_ascii_whitespace());
    spaces.for_each(|byte| *byte = b'_');
    Some(())
}

pub(super) fn number(value: u64, out: &mut Vec<u8>) {
    append_short(postrider_http::Decimal::new(value).as_bytes(), out);
}

/// What stands between commands, and many a number, is a byte or two: a call that copies any length costs more than they do.
#[inline(always)]
pub(super) fn append_short(bytes: &[u8], out: &mut Vec<u8>) {
    match *bytes {
        [a] => out.push(a),
        [a, b] => out.extend_from_slice(&[a, b]),
        [a, b, c] => out.extend_from_slice(&[a, b, c]),
        _ => out.extend_from_slice(bytes),
    }
}

/// What names a connection, and no other one of this process or another.
pub(super) fn uuid_of_connection(id: u64) -> [u8; 36] {
    static PROCESS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    crate::http::uuid(&Random::new(PROCESS.hash_one(id)))
}

pub(super) fn millis(from: Option<Moment>, to: Option<Moment>, out: &mut Vec<u8>) -> Option<()> {
    let duration: Duration = to?.saturating_duration_since(from?);
    number(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), out);
    Some(())
}

pub(super) fn address(value: Option<SocketAddr>, part: AddressPart, out: &mut Vec<u8>) -> Option<()> {
    let value = value?;
    // Writing to a vector cannot fail.
    let _ = match part {
        AddressPart::Whole => write!(out, "{value}"),
        AddressPart::WithoutPort => write!(out, "{}", value.ip()),
        AddressPart::Network(bits) => write_network(value.ip(), bits, out),
        AddressPart::Port => write!(out, "{}", value.port()),
        AddressPart::EndpointId => Ok(()),
    };
    Some(())
}

fn write_network(address: IpAddr, bits: u8, out: &mut Vec<u8>) -> std::io::Result<()> {
    match address {
        IpAddr::V4(address) => {
            let bits = bits.min(32);
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            write!(out, "{}/{bits}", Ipv4Addr::from(u32::from(address) & mask))
        }
        IpAddr::V6(address) => {
            let bits = bits.min(128);
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            write!(out, "{}/{bits}", Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

/// Appends `text` with each `%XX` decoded that stands for a byte which is `wanted`; what is no such escape stays.
pub(super) fn decode(text: &[u8], wanted: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        if let (b'%', [high, low, after @ ..]) = (first, tail)
            && let (Some(high), Some(low)) = (digit(high), digit(low))
            && let byte = (high << 4 | low) as u8
            && wanted(byte)
        {
            out.push(byte);
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
}

pub(super) fn write_time(format: &TimeFormat, at: SystemTime, out: &mut Vec<u8>) {
    thread_local! {
        /// Patterns that were met, parsed; few, as they stand in the configuration.
        static PATTERNS: RefCell<Vec<(TimeFormat, Stamper)>> = const { RefCell::new(Vec::new()) };
    }
    PATTERNS.with_borrow_mut(|patterns| {
        if !patterns.iter().any(|(known, _)| known == format) {
            patterns.push((format.clone(), Stamper::new(pattern_of(format))));
        }
        if let Some((_, stamper)) = patterns.iter_mut().find(|(known, _)| known == format) {
            stamper.write(at, out);
        }
    });
}

fn pattern_of(format: &TimeFormat) -> TimePattern {
    match format {
        TimeFormat::Iso8601Millis => TimePattern::iso8601(),
        TimeFormat::Pattern(text) => TimePattern::parse(text),
        TimeFormat::Local(text) => TimePattern::parse(text).in_local_time(),
    }
}

/// `Sat, 21 Nov 2026 10:11:12 GMT` (RFC 9110 section 5.6.7).
pub(crate) fn write_http_date(at: SystemTime, out: &mut Vec<u8>) {
    write_time(&TimeFormat::Pattern("%a, %d %b %Y %H:%M:%S GMT".to_owned()), at, out);
}

/// The machine's name, read once.
pub(super) fn hostname() -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned())
}
