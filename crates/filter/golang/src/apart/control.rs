//! What is said beside streams: configurations one way, logs and statistics the other. Each message is its length and what
//! it says.

use std::io::{self, Read, Write};

use super::wire::{Put, Take};
use crate::metrics::Sort;

/// Largest message that is believed in.
const MAX: u64 = 256 << 20;

/// What the proxy says.
#[derive(Debug, PartialEq)]
pub(super) enum Wish<'b> {
    /// To parse a configuration, which is then known by this number.
    Parse {
        key: u64,
        plugin: String,
        any: &'b [u8],
        of_route: bool,
    },
    /// To merge one configuration into another, which is then known by this number.
    Merge {
        key: u64,
        plugin: String,
        parent: u64,
        child: u64,
    },
    Forget {
        key: u64,
    },
}

/// What a process says.
#[derive(Debug, PartialEq)]
pub(super) enum News {
    /// The library is loaded.
    Ready,
    Failed(String),
    Parsed {
        key: u64,
        accepted: bool,
    },
    Log {
        level: u32,
        message: String,
    },
    /// A statistic of a configuration.
    Define {
        key: u64,
        id: u32,
        sort: Sort,
        name: String,
    },
    Increment {
        key: u64,
        id: u32,
        offset: i64,
    },
    Record {
        key: u64,
        id: u32,
        value: u64,
    },
}

pub(super) fn write(mut to: impl Write, said: &impl Said) -> io::Result<()> {
    let mut put = Put::default();
    put.number(0);
    said.put(&mut put);
    let mut bytes = put.0;
    let len = bytes.len().saturating_sub(8) as u64;
    if let Some(head) = bytes.first_chunk_mut() {
        *head = len.to_le_bytes();
    }
    to.write_all(&bytes)
}

/// The next message.
///
/// # Errors
/// The other side is gone, or says what cannot be a message.
pub(super) fn read(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 8];
    from.read_exact(&mut len)?;
    let len = u64::from_le_bytes(len);
    if len > MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(super) trait Said {
    fn put(&self, put: &mut Put);
}

impl Said for Wish<'_> {
    fn put(&self, put: &mut Put) {
        match self {
            Wish::Parse { key, plugin, any, of_route } => {
                put.byte(1).number(*key).bytes(plugin.as_bytes()).bytes(any).flag(*of_route)
            }
            Wish::Forget { key } => put.byte(2).number(*key),
            Wish::Merge { key, plugin, parent, child } => {
                put.byte(3).number(*key).bytes(plugin.as_bytes()).number(*parent).number(*child)
            }
        };
    }
}

impl Said for News {
    fn put(&self, put: &mut Put) {
        match self {
            News::Ready => put.byte(1),
            News::Failed(why) => put.byte(2).bytes(why.as_bytes()),
            News::Parsed { key, accepted } => put.byte(3).number(*key).flag(*accepted),
            News::Log { level, message } => put.byte(4).number((*level).into()).bytes(message.as_bytes()),
            News::Define { key, id, sort, name } => {
                let sort = match sort {
                    Sort::Counter => 0,
                    Sort::Gauge => 1,
                    Sort::Histogram => 2,
                };
                put.byte(5).number(*key).number((*id).into()).byte(sort).bytes(name.as_bytes())
            }
            News::Increment { key, id, offset } => put.byte(6).number(*key).number((*id).into()).number(*offset as u64),
            News::Record { key, id, value } => put.byte(7).number(*key).number((*id).into()).number(*value),
        };
    }
}

impl<'b> Wish<'b> {
    pub(super) fn read(bytes: &'b [u8]) -> Option<Wish<'b>> {
        let mut take = Take(bytes);
        Some(match take.byte()? {
            1 => Wish::Parse { key: take.number()?, plugin: take.text()?, any: take.bytes()?, of_route: take.flag()? },
            2 => Wish::Forget { key: take.number()? },
            3 => {
                Wish::Merge { key: take.number()?, plugin: take.text()?, parent: take.number()?, child: take.number()? }
            }
            _ => return None,
        })
    }
}

impl News {
    pub(super) fn read(bytes: &[u8]) -> Option<News> {
        let mut take = Take(bytes);
        let small = |take: &mut Take<'_>| u32::try_from(take.number()?).ok();
        Some(match take.byte()? {
            1 => News::Ready,
            2 => News::Failed(take.text()?),
            3 => News::Parsed { key: take.number()?, accepted: take.flag()? },
            4 => News::Log { level: small(&mut take)?, message: take.text()? },
            5 => News::Define {
                key: take.number()?,
                id: small(&mut take)?,
                sort: match take.byte()? {
                    0 => Sort::Counter,
                    1 => Sort::Gauge,
                    2 => Sort::Histogram,
                    _ => return None,
                },
                name: take.text()?,
            },
            6 => News::Increment { key: take.number()?, id: small(&mut take)?, offset: take.number()? as i64 },
            7 => News::Record { key: take.number()?, id: small(&mut take)?, value: take.number()? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_as_it_was_written() {
        let wishes = [
            Wish::Parse { key: 1, plugin: "p".into(), any: b"any", of_route: true },
            Wish::Merge { key: 3, plugin: "p".into(), parent: 1, child: 2 },
            Wish::Forget { key: u64::MAX },
        ];
        for wish in wishes {
            let mut bytes = Vec::new();
            write(&mut bytes, &wish).unwrap();
            assert_eq!(Wish::read(&read(&*bytes).unwrap()), Some(wish));
        }
        let news = [
            News::Ready,
            News::Failed("why".into()),
            News::Parsed { key: 2, accepted: false },
            News::Log { level: 3, message: "m".into() },
            News::Define { key: 2, id: 1, sort: Sort::Gauge, name: "n".into() },
            News::Increment { key: 2, id: 1, offset: -3 },
            News::Record { key: 2, id: 1, value: 3 },
        ];
        for news in news {
            let mut bytes = Vec::new();
            write(&mut bytes, &news).unwrap();
            assert!(read(&bytes[..bytes.len() - 1]).is_err());
            assert_eq!(News::read(&read(&*bytes).unwrap()), Some(news));
        }
        assert!(read(&[255; 16][..]).is_err());
    }
}
