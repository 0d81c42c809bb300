//! Path templates of `google.api.http` rules: `/v1/{name=shelves/*}/books/**:verb`.

/// More segments than any API has; the index descends one level for each.
const MAX_SEGMENTS: usize = 64;

/// A template that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pub(super) segments: Vec<Segment>,
    pub(super) verb: Option<String>,
    pub(super) variables: Vec<Variable>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    Literal(String),
    /// `*`: exactly one segment.
    One,
    /// `**`: any number of segments, none included. At most once, and only literals follow.
    Many,
}

/// What a part of the path is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    /// Names of fields, from the request message down.
    pub(super) path: Vec<String>,
    /// Its segments in the template.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Template {
    /// Reads the text of a rule.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence about the template.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let path = text.strip_prefix('/').ok_or("it must begin with `/`")?;
        // A verb follows the last colon outside of braces, if no slash comes behind it.
        let tail = path.rfind(['/', '}']).map_or(0, |at| at + 1);
        let (path, verb) = match path.get(tail..).and_then(|rest| rest.find(':')) {
            Some(at) => {
                let (path, verb) = path.split_at(tail + at);
                (path, Some(literal(verb.get(1..).unwrap_or_default())?))
            }
            None => (path, None),
        };
        let mut template = Template { segments: Vec::new(), verb, variables: Vec::new() };
        let mut rest = path;
        while !rest.is_empty() {
            rest = match rest.strip_prefix('{') {
                Some(variable) => template.variable(variable)?,
                None => {
                    let (segment, behind) = cut(rest);
                    template.segments.push(self::segment(segment)?);
                    behind
                }
            };
        }
        template.check(path)?;
        Ok(template)
    }

    /// Reads a variable behind its brace; answers what follows it.
    fn variable<'t>(&mut self, text: &'t str) -> Result<&'t str, String> {
        let (inside, behind) = text.split_once('}').ok_or("a `{` is not closed")?;
        let (name, pattern) = inside.split_once('=').unwrap_or((inside, "*"));
        let path: Vec<String> = name.split('.').map(str::to_owned).collect();
        let named = |part: &String| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !path.iter().all(named) {
            return Err(format!("`{name}` is no path of field names"));
        }
        let start = self.segments.len();
        for part in pattern.split('/') {
            self.segments.push(segment(part)?);
        }
        let variable = Variable { path, start, end: self.segments.len() };
        if self.variables.iter().any(|other| other.path == variable.path) {
            return Err(format!("`{name}` is bound twice"));
        }
        self.variables.push(variable);
        match behind.strip_prefix('/') {
            Some(behind) => Ok(behind),
            None if behind.is_empty() => Ok(behind),
            None => Err("a variable ends its segment".to_owned()),
        }
    }

    fn check(&self, path: &str) -> Result<(), String> {
        if self.segments.len() > MAX_SEGMENTS {
            return Err(format!("it has more than {MAX_SEGMENTS} segments"));
        }
        if path.ends_with('/') {
            return Err("it must not end with `/`".to_owned());
        }
        let many = self.segments.iter().position(|segment| *segment == Segment::Many);
        let behind = self.segments.get(many.map_or(self.segments.len(), |at| at + 1)..).unwrap_or_default();
        if behind.iter().any(|segment| !matches!(segment, Segment::Literal(_))) {
            return Err("only literal segments may follow `**`".to_owned());
        }
        Ok(())
    }
}

fn cut(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or((text, ""))
}

fn segment(text: &str) -> Result<Segment, String> {
    match text {
        "*" => Ok(Segment::One),
        "**" => Ok(Segment::Many),
        text => literal(text).map(Segment::Literal),
    }
}

fn literal(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a segment or verb is empty".to_owned()),
        text if text.contains(['*', '{', '}', '=', '?', '#']) => Err(format!("`{text}` is no literal")),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lit(text: &str) -> Segment {
        Segment::Literal(text.to_owned())
    }

    #[test]
    fn templates_are_read() {
        let template = Template::parse("/v1/{shelf.name}/x/{item=a/**}/end:look").unwrap();
        assert_eq!(template.segments, [lit("v1"), Segment::One, lit("x"), lit("a"), Segment::Many, lit("end")]);
        assert_eq!(template.verb.as_deref(), Some("look"));
        let spans: Vec<_> = template.variables.iter().map(|v| (v.path.join("."), v.start, v.end)).collect();
        assert_eq!(spans, [("shelf.name".to_owned(), 1, 2), ("item".to_owned(), 3, 5)]);
        assert_eq!(Template::parse("/pkg.Service/Method").unwrap().segments, [lit("pkg.Service"), lit("Method")]);
        assert_eq!(Template::parse("/a/{b}:v").unwrap().verb.as_deref(), Some("v"));
        assert!(Template::parse("/").unwrap().segments.is_empty());
    }

    #[test]
    fn broken_templates_are_refused() {
        let deep = "/a".repeat(MAX_SEGMENTS + 1);
        for text in [
            "", "a", "/a/", "/a//b", "/{a", "/{a}b", "/{a}/{a}", "/{a b}", "/{}", "/**/*", "/**/{a}", "/**/**", "/a:",
            "/a*", "/{a={b}}", "/a?b", &deep,
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
