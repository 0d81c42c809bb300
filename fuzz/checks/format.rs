//! Any text as a substitution format: it is read or refused, an error points into the text, and what was read does not
//! change when its literal parts are escaped and read again.

use postrider_model::{Format, Piece};

pub fn format(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Format::parse(text) {
        Err(error) => assert!(error.offset <= text.len() && text.is_char_boundary(error.offset), "{error:?}"),
        Ok(format) => {
            let mut literal = String::new();
            for piece in &format.pieces {
                if let Piece::Text(text) = piece {
                    literal.push_str(text);
                }
            }
            let again = Format::parse(&literal.replace('%', "%%")).map(|format| format.as_literal().map(str::to_owned));
            assert_eq!(again, Ok(Some(literal)));
        }
    }
}
