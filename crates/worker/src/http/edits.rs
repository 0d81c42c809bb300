//! Header edits: what routes ask for, and small helpers for forwarding headers.

use std::net::{IpAddr, SocketAddr};

use postrider_http::{Fields, HeaderId, RequestHead, split_port};
use postrider_model::{
    Action, AppendAction, HeaderEdits, HeaderMutation, HeaderValue, IdentityPolicy, Target, WeightedCluster,
};
use postrider_router::Table;
use postrider_upstream::Random;

use crate::format::{Absent, Context};

/// The edits that apply to a route's requests, in the order to apply them.
pub(super) fn request_levels(table: &Table, route: u32, weighted: Option<usize>) -> [&HeaderEdits; 4] {
    let source = table.source();
    let host = table.virtual_host_of(route).map_or(&NO_EDITS, |host| &table.virtual_host(host).request_headers);
    let cluster = weighted_cluster(table, route, weighted).map_or(&NO_EDITS, |cluster| &cluster.request_headers);
    in_order(table, [cluster, &table.route(route).request_headers, host, &source.request_headers])
}

/// The same for responses.
pub(super) fn response_levels(table: &Table, route: u32, weighted: Option<usize>) -> [&HeaderEdits; 4] {
    let source = table.source();
    let host = table.virtual_host_of(route).map_or(&NO_EDITS, |host| &table.virtual_host(host).response_headers);
    let cluster = weighted_cluster(table, route, weighted).map_or(&NO_EDITS, |cluster| &cluster.response_headers);
    in_order(table, [cluster, &table.route(route).response_headers, host, &source.response_headers])
}

/// Puts levels, the most specific first, into the order that the table asks for: the last one wins. A weighted cluster's
/// stay the first in either order, as in Envoy.
fn in_order<'t>(table: &Table, mut levels: [&'t HeaderEdits; 4]) -> [&'t HeaderEdits; 4] {
    if table.source().most_specific_header_edits_win {
        let [_, others @ ..] = &mut levels;
        others.reverse();
    }
    levels
}

static NO_EDITS: HeaderEdits = HeaderEdits { add: Vec::new(), remove: Vec::new() };

/// The authority that a weighted cluster wants.
pub(super) fn weighted_host(table: &Table, route: u32, weighted: Option<usize>) -> Option<&str> {
    weighted_cluster(table, route, weighted)?.host_rewrite.as_deref()
}

fn weighted_cluster(table: &Table, route: u32, weighted: Option<usize>) -> Option<&WeightedCluster> {
    match &table.route(route).action {
        Action::Forward(forward) => match &forward.target {
            Target::Weighted(clusters) => clusters.get(weighted?),
            Target::Cluster(_) | Target::Header(_) | Target::Plugin(_) => None,
        },
        Action::Redirect(_) | Action::Respond(_) => None,
    }
}

/// Applies removals. They come first: as in Envoy, additions do not find what is removed beside them.
pub(crate) fn remove(edits: &HeaderEdits, fields: &mut Fields) {
    for name in &edits.remove {
        fields.remove_name(name.as_bytes());
    }
}

/// Applies additions with the values that [`evaluate`] found. As in Envoy each condition looks at the fields that the removals
/// left, then what overwrites is written, and then what adds.
pub(crate) fn add(edits: &HeaderEdits, fields: &mut Fields, values: &mut Vec<(usize, Vec<u8>)>) {
    let applies = |fields: &Fields, header: &HeaderValue, value: &[u8]| {
        let exists = || fields.get_name(header.name.as_bytes()).is_some();
        let holds = match header.action {
            AppendAction::AppendIfExistsOrAdd | AppendAction::OverwriteIfExistsOrAdd => true,
            AppendAction::AddIfAbsent => !exists(),
            AppendAction::OverwriteIfExists => exists(),
        };
        holds && (header.keep_empty || !value.is_empty())
    };
    values.retain(|(index, value)| edits.add.get(*index).is_some_and(|header| applies(fields, header, value)));
    // Names were checked with the configuration; a value with control bytes, taken from a request, is left out.
    for (header, value) in values.iter().filter_map(|(index, value)| Some((edits.add.get(*index)?, value))) {
        if matches!(header.action, AppendAction::OverwriteIfExists | AppendAction::OverwriteIfExistsOrAdd) {
            let _ = fields.set_name(header.name.as_bytes(), value);
        }
    }
    for (header, value) in values.drain(..).filter_map(|(index, value)| Some((edits.add.get(index)?, value))) {
        if matches!(header.action, AppendAction::AppendIfExistsOrAdd | AppendAction::AddIfAbsent) {
            let _ = fields.append_name(header.name.as_bytes(), &value);
        }
    }
}

/// Makes one of several edits, with the values that `evaluate` finds for its additions.
#[cold]
pub(super) fn mutate(
    mutation: &HeaderMutation,
    fields: &mut Fields,
    evaluate: impl FnOnce(&HeaderEdits) -> Vec<(usize, Vec<u8>)>,
) {
    /// What frames the message or belongs to one connection.
    const KEPT: [&[u8]; 10] = [
        b"connection",
        b"content-length",
        b"host",
        b"http2-settings",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ];
    match mutation {
        HeaderMutation::Edits(edits) => {
            remove(edits, fields);
            add(edits, fields, &mut evaluate(edits));
        }
        HeaderMutation::RemoveMatching(condition) => {
            fields.retain(|field| {
                let goes = || std::str::from_utf8(field.name).is_ok_and(|name| condition.matches(name));
                field.name.first() == Some(&b':') || KEPT.contains(&field.name) || !goes()
            });
        }
    }
}

/// The values of the additions of `edits`, by their index: taken before any of them is applied.
pub(crate) fn evaluate(edits: &HeaderEdits, context: &Context<'_>) -> Vec<(usize, Vec<u8>)> {
    let value = |format| {
        let mut value = Vec::new();
        context.write(format, Absent::Empty, &mut value);
        value
    };
    edits.add.iter().enumerate().map(|(index, header)| (index, value(&header.value))).collect()
}

/// Makes one list of several `x-forwarded-for` lines (RFC 9110 5.3): who is trusted is counted from its end.
#[cold]
pub(super) fn join_forwarded(fields: &mut Fields, scratch: &mut Vec<u8>) {
    scratch.clear();
    for line in fields.get_all(HeaderId::XForwardedFor) {
        if !scratch.is_empty() {
            scratch.push(b',');
        }
        scratch.extend_from_slice(line);
    }
    let _ = fields.set(HeaderId::XForwardedFor, scratch);
}

/// Names the host that the client asked for, behind those that earlier proxies named, unless it is the last of them.
#[cold]
pub(super) fn forward_host(head: &mut RequestHead) {
    let mut hosts = joined(&head.fields, HeaderId::XForwardedHost);
    let original = head.authority();
    if original.is_empty() || hosts.rsplit(|byte| *byte == b',').next() == Some(original) {
        return;
    }
    if !hosts.is_empty() {
        hosts.push(b',');
    }
    hosts.extend_from_slice(original);
    let _ = head.fields.set(HeaderId::XForwardedHost, &hosts);
}

/// Adds this proxy to those that a message came by (RFC 9110 7.6.3), in the operator's words.
#[cold]
pub(super) fn append_via(fields: &mut Fields, via: &str) {
    let mut proxies = joined(fields, HeaderId::Via);
    if !proxies.is_empty() {
        proxies.extend_from_slice(b", ");
    }
    proxies.extend_from_slice(via.as_bytes());
    let _ = fields.set(HeaderId::Via, &proxies);
}

/// All lines of a field as one list (RFC 9110 5.3).
fn joined(fields: &Fields, id: HeaderId) -> Vec<u8> {
    let mut list = Vec::new();
    for line in fields.get_all(id).filter(|line| !line.is_empty()) {
        if !list.is_empty() {
            list.push(b',');
        }
        list.extend_from_slice(line);
    }
    list
}

/// The client behind `hops` trusted proxies, for a listener at the edge.
pub(super) fn trusted_client(fields: &Fields, remote: Option<SocketAddr>, hops: u32) -> Option<SocketAddr> {
    match hops {
        0 => remote,
        hops => nth_from_end(fields, hops as usize - 1).map(|client| (client, 0).into()).or(remote),
    }
}

/// The client that a trusted peer names.
pub(super) fn forwarded_client(fields: &Fields, hops: u32) -> Option<IpAddr> {
    if !fields.has(HeaderId::XForwardedFor) {
        return None;
    }
    nth_from_end(fields, hops as usize)
}

fn nth_from_end(fields: &Fields, index: usize) -> Option<IpAddr> {
    let last = fields.get_all(HeaderId::XForwardedFor).last()?;
    let entry = last.rsplit(|byte| *byte == b',').nth(index)?;
    std::str::from_utf8(entry).ok()?.trim().parse().ok()
}

/// A random UUID (version 4, RFC 9562 section 5.4).
pub(crate) fn uuid(random: &Random) -> [u8; 36] {
    let high = random.next() & 0xffff_ffff_ffff_0fff | 0x4000;
    let low = random.next() & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000;
    let [time, rest] = [hex((high >> 32) as u32), hex(high as u32)];
    let [node, end] = [hex((low >> 32) as u32), hex(low as u32)];
    let mut text = [b'-'; 36];
    text[..8].copy_from_slice(&time);
    text[9..13].copy_from_slice(&rest[..4]);
    text[14..18].copy_from_slice(&rest[4..]);
    text[19..23].copy_from_slice(&node[..4]);
    text[24..28].copy_from_slice(&node[4..]);
    text[28..].copy_from_slice(&end);
    text
}

/// Takes out of a request's id for which reason the request is traced: it stands where a UUID says its version.
#[cold]
pub(super) fn untrace(fields: &mut Fields, scratch: &mut Vec<u8>) {
    const PLACE: usize = 14;
    let id = fields.get(HeaderId::XRequestId).filter(|id| id.len() == 36);
    if let Some(id) = id.filter(|id| id.get(PLACE) != Some(&b'4')) {
        scratch.clear();
        scratch.extend_from_slice(id);
        if let Some(reason) = scratch.get_mut(PLACE) {
            *reason = b'4';
        }
        let _ = fields.set(HeaderId::XRequestId, scratch);
    }
}

/// Eight hexadecimal digits, all at once: a digit by itself costs five instructions, and most requests get 32 of them.
#[inline]
fn hex(number: u32) -> [u8; 8] {
    // One digit's value in each byte.
    let mut digits = u64::from(number);
    digits = (digits | digits << 16) & 0x0000_ffff_0000_ffff;
    digits = (digits | digits << 8) & 0x00ff_00ff_00ff_00ff;
    digits = (digits | digits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // Six more carries ten and above into the upper half of the byte.
    let letters = (digits + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    const FROM_COLON_TO_A: u64 = (b'a' - b':') as u64;
    (digits + 0x3030_3030_3030_3030 + letters * FROM_COLON_TO_A).to_be_bytes()
}

/// Takes port and dot off the authority as the connection manager is told to.
pub(super) fn strip_host(head: &mut RequestHead, policy: &IdentityPolicy, local: Option<u16>, scratch: &mut Vec<u8>) {
    scratch.clear();
    let (host, port) = split_port(head.authority());
    let number = port.and_then(|port| std::str::from_utf8(port).ok()?.parse::<u16>().ok());
    let strip_port = policy.strip_any_host_port || (policy.strip_matching_host_port && number == local);
    let bare = match policy.strip_trailing_host_dot {
        true => host.strip_suffix(b".").unwrap_or(host),
        false => host,
    };
    scratch.extend_from_slice(bare);
    if let (Some(port), false) = (port, strip_port) {
        scratch.push(b':');
        scratch.extend_from_slice(port);
    }
    if scratch.as_slice() != head.authority() {
        // What is left of a valid authority is one.
        let _ = head.set_authority(scratch);
    }
}

#[cfg(test)]
mod tests {
    use postrider_model::{StringKind, StringMatch};

    use super::*;

    #[test]
    fn eight_digits_are_those_of_the_number() {
        let random = Random::new(3);
        for number in
            (0..1000).map(|_| random.next() as u32).chain([0, u32::MAX, 0x9a9a_9a9a, 0x0123_4567, 0x89ab_cdef])
        {
            assert_eq!(hex(number), format!("{number:08x}").as_bytes());
        }
    }

    #[test]
    fn a_uuid_has_version_variant_and_dashes() {
        let id = uuid(&Random::new(9));
        let text = std::str::from_utf8(&id).unwrap();
        assert_eq!(text.len(), 36);
        assert_eq!(text.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&text.as_bytes()[19]), "{text}");
        assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_ne!(uuid(&Random::new(10)), id);
    }

    #[test]
    fn fields_go_by_their_names_but_not_those_that_frame_the_message() {
        let mut fields = Fields::new();
        for name in ["x-a", "x-b", "content-length", "accept"] {
            fields.append_name(name.as_bytes(), b"1").unwrap();
        }
        let left = |fields: &Fields| fields.iter().map(|field| field.name.to_vec()).collect::<Vec<_>>();
        let all = |kind| HeaderMutation::RemoveMatching(StringMatch { kind, ignore_case: false });
        mutate(&all(StringKind::Prefix("x-".into())), &mut fields, |_| Vec::new());
        assert_eq!(left(&fields), [b"content-length".to_vec(), b"accept".to_vec()]);
        mutate(&all(StringKind::Contains(String::new())), &mut fields, |_| Vec::new());
        assert_eq!(left(&fields), [b"content-length".to_vec()]);
    }

    #[test]
    fn a_host_is_told_once_behind_those_that_were_told_before() {
        let told = |before: &[&[u8]]| {
            let mut head = RequestHead::new();
            head.set_authority(b"new").unwrap();
            before.iter().for_each(|line| head.fields.append(HeaderId::XForwardedHost, line).unwrap());
            forward_host(&mut head);
            String::from_utf8(joined(&head.fields, HeaderId::XForwardedHost)).unwrap()
        };
        assert_eq!(told(&[]), "new");
        assert_eq!(told(&[b"new"]), "new");
        assert_eq!(told(&[b"a,new"]), "a,new");
        assert_eq!(told(&[b"a", b"b"]), "a,b,new");
    }

    #[test]
    fn a_proxy_is_added_to_those_on_the_way_in_the_operators_words() {
        let mut fields = Fields::new();
        append_via(&mut fields, "me");
        assert_eq!(fields.get(HeaderId::Via), Some(b"me".as_slice()));
        fields.append(HeaderId::Via, b"1.0 other").unwrap();
        append_via(&mut fields, "me");
        assert_eq!(fields.get_all(HeaderId::Via).collect::<Vec<_>>(), [b"me,1.0 other, me".as_slice()]);
    }

    #[test]
    fn the_client_is_found_behind_trusted_hops() {
        let mut fields = Fields::new();
        assert_eq!(forwarded_client(&fields, 0), None);
        fields.append(HeaderId::XForwardedFor, b"1.1.1.1, 2.2.2.2,3.3.3.3").unwrap();
        assert_eq!(forwarded_client(&fields, 0), "3.3.3.3".parse().ok());
        assert_eq!(forwarded_client(&fields, 1), "2.2.2.2".parse().ok());
        let remote = "9.9.9.9:1".parse().ok();
        assert_eq!(trusted_client(&fields, remote, 0), remote);
        assert_eq!(trusted_client(&fields, remote, 1), "3.3.3.3:0".parse().ok());
        assert_eq!(trusted_client(&fields, remote, 9), remote);
    }
}
