//! Certificates that the proxy gets itself: an extension of the bootstrap.

use std::path::Path;
use std::time::Duration;

use postrider_config_core::Diagnostic;
use postrider_model::{Acme, AcmeChallenge};

use super::context::Lowering;
use crate::reader::Reader;

const RETRY: Duration = Duration::from_secs(60);

/// Longest path of a Unix socket that every system takes, without its final zero.
const MAX_SOCKET_PATH: usize = 103;

/// `postrider.acme.v1.Acme`
pub(super) fn acme(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Acme {
    config.bool("terms_of_service_agreed");
    let directory = config.str("directory_url").to_owned();
    if !directory.is_empty() && !directory.starts_with("https://") {
        cx.error(config, "directory_url", "invalid-value", format!("`{directory}` is no `https` URL"));
    }
    let contacts = config.strings("contacts");
    for contact in contacts.iter().filter(|contact| !contact.value.starts_with("mailto:")) {
        let text = format!("`{}` is no `mailto:` URL", contact.value);
        cx.element_error(config, "contacts", contact, "invalid-value", text);
    }
    let ca = config.str("directory_ca_file");
    let acme = Acme {
        directory,
        directory_ca: (!ca.is_empty()).then(|| ca.into()),
        contacts: contacts.into_iter().map(|contact| contact.value.to_owned()).collect(),
        state: config.str("state_directory").into(),
        retry: config.duration("retry_delay").unwrap_or(RETRY),
        certificates: certificates(cx, config),
        challenge: match config.enum_number("challenge") {
            1 => AcmeChallenge::TlsAlpn01,
            _ => AcmeChallenge::Http01,
        },
    };
    if acme.challenge_socket().as_os_str().len() > MAX_SOCKET_PATH {
        let text = format!("the path is too long for the socket in it: at most {MAX_SOCKET_PATH} bytes with its name");
        cx.error(config, "state_directory", "invalid-value", text);
    }
    acme
}

fn certificates(cx: &mut Lowering<'_>, config: &Reader<'_>) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    for certificate in config.list("certificates") {
        let names = certificate.strings("names");
        for name in names.iter().filter(|name| !is_host_name(name.value)) {
            let text = match name.value.contains('*') {
                true => format!("`{}`: a wildcard takes a DNS-01 challenge, which is not supported", name.value),
                false => format!("`{}` is no host name", name.value),
            };
            cx.element_error(&certificate, "names", name, "invalid-value", text);
        }
        let names: Vec<String> = names.into_iter().map(|name| name.value.to_ascii_lowercase()).collect();
        let Some(first) = names.first() else { continue };
        if all.iter().any(|other| other.first() == Some(first)) {
            let text = format!("another certificate has the first name `{first}`, by which it is stored");
            cx.push(
                Diagnostic::error("duplicate-name", text).at(certificate.span_of("names")).path(certificate.path()),
            );
        }
        all.push(names);
    }
    all
}

/// What may stand in a certificate and, as it is, in the name of a file.
fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_address = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= 253 && name.split('.').all(label) && !is_address && Path::new(name).components().count() == 1
}

#[cfg(test)]
mod tests {
    use super::is_host_name;

    #[test]
    fn host_names_are_names_of_files_too() {
        for name in ["a", "shop.example", "xn--bcher-kva.example", "1.example", "A-1.Example"] {
            assert!(is_host_name(name), "{name}");
        }
        for name in ["", ".", "..", "a..b", "a/b", "../a", "*.example", "-a.example", "a_b", "127.0.0.1", "a.1", "a b"]
        {
            assert!(!is_host_name(name), "{name}");
        }
    }
}
