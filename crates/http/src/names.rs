//! Names of fields in another form than lower case, for peers that compare them byte by byte.
//!
//! A head is written as always, and its names are then changed in place: another form is as long. Only heads whose
//! connection asks for it come here.

/// The names of a received head, as its sender wrote them.
#[derive(Clone, Debug, Default)]
pub struct ReceivedNames {
    /// One behind the other, each with a colon.
    bytes: Vec<u8>,
}

impl ReceivedNames {
    /// Takes the names of `head`: a start line and field lines as they were received.
    pub fn take(&mut self, head: &[u8]) {
        self.bytes.clear();
        for line in head.split(|byte| *byte == b'\n').skip(1) {
            if let Some(end) = memchr::memchr(b':', line) {
                self.bytes.extend_from_slice(line.get(..=end).unwrap_or_default());
            }
        }
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How `name` was written, where it stood first.
    fn find(&self, name: &[u8]) -> Option<&[u8]> {
        self.bytes.split(|byte| *byte == b':').find(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Gives the fields of a written `head` their received names. The others begin each word with a capital where
/// `others_proper`.
pub fn restore_names(head: &mut [u8], names: &ReceivedNames, others_proper: bool) {
    each_name(head, |name| match names.find(name) {
        Some(received) => name.copy_from_slice(received),
        None if others_proper => capitalize(name),
        None => {}
    });
}

/// Begins each word in the names of a written `head` with a capital.
pub fn capitalize_names(head: &mut [u8]) {
    each_name(head, capitalize);
}

fn each_name(head: &mut [u8], mut change: impl FnMut(&mut [u8])) {
    for line in head.split_mut(|byte| *byte == b'\n').skip(1) {
        if let Some(end) = memchr::memchr(b':', line)
            && let Some(name) = line.get_mut(..end)
        {
            change(name);
        }
    }
}

/// A word is letters and digits.
fn capitalize(name: &mut [u8]) {
    let mut begins = true;
    for byte in name {
        if begins {
            byte.make_ascii_uppercase();
        }
        begins = !byte.is_ascii_alphanumeric();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(head: &[u8]) -> &str {
        std::str::from_utf8(head).unwrap()
    }

    #[test]
    fn words_begin_with_capitals_and_values_stay() {
        let mut head = b"GET /a:b HTTP/1.1\r\nhost: a:b\r\nx-1ab-c_d--e: x-y: z\r\n\r\n".to_vec();
        capitalize_names(&mut head);
        assert_eq!(text(&head), "GET /a:b HTTP/1.1\r\nHost: a:b\r\nX-1ab-C_D--E: x-y: z\r\n\r\n");
    }

    #[test]
    fn the_first_line_of_a_name_says_how_it_was_written() {
        let mut names = ReceivedNames::default();
        names.take(b"GET / HTTP/1.1\r\nHoST: a\r\nx-a: 1\r\nX-A: 2\r\n\r\n");
        let head = b"GET / HTTP/1.1\r\nhost: a\r\nx-a: 1\r\nx-a: 2\r\nx-own: host\r\n\r\n";
        let mut first = head.to_vec();
        restore_names(&mut first, &names, false);
        assert_eq!(text(&first), "GET / HTTP/1.1\r\nHoST: a\r\nx-a: 1\r\nx-a: 2\r\nx-own: host\r\n\r\n");
        let mut second = head.to_vec();
        restore_names(&mut second, &names, true);
        assert_eq!(text(&second), "GET / HTTP/1.1\r\nHoST: a\r\nx-a: 1\r\nx-a: 2\r\nX-Own: host\r\n\r\n");
        names.clear();
        assert!(names.is_empty());
    }
}
