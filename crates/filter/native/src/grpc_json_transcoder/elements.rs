//! Cuts the elements out of a JSON array that comes in pieces.
//!
//! ```text
//! Before ──[──> Ahead ──byte──> Inside ──,──> Ahead
//!                 └───────────]────┴──────────> Behind
//! ```
//!
//! It finds where elements end, nothing else: what they are is for a parser to say.

/// Why a text is no array.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    NoArray,
    /// Something stands behind the array, or a comma where none may.
    Stray,
    /// The text ended inside.
    Cut,
    /// One element is longer than allowed.
    TooLong,
}

impl Malformed {
    pub(super) fn text(&self) -> &'static str {
        match self {
            Malformed::NoArray => "Expected an array instead of an object",
            Malformed::Stray => "Parsing terminated before end of input.",
            Malformed::Cut => "Unexpected end of string. Expected a value or ] within an array.",
            Malformed::TooLong => super::REQUEST_TOO_LARGE,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Elements {
    place: Place,
    /// The element that is coming in.
    element: Vec<u8>,
    depth: u32,
    in_string: bool,
    escaped: bool,
    count: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    Ahead,
    Inside,
    Behind,
}

impl Elements {
    /// Takes the next piece; `each` gets the text of every element that ends in it.
    ///
    /// # Errors
    /// What `each` answers, or that this is no array; nothing more can be fed then.
    pub(super) fn feed<E: From<Malformed>>(
        &mut self,
        piece: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for &byte in piece {
            let blank = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            match self.place {
                Place::Before if blank => {}
                Place::Before if byte == b'[' => self.place = Place::Ahead,
                Place::Before => return Err(Malformed::NoArray.into()),
                Place::Ahead if blank => {}
                Place::Ahead if byte == b']' && self.count == 0 => self.place = Place::Behind,
                Place::Ahead if matches!(byte, b']' | b',') => return Err(Malformed::Stray.into()),
                Place::Ahead => {
                    self.place = Place::Inside;
                    self.push(byte, limit)?;
                }
                Place::Inside if self.depth == 0 && !self.in_string && matches!(byte, b',' | b']') => {
                    self.count += 1;
                    self.place = if byte == b',' { Place::Ahead } else { Place::Behind };
                    each(&self.element)?;
                    self.element.clear();
                }
                Place::Inside => self.push(byte, limit)?,
                Place::Behind if blank => {}
                Place::Behind => return Err(Malformed::Stray.into()),
            }
        }
        Ok(())
    }

    fn push(&mut self, byte: u8, limit: usize) -> Result<(), Malformed> {
        if self.element.len() >= limit {
            return Err(Malformed::TooLong);
        }
        self.element.push(byte);
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Ok(());
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            // A closing bracket too many ends up in the element, where the parser finds it.
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }

    /// The text has ended.
    pub(super) fn finish(&self) -> Result<(), Malformed> {
        match self.place {
            Place::Before => Err(Malformed::NoArray),
            Place::Ahead | Place::Inside => Err(Malformed::Cut),
            Place::Behind => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str, step: usize) -> Result<Vec<String>, Malformed> {
        let mut elements = Elements::default();
        let mut found = Vec::new();
        for piece in text.as_bytes().chunks(step) {
            elements.feed::<Malformed>(piece, 40, |element| {
                found.push(String::from_utf8_lossy(element).into_owned());
                Ok(())
            })?;
        }
        elements.finish().map(|()| found)
    }

    #[test]
    fn elements_are_found_wherever_the_text_is_cut() {
        let text = r#" [ {"a": [1, {"b": "],}\"\\"}]} , 5,"x,]" ,[[]] ] "#;
        for step in 1..text.len() {
            let found = elements(text, step).unwrap();
            assert_eq!(found, [r#"{"a": [1, {"b": "],}\"\\"}]} "#, "5", r#""x,]" "#, "[[]] "], "{step}");
        }
        assert_eq!(elements("[]", 1), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for (text, want) in [
            ("", Malformed::NoArray),
            ("{}", Malformed::NoArray),
            ("[", Malformed::Cut),
            ("[1", Malformed::Cut),
            ("[1,", Malformed::Cut),
            ("[1,]", Malformed::Stray),
            ("[,]", Malformed::Stray),
            ("[1] x", Malformed::Stray),
            ("[1][", Malformed::Stray),
        ] {
            assert_eq!(elements(text, 1), Err(want), "{text}");
        }
        assert_eq!(elements(&format!("[{}]", "1".repeat(41)), 7), Err(Malformed::TooLong));
    }
}
