//! The filters that are built in, one folder each, and the one list that makes them known.
//!
//! The binary calls [`register`] once at start. A filter here sees configurations as plain values and traffic through
//! the filter contract; it knows no dialect, no socket and no other filter.

#![forbid(unsafe_code)]

mod api_key_auth;
mod bandwidth_limit;
mod basic_auth;
mod buffer;
mod cdn_loop;
mod cluster_matcher;
mod compression;
mod compressor;
mod cors;
mod credential_injector;
mod csrf;
mod custom_response;
mod decompressor;
mod descriptors;
mod ext_authz;
mod ext_proc;
mod fault;
mod formats;
mod formatters;
mod grpc_counts;
mod grpc_http1_bridge;
mod grpc_http1_reverse_bridge;
mod grpc_json_transcoder;
mod grpc_stats;
mod grpc_web;
mod header_mutation;
mod header_options;
mod header_to_metadata;
mod health_check;
mod ip_tagging;
mod json_to_metadata;
mod jwt_authn;
mod local_ratelimit;
mod mutation_rules;
mod origin;
mod pace;
mod per_worker;
mod ratelimit;
mod rbac;
mod read;
mod request_match;
mod request_parts;
mod set_filter_state;
mod set_metadata;
mod shadow;
mod share;
mod shown;
mod sni_cluster;
mod stateful_session;
pub mod tap;
mod wire;

use postrider_filter_api::Registry;

/// Makes every built-in filter known by the type of its configuration.
pub fn register(registry: &mut Registry) {
    registry.register(api_key_auth::KIND, api_key_auth::build);
    registry.register(basic_auth::KIND, basic_auth::build);
    registry.register(bandwidth_limit::KIND, bandwidth_limit::build);
    registry.register(buffer::KIND, buffer::build);
    registry.register(cors::KIND, cors::build);
    registry.register(custom_response::KIND, custom_response::build);
    registry.register(credential_injector::KIND, credential_injector::build);
    registry.register(csrf::KIND, csrf::build);
    registry.register(cdn_loop::KIND, cdn_loop::build);
    registry.register(stateful_session::KIND, stateful_session::build);
    registry.register(compressor::KIND, compressor::build);
    registry.register(decompressor::KIND, decompressor::build);
    registry.register(ext_authz::KIND, ext_authz::build);
    registry.register(fault::KIND, fault::build);
    registry.register(ext_proc::KIND, ext_proc::build);
    registry.register(grpc_json_transcoder::KIND, grpc_json_transcoder::build);
    registry.register(grpc_http1_bridge::KIND, grpc_http1_bridge::build);
    registry.register(grpc_http1_reverse_bridge::KIND, grpc_http1_reverse_bridge::build);
    registry.register(grpc_stats::KIND, grpc_stats::build);
    registry.register(grpc_web::KIND, grpc_web::build);
    registry.register(health_check::KIND, health_check::build);
    registry.register(header_mutation::KIND, header_mutation::build);
    registry.register(header_to_metadata::KIND, header_to_metadata::build);
    registry.register(ip_tagging::KIND, ip_tagging::build);
    registry.register(json_to_metadata::KIND, json_to_metadata::build);
    registry.register(set_filter_state::KIND, set_filter_state::build);
    registry.register(set_metadata::KIND, set_metadata::build);
    registry.register(local_ratelimit::KIND, local_ratelimit::build);
    registry.register(jwt_authn::KIND, jwt_authn::build);
    registry.register(ratelimit::KIND, ratelimit::build);
    registry.register(rbac::KIND, rbac::build);
    registry.register(tap::KIND, tap::build);
    registry.register(tap::OWN_KIND, tap::build_own);
    registry.register_chooser(cluster_matcher::KIND, cluster_matcher::build);
    registry.register_wrapper(shadow::KIND, shadow::build);
    registry.register_guard(rbac::CONNECTIONS_KIND, rbac::build_connections);
    registry.register_guard(set_filter_state::CONNECTIONS_KIND, set_filter_state::build_connections);
    registry.register_guard(sni_cluster::KIND, sni_cluster::build);
}

#[cfg(test)]
mod testing;
