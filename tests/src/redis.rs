//! A server that speaks the protocol of Redis.

use postrider_testkit::{Origin, OriginConnection};

/// Reads one command after the other, each an array of strings, and answers it.
pub fn server(answer: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Origin {
    Origin::start(move |connection| {
        while let Some(count) = line(connection) {
            let count: usize = count.trim_start_matches('*').parse().expect("a number of words");
            let words: Option<Vec<String>> = (0..count).map(|_| word(connection)).collect();
            connection.write(answer(&words.expect("as many words as were announced")).as_bytes());
        }
    })
}

fn line(connection: &mut OriginConnection) -> Option<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(connection.read_exact(1)?);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).ok()
}

/// Its length says where it ends: it may have lines.
fn word(connection: &mut OriginConnection) -> Option<String> {
    let length: usize = line(connection)?.trim_start_matches('$').parse().ok()?;
    let word = connection.read_exact(length)?;
    (connection.read_exact(2)? == b"\r\n").then_some(())?;
    String::from_utf8(word).ok()
}
