//! Rule: codecs, router, model and the filter contract know no socket, no clock and no thread.
//!
//! Bytes and the time come in as arguments, so that one test can cut the input at every byte and own the clock.

use crate::source;
use crate::workspace::Workspace;
use crate::{Checked, Finding};

const CRATES: &[&str] = &["model", "http", "h1", "router", "filter-api"];

/// What such a crate may not name, and why. Compared with code only: strings and comments are free.
const BANNED: &[(&str, &str)] = &[
    ("Instant::now", "take `now` as an argument"),
    ("SystemTime::now", "take `now` as an argument"),
    ("TcpStream", "take bytes, give bytes"),
    ("TcpListener", "take bytes, give bytes"),
    ("UdpSocket", "take bytes, give bytes"),
    ("tokio", "take bytes, give bytes"),
    ("std::thread", "the worker owns the threads"),
    ("std::fs", "the config dialects and the binary read files"),
    ("std::process", "only the binary starts or ends a process"),
];

pub fn check(workspace: &Workspace) -> Checked {
    workspace.check_libraries(CRATES, find)
}

/// Looks at what ships: a test may read a corpus file.
fn find(place: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source::shipped(text).iter().enumerate() {
        for (banned, instead) in BANNED {
            if contains_path(&line.code, banned) {
                findings.push(Finding::at(format!("{place}:{}", index + 1), format!("`{banned}` here: {instead}")));
            }
        }
    }
    findings
}

/// Whether `code` names `path`, not merely something that contains its letters.
fn contains_path(code: &str, path: &str) -> bool {
    let part_of_word = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '_');
    code.match_indices(path).any(|(start, _)| {
        !part_of_word(code[..start].chars().next_back()) && !part_of_word(code[start + path.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_clock_and_socket_fail() {
        let planted = "use tokio::net::TcpStream;\nlet now = std::time::Instant::now();\n";
        let found: Vec<String> = find("h.rs", planted).iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            [
                "h.rs:1: `TcpStream` here: take bytes, give bytes",
                "h.rs:1: `tokio` here: take bytes, give bytes",
                "h.rs:2: `Instant::now` here: take `now` as an argument",
            ]
        );
    }

    #[test]
    fn instants_as_arguments_comments_and_tests_pass() {
        let fine = "// tokio calls it\nfn f(now: Instant) {}\nlet my_tokio_like = 1;\n#[cfg(test)]\nmod tests { fn x() { std::fs::read(); } }\n";
        assert_eq!(find("h.rs", fine), []);
    }
}
