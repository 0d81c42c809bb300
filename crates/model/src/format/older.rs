//! Older forms of commands, which header values know beside the usual ones.

use std::borrow::Cow;

use serde_json::Value;

/// `%PER_REQUEST_STATE(NAME)%`, and `%DYNAMIC_METADATA(["NAMESPACE", "KEY"])%` and the same of the upstream, in their newer
/// forms. What looks like one and is none stays as it is.
pub fn in_newer_forms(text: &str) -> Cow<'_, str> {
    const STARTS: [&str; 3] = ["%PER_REQUEST_STATE(", "%DYNAMIC_METADATA([", "%UPSTREAM_METADATA(["];
    if !STARTS.iter().any(|start| text.contains(start)) {
        return Cow::Borrowed(text);
    }
    let mut newer = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        newer.push_str(&rest[..at]);
        rest = &rest[at..];
        let command = rest.find(")%").map(|end| rest.split_at(end + 2));
        match command.and_then(|(command, tail)| Some((newer_form(command)?, tail))) {
            Some((form, tail)) => {
                newer.push_str(&form);
                rest = tail;
            }
            None => {
                newer.push('%');
                rest = &rest[1..];
            }
        }
    }
    newer.push_str(rest);
    Cow::Owned(newer)
}

/// One command, from `%` to `)%`.
fn newer_form(command: &str) -> Option<String> {
    let (name, argument) = command.strip_prefix('%')?.strip_suffix(")%")?.split_once('(')?;
    match name {
        "PER_REQUEST_STATE" if !argument.is_empty() => Some(format!("%FILTER_STATE({argument}:PLAIN)%")),
        "DYNAMIC_METADATA" | "UPSTREAM_METADATA" => {
            let Ok(Value::Array(path)) = serde_json::from_str(argument) else { return None };
            let path: Option<Vec<&str>> = path.iter().map(Value::as_str).collect();
            Some(format!("%{name}({})%", path?.join(":")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_forms_become_newer_ones() {
        for (older, newer) in [
            ("<%PER_REQUEST_STATE(a.b)%|%PROTOCOL%>", "<%FILTER_STATE(a.b:PLAIN)%|%PROTOCOL%>"),
            (r#"%DYNAMIC_METADATA(["a", "b"])%"#, "%DYNAMIC_METADATA(a:b)%"),
            (r#"100%% %UPSTREAM_METADATA(["a","b","c"])% %REQ(x)%"#, "100%% %UPSTREAM_METADATA(a:b:c)% %REQ(x)%"),
            ("%DYNAMIC_METADATA(a:b)%", "%DYNAMIC_METADATA(a:b)%"),
            ("%PER_REQUEST_STATE()%", "%PER_REQUEST_STATE()%"),
            ("%PER_REQUEST_STATE(a", "%PER_REQUEST_STATE(a"),
            ("%DYNAMIC_METADATA([1])%", "%DYNAMIC_METADATA([1])%"),
        ] {
            assert_eq!(in_newer_forms(older), newer);
        }
    }
}
