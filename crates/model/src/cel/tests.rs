use super::*;
use crate::{Reading, Value};

fn parse(text: &str) -> Result<Node, CelError> {
    Expression::parse(text, Allowed::default()).map(|expression| expression.root)
}

fn error(text: &str) -> (usize, String) {
    let error = parse(text).unwrap_err();
    (error.offset, error.message)
}

fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

#[test]
fn operators_bind_as_the_language_says() {
    for (text, same) in [
        ("1 + 2 * 3 == 7", "(1 + (2 * 3)) == 7"),
        ("true || false && false", "true || (false && false)"),
        ("!true == false", "(!true) == false"),
        ("1 - 2 - 3", "(1 - 2) - 3"),
        ("true ? 1 : false ? 2 : 3", "true ? 1 : (false ? 2 : 3)"),
        ("-1 < 2", "(-1) < 2"),
        ("1 in [1] == true", "(1 in [1]) == true"),
        ("request['path']", "request.path"),
        (".request.path", "request.path"),
        ("metadata.filter_metadata.a.b", "metadata.filter_metadata.a.b // as it was"),
        (r#""\x41\u0042\103" + 'D'"#, "'ABC' + \"D\""),
        (r"r'\d'", r#"'\\d'"#),
        ("'''it's'''", "\"it's\""),
        ("0x10", "16"),
        ("[1, 2,]", "[1,2]"),
    ] {
        assert_eq!(parse(text).unwrap(), parse(same).unwrap(), "{text}");
    }
    assert_eq!(parse("10u").unwrap(), Node::Constant(Constant::Uint(10)));
    assert_eq!(parse("1.5e3").unwrap(), Node::Constant(Constant::Double(1500.0)));
    assert_eq!(parse(r"b'\xff'").unwrap(), Node::Constant(Constant::Bytes(vec![255])));
    assert_eq!(parse("has(request.headers.a)").unwrap(), {
        Node::Has(Box::new(Node::Attribute(Attribute::RequestHeaders)), "a".into())
    });
    assert_eq!(parse("has(response.code)").unwrap(), Node::HasAttribute(Attribute::ResponseCode));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (text, offset, part) in [
        ("1 <", 3, "a value is wanted here, not the end"),
        ("request.pth == ''", 8, "`request` has no `pth` here; known are path, url_path"),
        ("nothing == 1", 0, "`nothing` is unknown"),
        ("1 == request", 2, "`request` is no value by itself"),
        ("[1].all(x, x > 0)", 4, "`all` is a loop"),
        ("nosuch(1)", 0, "there is no function `nosuch`"),
        ("request.path.matches('(')", 13, "no regular expression"),
        ("request.path.matches(request.host)", 13, "must be written out"),
        ("string(1) == '1'", 0, "enable_string_conversion"),
        ("'A'.lowerAscii() == 'a'", 4, "enable_string_functions"),
        ("has(request)", 4, "`has` wants a field"),
        ("'a", 0, "the text has no end"),
        ("1 2", 2, "an operator or the end is wanted here, not `2`"),
        ("@", 0, "`@` has no meaning here"),
        ("99999999999999999999", 0, "is no number"),
        ("request.time.getHours('Mars') == 1", 13, "a time zone is written as UTC"),
        ("a.b.C{}", 0, "`a` is unknown"),
        ("size(1, 2)", 0, "does not take 2 values"),
    ] {
        let (found, message) = error(text);
        assert!(found == offset && message.contains(part), "{text}: {found} {message}");
    }
}

#[test]
fn an_expression_has_bounds() {
    let deep = format!("{}1{}", "(".repeat(100), ")".repeat(100));
    assert!(error(&deep).1.contains("64 deep"));
    assert!(error(&format!("{}true", "!".repeat(100))).1.contains("64 deep"));
    let long = vec!["true"; 1500].join(" || ");
    assert!(error(&long).1.contains("2000 parts"));
    // Long chains stand side by side, so that they need no depth.
    let Node::Any(all) = parse(&vec!["true"; 900].join(" || ")).unwrap() else { panic!() };
    assert_eq!(all.len(), 900);
    assert!(error(&format!("'{}'", "a".repeat(70_000))).1.contains("bytes"));
}

#[test]
fn a_tree_means_what_its_text_means() {
    let name = |name: &str| object([("ident_expr", object([("name", text(name))]))]);
    let select =
        |operand: Value, field: &str| object([("select_expr", object([("operand", operand), ("field", text(field))]))]);
    let constant = |value: &str| object([("const_expr", object([("string_value", text(value))]))]);
    let call = |function: &str, args: Vec<Value>| {
        object([("call_expr", object([("function", text(function)), ("args", Value::List(args))]))])
    };
    let header = call("_[_]", vec![select(name("request"), "headers"), constant("x")]);
    let tree = call("_&&_", vec![call("_==_", vec![header, constant("1")]), call("!_", vec![name_is_host()])]);
    let read = Reading::all(&tree, |at| Expression::read(at, Allowed::default())).unwrap().unwrap();
    assert_eq!(read.root, parse("request.headers['x'] == '1' && !(request.host == '')").unwrap());

    let loops = object([("comprehension_expr", object([("iter_var", text("x"))]))]);
    let errors = Reading::all(&loops, |at| Expression::read(at, Allowed::default())).unwrap_err();
    assert_eq!(errors[0].path, "comprehension_expr");
    let mut deep = name("request");
    for _ in 0..100 {
        deep = call("!_", vec![deep]);
    }
    let errors = Reading::all(&deep, |at| Expression::read(at, Allowed::default())).unwrap_err();
    assert!(errors[0].message.contains("64 deep"), "{errors:?}");
    let unknown = select(name("request"), "pth");
    let errors = Reading::all(&unknown, |at| Expression::read(at, Allowed::default())).unwrap_err();
    assert!(errors[0].message.contains("`request` has no `pth`"), "{errors:?}");
}

fn name_is_host() -> Value {
    let host = object([(
        "select_expr",
        object([("operand", object([("ident_expr", object([("name", text("request"))]))])), ("field", text("host"))]),
    )]);
    let empty = object([("const_expr", object([("string_value", text(""))]))]);
    object([("call_expr", object([("function", text("_==_")), ("args", Value::List(vec![host, empty]))]))])
}
