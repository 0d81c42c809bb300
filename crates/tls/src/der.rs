//! Reads DER (X.690), as much as certificates and OCSP responses need: definite lengths and small tags.
//!
//! It only takes apart what is there. Whether a certificate is good is decided by webpki, never by what is read here.

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// The tag of a constructed, context-specific element: `[number]`.
pub(crate) const fn context(number: u8) -> u8 {
    0xa0 | number
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    /// With tag and length.
    pub whole: &'a [u8],
}

/// The elements of `content`, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(content: &'a [u8]) -> Reader<'a> {
        Reader(content)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `None` at the end and for what is not DER.
    pub fn element(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        // Tags above 30 take more bytes; nothing that is read here has them.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0usize, |length, &byte| (length << 8) | usize::from(byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        let whole = self.0.get(..self.0.len() - rest.len())?;
        self.0 = rest;
        Some(Element { tag, content, whole })
    }

    /// The content of the next element, which must have this tag.
    pub fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.element().filter(|it| it.tag == tag).map(|it| it.content)
    }

    /// The content of the next element if it has this tag; otherwise nothing is taken.
    pub fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&tag) { self.expect(tag) } else { None }
    }

    /// A reader of what is inside the next element, which must have this tag.
    pub fn inside(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.expect(tag).map(Reader)
    }
}

/// The bytes of an INTEGER without the zero that only keeps it positive.
pub(crate) fn unsigned(integer: &[u8]) -> &[u8] {
    match integer {
        [0, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_with_content_and_whole() {
        let mut reader = Reader::new(&[0x30, 0x03, 0x02, 0x01, 0x05, 0x05, 0x00]);
        let sequence = reader.element().unwrap();
        assert_eq!((sequence.tag, sequence.content.len(), sequence.whole.len()), (SEQUENCE, 3, 5));
        assert_eq!(Reader::new(sequence.content).expect(INTEGER), Some(&[5u8][..]));
        assert_eq!(reader.element().unwrap().tag, 5);
        assert!(reader.is_empty() && reader.element().is_none());
    }

    #[test]
    fn long_lengths_and_their_limits() {
        let mut long = vec![0x04, 0x82, 0x01, 0x00];
        long.extend([7; 256]);
        assert_eq!(Reader::new(&long).expect(OCTET_STRING).unwrap().len(), 256);
        for broken in [
            &[0x04][..],
            &[0x04, 0x02, 0x01],
            &[0x04, 0x80, 0x00, 0x00],
            &[0x04, 0x85, 0, 0, 0, 0, 1, 9],
            &[0x04, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x1f, 0x81, 0x01, 0x00],
        ] {
            assert_eq!(Reader::new(broken).element(), None, "{broken:02x?}");
        }
    }

    #[test]
    fn an_optional_element_is_left_when_it_is_another() {
        let mut reader = Reader::new(&[0x02, 0x01, 0x05]);
        assert_eq!(reader.optional(BOOLEAN), None);
        assert_eq!(reader.optional(INTEGER), Some(&[5u8][..]));
    }
}
