//! Any bytes as a path: normalising twice is normalising once, and with the safe settings no dot segment,
//! double slash or backslash is left. Run by the fuzz target `path` and, over its corpus, by the tests.

use postrider_http::{EscapedSlashes, Normalized, PathOptions, normalize_path};

/// The first byte chooses settings, the rest is the path.
pub fn path(data: &[u8]) {
    let Some((&choice, path)) = data.split_first() else { return };
    // Admission lets nothing else come this far.
    if path.first() != Some(&b'/') || path.iter().any(|&b| b <= b' ' || b >= 0x7f || b == b'#') {
        return;
    }
    let options = PathOptions {
        normalize: choice & 1 == 0,
        merge_slashes: choice & 2 == 0,
        strict: choice & 4 == 0,
        escaped_slashes: match choice >> 3 & 3 {
            0 => EscapedSlashes::Keep,
            1 => EscapedSlashes::Reject,
            2 => EscapedSlashes::UnescapeRedirect,
            _ => EscapedSlashes::UnescapeForward,
        },
    };
    let Some(once) = normalized(path, &options) else { return };
    assert_eq!(once.first(), Some(&b'/'));
    assert!(!once.iter().any(|&b| b <= b' ' || b >= 0x7f || b == b'#'));
    assert_eq!(normalized(&once, &options).as_deref(), Some(&once[..]), "{}", String::from_utf8_lossy(&once));
    let only_path = once.split(|&b| b == b'?').next().unwrap_or_default();
    if options.normalize && options.strict {
        assert!(!only_path.contains(&b'\\'));
        let segments = only_path.split(|&b| b == b'/');
        assert!(segments.clone().all(|segment| segment != b"." && segment != b".."));
    }
    if options.merge_slashes {
        assert!(!only_path.windows(2).any(|pair| pair == b"//"));
    }
}

fn normalized(path: &[u8], options: &PathOptions) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match normalize_path(path, options, &mut out).ok()? {
        Normalized::Unchanged => Some(path.to_vec()),
        Normalized::Changed | Normalized::Redirect => Some(out),
    }
}
