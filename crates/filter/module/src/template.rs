//! A crate with a plugin in it, for those who begin one.

/// The files of a plugin of this name: where each lies in its folder, and what is in it. `None` for what is no name: a
/// letter, then letters, digits, `-` and `_`.
pub fn template(name: &str) -> Option<Vec<(&'static str, String)>> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(good) {
        return None;
    }
    let files = [
        ("Cargo.toml", include_str!("template/Cargo.toml")),
        ("src/lib.rs", include_str!("template/lib.rs.txt")),
        ("proxy.yaml", include_str!("template/proxy.yaml")),
        ("README.md", include_str!("template/README.md")),
    ];
    Some(files.map(|(file, text)| (file, text.replace("NAME", name))).into())
}

#[cfg(test)]
mod tests {
    use super::template;

    #[test]
    fn names_are_those_that_crates_may_have() {
        for bad in ["", "1a", "-a", "a b", "../a"] {
            assert!(template(bad).is_none(), "{bad}");
        }
        let files = template("my-plugin").unwrap();
        assert!(files.iter().all(|(_, text)| !text.contains("NAME")));
        assert!(files[0].1.contains("name = \"my-plugin\""));
    }
}
