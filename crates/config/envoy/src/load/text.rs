//! Protobuf's text format as the same tree that YAML becomes, so that it is checked field by field like YAML.
//!
//! A repeated key becomes a list. `[type.googleapis.com/…] { … }` inside an `Any` becomes its fields beside an `@type`.
//! After the first syntax error the rest is not read: the format has no lines to find the way back by.

use postrider_config_core::{Diagnostic, Diagnostics, FileId, SourceFile, Span};

use crate::tree::{Document, MAX_DEPTH, Node, NodeKind, Pair, Scalar, shorten};

/// Parses a message in text format.
pub fn parse(file: &SourceFile, id: FileId, diagnostics: &mut Diagnostics) -> Document {
    let mut parser = Parser { text: file.text(), id, at: 0, depth: 0 };
    let mut pairs = Vec::new();
    let result = parser.fields(&mut pairs, None);
    let incomplete = result.is_err();
    if let Err(fault) = result {
        diagnostics.push(Diagnostic::error("invalid-protobuf", fault.message).at(fault.span).expected(fault.expected));
    }
    let span = Span::new(id, 0, file.text().trim_end().len());
    let root = (!pairs.is_empty()).then_some(Node { span, kind: NodeKind::Map(pairs) });
    Document { root, incomplete }
}

struct Parser<'t> {
    text: &'t str,
    id: FileId,
    at: usize,
    depth: usize,
}

struct Fault {
    message: String,
    expected: &'static str,
    span: Span,
}

impl Parser<'_> {
    /// Reads fields up to the closing bracket, or to the end of the text. What was read before an error stays.
    fn fields(&mut self, pairs: &mut Vec<Pair>, close: Option<(char, usize)>) -> Result<(), Fault> {
        loop {
            self.skip();
            match (self.peek(), close) {
                (None, None) => return Ok(()),
                (None, Some((_, open))) => {
                    return Err(Fault {
                        message: "this bracket is never closed".to_owned(),
                        expected: "`}` before the end of the file",
                        span: self.span(open, open + 1),
                    });
                }
                (Some(c), Some((close, _))) if c == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ => self.field(pairs)?,
            }
        }
    }

    fn field(&mut self, pairs: &mut Vec<Pair>) -> Result<(), Fault> {
        let start = self.at;
        if self.peek() == Some('[') {
            return self.expanded_any(pairs);
        }
        let key = self.word().to_owned();
        if key.is_empty() {
            return Err(self.unexpected("the name of a field"));
        }
        let key_span = self.span(start, self.at);
        self.skip();
        let colon = self.eat(':');
        self.skip();
        if !colon && !matches!(self.peek(), Some('{' | '<')) {
            return Err(self.unexpected("`:` and a value, or `{`"));
        }
        let value = self.value()?;
        self.skip();
        if !self.eat(',') {
            self.eat(';');
        }
        add(pairs, Pair { key, key_span, value });
        Ok(())
    }

    /// `[type.googleapis.com/full.Name] { … }`: the fields go beside an `@type`.
    fn expanded_any(&mut self, pairs: &mut Vec<Pair>) -> Result<(), Fault> {
        let start = self.at;
        let rest = self.text.get(start + 1..).unwrap_or("");
        let Some(length) = rest.find(']').filter(|length| !rest.get(..*length).unwrap_or("").contains('\n')) else {
            return Err(self.unexpected("a type URL and `]`"));
        };
        let url = rest.get(..length).unwrap_or("").trim().to_owned();
        self.at = start + length + 2;
        let span = self.span(start + 1, start + 1 + length);
        self.skip();
        self.eat(':');
        self.skip();
        let value = Node { span, kind: NodeKind::Scalar(Scalar { text: url, plain: false }) };
        pairs.push(Pair { key: "@type".to_owned(), key_span: span, value });
        match self.value()?.kind {
            NodeKind::Map(inner) => pairs.extend(inner),
            _ => return Err(self.unexpected("`{` and the fields of the message")),
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Node, Fault> {
        let start = self.at;
        let kind = match self.peek() {
            Some(open @ ('{' | '<')) => {
                self.at += 1;
                let mut pairs = Vec::new();
                self.nested(|parser| parser.fields(&mut pairs, Some((if open == '{' { '}' } else { '>' }, start))))?;
                NodeKind::Map(pairs)
            }
            Some('[') => {
                self.at += 1;
                NodeKind::List(self.nested(Parser::list)?)
            }
            Some('"' | '\'') => {
                let mut bytes = Vec::new();
                // Neighbouring strings are one.
                while let Some(quote @ ('"' | '\'')) = self.peek() {
                    self.string(quote, &mut bytes)?;
                    self.skip();
                }
                let text =
                    String::from_utf8(bytes).map_err(|_| self.fault(start, "this text is not UTF-8", "UTF-8"))?;
                NodeKind::Scalar(Scalar { text, plain: false })
            }
            _ => {
                let minus = self.eat('-');
                self.skip();
                let word = self.word().to_owned();
                if word.is_empty() {
                    return Err(self.unexpected("a value"));
                }
                let text = if minus { format!("-{word}") } else { word };
                NodeKind::Scalar(Scalar { text, plain: true })
            }
        };
        Ok(Node { span: self.span(start, self.text.get(..self.at).unwrap_or("").trim_end().len()), kind })
    }

    fn list(&mut self) -> Result<Vec<Node>, Fault> {
        let mut items = Vec::new();
        loop {
            self.skip();
            if self.eat(']') {
                return Ok(items);
            }
            items.push(self.value()?);
            self.skip();
            if !self.eat(',') && self.peek() != Some(']') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fault(self.at, "nested too deeply", "at most 100 levels"));
        }
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn string(&mut self, quote: char, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let start = self.at;
        self.at += 1;
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            match c {
                c if c == quote => return Ok(()),
                '\n' => break,
                '\\' => self.escape(bytes)?,
                c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        Err(self.fault(start, "this quote is not closed on its line", "the same quote at the end of the text"))
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let start = self.at - 1;
        let Some(c) = self.peek() else { return Err(self.unexpected("the rest of an escape")) };
        self.at += c.len_utf8();
        let simple = match c {
            'n' => Some(b'\n'),
            'r' => Some(b'\r'),
            't' => Some(b'\t'),
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'v' => Some(11),
            '\\' | '\'' | '"' | '?' => u8::try_from(c).ok(),
            _ => None,
        };
        if let Some(byte) = simple {
            bytes.push(byte);
            return Ok(());
        }
        let code = match c {
            'x' | 'X' => self.digits(16, 2),
            'u' => self.digits(16, 4),
            'U' => self.digits(16, 8),
            '0'..='7' => {
                self.at -= 1;
                self.digits(8, 3)
            }
            _ => None,
        };
        match (c, code) {
            ('u' | 'U', Some(code)) if char::from_u32(code).is_some() => {
                bytes.extend(char::from_u32(code).into_iter().flat_map(|c| c.to_string().into_bytes()));
                Ok(())
            }
            ('u' | 'U', _) | (_, None) => Err(self.fault(start, "no such escape", "such as `\\n`, `\\x41` or `\\101`")),
            (_, Some(code)) => {
                bytes.push((code & 0xff) as u8);
                Ok(())
            }
        }
    }

    fn digits(&mut self, radix: u32, most: usize) -> Option<u32> {
        let rest = self.text.get(self.at..)?;
        let length = rest.chars().take(most).take_while(|c| c.is_digit(radix)).count();
        self.at += length;
        u32::from_str_radix(rest.get(..length)?, radix).ok()
    }

    /// Skips space and comments.
    fn skip(&mut self) {
        while let Some(c) = self.peek() {
            if c.is_whitespace() {
                self.at += c.len_utf8();
            } else if c == '#' {
                let rest = self.text.get(self.at..).unwrap_or("");
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else {
                return;
            }
        }
    }

    fn word(&mut self) -> &str {
        let rest = self.text.get(self.at..).unwrap_or("");
        let length = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-')))
            .unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn unexpected(&self, expected: &'static str) -> Fault {
        let found = self.text.get(self.at..).unwrap_or("").split_whitespace().next();
        let message = match found {
            Some(word) => format!("unexpected `{}`", shorten(word)),
            None => "the file ends too early".to_owned(),
        };
        Fault { message, expected, span: self.span(self.at, self.at + found.map_or(0, str::len)) }
    }

    fn fault(&self, start: usize, message: &str, expected: &'static str) -> Fault {
        Fault { message: message.to_owned(), expected, span: self.span(start, self.at) }
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.id, start, end)
    }
}

/// Adds a field; the second and later values of a key make a list.
fn add(pairs: &mut Vec<Pair>, pair: Pair) {
    let Some(own) = pairs.iter_mut().find(|own| own.key == pair.key) else {
        pairs.push(pair);
        return;
    };
    let more = match pair.value.kind {
        NodeKind::List(items) => items,
        kind => vec![Node { span: pair.value.span, kind }],
    };
    if let NodeKind::List(items) = &mut own.value.kind {
        items.extend(more);
        return;
    }
    let span = own.value.span.to(pair.value.span);
    let first = std::mem::replace(&mut own.value, Node { span, kind: NodeKind::Null });
    let items = std::iter::once(first).chain(more).collect();
    own.value = Node { span, kind: NodeKind::List(items) };
}
