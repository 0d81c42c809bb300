//! Path rules: the path that is matched is the path that is forwarded (RFC 3986 6.2.2).
//!
//! [`normalize_path`] is called once per request, by [`crate::admit_request`], before anything matches.
//! With [`PathOptions::strict`] a path that two parsers could read differently is refused; without it,
//! the result is what Envoy's `normalize_path` and its neighbours give.

use crate::{Reject, reason};

/// How a path is read. The default is the safe one: everything on, escaped slashes kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathOptions {
    /// Decode escaped unreserved characters, resolve dot segments, escape what a URI may not carry raw.
    pub normalize: bool,
    /// Make one slash of several in a row.
    pub merge_slashes: bool,
    /// What to do with `%2f` and `%5c`.
    pub escaped_slashes: EscapedSlashes,
    /// Refuse `\`, broken escapes (`%zz`, `%2`), NUL, overlong UTF-8 (`%c0%ae`), dot segments with a
    /// parameter (`..;`) and dot segments beside an escaped slash.
    pub strict: bool,
}

/// What to do with `%2f`, `%2F`, `%5c` and `%5C` in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EscapedSlashes {
    /// Leave them as they are.
    #[default]
    Keep,
    /// Refuse the request with 400.
    Reject,
    /// Answer 307 with the unescaped path as `location`.
    UnescapeRedirect,
    /// Go on with the unescaped path.
    UnescapeForward,
}

impl Default for PathOptions {
    fn default() -> Self {
        Self { normalize: true, merge_slashes: true, escaped_slashes: EscapedSlashes::Keep, strict: true }
    }
}

impl PathOptions {
    /// Nothing is touched or refused: Envoy's own default.
    pub const UNTOUCHED: Self =
        Self { normalize: false, merge_slashes: false, escaped_slashes: EscapedSlashes::Keep, strict: false };
}

/// What [`normalize_path`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalized {
    /// The path stands as it is; nothing was written.
    Unchanged,
    /// The new path and query were appended to `out`.
    Changed,
    /// As `Changed`, and the client is to be sent there with 307.
    Redirect,
}

/// Reads `target`, a path that begins with `/` plus optional query, and appends the normalised form to
/// `out` when it differs. The query is copied as it is.
///
/// # Errors
/// [`reason::PATH_NORMALIZATION`]; `out` may then hold a part of the path.
#[inline]
pub fn normalize_path(target: &[u8], options: &PathOptions, out: &mut Vec<u8>) -> Result<Normalized, Reject> {
    let path = target.get(..plain_prefix(target)).unwrap_or_default();
    if path.len() == target.len() || target.get(path.len()) == Some(&b'?') {
        return Ok(Normalized::Unchanged);
    }
    normalize_slowly(target, options, out)
}

/// Length of the leading part that no rule touches: ends before a query, or before the first byte that
/// needs a look (an escape, a dot at the start of a segment, a second slash, a byte to be escaped).
#[inline]
fn plain_prefix(target: &[u8]) -> usize {
    let mut after_slash = false;
    for (at, &byte) in target.iter().enumerate() {
        let class = CLASS.get(byte as usize).copied().unwrap_or(ODD);
        if class != PLAIN {
            let look = match class {
                SLASH => after_slash,
                DOT => after_slash,
                _ => true,
            };
            if look {
                return at;
            }
        }
        after_slash = class == SLASH;
    }
    target.len()
}

/// Length of the path in a target that is plain throughout: begins with `/`, no byte in path or query that any rule
/// on targets or paths looks at, no empty segment, none that begins with a dot. `None` when any of that is in
/// doubt.
#[inline]
pub(crate) fn plain_path_len(target: &[u8]) -> Option<usize> {
    if target.first() != Some(&b'/') {
        return None;
    }
    // The windows overlap by a byte, the last one perhaps by more.
    if let Some(last) = target.last_chunk::<WINDOW>() {
        let mut rest = target;
        while let Some(window) = rest.first_chunk::<WINDOW>() {
            if !is_plain(window) {
                return None;
            }
            rest = rest.get(WINDOW - 1..)?;
        }
        if !is_plain(last) {
            return None;
        }
        return Some(memchr::memchr(b'?', target).unwrap_or(target.len()));
    }
    // Filled up with a byte that no rule looks at.
    let mut window = [b'a'; WINDOW];
    window.get_mut(..target.len())?.copy_from_slice(target);
    if !is_plain(&window) {
        return None;
    }
    let has_query = window.iter().fold(false, |found, &byte| found | (byte == b'?'));
    let query = if has_query { target.iter().position(|&byte| byte == b'?') } else { None };
    Some(query.unwrap_or(target.len()))
}

/// Bytes that [`is_plain`] looks at: those of a vector, and one for pairs.
const WINDOW: usize = 17;

/// Whether all bytes [are usual](is_usual) and no two in a row are `//` or `/.`. Without an early exit, so that it
/// becomes vector code.
#[inline(always)]
fn is_plain(window: &[u8; WINDOW]) -> bool {
    let Some((&last, bytes)) = window.split_last() else { return false };
    let pairs = bytes.iter().zip(window.iter().skip(1));
    pairs.fold(is_usual(last), |fine, (&byte, &next)| {
        fine & is_usual(byte) & !((byte == b'/') & ((next == b'/') | (next == b'.')))
    })
}

/// Letters, digits and what else paths and queries mostly hold; no byte that any rule looks at but `/`, `.` and `?`.
#[inline(always)]
fn is_usual(byte: u8) -> bool {
    // From `&` to `;` are the digits and & ' ( ) * + , - . / : ;
    ((byte | 0x20).wrapping_sub(b'a') < 26)
        | (byte.wrapping_sub(b'&') <= b';' - b'&')
        | (byte == b'=')
        | (byte == b'?')
        | (byte == b'_')
}

fn normalize_slowly(target: &[u8], options: &PathOptions, out: &mut Vec<u8>) -> Result<Normalized, Reject> {
    let path_len = memchr::memchr(b'?', target).unwrap_or(target.len());
    let (path, query) = target.split_at_checked(path_len).unwrap_or((target, b""));
    if options.strict {
        check_strict(path)?;
    }
    let unescape = match options.escaped_slashes {
        EscapedSlashes::Keep => false,
        EscapedSlashes::Reject if has_escaped_slash(path) => return Err(reason::PATH_NORMALIZATION),
        EscapedSlashes::Reject => false,
        EscapedSlashes::UnescapeRedirect | EscapedSlashes::UnescapeForward => has_escaped_slash(path),
    };
    let base = out.len();
    if unescape {
        let mut unescaped = Vec::with_capacity(path.len());
        unescape_slashes(path, &mut unescaped);
        if options.strict && unescaped.contains(&b'\\') {
            return Err(reason::PATH_NORMALIZATION);
        }
        rewrite(&unescaped, options, out)?;
    } else {
        rewrite(path, options, out)?;
    }
    if out.get(base..) == Some(path) {
        out.truncate(base);
        return Ok(Normalized::Unchanged);
    }
    out.extend_from_slice(query);
    Ok(if unescape && options.escaped_slashes == EscapedSlashes::UnescapeRedirect {
        Normalized::Redirect
    } else {
        Normalized::Changed
    })
}

/// Decodes, resolves and merges, as the options say.
fn rewrite(path: &[u8], options: &PathOptions, out: &mut Vec<u8>) -> Result<(), Reject> {
    let base = out.len();
    if options.normalize {
        resolve_segments(path, base, out)?;
    } else {
        out.extend_from_slice(path);
    }
    if options.merge_slashes {
        merge_slashes(base, out);
    }
    Ok(())
}

/// Appends `path` with dot segments resolved (RFC 3986 5.2.4) and escapes normalised (6.2.2.2).
fn resolve_segments(path: &[u8], base: usize, out: &mut Vec<u8>) -> Result<(), Reject> {
    let is_separator = |&b: &u8| b == b'/' || b == b'\\';
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let mut segments = relative.split(is_separator).peekable();
    while let Some(raw) = segments.next() {
        let start = out.len();
        out.push(b'/');
        normalize_escapes(raw, out)?;
        let dots = match out.get(start + 1..) {
            Some(b"." | [b'.', b';', ..]) => 1,
            Some(b".." | [b'.', b'.', b';', ..]) => 2,
            _ => 0,
        };
        if dots == 0 {
            continue;
        }
        out.truncate(start);
        if dots == 2 {
            let kept = out.get(base..).unwrap_or_default();
            let parent = memchr::memrchr(b'/', kept).unwrap_or(0);
            out.truncate(base + parent);
        }
        if segments.peek().is_none() {
            out.push(b'/');
        }
    }
    Ok(())
}

/// Appends one segment: escaped unreserved bytes decoded, bytes that a URI may not carry escaped, other
/// escapes as they are.
fn normalize_escapes(segment: &[u8], out: &mut Vec<u8>) -> Result<(), Reject> {
    let mut rest = segment;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, escape_value(after)) {
            (b'%', Some(0)) => return Err(reason::PATH_NORMALIZATION),
            (b'%', Some(value)) => match after.split_at_checked(2) {
                Some((_, beyond)) if is_unreserved(value) => {
                    out.push(value);
                    rest = beyond;
                }
                Some((digits, beyond)) => {
                    out.push(b'%');
                    out.extend_from_slice(digits);
                    rest = beyond;
                }
                None => out.push(b'%'),
            },
            // A broken escape before an escape must not become a whole one when that is decoded.
            (b'%', None) if after.iter().take(2).any(|&b| b == b'%' || is_escaped_always(b)) => {
                out.extend_from_slice(b"%25");
            }
            _ if is_escaped_always(byte) => {
                out.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
    Ok(())
}

fn merge_slashes(base: usize, out: &mut Vec<u8>) {
    let mut at = 0;
    let mut previous = 0;
    out.retain(|&byte| {
        let keep = at < base || byte != b'/' || previous != b'/';
        if at >= base {
            previous = byte;
        }
        at += 1;
        keep
    });
}

fn unescape_slashes(path: &[u8], out: &mut Vec<u8>) {
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, escape_value(after), after.split_at_checked(2)) {
            (b'%', Some(slash @ (b'/' | b'\\')), Some((_, beyond))) => {
                out.push(slash);
                rest = beyond;
            }
            _ => out.push(byte),
        }
    }
}

fn has_escaped_slash(path: &[u8]) -> bool {
    memchr::memchr_iter(b'%', path).any(|at| matches!(path.get(at + 1..).and_then(escape_value), Some(b'/' | b'\\')))
}

/// The refusals of [`PathOptions::strict`].
fn check_strict(path: &[u8]) -> Result<(), Reject> {
    const REFUSED: Result<(), Reject> = Err(reason::PATH_NORMALIZATION);
    if path.contains(&b'\\') {
        return REFUSED;
    }
    for at in memchr::memchr_iter(b'%', path) {
        let after = path.get(at + 1..).unwrap_or_default();
        let following = || match after.get(2..) {
            Some([b'%', digits @ ..]) => escape_value(digits),
            _ => None,
        };
        match escape_value(after) {
            None | Some(0) => return REFUSED,
            // Only an overlong encoding (RFC 3629 3) begins with these, whatever follows.
            Some(0xc0 | 0xc1) => return REFUSED,
            Some(0xe0) if following().is_some_and(|next| (0x80..0xa0).contains(&next)) => return REFUSED,
            Some(0xf0) if following().is_some_and(|next| (0x80..0x90).contains(&next)) => return REFUSED,
            // No encoding begins with these; alone they may be a letter of an older character set.
            Some(0xf5..=0xff) if following().is_some_and(|next| (0x80..0xc0).contains(&next)) => return REFUSED,
            Some(_) => {}
        }
    }
    let mut decoded_dots = [0u8; 3];
    for segment in path.split(|&b| b == b'/') {
        let parts = EscapedSlashParts { rest: Some(segment) };
        let mut count = 0;
        let mut any_dots = false;
        for part in parts {
            count += 1;
            match leading_dots(part, &mut decoded_dots) {
                Some(DotSegment::Plain) => any_dots = true,
                Some(DotSegment::WithParameter) => return REFUSED,
                None => {}
            }
        }
        if count > 1 && any_dots {
            return REFUSED;
        }
    }
    Ok(())
}

enum DotSegment {
    Plain,
    WithParameter,
}

/// Whether `part` is `.` or `..` once decoded, alone or before a `;`.
fn leading_dots(part: &[u8], scratch: &mut [u8; 3]) -> Option<DotSegment> {
    let mut len = 0;
    let mut rest = part;
    while let Some((&byte, after)) = rest.split_first() {
        let (value, beyond) = match (byte, escape_value(after), after.split_at_checked(2)) {
            (b'%', Some(value), Some((_, beyond))) => (value, beyond),
            _ => (byte, after),
        };
        rest = beyond;
        *scratch.get_mut(len)? = value;
        len += 1;
        match scratch.get(..len)? {
            b"." | b".." => {}
            b".;" | b"..;" => return Some(DotSegment::WithParameter),
            _ => return None,
        }
    }
    (len > 0).then_some(DotSegment::Plain)
}

/// The parts of a segment between its escaped slashes.
struct EscapedSlashParts<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for EscapedSlashParts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        for at in memchr::memchr_iter(b'%', rest) {
            if matches!(rest.get(at + 1..).and_then(escape_value), Some(b'/' | b'\\')) {
                self.rest = rest.get(at + 3..);
                return rest.get(..at);
            }
        }
        self.rest = None;
        Some(rest)
    }
}

/// The byte that the two hex digits at the start of `digits` stand for.
fn escape_value(digits: &[u8]) -> Option<u8> {
    let [high, low, ..] = digits else { return None };
    let value = |digit: u8| (digit as char).to_digit(16);
    Some((value(*high)? * 16 + value(*low)?) as u8)
}

fn hex_digit(nibble: u8) -> u8 {
    if nibble < 10 { b'0' + nibble } else { b'A' + nibble - 10 }
}

/// Printable bytes that RFC 3986 has no place for.
fn is_escaped_always(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}')
}

/// RFC 3986 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

const PLAIN: u8 = 0;
const SLASH: u8 = 1;
const DOT: u8 = 2;
const ODD: u8 = 3;

static CLASS: [u8; 256] = classes();

#[allow(clippy::indexing_slicing, reason = "a byte indexes a table of 256, and this runs in the compiler")]
const fn classes() -> [u8; 256] {
    let mut table = [PLAIN; 256];
    table[b'/' as usize] = SLASH;
    table[b'.' as usize] = DOT;
    let odd = b"%\\?\"<>^`{|}";
    let mut i = 0;
    while i < odd.len() {
        table[odd[i] as usize] = ODD;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(path: &str, options: &PathOptions) -> Result<String, u16> {
        let mut out = b"kept".to_vec();
        match normalize_path(path.as_bytes(), options, &mut out) {
            Ok(Normalized::Unchanged) => {
                assert_eq!(out, b"kept");
                Ok(path.to_owned())
            }
            Ok(how) => {
                let text = String::from_utf8(out.split_off(4)).unwrap();
                assert_ne!(text, path);
                Ok(if how == Normalized::Redirect { format!("307 {text}") } else { text })
            }
            Err(reject) => Err(reject.status),
        }
    }

    #[test]
    fn safe_default() {
        let options = PathOptions::default();
        for (path, want) in [
            ("/", "/"),
            ("/a/b.c?x=//../%zz\\", "/a/b.c?x=//../%zz\\"),
            ("/a/../b", "/b"),
            ("/a/./b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/..", "/"),
            ("/../../x?q", "/x?q"),
            ("/%2e%2E/x", "/x"),
            ("/a/%2e", "/a/"),
            ("/%61dmin", "/admin"),
            ("/%7e%2D%2E%5f", "/~-._"),
            ("//a///b//", "/a/b/"),
            ("/a//../b", "/a/b"),
            ("//b.test/x", "/b.test/x"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%5cb", "/a%5cb"),
            ("/a%20b%C3%A9", "/a%20b%C3%A9"),
            ("/%252e%252e/", "/%252e%252e/"),
            ("/a\"<>^`{|}b", "/a%22%3C%3E%5E%60%7B%7C%7Db"),
            ("/...", "/..."),
            ("/.a/..b", "/.a/..b"),
            ("/a;b=c/d", "/a;b=c/d"),
            ("/%e9t%e9", "/%e9t%e9"),
        ] {
            assert_eq!(run(path, &options).as_deref(), Ok(want), "{path}");
        }
        for path in [
            "/a\\b",
            "/%",
            "/%2",
            "/%zz",
            "/%2%65",
            "/%00",
            "/x%00y",
            "/%c0%ae",
            "/%C1%9c",
            "/%e0%80%af",
            "/%f0%80%80%af",
            "/%fe%ae",
            "/..%2fx",
            "/a%2f..",
            "/a%2f..%2fb",
            "/a%2F%2e%2e%2Fb",
            "/a%5c..%5cb",
            "/a%2f.",
            "/..;/x",
            "/x/.;a/",
            "/%2e%2e;/x",
            "/a%2f..;x",
            "/x?ok/../",
        ] {
            let want = if path.starts_with("/x?") { Ok(path.to_owned()) } else { Err(400) };
            assert_eq!(run(path, &options), want, "{path}");
        }
    }

    #[test]
    fn plain_targets_are_what_no_rule_is_about() {
        let all = PathOptions { escaped_slashes: EscapedSlashes::Reject, ..PathOptions::default() };
        let mut plain = 0;
        for length in 1..60 {
            for at in 0..length {
                for first in [b'/', b'?', b'.', b'#', b' ', b'a', b'%', b'\\', 0x7f, 0x80, 0] {
                    for second in [b'/', b'?', b'.', b'z', b'[', b'@', b'"'] {
                        let mut target = vec![b'x'; length];
                        target[at] = first;
                        if at + 1 < length {
                            target[at + 1] = second;
                        }
                        target[0] = b'/';
                        let Some(path_len) = plain_path_len(&target) else { continue };
                        plain += 1;
                        let text = String::from_utf8(target.clone()).unwrap();
                        assert!(!text.bytes().any(|b| b <= b' ' || b >= 0x7f || b == b'#'), "{text}");
                        assert_eq!(run(&text, &all).as_deref(), Ok(text.as_str()));
                        assert_eq!(path_len, text.find('?').unwrap_or(length), "{text}");
                    }
                }
            }
        }
        assert!(plain > 10_000, "{plain}");
        for target in ["", "*", "a", "http://a/", "?", "//", "/.", "/a/.b", "/a//b", "/%41", "/[", "/a#b"] {
            assert_eq!(plain_path_len(target.as_bytes()), None, "{target}");
        }
        for byte in 0..=255u8 {
            let lone = [b'/', b'x', byte];
            let is_fine = plain_path_len(&lone).is_some();
            assert_eq!(is_fine, byte.is_ascii_alphanumeric() || b"&'()*+,-./:;=?_".contains(&byte), "{byte:#x}");
        }
    }

    #[test]
    fn result_is_stable() {
        let options = PathOptions::default();
        for path in ["/a/../b//c", "/%2e%61/%41", "/a\"b", "//x/%7e/..", "/%25%36%31"] {
            let once = run(path, &options).unwrap();
            assert_eq!(run(&once, &options).as_deref(), Ok(once.as_str()), "{path}");
        }
    }

    #[test]
    fn explicit_settings_mean_what_envoy_means() {
        let lenient = PathOptions { strict: false, ..PathOptions::default() };
        for (path, want) in [
            ("/a\\b", Ok("/a/b")),
            ("/%zz", Ok("/%zz")),
            ("/%2", Ok("/%2")),
            ("/%2%65", Ok("/%252e")),
            ("/%c0%ae", Ok("/%c0%ae")),
            ("/a%2f..%2fb", Ok("/a%2f..%2fb")),
            ("/a;b/..;/c", Ok("/c")),
            ("/%00", Err(400)),
        ] {
            assert_eq!(run(path, &lenient), want.map(str::to_owned), "{path}");
        }
        for path in ["/a/../b", "//a", "/%61", "/a\\b", "/%zz", "/%00", "/%c0%ae"] {
            assert_eq!(run(path, &PathOptions::UNTOUCHED).as_deref(), Ok(path));
        }
        let merge_only = PathOptions { merge_slashes: true, ..PathOptions::UNTOUCHED };
        assert_eq!(run("//a//../b?//", &merge_only).as_deref(), Ok("/a/../b?//"));
        let normalize_only = PathOptions { normalize: true, ..PathOptions::UNTOUCHED };
        assert_eq!(run("//a/../b", &normalize_only).as_deref(), Ok("//b"));
    }

    #[test]
    fn escaped_slash_actions() {
        let with = |escaped_slashes| PathOptions { escaped_slashes, ..PathOptions::default() };
        assert_eq!(run("/a%2fb", &with(EscapedSlashes::Reject)), Err(400));
        assert_eq!(run("/a%5Cb", &with(EscapedSlashes::Reject)), Err(400));
        assert_eq!(run("/a%20b", &with(EscapedSlashes::Reject)).as_deref(), Ok("/a%20b"));
        assert_eq!(run("/a%2fb?x%2f", &with(EscapedSlashes::UnescapeForward)).as_deref(), Ok("/a/b?x%2f"));
        assert_eq!(run("/a%2fb", &with(EscapedSlashes::UnescapeRedirect)).as_deref(), Ok("307 /a/b"));
        assert_eq!(run("/a%5cb", &with(EscapedSlashes::UnescapeForward)), Err(400));
        let lenient = PathOptions { strict: false, ..with(EscapedSlashes::UnescapeForward) };
        assert_eq!(run("/a%5cb/%2e%2e%2fc", &lenient).as_deref(), Ok("/a/c"));
    }
}
