//! Just enough of Rust's lexical grammar to tell code, strings and comments apart.
//!
//! The rules that read sources use it, so that a word in a comment is not taken for code. It never judges what it reads.

/// One line of a source file, split by kind.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub struct Line {
    /// Code, with the contents of strings and comments left out.
    pub code: String,
    /// The contents of string, byte-string and character literals.
    pub strings: String,
    /// The contents of comments, doc comments included.
    pub comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// Depth of nesting.
    BlockComment(usize),
    Text,
    /// Number of `#` that close it.
    RawText(usize),
}

/// Splits a file; line 1 is at index 0.
pub fn split(source: &str) -> Vec<Line> {
    let bytes: Vec<char> = source.chars().collect();
    let at = |index: usize| bytes.get(index).copied().unwrap_or('\0');
    let mut lines = vec![Line::default()];
    let mut state = State::Code;
    let mut index = 0;
    while index < bytes.len() {
        let here = at(index);
        if here == '\n' {
            if state == State::LineComment {
                state = State::Code;
            }
            lines.push(Line::default());
            index += 1;
            continue;
        }
        let count = lines.len();
        let line = &mut lines[count - 1];
        match state {
            State::Code => {
                if here == '/' && at(index + 1) == '/' {
                    state = State::LineComment;
                    index += 2;
                } else if here == '/' && at(index + 1) == '*' {
                    state = State::BlockComment(1);
                    index += 2;
                } else if let Some((hashes, length)) = raw_text_opening(&bytes, index) {
                    line.code.push('"');
                    state = State::RawText(hashes);
                    index += length;
                } else if here == '"' {
                    line.code.push('"');
                    state = State::Text;
                    index += 1;
                } else if here == '\'' {
                    index += character_literal(&bytes, index, line);
                } else {
                    line.code.push(here);
                    index += 1;
                }
            }
            State::LineComment => {
                line.comments.push(here);
                index += 1;
            }
            State::BlockComment(depth) => {
                if here == '*' && at(index + 1) == '/' {
                    state = if depth == 1 { State::Code } else { State::BlockComment(depth - 1) };
                    index += 2;
                } else if here == '/' && at(index + 1) == '*' {
                    state = State::BlockComment(depth + 1);
                    index += 2;
                } else {
                    line.comments.push(here);
                    index += 1;
                }
            }
            State::Text => {
                if here == '\\' && at(index + 1) != '\n' {
                    line.strings.push(' ');
                    index += 2;
                } else if here == '"' {
                    line.code.push('"');
                    line.strings.push(' ');
                    state = State::Code;
                    index += 1;
                } else {
                    line.strings.push(here);
                    index += 1;
                }
            }
            State::RawText(hashes) => {
                if here == '"' && (1..=hashes).all(|offset| at(index + offset) == '#') {
                    line.code.push('"');
                    line.strings.push(' ');
                    state = State::Code;
                    index += 1 + hashes;
                } else {
                    line.strings.push(here);
                    index += 1;
                }
            }
        }
    }
    lines
}

/// The lines in front of the file's inline test module: what ships. House style puts that module last.
pub fn shipped(source: &str) -> Vec<Line> {
    let mut lines = split(source);
    let opens_tests = |index: &usize| {
        let code: Vec<&str> = lines[*index..].iter().map(|line| line.code.trim()).take(2).collect();
        let code = code.join(" ");
        code.starts_with("#[cfg(test)]") && code.contains(" mod ") && code.contains('{')
    };
    if let Some(end) = (0..lines.len()).find(opens_tests) {
        lines.truncate(end);
    }
    lines
}

/// The words of a line of code or text: runs of letters, digits, `_` and `-`.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|it: char| !(it.is_alphanumeric() || it == '_' || it == '-')).filter(|word| !word.is_empty())
}

/// `r"`, `r#"`, `br##"` and so on: number of hashes and length of the opening.
fn raw_text_opening(source: &[char], start: usize) -> Option<(usize, usize)> {
    let before = start.checked_sub(1).and_then(|it| source.get(it));
    if before.is_some_and(|it| it.is_alphanumeric() || *it == '_') {
        return None;
    }
    let mut index = start;
    if matches!(source.get(index), Some('b' | 'c')) {
        index += 1;
    }
    if source.get(index) != Some(&'r') {
        return None;
    }
    index += 1;
    let hashes = source[index..].iter().take_while(|it| **it == '#').count();
    (source.get(index + hashes) == Some(&'"')).then_some((hashes, index + hashes + 1 - start))
}

/// Consumes `'x'` or `'\n'` as a literal, or `'` alone as the start of a lifetime. Returns how much was consumed.
fn character_literal(source: &[char], start: usize, line: &mut Line) -> usize {
    let at = |offset: usize| source.get(start + offset).copied().unwrap_or('\0');
    if at(1) == '\\' {
        let end = (3..12).find(|offset| at(*offset) == '\'').unwrap_or(1);
        line.code.push('\'');
        return end + 1;
    }
    if at(2) == '\'' {
        line.code.push('\'');
        line.strings.push(at(1));
        return 3;
    }
    line.code.push('\'');
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(source: &str) -> Line {
        let lines = split(source);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].clone()
    }

    #[test]
    fn comments_are_not_code() {
        let line = one("let a = 1; // unsafe envoy");
        assert_eq!((line.code.trim(), line.comments.trim()), ("let a = 1;", "unsafe envoy"));
        let line = one("a /* x /* y */ z */ b");
        assert_eq!(line.code, "a  b");
    }

    #[test]
    fn strings_are_not_code_and_hide_comment_openings() {
        let line = one(r#"let a = "http://x \" // y"; b"#);
        assert_eq!(line.code, "let a = \"\"; b");
        assert!(line.strings.contains("http://x") && line.strings.contains("// y"));
        let line = one("let a = br#\"say \"unsafe\" \"#; b");
        assert_eq!(line.code, "let a = \"\"; b");
        assert!(line.strings.contains("unsafe"));
    }

    #[test]
    fn lifetimes_and_characters_do_not_open_strings() {
        assert_eq!(one("fn f<'a>(x: &'a str) { '\"' }").code, "fn f<'a>(x: &'a str) { ' }");
        assert_eq!(one(r"match c { '\'' => 1, '\u{1f}' => 2 }").code, "match c { ' => 1, ' => 2 }");
        assert_eq!(one("for r in 0..1 { \"x\" }").strings.trim(), "x");
    }

    #[test]
    fn text_over_several_lines_keeps_line_numbers() {
        let lines = split("a \"b\nunsafe\nc\" d\n/* e\nf */ g");
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[1].strings, "unsafe");
        assert_eq!(lines[2].code.trim(), "\" d");
        assert_eq!(lines[4].code.trim(), "g");
    }

    #[test]
    fn shipped_code_ends_at_the_inline_test_module_only() {
        let source =
            "#[cfg(test)]\nmod far;\nfn a() {}\n#[cfg(test)]\nfn b() {}\nfn c() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(shipped(source).len(), 6);
        assert_eq!(shipped("a\n\n#[cfg(test)] mod tests { }\n").len(), 2);
    }

    #[test]
    fn words_split_at_punctuation_only() {
        assert_eq!(words("a.typed_config(\"x-y\")").collect::<Vec<_>>(), ["a", "typed_config", "x-y"]);
    }
}
