//! Numbers and texts as bytes, both ways. Both ends are one executable: there are no versions.

use crate::bells::Side;

/// What is being written.
#[derive(Debug, Default)]
pub(crate) struct Put(pub(crate) Vec<u8>);

/// What is being read; `None` where it is cut off or makes no sense.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Take<'b>(pub(crate) &'b [u8]);

impl Put {
    pub(crate) fn byte(&mut self, byte: u8) -> &mut Put {
        self.0.push(byte);
        self
    }

    pub(crate) fn flag(&mut self, set: bool) -> &mut Put {
        self.byte(u8::from(set))
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Put {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Put {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn optional(&mut self, bytes: Option<&[u8]>) -> &mut Put {
        self.flag(bytes.is_some());
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self,
        }
    }

    pub(crate) fn side(&mut self, side: Side) -> &mut Put {
        self.flag(side == Side::Response)
    }
}

impl<'b> Take<'b> {
    fn some(&mut self, count: usize) -> Option<&'b [u8]> {
        let (some, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(some)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.some(1)?.first().copied()
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.some(8)?.try_into().ok()?))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'b [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        self.some(count)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// The outer is `None` where it is cut off, the inner where nothing was written.
    pub(crate) fn optional(&mut self) -> Option<Option<&'b [u8]>> {
        match self.flag()? {
            true => Some(Some(self.bytes()?)),
            false => Some(None),
        }
    }

    pub(crate) fn side(&mut self) -> Option<Side> {
        Some(if self.flag()? { Side::Response } else { Side::Request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_and_what_is_cut_off_is_not() {
        let mut put = Put::default();
        put.byte(7).flag(true).number(u64::MAX).bytes(b"text").optional(None).optional(Some(b"")).side(Side::Response);
        let read = |mut take: Take<'_>| {
            let read = (take.byte()?, take.flag()?, take.number()?, take.text()?, take.optional()?.is_none());
            Some((read, take.optional()?.map(<[u8]>::len), take.side()?, take.0.len()))
        };
        let expected = ((7, true, u64::MAX, "text".to_owned(), true), Some(0), Side::Response, 0);
        assert_eq!(read(Take(&put.0)), Some(expected));
        for cut in 0..put.0.len() {
            assert_eq!(read(Take(&put.0[..cut])), None, "{cut}");
        }
        assert!(Take(&[2]).flag().is_none());
        assert!(Take(&[255; 20]).bytes().is_none());
    }
}
