//! Paths with wildcards and variables: `UriTemplateMatchConfig.path_template`.

use crate::Regex;

/// What one character of a segment may be (RFC 3986 section 3.3, and `*`).
const SEGMENT: &str = r"a-zA-Z0-9\-._~%!$&'()+,;:@=*";

/// A template, compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct PathTemplate {
    /// Matches the whole of each path that the template stands for; each variable is a group.
    pub regex: Regex,
    /// Names of the variables, in the order of their groups.
    pub variables: Vec<String>,
}

impl PathTemplate {
    /// `*` is one segment, `**` any rest, and a variable (`{name}`, `{name=pattern}`) what its pattern says, or one segment.
    ///
    /// # Errors
    /// What is wrong with the template.
    pub fn new(template: &str) -> Result<PathTemplate, String> {
        compile(template)
    }

    /// The substitution for [`PathTemplate::regex`] that makes a path by another template, in which variables stand as
    /// `{name}`.
    ///
    /// # Errors
    /// What is wrong with that template.
    pub fn substitution(&self, rewrite: &str) -> Result<String, String> {
        if !rewrite.starts_with('/') {
            return Err("it must begin with /".to_owned());
        }
        let mut made = String::new();
        let mut rest = rewrite;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, tail) = rest.split_at(at);
            let Some((name, after)) = tail.strip_prefix('{').and_then(|tail| tail.split_once('}')) else {
                return Err("a brace has no partner".to_owned());
            };
            let Some(group) = self.variables.iter().position(|known| known == name) else {
                return Err(format!("the path that is matched has no variable \"{name}\""));
            };
            made.push_str(&before.replace('\\', "\\\\"));
            made.push_str(&format!("\\{}", group + 1));
            rest = after;
        }
        made.push_str(&rest.replace('\\', "\\\\"));
        Ok(made)
    }
}

/// Variables of one template; more have no group in a substitution.
const MAX_VARIABLES: usize = 5;

fn compile(template: &str) -> Result<PathTemplate, String> {
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
    if state.names.len() > MAX_VARIABLES {
        return Err(format!("it has more than {MAX_VARIABLES} variables"));
    }
    let variables = state.names.iter().map(|name| (*name).to_owned()).collect();
    Ok(PathTemplate { regex: Regex::new(&(state.out + "$"))?, variables })
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
        self.out.push('(');
        self.pattern(pattern)?;
        self.out.push(')');
        Ok(())
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
        let matches = |template: &str, path: &str| compile(template).unwrap().regex.is_match(path);
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

    #[test]
    fn variables_stand_in_another_template() {
        let template = PathTemplate::new("/u/{lang}/{rest=**}").unwrap();
        assert_eq!(template.variables, ["lang", "rest"]);
        assert_eq!(template.substitution(r"/new/{rest}/l\{lang}").unwrap(), r"/new/\2/l\\\1");
        for bad in ["x", "/{other}", "/{lang", "/a}"] {
            assert!(template.substitution(bad).is_err(), "{bad}");
        }
        assert!(PathTemplate::new("/{a}/{b}/{c}/{d}/{e}/{f}").is_err());
    }
}
