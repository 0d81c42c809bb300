//! JA3 and JA4: short names for how a client greets, by which log readers tell one kind of client from another.
//!
//! They are no proof of anything: a client greets as it likes.

use md5::{Digest, Md5};

use crate::facts::{hex, sha256};
use crate::hello::{ClientHello, extension};

impl ClientHello {
    /// JA3 (salesforce/ja3): the MD5 of versions, suites, extensions, groups and point formats, in hexadecimal.
    pub fn ja3(&self) -> String {
        hex(&Md5::digest(self.ja3_text()))
    }

    fn ja3_text(&self) -> String {
        let formats: Vec<u16> = self.point_formats.iter().map(|&it| u16::from(it)).collect();
        let lists = [&self.cipher_suites, &self.extensions, &self.groups, &formats];
        let lists = lists.map(|list| meaningful(list).map(|it| it.to_string()).collect::<Vec<_>>().join("-"));
        format!("{},{}", self.legacy_version, lists.join(","))
    }

    /// JA4 (FoxIO): `t13d1516h2_8daaf6152771_b186095e22b6`.
    pub fn ja4(&self) -> String {
        let suites: Vec<u16> = meaningful(&self.cipher_suites).collect();
        let extensions: Vec<u16> = meaningful(&self.extensions).collect();
        let name = if extensions.contains(&extension::SERVER_NAME) { 'd' } else { 'i' };
        let head = format!(
            "t{}{name}{:02}{:02}{}",
            self.ja4_version(),
            suites.len().min(99),
            extensions.len().min(99),
            self.ja4_protocol()
        );
        let hashed = |text: String| match text.as_str() {
            "" => "000000000000".to_owned(),
            text => hex(&sha256(text.as_bytes())).chars().take(12).collect(),
        };
        let kept = extensions.iter().filter(|it| !matches!(**it, extension::SERVER_NAME | extension::ALPN)).copied();
        let mut listed = sorted(kept.collect());
        let schemes = joined(meaningful(&self.signature_schemes));
        if !schemes.is_empty() && !listed.is_empty() {
            listed = format!("{listed}_{schemes}");
        }
        format!("{head}_{}_{}", hashed(sorted(suites)), hashed(listed))
    }

    fn ja4_version(&self) -> &'static str {
        match meaningful(self.versions()).max() {
            Some(0x0304) => "13",
            Some(0x0303) => "12",
            Some(0x0302) => "11",
            Some(0x0301) => "10",
            Some(0x0300) => "s3",
            _ => "00",
        }
    }

    /// First and last character of the first protocol, or those of its hexadecimal form.
    fn ja4_protocol(&self) -> String {
        let Some((Some(&first), Some(&last))) = self.alpn().next().map(|it| (it.first(), it.last())) else {
            return "00".to_owned();
        };
        if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
            [first, last].map(char::from).iter().collect()
        } else {
            format!("{:x}{:x}", first >> 4, last & 0x0f)
        }
    }
}

/// Without the values that clients send only to keep servers tolerant (RFC 8701): `0x?a?a` with both bytes the same.
fn meaningful(list: &[u16]) -> impl Iterator<Item = u16> {
    list.iter().copied().filter(|it| {
        let [high, low] = it.to_be_bytes();
        high != low || low & 0x0f != 0x0a
    })
}

fn sorted(mut list: Vec<u16>) -> String {
    list.sort_unstable();
    joined(list.into_iter())
}

fn joined(list: impl Iterator<Item = u16>) -> String {
    list.map(|it| format!("{it:04x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::{Inspection, inspect};

    /// A greeting in one record; `extensions` are types with their content.
    fn greeting(version: u16, suites: &[u16], extensions: &[(u16, Vec<u8>)]) -> Box<ClientHello> {
        let list = |values: &[u16]| -> Vec<u8> { values.iter().flat_map(|it| it.to_be_bytes()).collect() };
        let long = |content: Vec<u8>| [&(content.len() as u16).to_be_bytes()[..], &content].concat();
        let mut body = [&version.to_be_bytes()[..], &[7; 32], &[0], &long(list(suites)), &[1, 0]].concat();
        if !extensions.is_empty() {
            let all = extensions
                .iter()
                .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &long(content.clone())].concat());
            body.extend(long(all.collect()));
        }
        let message = [&[1, 0][..], &long(body)].concat();
        match inspect(&[&[22, 3, 1][..], &long(message)].concat()) {
            Inspection::Hello(hello) => hello,
            other => panic!("{other:?}"),
        }
    }

    fn numbers(values: &[u16]) -> Vec<u8> {
        let bytes: Vec<u8> = values.iter().flat_map(|it| it.to_be_bytes()).collect();
        [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat()
    }

    /// The examples of the README of salesforce/ja3.
    #[test]
    fn ja3_as_published() {
        let suites = [47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4];
        let name = vec![0, 12, 0, 0, 9, b'a', b'.', b'e', b'x', b'a', b'm', b'p', b'l', b'e'];
        let extensions = [(0, name), (10, numbers(&[23, 24, 25])), (11, vec![1, 0])];
        let hello = greeting(769, &suites, &extensions);
        assert_eq!(hello.ja3_text(), "769,47-53-5-10-49161-49162-49171-49172-50-56-19-4,0-10-11,23-24-25,0");
        assert_eq!(hello.ja3(), "ada70206e40642a3e4461f35503241d5");
        let hello = greeting(769, &[4, 5, 10, 9, 100, 98, 3, 6, 19, 18, 99], &[]);
        assert_eq!(hello.ja3_text(), "769,4-5-10-9-100-98-3-6-19-18-99,,,");
        assert_eq!(hello.ja3(), "de350869b8c85de67a350c8d186f11e6");
    }

    /// The example of FoxIO's technical details of JA4: Chrome, with the values of RFC 8701 strewn in.
    #[test]
    fn ja4_as_published() {
        let suites = [
            0x8a8a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c,
            0x009d, 0x002f, 0x0035,
        ];
        let name = vec![0, 12, 0, 0, 9, b'a', b'.', b'e', b'x', b'a', b'm', b'p', b'l', b'e'];
        let schemes = numbers(&[0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601]);
        let mut extensions = vec![
            (0x3a3a, vec![]),
            (0x0000, name),
            (0x000d, schemes),
            (0x0010, vec![0, 12, 2, b'h', b'2', 8, b'h', b't', b't', b'p', b'/', b'1', b'.', b'1']),
            (0x002b, vec![6, 0x6a, 0x6a, 3, 4, 3, 3]),
            (0x000a, numbers(&[0x1a1a, 29, 23, 24])),
            (0x000b, vec![1, 0]),
        ];
        for kind in [0x001b, 0x0033, 0x4469, 0x0017, 0x002d, 0x0005, 0x0023, 0x0012, 0xff01, 0x0015, 0x4a4a] {
            extensions.push((kind, vec![]));
        }
        let hello = greeting(0x0303, &suites, &extensions);
        assert_eq!(hello.ja4(), "t13d1516h2_8daaf6152771_e5627efa2ab1");
        assert!(!hello.ja3_text().contains("35466") && !hello.ja3_text().contains("6682"), "{}", hello.ja3_text());
    }

    #[test]
    fn ja4_protocols_by_first_and_last_character() {
        for (protocol, want) in
            [(&b"h2"[..], "h2"), (b"http/1.1", "h1"), (b"x", "xx"), (&[0xab, 0xcd], "ad"), (&[0x20, b'1'], "21")]
        {
            let mut list = vec![0, protocol.len() as u8 + 1, protocol.len() as u8];
            list.extend(protocol);
            let hello = greeting(0x0303, &[0x1301], &[(16, list)]);
            assert_eq!(&hello.ja4()[8..10], want, "{protocol:02x?}");
        }
    }
}
