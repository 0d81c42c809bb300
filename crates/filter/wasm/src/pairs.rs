//! Maps as modules write and read them: the number of pairs, their lengths, then each name and value closed by a zero.

/// How many bytes pairs of these lengths take.
pub(crate) fn size(count: usize, bytes: usize) -> usize {
    // The number; two lengths and two zeros per pair.
    4 + count * 10 + bytes
}

/// Writes pairs into `out`, which is as long as [`size`] says.
pub(crate) struct Writer<'a> {
    lengths: &'a mut [u8],
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    /// `None` when `out` is too short for them.
    pub(crate) fn new(out: &'a mut [u8], count: usize) -> Option<Writer<'a>> {
        let (head, rest) = out.split_at_mut_checked(4)?;
        head.copy_from_slice(&u32::try_from(count).ok()?.to_le_bytes());
        let (lengths, rest) = rest.split_at_mut_checked(count * 8)?;
        Some(Writer { lengths, rest })
    }

    /// One more than announced, or longer ones, are not written.
    pub(crate) fn put(&mut self, name: &[u8], value: &[u8]) {
        let mut both = [0; 8];
        let (first, second) = both.split_at_mut(4);
        first.copy_from_slice(&(name.len() as u32).to_le_bytes());
        second.copy_from_slice(&(value.len() as u32).to_le_bytes());
        let lengths = std::mem::take(&mut self.lengths);
        let Some((place, lengths)) = lengths.split_at_mut_checked(8) else { return };
        place.copy_from_slice(&both);
        self.lengths = lengths;
        for part in [name, value] {
            let rest = std::mem::take(&mut self.rest);
            let Some((place, rest)) = rest.split_at_mut_checked(part.len() + 1) else { return };
            if let Some((zero, place)) = place.split_last_mut() {
                place.copy_from_slice(part);
                *zero = 0;
            }
            self.rest = rest;
        }
    }
}

/// All pairs as one text.
#[cfg(test)]
fn write<'p>(pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone) -> Vec<u8> {
    let (count, bytes) =
        pairs.clone().fold((0, 0), |(count, bytes), (name, value)| (count + 1, bytes + name.len() + value.len()));
    let mut out = vec![0; size(count, bytes)];
    if let Some(mut writer) = Writer::new(&mut out, count) {
        pairs.for_each(|(name, value)| writer.put(name, value));
    }
    out
}

/// Reads pairs. What is not well-formed holds none, as in Envoy.
pub(crate) fn read(bytes: &[u8]) -> Vec<(&[u8], &[u8])> {
    parse(bytes).unwrap_or_default()
}

fn parse(bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (lengths, mut rest) = rest.split_at_checked(count.checked_mul(8)?)?;
    let mut take = |length: &[u8]| {
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        let (text, behind) = rest.split_at_checked(length)?;
        rest = behind.get(1..)?;
        Some(text)
    };
    let pairs = lengths.chunks_exact(8).map(|pair| {
        let (name, value) = pair.split_at(4);
        Some((take(name)?, take(value)?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_back_as_they_were_written() {
        let pairs: Vec<(&[u8], &[u8])> = vec![(b":path", b"/"), (b"", b""), (b"a", b"b\0c")];
        let bytes = write(pairs.iter().copied());
        assert_eq!(bytes.len(), size(3, 10));
        assert_eq!(read(&bytes), pairs);
        assert_eq!(write(std::iter::empty()), [0; 4]);
    }

    #[test]
    fn what_is_cut_off_or_lies_holds_nothing() {
        let bytes = write([(&b"name"[..], &b"value"[..])].into_iter());
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_empty(), "{end}");
        }
        assert!(read(&[255; 64]).is_empty());
        assert!(read(&[]).is_empty());
    }
}
