//! Paths with wildcards and variables: `UriTemplateMatchConfig.path_template`.

use postrider_model::Regex;

/// What one character of a segment may be (RFC 3986 section 3.3, and `*`).
const SEGMENT: &str = r"a-zA-Z0-9\-._~%!$&'()+,;:@=*";

/// An expression that matches the whole of each path that the template stands for: `*` is one segment, `**` any rest, and a
/// variable (`{name}`, `{name=pattern}`) what its pattern says, or one segment.
///
/// # Errors
/// What is wrong with the template.
pub(super) fn compile(template: &str) -> Result<Regex, String> {
    if !template.starts_with('/') {
        return Err("it must begin with /".to_owned());
    }
    let mut state = State { out: "^".to_owned(), names: Vec::new(), ended: false };
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        let (before, tail) = rest.split_at(at);
        let Some((variable, after)) = tail.get(1..).and_then(|tail| tail.split_once('}')) else {
            return Err("a variable is not closed".to_owned());
        };
        state.pattern(before)?;
        state.variable(variable)?;
        rest = after;
    }
    state.pattern(rest)?;
    Regex::new(&(state.out + "$"))
}

struct State<'t> {
    out: String,
    names: Vec<&'t str>,
    /// There was a `**`, which takes all.
    ended: bool,
}

impl<'t> State<'t> {
    fn variable(&mut self, text: &'t str) -> Result<(), String> {
        let (name, pattern) = text.split_once('=').unwrap_or((text, "*"));
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic());
        if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("\"{name}\" is no name of a variable"));
        }
        if self.names.contains(&name) {
            return Err(format!("the variable \"{name}\" is there twice"));
        }
        if pattern.is_empty() || pattern.starts_with('/') {
            return Err(format!("the pattern of the variable \"{name}\" is empty or begins with /"));
        }
        self.names.push(name);
        self.pattern(pattern)
    }

    fn pattern(&mut self, text: &str) -> Result<(), String> {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let stars = rest.len() - rest.trim_start_matches('*').len();
            match stars {
                0 => {
                    if first == '}' || !first.is_ascii_graphic() {
                        return Err(format!("{first:?} cannot stand in a path"));
                    }
                    self.out.push_str(&regex_of(first));
                }
                1 | 2 if self.ended => return Err("nothing that varies can follow **".to_owned()),
                1 => self.out.push_str(&format!("[{SEGMENT}]+")),
                2 => {
                    self.ended = true;
                    self.out.push_str(&format!("[{SEGMENT}/]*"));
                }
                _ => return Err("* and ** are the only wildcards".to_owned()),
            }
            rest = rest.get(stars.max(first.len_utf8())..).unwrap_or_default();
        }
        Ok(())
    }
}

fn regex_of(literal: char) -> String {
    match literal {
        c if c.is_ascii_alphanumeric() || matches!(c, '/' | '_') => c.to_string(),
        c => format!("\\x{{{:x}}}", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_a_segment_and_two_are_the_rest() {
        let matches = |template: &str, path: &str| compile(template).unwrap().is_match(path);
        for (template, path, wanted) in [
            ("/a/*/x", "/a/1/x", true),
            ("/a/*/x", "/a/p=q/x", true),
            ("/a/*/x", "/a//x", false),
            ("/a/*/x", "/a/1/2/x", false),
            ("/b/**", "/b/", true),
            ("/b/**", "/b", false),
            ("/b/**", "/b/1//2", true),
            ("/d/{v=p/*}/q.js", "/d/p/r/q.js", true),
            ("/d/{v=p/*}/q.js", "/d/p/r/qxjs", false),
            ("/e/**.mpd", "/e/a/b.mpd", true),
            ("/f/{v}", "/f/1", true),
            ("/f/{v}", "/f/1/2", false),
        ] {
            assert_eq!(matches(template, path), wanted, "{template} {path}");
        }
    }

    #[test]
    fn what_envoy_refuses_is_refused() {
        for template in ["a", "/**/a/*", "/{a}/{a}", "/{1a}", "/{a=/b}", "/a b", "/{a", "/a}", "/***"] {
            assert!(compile(template).is_err(), "{template}");
        }
    }
}
