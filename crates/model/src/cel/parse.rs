//! Expressions as people write them: the grammar of the CEL specification, without messages and optional fields.

use super::build::{Builder, whole};
use super::{Allowed, CelError, Constant, Function, MAX_DEPTH, Node};

/// The longest text of an expression, in bytes.
const MAX_LENGTH: usize = 64 << 10;

pub(super) fn parse(text: &str, allowed: Allowed) -> Result<Node, CelError> {
    if text.len() > MAX_LENGTH {
        return Err(CelError { offset: 0, message: format!("an expression may have {MAX_LENGTH} bytes") });
    }
    let mut parser = Parser { text, at: 0, token: Token::End, start: 0, depth: 0, builder: Builder::new(allowed) };
    parser.advance()?;
    let root = parser.expression()?;
    let root = parser.built(whole(root), 0)?;
    if parser.token != Token::End {
        return Err(parser.unexpected("an operator or the end"));
    }
    Ok(root)
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Constant(Constant),
    Sign(&'static str),
    End,
}

/// Longer ones first.
const SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}",
];

struct Parser<'t> {
    text: &'t str,
    /// Behind the token at hand.
    at: usize,
    token: Token,
    start: usize,
    depth: usize,
    builder: Builder,
}

type Parsed = Result<Node, CelError>;

impl Parser<'_> {
    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong(self.start, format!("expressions may stand {MAX_DEPTH} deep in each other")));
        }
        let start = self.start;
        let condition = self.disjunction()?;
        let made = if self.take("?")? {
            let then = self.disjunction()?;
            self.expect(":")?;
            let otherwise = self.expression()?;
            let choice = self.builder.choice(condition, then, otherwise);
            self.built(choice, start)
        } else {
            Ok(condition)
        };
        self.depth -= 1;
        made
    }

    fn disjunction(&mut self) -> Parsed {
        let start = self.start;
        let mut left = self.conjunction()?;
        while self.take("||")? {
            let right = self.conjunction()?;
            let any = self.builder.any(left, right);
            left = self.built(any, start)?;
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Parsed {
        let start = self.start;
        let mut left = self.relation()?;
        while self.take("&&")? {
            let right = self.relation()?;
            let all = self.builder.all(left, right);
            left = self.built(all, start)?;
        }
        Ok(left)
    }

    fn relation(&mut self) -> Parsed {
        const RELATIONS: [(&str, Function); 6] = [
            ("==", Function::Equal),
            ("!=", Function::Unequal),
            ("<=", Function::AtMost),
            (">=", Function::AtLeast),
            ("<", Function::Less),
            (">", Function::Greater),
        ];
        let mut left = self.sum()?;
        loop {
            let start = self.start;
            let function = if self.token == Token::Name("in".to_owned()) {
                self.advance()?;
                Function::In
            } else {
                let Some(found) = self.one_of(&RELATIONS)? else { return Ok(left) };
                found
            };
            let right = self.sum()?;
            left = self.operator(function, vec![left, right], start)?;
        }
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        loop {
            let start = self.start;
            let Some(function) = self.one_of(&[("+", Function::Add), ("-", Function::Subtract)])? else {
                return Ok(left);
            };
            let right = self.product()?;
            left = self.operator(function, vec![left, right], start)?;
        }
    }

    fn product(&mut self) -> Parsed {
        const SIGNS: [(&str, Function); 3] =
            [("*", Function::Multiply), ("/", Function::Divide), ("%", Function::Remainder)];
        let mut left = self.unary()?;
        loop {
            let start = self.start;
            let Some(function) = self.one_of(&SIGNS)? else { return Ok(left) };
            let right = self.unary()?;
            left = self.operator(function, vec![left, right], start)?;
        }
    }

    fn unary(&mut self) -> Parsed {
        let start = self.start;
        let Some(function) = self.one_of(&[("!", Function::Not), ("-", Function::Negate)])? else {
            return self.member();
        };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong(start, format!("expressions may stand {MAX_DEPTH} deep in each other")));
        }
        let operand = self.unary()?;
        self.depth -= 1;
        self.operator(function, vec![operand], start)
    }

    fn member(&mut self) -> Parsed {
        let mut node = self.primary()?;
        let mut steps = 0;
        loop {
            steps += 1;
            if steps > MAX_DEPTH {
                return Err(self.wrong(self.start, format!("a name may have {MAX_DEPTH} parts")));
            }
            let start = self.start;
            if self.take("[")? {
                let key = self.expression()?;
                self.expect("]")?;
                node = self.operator(Function::Index, vec![node, key], start)?;
            } else if self.take(".")? {
                let start = self.start;
                let Token::Name(name) = self.token.clone() else { return Err(self.unexpected("a name")) };
                self.advance()?;
                let made = if self.take("(")? {
                    self.builder.no_loop(&name).map_err(|message| self.wrong(start, message))?;
                    let args = self.list(")")?;
                    self.builder.call(&name, Some(node), args)
                } else {
                    self.builder.field(node, &name)
                };
                node = self.built(made, start)?;
            } else {
                return Ok(node);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let start = self.start;
        match self.token.clone() {
            Token::Constant(constant) => {
                self.advance()?;
                let made = self.builder.constant(constant);
                self.built(made, start)
            }
            Token::Name(name) => {
                self.advance()?;
                if self.take("(")? {
                    return self.function(&name, start);
                }
                let made = match name.as_str() {
                    "true" => self.builder.constant(Constant::Bool(true)),
                    "false" => self.builder.constant(Constant::Bool(false)),
                    "null" => self.builder.constant(Constant::Null),
                    "in" => return Err(self.wrong(start, "a value is wanted before `in`".to_owned())),
                    name => self.builder.name(name),
                };
                let node = self.built(made, start)?;
                match self.token {
                    Token::Sign("{") => Err(self.wrong(self.start, "messages are not made in expressions".to_owned())),
                    _ => Ok(node),
                }
            }
            Token::Sign(".") => {
                self.advance()?;
                self.primary()
            }
            Token::Sign("(") => {
                self.advance()?;
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => {
                self.advance()?;
                let items = self.list("]")?;
                let made = self.builder.list(items);
                self.built(made, start)
            }
            Token::Sign("{") => {
                self.advance()?;
                let mut entries = Vec::new();
                while self.token != Token::Sign("}") {
                    let key = self.expression()?;
                    self.expect(":")?;
                    entries.push((key, self.expression()?));
                    if !self.take(",")? {
                        break;
                    }
                }
                self.expect("}")?;
                let made = self.builder.map(entries);
                self.built(made, start)
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Behind the name and the opening bracket.
    fn function(&mut self, name: &str, start: usize) -> Parsed {
        let inner = self.start;
        if name == "has" {
            // What is asked for need not be a known attribute: the last name is taken by itself.
            let operand = self.has_operand()?;
            let Some((operand, field)) = operand else {
                return Err(self.wrong(inner, "`has` wants a field, such as has(request.headers.name)".to_owned()));
            };
            self.expect(")")?;
            let made = self.builder.has(operand, &field);
            return self.built(made, start);
        }
        let args = self.list(")")?;
        let made = self.builder.call(name, None, args);
        self.built(made, start)
    }

    /// What stands before the last dot, and the name behind it.
    fn has_operand(&mut self) -> Result<Option<(Node, String)>, CelError> {
        let mut node = self.primary()?;
        let mut pending: Option<(String, usize)> = None;
        loop {
            let start = self.start;
            if self.take(".")? {
                if let Some((name, at)) = pending.take() {
                    let made = self.builder.field(node, &name);
                    node = self.built(made, at)?;
                }
                let Token::Name(name) = self.token.clone() else { return Err(self.unexpected("a name")) };
                self.advance()?;
                pending = Some((name, start + 1));
            } else if self.take("[")? {
                if let Some((name, at)) = pending.take() {
                    let made = self.builder.field(node, &name);
                    node = self.built(made, at)?;
                }
                let key = self.expression()?;
                self.expect("]")?;
                node = self.operator(Function::Index, vec![node, key], start)?;
            } else {
                return Ok(pending.map(|(name, _)| (node, name)));
            }
        }
    }

    fn list(&mut self, end: &'static str) -> Result<Vec<Node>, CelError> {
        let mut items = Vec::new();
        while self.token != Token::Sign(end) {
            items.push(self.expression()?);
            if !self.take(",")? {
                break;
            }
        }
        self.expect(end)?;
        Ok(items)
    }

    fn operator(&mut self, function: Function, operands: Vec<Node>, start: usize) -> Parsed {
        let made = self.builder.operator(function, operands);
        self.built(made, start)
    }

    fn built(&self, made: Result<Node, String>, start: usize) -> Parsed {
        made.map_err(|message| self.wrong(start, message))
    }

    fn one_of(&mut self, signs: &[(&str, Function)]) -> Result<Option<Function>, CelError> {
        let Token::Sign(sign) = self.token else { return Ok(None) };
        let Some((_, function)) = signs.iter().find(|(known, _)| *known == sign) else { return Ok(None) };
        self.advance()?;
        Ok(Some(*function))
    }

    fn take(&mut self, sign: &str) -> Result<bool, CelError> {
        let found = matches!(self.token, Token::Sign(found) if found == sign);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), CelError> {
        if self.take(sign)? { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> CelError {
        let found = match &self.token {
            Token::End => "the end".to_owned(),
            _ => format!("`{}`", self.text.get(self.start..self.at).unwrap_or_default()),
        };
        self.wrong(self.start, format!("{wanted} is wanted here, not {found}"))
    }

    fn wrong(&self, offset: usize, message: String) -> CelError {
        CelError { offset, message }
    }

    /// Reads the next token.
    fn advance(&mut self) -> Result<(), CelError> {
        let text = self.text;
        let rest = text.get(self.at..).unwrap_or_default().trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
        self.at = self.text.len() - rest.len();
        if rest.starts_with("//") {
            self.at += rest.find('\n').unwrap_or(rest.len());
            return self.advance();
        }
        self.start = self.at;
        let Some(first) = rest.chars().next() else {
            self.token = Token::End;
            return Ok(());
        };
        self.token = if let Some(token) = self.literal(rest)? {
            token
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            self.at += end;
            Token::Name(rest.get(..end).unwrap_or_default().to_owned())
        } else if first.is_ascii_digit() || (first == '.' && rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit)) {
            Token::Constant(self.number(rest)?)
        } else {
            let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) else {
                return Err(self.wrong(self.at, format!("`{first}` has no meaning here")));
            };
            self.at += sign.len();
            Token::Sign(sign)
        };
        Ok(())
    }

    fn number(&mut self, rest: &str) -> Result<Constant, CelError> {
        let start = self.at;
        let bad = |parser: &Self, text: &str| parser.wrong(start, format!("{text} is no number"));
        if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
            let digits = hex.get(..end).unwrap_or_default();
            let is_unsigned = hex.get(end..).is_some_and(|tail| tail.starts_with(['u', 'U']));
            self.at += 2 + end + usize::from(is_unsigned);
            let number = u64::from_str_radix(digits, 16).map_err(|_| bad(self, rest))?;
            return if is_unsigned {
                Ok(Constant::Uint(number))
            } else {
                i64::try_from(number).map(Constant::Int).map_err(|_| bad(self, rest))
            };
        }
        let bytes = rest.as_bytes();
        let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = digits(0);
        let mut is_double = false;
        if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
            end += 1 + digits(end + 1);
            is_double = true;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if digits(end + 1 + sign) > 0 {
                end += 1 + sign + digits(end + 1 + sign);
                is_double = true;
            }
        }
        let text = rest.get(..end).unwrap_or_default();
        let is_unsigned = !is_double && matches!(bytes.get(end), Some(b'u' | b'U'));
        self.at += end + usize::from(is_unsigned);
        let made = if is_double {
            text.parse().ok().map(Constant::Double)
        } else if is_unsigned {
            text.parse().ok().map(Constant::Uint)
        } else {
            text.parse().ok().map(Constant::Int)
        };
        made.ok_or_else(|| bad(self, text))
    }

    /// A text or bytes, if one stands here.
    fn literal(&mut self, rest: &str) -> Result<Option<Token>, CelError> {
        let letters = rest.bytes().take(2).take_while(|byte| matches!(byte | 32, b'r' | b'b')).count();
        let (marks, quoted) = rest.split_at(letters);
        let is_bytes = marks.contains(['b', 'B']);
        let is_raw = marks.contains(['r', 'R']);
        let Some(quote) = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| quoted.starts_with(*quote)) else {
            return Ok(None);
        };
        let start = self.at + letters + quote.len();
        let mut out = Vec::new();
        let mut at = start;
        loop {
            let rest = self.text.get(at..).unwrap_or_default();
            if rest.starts_with(quote) {
                break;
            }
            let Some(letter) = rest.chars().next().filter(|letter| *letter != '\n' || quote.len() == 3) else {
                return Err(self.wrong(self.at, "the text has no end".to_owned()));
            };
            if letter == '\\' && !is_raw {
                at += escape(rest, is_bytes, &mut out)
                    .ok_or_else(|| self.wrong(at, "this escape is unknown".to_owned()))?;
            } else {
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                at += letter.len_utf8();
            }
        }
        self.at = at + quote.len();
        if is_bytes {
            return Ok(Some(Token::Constant(Constant::Bytes(out))));
        }
        let text = String::from_utf8(out).map_err(|_| self.wrong(start, "the text is not UTF-8".to_owned()))?;
        Ok(Some(Token::Constant(Constant::Text(text))))
    }
}

/// What the escape at the start of `rest` stands for; gives its length.
fn escape(rest: &str, is_bytes: bool, out: &mut Vec<u8>) -> Option<usize> {
    let letter = *rest.as_bytes().get(1)?;
    let simple = match letter {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' | b'\'' | b'"' | b'`' | b'?' => letter,
        _ => 0,
    };
    if simple != 0 {
        out.push(simple);
        return Some(2);
    }
    let (digits, length, radix) = match letter {
        b'x' | b'X' => (rest.get(2..4)?, 4, 16),
        b'u' if !is_bytes => (rest.get(2..6)?, 6, 16),
        b'U' if !is_bytes => (rest.get(2..10)?, 10, 16),
        b'0'..=b'3' => (rest.get(1..4)?, 4, 8),
        _ => return None,
    };
    let number = u32::from_str_radix(digits, radix).ok()?;
    if is_bytes {
        out.push(u8::try_from(number).ok()?);
    } else {
        out.extend_from_slice(char::from_u32(number)?.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Some(length)
}
