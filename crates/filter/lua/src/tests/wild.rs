//! Scripts as people write them.

use postrider_filter_api::Answer;
use postrider_filter_api::testing::FakeStream;
use postrider_http::ResponseHead;

use crate::testing::{Outcome, Trial};

#[test]
fn a_claim_of_a_token_becomes_a_header() {
    let mut trial = Trial::envoy(
        r#"
        local function payload(handle, token)
          local part = token:match("^[%w_-]+%.([%w_-]+)%.[%w_-]*$")
          return part and handle:base64Decode((part:gsub("-", "+"):gsub("_", "/")))
        end
        function envoy_on_request(handle)
          local authorization = handle:headers():get("authorization")
          if not authorization then return end
          local claims = payload(handle, authorization:gsub("^[Bb]earer%s+", ""))
          local subject = claims and claims:match('"sub"%s*:%s*"([^"]*)"')
          if subject then
            handle:headers():replace("x-subject", subject)
            handle:streamInfo():dynamicMetadata():set("jwt", "sub", subject)
          end
        end
        function envoy_on_response(handle)
          local jwt = handle:streamInfo():dynamicMetadata():get("jwt")
          if jwt then handle:headers():add("x-served-for", jwt.sub) end
        end"#,
    );
    let token = b"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsIm4iOjF9.";
    trial.stream.request.fields.append_name(b"authorization", token).unwrap();
    assert_eq!(trial.request(&[]), Outcome::Passed);
    assert_eq!(trial.request_header("x-subject").as_deref(), Some("alice"));
    trial.response(&[]);
    assert_eq!(trial.response_header("x-served-for").as_deref(), Some("alice"));
}

#[test]
fn another_service_decides_who_may_pass() {
    let script = r#"
        function envoy_on_request(handle)
          local headers, body = handle:httpCall("authz",
            { [":method"] = "POST", [":path"] = "/check", [":authority"] = "authz", ["x-user"] = handle:headers():get("x-user") },
            "who goes there", 200)
          if headers[":status"] ~= "200" then
            handle:respond({ [":status"] = "403", ["content-type"] = "text/plain" }, "denied: " .. (body or "?"))
          end
          handle:headers():add("x-allowed", "yes")
        end"#;
    for (status, expected) in [(200, Outcome::Passed), (401, Outcome::Answered(403, "denied: no".to_owned()))] {
        let mut trial = Trial::envoy(script);
        trial.stream.request.fields.append_name(b"x-user", b"eve").unwrap();
        let outcome = trial.request(&[]);
        assert_eq!(outcome, Outcome::Paused);
        let outcome = trial.calls(outcome, true, |call| {
            assert_eq!(call.head.fields.get_name(b"x-user"), Some(&b"eve"[..]));
            let mut head = ResponseHead::new();
            head.set_status(status);
            Ok(Answer { head, body: b"no".to_vec(), trailers: Default::default() })
        });
        assert_eq!(outcome, expected);
        assert_eq!(trial.request_header("x-allowed").is_some(), status == 200);
    }
}

#[test]
fn a_cache_at_the_top_lives_from_request_to_request() {
    let mut trial = Trial::envoy(
        "local cache = {}
         function envoy_on_request(h)
           local path = h:headers():get(':path')
           cache[path] = (cache[path] or 0) + 1
           h:headers():replace('x-seen', cache[path])
         end",
    );
    for n in 1..=3 {
        trial.request(&[]);
        assert_eq!(trial.request_header("x-seen").as_deref(), Some(n.to_string().as_str()));
        trial.restart(FakeStream::new("GET", "/", &[]));
    }
}

#[test]
fn names_may_be_written_for_a_loop() {
    let mut trial = Trial::envoy(
        "function envoy_on_request(h)
           local drop = {}
           for name in pairs(h:headers()) do if name:find('^x%-internal%-') then drop[#drop + 1] = name end end
           for _, name in ipairs(drop) do h:headers():remove(name) end
         end",
    );
    for name in ["x-internal-a", "x-keep", "x-internal-b"] {
        trial.stream.request.fields.append_name(name.as_bytes(), b"1").unwrap();
    }
    trial.request(&[]);
    let left: Vec<String> =
        trial.stream.request.fields.iter().map(|f| String::from_utf8_lossy(f.name).into_owned()).collect();
    assert_eq!(left, ["host", "x-keep"]);
}
