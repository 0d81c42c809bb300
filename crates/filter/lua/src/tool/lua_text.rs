//! Values as Lua source: how results get into the machine of the tests, byte for byte.

use postrider_model::Value;

/// A table, written field by field.
pub(super) struct Table(String);

impl Table {
    pub(super) fn new() -> Table {
        Table("{".to_owned())
    }

    pub(super) fn text(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        string(value, &mut self.0);
        self.0.push(',');
    }

    pub(super) fn number(&mut self, key: &str, value: f64) {
        self.key(key);
        number(value, &mut self.0);
        self.0.push(',');
    }

    pub(super) fn bool(&mut self, key: &str, value: bool) {
        self.key(key);
        self.0.push_str(if value { "true," } else { "false," });
    }

    pub(super) fn value(&mut self, key: &str, value: &Value) {
        self.key(key);
        write(value, &mut self.0);
        self.0.push(',');
    }

    pub(super) fn table(&mut self, key: &str, table: Table) {
        self.key(key);
        self.0.push_str(&table.finish());
        self.0.push(',');
    }

    /// One more item of a list.
    pub(super) fn push(&mut self, table: Table) {
        self.0.push_str(&table.finish());
        self.0.push(',');
    }

    pub(super) fn push_text(&mut self, value: &[u8]) {
        string(value, &mut self.0);
        self.0.push(',');
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn key(&mut self, key: &str) {
        self.0.push('[');
        string(key.as_bytes(), &mut self.0);
        self.0.push_str("]=");
    }
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("nil"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(value) => number(*value, out),
        Value::Integer(value) => number(*value as f64, out),
        Value::String(text) => string(text.as_bytes(), out),
        Value::List(items) => {
            out.push('{');
            for item in items {
                write(item, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Map(entries) => {
            let mut table = Table::new();
            for (key, value) in entries {
                table.value(key, value);
            }
            out.push_str(&table.finish());
        }
    }
}

/// Lua has no literal for infinities and for what is no number.
fn number(value: f64, out: &mut String) {
    match value {
        value if value.is_nan() => out.push_str("(0/0)"),
        value if value.is_infinite() => out.push_str(if value > 0.0 { "(1/0)" } else { "(-1/0)" }),
        value => out.push_str(&format!("{value:?}")),
    }
}

/// Whatever is not plain is a decimal escape of three digits, so that no byte runs into the next.
fn string(bytes: &[u8], out: &mut String) {
    out.push('"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => out.push_str(&format!("\\{byte:03}")),
            plain => out.push(char::from(*plain)),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_numbers_are_literals_of_lua() {
        let mut table = Table::new();
        table.text("a\"b", &[b'x', 0, b'1', 0xff]);
        table.number("n", 1.5);
        table.value("v", &Value::List(vec![Value::Integer(2), Value::Null, Value::Bool(true)]));
        assert_eq!(table.finish(), r#"{["a\034b"]="x\0001\255",["n"]=1.5,["v"]={2.0,nil,true,},}"#);
    }
}
