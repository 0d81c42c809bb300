/* Native modules for Postrider: filters and access loggers in shared objects.
 *
 * This is the binary interface that Envoy calls dynamic modules, versions 0.1 and 0.2: the same shared object runs in
 * Postrider and in Envoy 1.38 to 1.40. Functions called `…_on_…` are the module's to write; a module has those that it
 * wants, and at least the ones that load it and make and destroy its filters. Functions called `…_callback_…` are the
 * proxy's.
 *
 * - Everything of one stream runs on one thread, and nothing else of the module may wait there.
 * - What the proxy lends (pr_bytes, pr_header) is there until the hook returns or something of the same kind is changed.
 * - Only the schedulers' commit functions may be called from other threads.
 *
 * docs/plugins/native.md shows how to build and configure a module. */

#ifndef POSTRIDER_MODULE_H
#define POSTRIDER_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What init answers. */
#define PR_VERSION "v0.1.0"

typedef struct {
  const char *start;
  size_t length;
} pr_bytes;

typedef struct {
  const char *name;
  size_t name_length;
  const char *value;
  size_t value_length;
} pr_header;

/* The proxy's: a stream, a configuration. */
typedef void *pr_stream;
typedef void *pr_config;

/* ---- what hooks answer ---- */

enum { /* on a head */
  PR_HEAD_CONTINUE = 0,
  /* The head waits; pieces of the body are shown, and the first that continues takes the head along. */
  PR_HEAD_STOP = 1,
  PR_HEAD_CONTINUE_WITHOUT_END = 2,
  /* Nothing moves until the stream is continued. */
  PR_HEAD_STOP_ALL_AND_BUFFER = 3,
  PR_HEAD_STOP_ALL_AND_WATERMARK = 4,
};

enum { /* on a piece of a body */
  PR_BODY_CONTINUE = 0,
  /* It is kept in front of what comes; too much is answered with 413 or 500. */
  PR_BODY_STOP_AND_BUFFER = 1,
  /* It is kept; when that is much, no more is read until the stream is continued. */
  PR_BODY_STOP_AND_WATERMARK = 2,
  /* It is dropped: the module has what it wants of it. */
  PR_BODY_STOP_NO_BUFFER = 3,
};

enum { PR_TRAILERS_CONTINUE = 0, PR_TRAILERS_STOP = 1 };

/* ---- what functions are about ---- */

enum { PR_REQUEST_HEADERS = 0, PR_REQUEST_TRAILERS = 1, PR_RESPONSE_HEADERS = 2, PR_RESPONSE_TRAILERS = 3 };

enum { /* the piece that is being shown, and what was kept before */
  PR_REQUEST_RECEIVED = 0,
  PR_REQUEST_KEPT = 1,
  PR_RESPONSE_RECEIVED = 2,
  PR_RESPONSE_KEPT = 3,
};

enum { PR_CALL_STARTED = 0, PR_CALL_LACKS_HEADERS = 1, PR_CALL_NO_CLUSTER = 2, PR_CALL_TWICE = 3, PR_CALL_FAILED = 4 };
enum { PR_CALL_ANSWERED = 0, PR_CALL_RESET = 1, PR_CALL_TOO_LARGE = 2 };
enum { PR_METRIC_OK = 0, PR_METRIC_UNKNOWN = 1, PR_METRIC_LABELS = 2, PR_METRIC_FROZEN = 3 };
enum { PR_LOG_TRACE, PR_LOG_DEBUG, PR_LOG_INFO, PR_LOG_WARN, PR_LOG_ERROR, PR_LOG_CRITICAL, PR_LOG_OFF };
/* The last two once a host was chosen. */
enum {
  PR_METADATA_DYNAMIC = 0,
  PR_METADATA_ROUTE = 1,
  PR_METADATA_CLUSTER = 2,
  PR_METADATA_HOST = 3,
  PR_METADATA_LOCALITY = 4,
};

enum { /* facts about a stream: (s)tring, (i)nteger, (b)oolean */
  PR_REQUEST_PATH = 0,            /* s */
  PR_REQUEST_URL_PATH = 1,        /* s: without the query */
  PR_REQUEST_HOST = 2,            /* s */
  PR_REQUEST_SCHEME = 3,          /* s */
  PR_REQUEST_METHOD = 4,          /* s */
  PR_REQUEST_REFERER = 6,         /* s */
  PR_REQUEST_USER_AGENT = 7,      /* s */
  PR_REQUEST_ID = 9,              /* s */
  PR_REQUEST_PROTOCOL = 10,       /* s: HTTP/1.1 */
  PR_REQUEST_QUERY = 11,          /* s */
  PR_REQUEST_SIZE = 13,           /* i: bytes of the body */
  PR_REQUEST_TOTAL_SIZE = 14,     /* i: with the head */
  PR_RESPONSE_CODE = 15,          /* i */
  PR_RESPONSE_CODE_DETAILS = 16,  /* s */
  PR_RESPONSE_FLAGS = 17,         /* i: a bit for each */
  PR_RESPONSE_SIZE = 21,          /* i: bytes of the body */
  PR_RESPONSE_TOTAL_SIZE = 22,    /* i: with the head */
  PR_SOURCE_ADDRESS = 24,         /* s: the client, with its port */
  PR_SOURCE_PORT = 25,            /* i */
  PR_DESTINATION_ADDRESS = 26,    /* s */
  PR_DESTINATION_PORT = 27,       /* i */
  PR_CONNECTION_ID = 28,          /* i */
  PR_CONNECTION_MTLS = 29,        /* b */
  PR_REQUESTED_SERVER_NAME = 30,  /* s */
  PR_TLS_VERSION = 31,            /* s */
  PR_SUBJECT_LOCAL = 32,          /* s: of certificates, up to 38: ours, and the client's */
  PR_SUBJECT_PEER = 33,           /* s */
  PR_DNS_SAN_LOCAL = 34,          /* s: the first name, as those below */
  PR_DNS_SAN_PEER = 35,           /* s */
  PR_URI_SAN_LOCAL = 36,          /* s */
  PR_URI_SAN_PEER = 37,           /* s */
  PR_SHA256_PEER = 38,            /* s */
  PR_TRANSPORT_FAILURE = 39,      /* s: of the client's connection */
  PR_TERMINATION_DETAILS = 40,    /* s: why the client's connection ended */
  PR_UPSTREAM_ADDRESS = 41,       /* s */
  PR_UPSTREAM_PORT = 42,          /* i */
  PR_UPSTREAM_TLS_VERSION = 43,   /* s */
  PR_UPSTREAM_SUBJECT_LOCAL = 44, /* s: of certificates, up to 50: ours, and the upstream's */
  PR_UPSTREAM_SUBJECT_PEER = 45,  /* s */
  PR_UPSTREAM_DNS_SAN_LOCAL = 46, /* s */
  PR_UPSTREAM_DNS_SAN_PEER = 47,  /* s */
  PR_UPSTREAM_URI_SAN_LOCAL = 48, /* s */
  PR_UPSTREAM_URI_SAN_PEER = 49,  /* s */
  PR_UPSTREAM_SHA256_PEER = 50,   /* s */
  PR_UPSTREAM_LOCAL_ADDRESS = 51, /* s */
  PR_UPSTREAM_FAILURE = 52,       /* s: of the connection to the upstream */
  PR_UPSTREAM_TRIES = 53,         /* i */
  PR_CLUSTER_NAME = 57,           /* s */
  PR_LISTENER_DIRECTION = 59,     /* i: 1 inbound, 2 outbound, 0 neither */
  PR_ROUTE_NAME = 61,             /* s */
  PR_VIRTUAL_HOST_NAME = 63,      /* s */
  PR_FILTER_CHAIN_NAME = 66,      /* s */
  PR_HEALTH_CHECK = 67,           /* b */
  PR_VIRTUAL_CLUSTER_NAME = 69,   /* s: of access loggers */
};

/* ---- the module's functions ---- */

/* Once per process; null refuses to be loaded. */
const char *envoy_dynamic_module_on_program_init(void);
/* Null refuses the configuration. Statistics are defined here and at no other time. */
const void *envoy_dynamic_module_on_http_filter_config_new(pr_config config, pr_bytes name, pr_bytes text);
void envoy_dynamic_module_on_http_filter_config_destroy(const void *own);
const void *envoy_dynamic_module_on_http_filter_per_route_config_new(pr_bytes name, pr_bytes text);
void envoy_dynamic_module_on_http_filter_per_route_config_destroy(const void *own);
/* Not of Envoy's interface: which of the six hooks on messages the filter wants, as bits in the order in which they stand
 * below (request_headers is 1). Without it, those that the module has. */
uint32_t postrider_module_on_http_filter_hooks(const void *own);
/* A stream begins, and is over. */
const void *envoy_dynamic_module_on_http_filter_new(const void *own, pr_stream stream);
void envoy_dynamic_module_on_http_filter_destroy(const void *filter);
int envoy_dynamic_module_on_http_filter_request_headers(pr_stream stream, const void *filter, bool end);
int envoy_dynamic_module_on_http_filter_request_body(pr_stream stream, const void *filter, bool end);
int envoy_dynamic_module_on_http_filter_request_trailers(pr_stream stream, const void *filter);
int envoy_dynamic_module_on_http_filter_response_headers(pr_stream stream, const void *filter, bool end);
int envoy_dynamic_module_on_http_filter_response_body(pr_stream stream, const void *filter, bool end);
int envoy_dynamic_module_on_http_filter_response_trailers(pr_stream stream, const void *filter);
void envoy_dynamic_module_on_http_filter_stream_complete(pr_stream stream, const void *filter);
/* The proxy answers itself, or the module did by send_response; 1 cuts the stream off instead. */
int envoy_dynamic_module_on_http_filter_local_reply(pr_stream stream, const void *filter, uint32_t status,
                                                    pr_bytes details, bool reset_imminent);
/* A scheduler committed an event. */
void envoy_dynamic_module_on_http_filter_scheduled(pr_stream stream, const void *filter, uint64_t event);
void envoy_dynamic_module_on_http_filter_config_scheduled(pr_config config, const void *own, uint64_t event);
/* More of an answer in pieces waits for the client than the connection allows, and no longer does. */
void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(pr_stream stream, const void *filter);
void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(pr_stream stream, const void *filter);
/* Calls. */
void envoy_dynamic_module_on_http_filter_http_callout_done(pr_stream stream, const void *filter, uint64_t id, int result,
                                                           const pr_header *headers, size_t header_count,
                                                           const pr_bytes *chunks, size_t chunk_count);
void envoy_dynamic_module_on_http_filter_config_http_callout_done(pr_config config, const void *own, uint64_t id,
                                                                  int result, const pr_header *headers,
                                                                  size_t header_count, const pr_bytes *chunks,
                                                                  size_t chunk_count);
void envoy_dynamic_module_on_http_filter_http_stream_headers(pr_stream stream, const void *filter, uint64_t id,
                                                             const pr_header *headers, size_t count, bool end);
void envoy_dynamic_module_on_http_filter_http_stream_data(pr_stream stream, const void *filter, uint64_t id,
                                                          const pr_bytes *chunks, size_t count, bool end);
void envoy_dynamic_module_on_http_filter_http_stream_trailers(pr_stream stream, const void *filter, uint64_t id,
                                                              const pr_header *trailers, size_t count);
void envoy_dynamic_module_on_http_filter_http_stream_complete(pr_stream stream, const void *filter, uint64_t id);
void envoy_dynamic_module_on_http_filter_http_stream_reset(pr_stream stream, const void *filter, uint64_t id, int reason);
/* The same for requests in pieces of a configuration. */
void envoy_dynamic_module_on_http_filter_config_http_stream_headers(pr_config config, const void *own, uint64_t id,
                                                                    const pr_header *headers, size_t count, bool end);
void envoy_dynamic_module_on_http_filter_config_http_stream_data(pr_config config, const void *own, uint64_t id,
                                                                 const pr_bytes *chunks, size_t count, bool end);
void envoy_dynamic_module_on_http_filter_config_http_stream_trailers(pr_config config, const void *own, uint64_t id,
                                                                     const pr_header *trailers, size_t count);
void envoy_dynamic_module_on_http_filter_config_http_stream_complete(pr_config config, const void *own, uint64_t id);
void envoy_dynamic_module_on_http_filter_config_http_stream_reset(pr_config config, const void *own, uint64_t id,
                                                                  int reason);

/* ---- the proxy's functions: fields ---- */

/* The value at `index`, from 0; `count` (may be null) becomes how many there are. */
bool envoy_dynamic_module_callback_http_get_header(pr_stream stream, int map, pr_bytes name, pr_bytes *value,
                                                   size_t index, size_t *count);
/* All values: `out` has room for as many as the function above counts. */
bool envoy_dynamic_module_callback_http_get_header_values(pr_stream stream, int map, pr_bytes name, pr_bytes *out);
size_t envoy_dynamic_module_callback_http_get_headers_size(pr_stream stream, int map);
/* `out` has room for as many as the function above says. */
bool envoy_dynamic_module_callback_http_get_headers(pr_stream stream, int map, pr_header *out);
/* An empty value is not added, which is told; set, it removes the field. */
bool envoy_dynamic_module_callback_http_add_header(pr_stream stream, int map, pr_bytes name, pr_bytes value);
bool envoy_dynamic_module_callback_http_set_header(pr_stream stream, int map, pr_bytes name, pr_bytes value);

/* ---- bodies ---- */

size_t envoy_dynamic_module_callback_http_get_body_size(pr_stream stream, int body);
size_t envoy_dynamic_module_callback_http_get_body_chunks_size(pr_stream stream, int body);
bool envoy_dynamic_module_callback_http_get_body_chunks(pr_stream stream, int body, pr_bytes *out);
bool envoy_dynamic_module_callback_http_append_body(pr_stream stream, int body, pr_bytes data);
bool envoy_dynamic_module_callback_http_drain_body(pr_stream stream, int body, size_t count);
uint64_t envoy_dynamic_module_callback_http_get_buffer_limit(pr_stream stream);
void envoy_dynamic_module_callback_http_set_buffer_limit(pr_stream stream, uint64_t limit);
/* Whether what is shown was held by a filter in front: Postrider does not tell, and answers false. */
bool envoy_dynamic_module_callback_http_received_buffered_request_body(pr_stream stream);
bool envoy_dynamic_module_callback_http_received_buffered_response_body(pr_stream stream);

/* ---- answers ---- */

void envoy_dynamic_module_callback_http_send_response(pr_stream stream, uint32_t status, const pr_header *headers,
                                                      size_t count, pr_bytes body, pr_bytes details);
/* In pieces; `:status` is among the headers. */
void envoy_dynamic_module_callback_http_send_response_headers(pr_stream stream, const pr_header *headers, size_t count,
                                                              bool end);
void envoy_dynamic_module_callback_http_send_response_data(pr_stream stream, pr_bytes data, bool end);
void envoy_dynamic_module_callback_http_send_response_trailers(pr_stream stream, const pr_header *trailers, size_t count);

/* ---- the stream ---- */

void envoy_dynamic_module_callback_http_filter_continue_decoding(pr_stream stream);
void envoy_dynamic_module_callback_http_filter_continue_encoding(pr_stream stream);
void envoy_dynamic_module_callback_http_clear_route_cache(pr_stream stream);
/* In Postrider the same. */
void envoy_dynamic_module_callback_http_clear_route_cluster_cache(pr_stream stream);
void envoy_dynamic_module_callback_http_filter_reset_stream(pr_stream stream, int reason, pr_bytes details);
/* Has the request begin anew when the hook has returned, as its head is now: through routes and filters, as if it had just
 * come. For a request without a body, before its answer has begun, from a hook for headers or what ends its wait; false
 * where it cannot. Logs say that this one was answered with these headers, of which there may be none. A request that begins
 * anew more than 16 times is answered with 508; Envoy has no limit, and takes requests with bodies, too. */
bool envoy_dynamic_module_callback_http_filter_recreate_stream(pr_stream stream, const pr_header *headers, size_t count);
/* The client's connection ends after this stream, graceful or not. */
void envoy_dynamic_module_callback_http_filter_send_go_away_and_close(pr_stream stream, bool graceful);
const void *envoy_dynamic_module_callback_get_most_specific_route_config(pr_stream stream);
uint32_t envoy_dynamic_module_callback_http_filter_get_worker_index(pr_stream stream);
bool envoy_dynamic_module_callback_http_filter_get_attribute_string(pr_stream stream, int fact, pr_bytes *value);
bool envoy_dynamic_module_callback_http_filter_get_attribute_int(pr_stream stream, int fact, uint64_t *value);
bool envoy_dynamic_module_callback_http_filter_get_attribute_bool(pr_stream stream, int fact, bool *value);
bool envoy_dynamic_module_callback_http_get_cluster_name(pr_stream stream, pr_bytes *name);
/* How many hosts of a priority the request's cluster has. */
bool envoy_dynamic_module_callback_http_get_cluster_host_count(pr_stream stream, uint32_t priority, size_t *all,
                                                               size_t *healthy, size_t *degraded);
bool envoy_dynamic_module_callback_http_set_upstream_override_host(pr_stream stream, pr_bytes host, bool strict);

/* Options of the sockets of a stream's connections, by the system's numbers. What is read is what this module set, as what it
 * set it. Connections to upstreams that were made with options serve no requests without, nor the other way round. False
 * where the system does not take one, and for a client that speaks HTTP/2, whose socket is not the stream's alone. */
enum { PR_SOCKET_BEFORE_BIND = 0, PR_SOCKET_BOUND = 1, PR_SOCKET_LISTENING = 2 };
enum { PR_SOCKET_UPSTREAM = 0, PR_SOCKET_DOWNSTREAM = 1 };
bool envoy_dynamic_module_callback_http_set_socket_option_int(
    pr_stream stream, int64_t level, int64_t name, int state, int direction, int64_t value);
bool envoy_dynamic_module_callback_http_set_socket_option_bytes(
    pr_stream stream, int64_t level, int64_t name, int state, int direction, pr_bytes value);
bool envoy_dynamic_module_callback_http_get_socket_option_int(
    pr_stream stream, int64_t level, int64_t name, int state, int direction, int64_t *out);
bool envoy_dynamic_module_callback_http_get_socket_option_bytes(
    pr_stream stream, int64_t level, int64_t name, int state, int direction, pr_bytes *out);

/* ---- spans ---- */

/* A request's span, which is told to a collector when the request is over; or a part of it that the module sees to. */
typedef void *pr_span;

/* The request's own: null where nobody is told of requests. It is there until the stream is over. */
pr_span envoy_dynamic_module_callback_http_get_active_span(pr_stream stream);
/* The last value of a name counts; those that the proxy says itself come last. */
void envoy_dynamic_module_callback_http_span_set_tag(pr_span span, pr_bytes name, pr_bytes value);
void envoy_dynamic_module_callback_http_span_set_tag_batch(pr_span span, const pr_header *tags, size_t count);
void envoy_dynamic_module_callback_http_span_set_operation(pr_span span, pr_bytes name);
/* Something that happened now. */
void envoy_dynamic_module_callback_http_span_log(pr_stream stream, pr_span span, pr_bytes event);
/* Whether it is told, and upstreams hear so. Another route may decide anew, unless the second function was called. */
void envoy_dynamic_module_callback_http_span_set_sampled(pr_span span, bool sampled);
void envoy_dynamic_module_callback_http_span_disable_local_decision(pr_span span);
/* In hexadecimal digits, which are there until one of these three functions is called again. */
bool envoy_dynamic_module_callback_http_span_get_trace_id(pr_span span, pr_bytes *out);
bool envoy_dynamic_module_callback_http_span_get_span_id(pr_span span, pr_bytes *out);
/* OpenTelemetry's spans carry none, in Envoy as here: it is not set, and not found. */
bool envoy_dynamic_module_callback_http_span_get_baggage(pr_span span, pr_bytes name, pr_bytes *out);
void envoy_dynamic_module_callback_http_span_set_baggage(pr_span span, pr_bytes name, pr_bytes value);
/* A part of it, which ends by the second function and is told then. */
pr_span envoy_dynamic_module_callback_http_span_spawn_child(pr_stream stream, pr_span span, pr_bytes name);
void envoy_dynamic_module_callback_http_child_span_finish(pr_span child);

/* With their ports. Interface 0.2. */
bool envoy_dynamic_module_callback_http_get_downstream_direct_remote_address(pr_stream stream, pr_bytes *out);
bool envoy_dynamic_module_callback_http_get_upstream_remote_address(pr_stream stream, pr_bytes *out);
uint64_t envoy_dynamic_module_callback_http_get_upstream_connection_id(pr_stream stream);
/* The host and the connection of the last try: at most one of each. Interface 0.2, as the flag below. */
size_t envoy_dynamic_module_callback_http_get_upstream_hosts_attempted_size(pr_stream stream);
bool envoy_dynamic_module_callback_http_get_upstream_hosts_attempted(pr_stream stream, pr_bytes *out);
size_t envoy_dynamic_module_callback_http_get_upstream_connection_ids_attempted_size(pr_stream stream);
bool envoy_dynamic_module_callback_http_get_upstream_connection_ids_attempted(pr_stream stream, uint64_t *out);
/* For `%CUSTOM_FLAGS%` of access logs: short, without spaces and commas. */
void envoy_dynamic_module_callback_http_add_custom_flag(pr_stream stream, pr_bytes flag);

/* ---- metadata and filter state ---- */

void envoy_dynamic_module_callback_http_set_dynamic_metadata_string(pr_stream stream, pr_bytes space, pr_bytes key,
                                                                    pr_bytes value);
/* Several of a namespace: names with values. */
void envoy_dynamic_module_callback_http_set_dynamic_metadata_string_batch(pr_stream stream, pr_bytes space,
                                                                          const pr_header *entries, size_t count);
void envoy_dynamic_module_callback_http_set_dynamic_metadata_number(pr_stream stream, pr_bytes space, pr_bytes key,
                                                                    double value);
void envoy_dynamic_module_callback_http_set_dynamic_metadata_bool(pr_stream stream, pr_bytes space, pr_bytes key,
                                                                  bool value);
bool envoy_dynamic_module_callback_http_get_metadata_string(pr_stream stream, int source, pr_bytes space, pr_bytes key,
                                                            pr_bytes *value);
bool envoy_dynamic_module_callback_http_get_metadata_number(pr_stream stream, int source, pr_bytes space, pr_bytes key,
                                                            double *value);
bool envoy_dynamic_module_callback_http_get_metadata_bool(pr_stream stream, int source, pr_bytes space, pr_bytes key,
                                                          bool *value);
/* What there is: `out` has room for as many as the function before says. */
size_t envoy_dynamic_module_callback_http_get_metadata_namespaces_count(pr_stream stream, int source);
bool envoy_dynamic_module_callback_http_get_metadata_namespaces(pr_stream stream, int source, pr_bytes *out);
size_t envoy_dynamic_module_callback_http_get_metadata_keys_count(pr_stream stream, int source, pr_bytes space);
bool envoy_dynamic_module_callback_http_get_metadata_keys(pr_stream stream, int source, pr_bytes space, pr_bytes *out);
/* Lists. Adding makes one where there is nothing, and is refused where there is something else. */
bool envoy_dynamic_module_callback_http_add_dynamic_metadata_list_string(pr_stream stream, pr_bytes space, pr_bytes key,
                                                                         pr_bytes value);
bool envoy_dynamic_module_callback_http_add_dynamic_metadata_list_number(pr_stream stream, pr_bytes space, pr_bytes key,
                                                                         double value);
bool envoy_dynamic_module_callback_http_add_dynamic_metadata_list_bool(pr_stream stream, pr_bytes space, pr_bytes key,
                                                                       bool value);
bool envoy_dynamic_module_callback_http_get_metadata_list_size(pr_stream stream, int source, pr_bytes space, pr_bytes key,
                                                               size_t *size);
bool envoy_dynamic_module_callback_http_get_metadata_list_string(pr_stream stream, int source, pr_bytes space, pr_bytes key,
                                                                 size_t index, pr_bytes *value);
bool envoy_dynamic_module_callback_http_get_metadata_list_number(pr_stream stream, int source, pr_bytes space, pr_bytes key,
                                                                 size_t index, double *value);
bool envoy_dynamic_module_callback_http_get_metadata_list_bool(pr_stream stream, int source, pr_bytes space, pr_bytes key,
                                                               size_t index, bool *value);
bool envoy_dynamic_module_callback_http_set_filter_state_bytes(pr_stream stream, pr_bytes key, pr_bytes value);
bool envoy_dynamic_module_callback_http_get_filter_state_bytes(pr_stream stream, pr_bytes key, pr_bytes *value);
/* A whole namespace at once, over what is there: a serialised google.protobuf.Struct. Interface 0.2, as all that follows
 * up to the statistics. */
void envoy_dynamic_module_callback_http_set_dynamic_metadata_struct(pr_stream stream, pr_bytes space, pr_bytes fields);
/* A message in the place of a namespace: a serialised google.protobuf.Any. It is found again as its type and its bytes. */
void envoy_dynamic_module_callback_http_set_dynamic_typed_metadata(pr_stream stream, pr_bytes space, pr_bytes any);
bool envoy_dynamic_module_callback_http_get_typed_metadata(pr_stream stream, int source, pr_bytes space, pr_bytes *type_url,
                                                           pr_bytes *value);
bool envoy_dynamic_module_callback_http_has_filter_state(pr_stream stream, pr_bytes key);
/* What Envoy's factory of the key's name makes of the bytes: `envoy.string`, `envoy.hashable_string`, `envoy.bool`. Found again
 * as a text, as every value of the filter state is. */
bool envoy_dynamic_module_callback_http_set_filter_state_typed(pr_stream stream, pr_bytes key, pr_bytes value);
bool envoy_dynamic_module_callback_http_get_filter_state_typed(pr_stream stream, pr_bytes key, pr_bytes *value);
/* How long a name is there: what lasts as long as the client's connection is found by its later requests. A name that is there
 * for another time stays as it was, which the log says; the functions for values answer true all the same. */
enum { PR_SPAN_FILTER_CHAIN = 0, PR_SPAN_REQUEST = 1, PR_SPAN_CONNECTION = 2 };
enum { PR_SHARED_NOT = 0, PR_SHARED_TRANSITIVELY = 1, PR_SHARED_ONCE = 2 };
bool envoy_dynamic_module_callback_http_set_filter_state_value(pr_stream stream, pr_bytes key, pr_bytes value, int span,
                                                               int shared);
/* Something of the module's own, which `destroy` gets when nobody can ask for it any more: the stream or the connection is over,
 * or something else has its name, or it was not set. Only a module's functions find it. */
bool envoy_dynamic_module_callback_http_set_filter_state_object(pr_stream stream, pr_bytes key, void *object,
                                                                void (*destroy)(void *object), int span);
void *envoy_dynamic_module_callback_http_get_filter_state_object(pr_stream stream, pr_bytes key);

/* ---- statistics: a value for each label comes with each change ---- */

int envoy_dynamic_module_callback_http_filter_config_define_counter(pr_config config, pr_bytes name,
                                                                    const pr_bytes *labels, size_t count, size_t *id);
int envoy_dynamic_module_callback_http_filter_config_define_gauge(pr_config config, pr_bytes name, const pr_bytes *labels,
                                                                  size_t count, size_t *id);
int envoy_dynamic_module_callback_http_filter_config_define_histogram(pr_config config, pr_bytes name,
                                                                      const pr_bytes *labels, size_t count, size_t *id);
int envoy_dynamic_module_callback_http_filter_increment_counter(pr_stream stream, size_t id, const pr_bytes *labels,
                                                                size_t count, uint64_t value);
int envoy_dynamic_module_callback_http_filter_increment_gauge(pr_stream stream, size_t id, const pr_bytes *labels,
                                                              size_t count, uint64_t value);
int envoy_dynamic_module_callback_http_filter_decrement_gauge(pr_stream stream, size_t id, const pr_bytes *labels,
                                                              size_t count, uint64_t value);
int envoy_dynamic_module_callback_http_filter_set_gauge(pr_stream stream, size_t id, const pr_bytes *labels, size_t count,
                                                        uint64_t value);
int envoy_dynamic_module_callback_http_filter_record_histogram_value(pr_stream stream, size_t id, const pr_bytes *labels,
                                                                     size_t count, uint64_t value);

/* Of the configuration, from any thread; they count a little later. */
int envoy_dynamic_module_callback_http_filter_config_increment_counter(
    pr_config config, size_t id, const pr_bytes *labels, size_t count, uint64_t value);
int envoy_dynamic_module_callback_http_filter_config_increment_gauge(
    pr_config config, size_t id, const pr_bytes *labels, size_t count, uint64_t value);
int envoy_dynamic_module_callback_http_filter_config_decrement_gauge(
    pr_config config, size_t id, const pr_bytes *labels, size_t count, uint64_t value);
int envoy_dynamic_module_callback_http_filter_config_set_gauge(
    pr_config config, size_t id, const pr_bytes *labels, size_t count, uint64_t value);
int envoy_dynamic_module_callback_http_filter_config_record_histogram_value(
    pr_config config, size_t id, const pr_bytes *labels, size_t count, uint64_t value);

/* ---- secrets, by name: generic secrets of `static_resources.secrets`. Interface 0.2, as the next ---- */

/* The number by which a secret is read, while the configuration is made; 0 when it cannot be had. `source` is empty. */
size_t envoy_dynamic_module_callback_http_filter_config_generic_secret_subscribe(pr_config config, pr_bytes name,
                                                                                 pr_bytes source);
bool envoy_dynamic_module_callback_http_filter_config_get_generic_secret(pr_config config, size_t number, pr_bytes *secret);
bool envoy_dynamic_module_callback_http_filter_get_generic_secret(pr_stream stream, size_t number, pr_bytes *secret);

/* ---- values of `layered_runtime`, while a configuration is made; elsewhere, and where there is none, `instead` ---- */

bool envoy_dynamic_module_callback_get_runtime_bool(pr_bytes key, bool instead);
uint64_t envoy_dynamic_module_callback_get_runtime_int(pr_bytes key, uint64_t instead);
double envoy_dynamic_module_callback_get_runtime_number(pr_bytes key, double instead);

/* ---- other threads ---- */

void *envoy_dynamic_module_callback_http_filter_scheduler_new(pr_stream stream);
void envoy_dynamic_module_callback_http_filter_scheduler_commit(void *scheduler, uint64_t event);
void envoy_dynamic_module_callback_http_filter_scheduler_delete(void *scheduler);
void *envoy_dynamic_module_callback_http_filter_config_scheduler_new(pr_config config);
void envoy_dynamic_module_callback_http_filter_config_scheduler_commit(void *scheduler, uint64_t event);
void envoy_dynamic_module_callback_http_filter_config_scheduler_delete(void *scheduler);

/* ---- calls: `:method`, `:path` and `:authority` are among the headers ---- */

int envoy_dynamic_module_callback_http_filter_http_callout(pr_stream stream, uint64_t *id, pr_bytes cluster,
                                                           const pr_header *headers, size_t count, pr_bytes body,
                                                           uint64_t timeout_milliseconds);
int envoy_dynamic_module_callback_http_filter_config_http_callout(pr_config config, uint64_t *id, pr_bytes cluster,
                                                                  const pr_header *headers, size_t count, pr_bytes body,
                                                                  uint64_t timeout_milliseconds);
int envoy_dynamic_module_callback_http_filter_start_http_stream(pr_stream stream, uint64_t *id, pr_bytes cluster,
                                                                const pr_header *headers, size_t count, pr_bytes body,
                                                                bool end, uint64_t timeout_milliseconds);
/* It leaves while more of it is written. False when there is no such stream, or 64 MiB of it wait for the cluster. */
bool envoy_dynamic_module_callback_http_stream_send_data(pr_stream stream, uint64_t id, pr_bytes data, bool end);
/* The end of the request. Over HTTP/1 they leave where the cluster has `enable_trailers`. */
bool envoy_dynamic_module_callback_http_stream_send_trailers(pr_stream stream, uint64_t id, const pr_header *trailers,
                                                             size_t count);
/* The module hears of it, in Postrider when its hook has returned. */
void envoy_dynamic_module_callback_http_filter_reset_http_stream(pr_stream stream, uint64_t id);
/* The same by a configuration: in Envoy on its main thread, in Postrider from anywhere. */
int envoy_dynamic_module_callback_http_filter_config_start_http_stream(pr_config config, uint64_t *id, pr_bytes cluster,
                                                                       const pr_header *headers, size_t count,
                                                                       pr_bytes body, bool end,
                                                                       uint64_t timeout_milliseconds);
bool envoy_dynamic_module_callback_http_filter_config_stream_send_data(pr_config config, uint64_t id, pr_bytes data, bool end);
bool envoy_dynamic_module_callback_http_filter_config_stream_send_trailers(pr_config config, uint64_t id,
                                                                           const pr_header *trailers, size_t count);
void envoy_dynamic_module_callback_http_filter_config_reset_http_stream(pr_config config, uint64_t id);

/* ---- the process ---- */

void envoy_dynamic_module_callback_log(int level, pr_bytes text);
/* With the place in the module that the line comes from; an empty file is none. Interface 0.2. */
void envoy_dynamic_module_callback_log_v2(int level, pr_bytes text, pr_bytes file, uint32_t line);
bool envoy_dynamic_module_callback_log_enabled(int level);
/* The least level of lines that are written. Interface 0.2. */
int envoy_dynamic_module_callback_get_log_level(void);
uint32_t envoy_dynamic_module_callback_get_concurrency(void);
bool envoy_dynamic_module_callback_is_validation_mode(void);
bool envoy_dynamic_module_callback_register_function(pr_bytes key, void *function);
bool envoy_dynamic_module_callback_get_function(pr_bytes key, void **function);
bool envoy_dynamic_module_callback_register_shared_data(pr_bytes key, void *data);
bool envoy_dynamic_module_callback_get_shared_data(pr_bytes key, void **data);

/* ---- access loggers: the module's functions ---- */

/* An access logger on one worker. */
typedef void *pr_logger;

/* When the parts of a stream came and went: nanoseconds since its start, -1 for what is not known or did not happen. */
typedef struct {
  int64_t start; /* since 1970 */
  int64_t complete;
  int64_t first_sent_upstream;
  int64_t last_sent_upstream;
  int64_t first_received_upstream;
  int64_t last_received_upstream;
  int64_t first_sent_downstream;
  int64_t last_sent_downstream;
} pr_times;

/* More of them, each with whether it is known; what was before the stream's start is negative. Postrider knows these. */
enum {
  PR_MOMENT_START = 0, /* since 1970 */
  PR_MOMENT_CLIENT_CONNECTED = 1, /* perhaps for an earlier request, as the next two; not of connections that are carried */
  PR_MOMENT_CLIENT_HANDSHAKE_BEGAN = 2,
  PR_MOMENT_CLIENT_SECURED = 3, /* TLS was agreed on */
  PR_MOMENT_HEAD_RECEIVED = 4,
  PR_MOMENT_REQUEST_RECEIVED = 5,
  PR_MOMENT_CONNECT_BEGAN = 6, /* to the upstream, perhaps for an earlier request */
  PR_MOMENT_CONNECTED = 7,
  PR_MOMENT_SECURED = 8,
  PR_MOMENT_FIRST_SENT_UPSTREAM = 9,
  PR_MOMENT_LAST_SENT_UPSTREAM = 10,
  PR_MOMENT_FIRST_RECEIVED_UPSTREAM = 11,
  PR_MOMENT_BODY_BEGAN = 12, /* of the answer: in Postrider where a filter looks at it, or when it came with its head */
  PR_MOMENT_LAST_RECEIVED_UPSTREAM = 13, /* when the stream is over */
  PR_MOMENT_FIRST_SENT_DOWNSTREAM = 14,
  PR_MOMENT_LAST_SENT_DOWNSTREAM = 15,
  PR_MOMENT_COMPLETE = 17,
};
typedef struct {
  int64_t times[19];
  bool known[24];
} pr_moments;

/* Of an HTTP filter's stream, as far as it has come. Interface 0.2. */
void envoy_dynamic_module_callback_http_get_timing_info(pr_stream stream, pr_moments *out);

/* Bytes of bodies; the last two as they passed the upstream's connection. */
typedef struct {
  uint64_t received, sent, wire_received, wire_sent;
} pr_sizes;

enum { /* what a record is about: Envoy's AccessLogType */
  PR_LISTENER_END = 0, /* a connection, as its listener saw it */
  PR_TCP_CONNECTED = 1,
  PR_TCP_PERIODIC = 2,
  PR_TCP_END = 3,
  PR_REQUEST_START = 4,
  PR_REQUEST_PERIODIC = 5,
  PR_REQUEST_END = 6,
  PR_TRY_READY = 7,
  PR_TRY_PERIODIC = 8,
  PR_TRY_END = 9,
  PR_TUNNEL_OPEN = 10,
  PR_TCP_START = 0, /* as in Envoy, which tells modules no more */
};

/* Null refuses the configuration. Statistics are defined here and at no other time. */
const void *envoy_dynamic_module_on_access_logger_config_new(pr_config config, pr_bytes name, pr_bytes text);
void envoy_dynamic_module_on_access_logger_config_destroy(const void *own);
/* One for each worker; null is told nothing. */
const void *envoy_dynamic_module_on_access_logger_new(const void *own, pr_logger logger);
/* What is known of the record can be had until this returns. At other times Postrider has none; Envoy must not be asked. */
void envoy_dynamic_module_on_access_logger_log(pr_logger logger, const void *own, int moment);
/* Before it goes; needs not be there. */
void envoy_dynamic_module_on_access_logger_flush(const void *own);
void envoy_dynamic_module_on_access_logger_destroy(const void *own);

/* ---- access loggers: the proxy's functions ---- */

/* Statistics are changed from within the functions above. */
int envoy_dynamic_module_callback_access_logger_config_define_counter(pr_config config, pr_bytes name, size_t *id);
int envoy_dynamic_module_callback_access_logger_config_define_gauge(pr_config config, pr_bytes name, size_t *id);
int envoy_dynamic_module_callback_access_logger_config_define_histogram(pr_config config, pr_bytes name, size_t *id);
int envoy_dynamic_module_callback_access_logger_increment_counter(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_access_logger_increment_gauge(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_access_logger_decrement_gauge(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_access_logger_set_gauge(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_access_logger_record_histogram_value(pr_config config, size_t id, uint64_t value);

/* Texts lie in the record, or in the logger until its next hook. Validity is in seconds since 1970. */
size_t envoy_dynamic_module_callback_access_logger_get_headers_size(pr_logger logger, int map);
bool envoy_dynamic_module_callback_access_logger_get_headers(pr_logger logger, int map, pr_header *out);
bool envoy_dynamic_module_callback_access_logger_get_header_value(
    pr_logger logger, int map, pr_bytes name, pr_bytes *out, size_t index, size_t *count);
bool envoy_dynamic_module_callback_access_logger_has_response_flag(pr_logger logger, int flag);
uint64_t envoy_dynamic_module_callback_access_logger_get_response_flags(pr_logger logger);
void envoy_dynamic_module_callback_access_logger_get_timing_info(pr_logger logger, pr_times *out);
void envoy_dynamic_module_callback_access_logger_get_timing_info_v2(pr_logger logger, pr_moments *out);
void envoy_dynamic_module_callback_access_logger_get_bytes_info(pr_logger logger, pr_sizes *out);
/* As they passed the client's connection, heads and framing among them; Postrider does not count what TLS adds. */
typedef struct {
  uint64_t received, sent;
} pr_wire_sizes;
void envoy_dynamic_module_callback_access_logger_get_downstream_wire_bytes(pr_logger logger, pr_wire_sizes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_remote_address(pr_logger logger, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_access_logger_get_downstream_local_address(pr_logger logger, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_access_logger_get_downstream_direct_remote_address(
    pr_logger logger, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_access_logger_get_downstream_direct_local_address(
    pr_logger logger, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_access_logger_get_upstream_remote_address(pr_logger logger, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_access_logger_get_upstream_local_address(pr_logger logger, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_access_logger_get_upstream_host(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_upstream_cluster(pr_logger logger, pr_bytes *out);
uint64_t envoy_dynamic_module_callback_access_logger_get_upstream_connection_id(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_upstream_protocol(pr_logger logger, pr_bytes *out);
int64_t envoy_dynamic_module_callback_access_logger_get_upstream_pool_ready_duration_ns(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_downstream_tls_cipher(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_tls_session_id(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_peer_issuer(pr_logger logger, pr_bytes *out);
int64_t envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_v_start(pr_logger logger);
int64_t envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_v_end(pr_logger logger);
size_t envoy_dynamic_module_callback_access_logger_get_downstream_peer_uri_san_size(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_downstream_peer_uri_san(pr_logger logger, pr_bytes *out);
size_t envoy_dynamic_module_callback_access_logger_get_downstream_peer_dns_san_size(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_downstream_peer_dns_san(pr_logger logger, pr_bytes *out);
size_t envoy_dynamic_module_callback_access_logger_get_downstream_local_uri_san_size(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_downstream_local_uri_san(pr_logger logger, pr_bytes *out);
size_t envoy_dynamic_module_callback_access_logger_get_downstream_local_dns_san_size(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_downstream_local_dns_san(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_upstream_tls_cipher(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_upstream_tls_session_id(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_upstream_peer_issuer(pr_logger logger, pr_bytes *out);
int64_t envoy_dynamic_module_callback_access_logger_get_upstream_peer_cert_v_start(pr_logger logger);
int64_t envoy_dynamic_module_callback_access_logger_get_upstream_peer_cert_v_end(pr_logger logger);
size_t envoy_dynamic_module_callback_access_logger_get_upstream_peer_uri_san_size(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_upstream_peer_uri_san(pr_logger logger, pr_bytes *out);
size_t envoy_dynamic_module_callback_access_logger_get_upstream_peer_dns_san_size(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_upstream_peer_dns_san(pr_logger logger, pr_bytes *out);
size_t envoy_dynamic_module_callback_access_logger_get_upstream_local_uri_san_size(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_upstream_local_uri_san(pr_logger logger, pr_bytes *out);
size_t envoy_dynamic_module_callback_access_logger_get_upstream_local_dns_san_size(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_upstream_local_dns_san(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_peer_serial(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_peer_fingerprint_1(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_presented(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_validated(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_dynamic_metadata(
    pr_logger logger, pr_bytes space, pr_bytes path, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_dynamic_metadata_number(
    pr_logger logger, pr_bytes space, pr_bytes path, double *out);
bool envoy_dynamic_module_callback_access_logger_get_dynamic_metadata_bool(
    pr_logger logger, pr_bytes space, pr_bytes path, bool *out);
bool envoy_dynamic_module_callback_access_logger_get_filter_state(pr_logger logger, pr_bytes key, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_local_reply_body(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_trace_id(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_span_id(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_is_trace_sampled(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_ja3_hash(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_ja4_hash(pr_logger logger, pr_bytes *out);
uint64_t envoy_dynamic_module_callback_access_logger_get_request_headers_bytes(pr_logger logger);
uint64_t envoy_dynamic_module_callback_access_logger_get_response_headers_bytes(pr_logger logger);
uint64_t envoy_dynamic_module_callback_access_logger_get_response_trailers_bytes(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_get_attribute_string(pr_logger logger, int attribute, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_attribute_int(pr_logger logger, int attribute, uint64_t *out);
bool envoy_dynamic_module_callback_access_logger_get_attribute_bool(pr_logger logger, int attribute, bool *out);
bool envoy_dynamic_module_callback_access_logger_get_response_code_details(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_protocol(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_route_name(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_virtual_cluster_name(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_connection_termination_details(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_upstream_transport_failure_reason(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_upstream_tls_version(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_upstream_peer_subject(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_upstream_local_subject(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_upstream_peer_cert_digest(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_requested_server_name(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_tls_version(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_peer_subject(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_peer_cert_digest(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_local_subject(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_request_id(pr_logger logger, pr_bytes *out);
bool envoy_dynamic_module_callback_access_logger_get_downstream_transport_failure_reason(pr_logger logger, pr_bytes *out);
uint32_t envoy_dynamic_module_callback_access_logger_get_response_code(pr_logger logger);
uint32_t envoy_dynamic_module_callback_access_logger_get_attempt_count(pr_logger logger);
uint64_t envoy_dynamic_module_callback_access_logger_get_connection_id(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_is_mtls(pr_logger logger);
bool envoy_dynamic_module_callback_access_logger_is_health_check(pr_logger logger);
uint32_t envoy_dynamic_module_callback_access_logger_get_worker_index(pr_logger logger);

/* ---- filters of connections: the module's functions ---- */

/* A connection. */
typedef void *pr_connection;

enum { /* on a connection and its bytes */
  PR_PASS = 0,
  /* What is held comes again with more, or goes on behind this filter when the connection is continued. */
  PR_STOP = 1,
};

enum { PR_CLOSED_BY_CLIENT = 0, PR_CLOSED_BY_PROXY = 1, PR_CONNECTED = 2 };

enum { /* how a connection ends */
  PR_CLOSE_FLUSHED = 0,  /* when the client took what was sent to it */
  PR_CLOSE = 1,          /* behind what it takes at once */
  PR_CLOSE_DELAYED = 2,  /* as PR_CLOSE_FLUSHED */
  PR_CLOSE_DROPPED = 3,  /* without what it did not take yet */
  PR_CLOSE_RESET = 4,    /* the same by a reset */
};

enum { PR_STATE_OPEN = 0, PR_STATE_CLOSING = 1, PR_STATE_CLOSED = 2 };
enum { PR_READING_SAME = 0, PR_READING_STILL_STOPPED = 1, PR_READING_BEGUN = 2, PR_READING_STOPPED = 3 };

/* All but the last five must be there. Null refuses the configuration; statistics are defined here and at no other time. */
const void *envoy_dynamic_module_on_network_filter_config_new(pr_config config, pr_bytes name, pr_bytes text);
void envoy_dynamic_module_on_network_filter_config_destroy(const void *own);
/* A connection begins; null ends it. */
const void *envoy_dynamic_module_on_network_filter_new(const void *own, pr_connection connection);
void envoy_dynamic_module_on_network_filter_destroy(const void *filter);
int envoy_dynamic_module_on_network_filter_new_connection(pr_connection connection, const void *filter);
/* Bytes came from the client, or go to it; with `end` nothing follows. */
int envoy_dynamic_module_on_network_filter_read(pr_connection connection, const void *filter, size_t length, bool end);
int envoy_dynamic_module_on_network_filter_write(pr_connection connection, const void *filter, size_t length, bool end);
/* PR_CONNECTED comes behind the hook for new connections. */
void envoy_dynamic_module_on_network_filter_event(pr_connection connection, const void *filter, int event);
void envoy_dynamic_module_on_network_filter_http_callout_done(
    pr_connection connection, const void *filter, uint64_t id, int result, const pr_header *headers, size_t header_count,
    const pr_bytes *body, size_t body_count);
void envoy_dynamic_module_on_network_filter_scheduled(pr_connection connection, const void *filter, uint64_t event);
void envoy_dynamic_module_on_network_filter_config_scheduled(const void *own, uint64_t event);
/* More waits for the client than the connection's buffer limit, or half of that again. */
void envoy_dynamic_module_on_network_filter_above_write_buffer_high_watermark(pr_connection connection, const void *filter);
void envoy_dynamic_module_on_network_filter_below_write_buffer_low_watermark(pr_connection connection, const void *filter);

/* ---- filters of connections: the proxy's functions ---- */

/* What is held: in the hooks about it, in those of schedulers and calls both ways. Draining and adding answer false elsewhere. */
size_t envoy_dynamic_module_callback_network_filter_get_read_buffer_size(pr_connection connection);
size_t envoy_dynamic_module_callback_network_filter_get_read_buffer_chunks_size(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_get_read_buffer_chunks(pr_connection connection, pr_bytes *out);
bool envoy_dynamic_module_callback_network_filter_drain_read_buffer(pr_connection connection, size_t length);
bool envoy_dynamic_module_callback_network_filter_prepend_read_buffer(pr_connection connection, pr_bytes data);
bool envoy_dynamic_module_callback_network_filter_append_read_buffer(pr_connection connection, pr_bytes data);
size_t envoy_dynamic_module_callback_network_filter_get_write_buffer_size(pr_connection connection);
size_t envoy_dynamic_module_callback_network_filter_get_write_buffer_chunks_size(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_get_write_buffer_chunks(pr_connection connection, pr_bytes *out);
bool envoy_dynamic_module_callback_network_filter_drain_write_buffer(pr_connection connection, size_t length);
bool envoy_dynamic_module_callback_network_filter_prepend_write_buffer(pr_connection connection, pr_bytes data);
bool envoy_dynamic_module_callback_network_filter_append_write_buffer(pr_connection connection, pr_bytes data);
/* To the client through all filters, or through those behind this one; and from the client to the filters behind this one.
 * It is done when the hook has returned, in the order of the calls. What another filter stops of it is dropped. */
void envoy_dynamic_module_callback_network_filter_write(pr_connection connection, pr_bytes data, bool end);
void envoy_dynamic_module_callback_network_filter_inject_read_data(pr_connection connection, pr_bytes data, bool end);
void envoy_dynamic_module_callback_network_filter_inject_write_data(pr_connection connection, pr_bytes data, bool end);
void envoy_dynamic_module_callback_network_filter_continue_reading(pr_connection connection);
void envoy_dynamic_module_callback_network_filter_close(pr_connection connection, int kind);
void envoy_dynamic_module_callback_network_filter_close_with_details(pr_connection connection, int kind, pr_bytes details);
/* Keeps the connection from ending in order (PR_CLOSE_FLUSHED, PR_CLOSE_DELAYED, or both sides said that nothing follows) until it
 * is called with false. Meanwhile nothing is read, and only inject_write_data reaches the client. As in Envoy, it does nothing unless
 * the runtime key envoy.reloadable_features.connection_close_through_filter_manager is true. */
void envoy_dynamic_module_callback_network_filter_disable_close(pr_connection connection, bool disabled);
int envoy_dynamic_module_callback_network_filter_get_connection_state(pr_connection connection);
/* Reading goes on when it was enabled as often as it was disabled. */
int envoy_dynamic_module_callback_network_filter_read_disable(pr_connection connection, bool disabled);
bool envoy_dynamic_module_callback_network_filter_read_enabled(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_is_half_close_enabled(pr_connection connection);
void envoy_dynamic_module_callback_network_filter_enable_half_close(pr_connection connection, bool enabled);
uint32_t envoy_dynamic_module_callback_network_filter_get_buffer_limit(pr_connection connection);
void envoy_dynamic_module_callback_network_filter_set_buffer_limits(pr_connection connection, uint32_t limit);
bool envoy_dynamic_module_callback_network_filter_above_high_watermark(pr_connection connection);
uint64_t envoy_dynamic_module_callback_network_filter_get_connection_id(pr_connection connection);
/* The address without the port. */
bool envoy_dynamic_module_callback_network_filter_get_remote_address(
    pr_connection connection, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_network_filter_get_direct_remote_address(
    pr_connection connection, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_network_filter_get_local_address(pr_connection connection, pr_bytes *out, uint32_t *port);
uint32_t envoy_dynamic_module_callback_network_filter_get_worker_index(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_is_ssl(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_get_requested_server_name(pr_connection connection, pr_bytes *out);
size_t envoy_dynamic_module_callback_network_filter_get_ssl_uri_sans_size(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_get_ssl_uri_sans(pr_connection connection, pr_bytes *out);
size_t envoy_dynamic_module_callback_network_filter_get_ssl_dns_sans_size(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_get_ssl_dns_sans(pr_connection connection, pr_bytes *out);
bool envoy_dynamic_module_callback_network_filter_get_ssl_subject(pr_connection connection, pr_bytes *out);
/* Once there is one. It has a name where the endpoint is configured with one, or was found by one. */
bool envoy_dynamic_module_callback_network_filter_has_upstream_host(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_get_upstream_host_address(
    pr_connection connection, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_network_filter_get_upstream_host_hostname(pr_connection connection, pr_bytes *out);
bool envoy_dynamic_module_callback_network_filter_get_upstream_host_cluster(pr_connection connection, pr_bytes *out);
uint64_t envoy_dynamic_module_callback_network_filter_get_upstream_connection_id(pr_connection connection);
/* False: Postrider has no transport that begins in the clear. */
bool envoy_dynamic_module_callback_network_filter_start_downstream_secure_transport(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_start_upstream_secure_transport(pr_connection connection);
bool envoy_dynamic_module_callback_network_filter_get_cluster_host_count(
    pr_connection connection, pr_bytes cluster, uint32_t priority, size_t *all, size_t *healthy, size_t *degraded);
bool envoy_dynamic_module_callback_network_filter_get_attribute_string(
    pr_connection connection, int attribute, pr_bytes *out);
bool envoy_dynamic_module_callback_network_filter_get_attribute_int(pr_connection connection, int attribute, uint64_t *out);
bool envoy_dynamic_module_callback_network_filter_get_attribute_bool(pr_connection connection, int attribute, bool *out);
void envoy_dynamic_module_callback_network_set_dynamic_metadata_string(
    pr_connection connection, pr_bytes space, pr_bytes key, pr_bytes value);
void envoy_dynamic_module_callback_network_set_dynamic_metadata_string_batch(
    pr_connection connection, pr_bytes space, const pr_header *entries, size_t count);
void envoy_dynamic_module_callback_network_set_dynamic_metadata_number(
    pr_connection connection, pr_bytes space, pr_bytes key, double value);
void envoy_dynamic_module_callback_network_set_dynamic_metadata_bool(
    pr_connection connection, pr_bytes space, pr_bytes key, bool value);
bool envoy_dynamic_module_callback_network_get_dynamic_metadata_string(
    pr_connection connection, pr_bytes space, pr_bytes key, pr_bytes *out);
bool envoy_dynamic_module_callback_network_get_dynamic_metadata_number(
    pr_connection connection, pr_bytes space, pr_bytes key, double *out);
bool envoy_dynamic_module_callback_network_get_dynamic_metadata_bool(
    pr_connection connection, pr_bytes space, pr_bytes key, bool *out);
/* Bytes. With a type, what Envoy's factory of the key's name makes of them, as for streams; `envoy.tcp_proxy.cluster` says where
 * TCP goes. */
bool envoy_dynamic_module_callback_network_set_filter_state_bytes(pr_connection connection, pr_bytes key, pr_bytes value);
bool envoy_dynamic_module_callback_network_get_filter_state_bytes(pr_connection connection, pr_bytes key, pr_bytes *out);
bool envoy_dynamic_module_callback_network_set_filter_state_typed(pr_connection connection, pr_bytes key, pr_bytes value);
bool envoy_dynamic_module_callback_network_get_filter_state_typed(pr_connection connection, pr_bytes key, pr_bytes *out);
int envoy_dynamic_module_callback_network_filter_http_callout(
    pr_connection connection, uint64_t *id, pr_bytes cluster, const pr_header *headers, size_t count, pr_bytes body, uint64_t timeout);
int envoy_dynamic_module_callback_network_filter_increment_counter(pr_connection connection, size_t id, uint64_t value);
int envoy_dynamic_module_callback_network_filter_increment_gauge(pr_connection connection, size_t id, uint64_t value);
int envoy_dynamic_module_callback_network_filter_decrement_gauge(pr_connection connection, size_t id, uint64_t value);
int envoy_dynamic_module_callback_network_filter_set_gauge(pr_connection connection, size_t id, uint64_t value);
int envoy_dynamic_module_callback_network_filter_record_histogram_value(pr_connection connection, size_t id, uint64_t value);
void *envoy_dynamic_module_callback_network_filter_scheduler_new(pr_connection connection);
/* Options of the socket of the connection to the upstream, by the system's numbers; those that are read are those that this module
 * set, in that order. */
typedef struct {
  int64_t level, name;
  int state, kind; /* PR_SOCKET_BEFORE_BIND ...; 0 a number, 1 bytes */
  int64_t number;
  pr_bytes bytes;
} pr_socket_option;
void envoy_dynamic_module_callback_network_set_socket_option_int(
    pr_connection connection, int64_t level, int64_t name, int state, int64_t value);
void envoy_dynamic_module_callback_network_set_socket_option_bytes(
    pr_connection connection, int64_t level, int64_t name, int state, pr_bytes value);
bool envoy_dynamic_module_callback_network_get_socket_option_int(
    pr_connection connection, int64_t level, int64_t name, int state, int64_t *out);
bool envoy_dynamic_module_callback_network_get_socket_option_bytes(
    pr_connection connection, int64_t level, int64_t name, int state, pr_bytes *out);
size_t envoy_dynamic_module_callback_network_get_socket_options_size(pr_connection connection);
void envoy_dynamic_module_callback_network_get_socket_options(pr_connection connection, pr_socket_option *out);
/* Statistics of a configuration; those below may be changed from any thread, and count a little later. */
int envoy_dynamic_module_callback_network_filter_config_define_counter(pr_config config, pr_bytes name, size_t *out);
int envoy_dynamic_module_callback_network_filter_config_define_gauge(pr_config config, pr_bytes name, size_t *out);
int envoy_dynamic_module_callback_network_filter_config_define_histogram(pr_config config, pr_bytes name, size_t *out);
int envoy_dynamic_module_callback_network_filter_config_increment_counter(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_network_filter_config_increment_gauge(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_network_filter_config_decrement_gauge(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_network_filter_config_set_gauge(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_network_filter_config_record_histogram_value(pr_config config, size_t id, uint64_t value);
void envoy_dynamic_module_callback_network_filter_scheduler_commit(void *scheduler, uint64_t event);
void envoy_dynamic_module_callback_network_filter_scheduler_delete(void *scheduler);
void *envoy_dynamic_module_callback_network_filter_config_scheduler_new(pr_config config);
void envoy_dynamic_module_callback_network_filter_config_scheduler_commit(void *scheduler, uint64_t event);
void envoy_dynamic_module_callback_network_filter_config_scheduler_delete(void *scheduler);

/* ---- filters of listeners: the module's functions ---- */

/* The proxy's: a connection that no filter chain was chosen for yet. */
typedef void *pr_newcomer;

const void *envoy_dynamic_module_on_listener_filter_config_new(pr_config config, pr_bytes name, pr_bytes text);
void envoy_dynamic_module_on_listener_filter_config_destroy(const void *own);
/* Null ends the connection. */
const void *envoy_dynamic_module_on_listener_filter_new(const void *own, pr_newcomer newcomer);
void envoy_dynamic_module_on_listener_filter_destroy(const void *filter);
/* It is the filter's turn. PR_PASS: it is done. PR_STOP: it waits for bytes, or to be continued. */
int envoy_dynamic_module_on_listener_filter_on_accept(pr_newcomer newcomer, const void *filter);
/* How many bytes the filter wants to see at most; with 0 it is shown none. */
size_t envoy_dynamic_module_on_listener_filter_get_max_read_bytes(pr_newcomer newcomer, const void *filter);
/* More came: there are `length` bytes now. */
int envoy_dynamic_module_on_listener_filter_on_data(pr_newcomer newcomer, const void *filter, size_t length);
/* The client left while the filter waited for more. */
void envoy_dynamic_module_on_listener_filter_on_close(pr_newcomer newcomer, const void *filter);
void envoy_dynamic_module_on_listener_filter_http_callout_done(
    pr_newcomer newcomer, const void *filter, uint64_t id, int result, const pr_header *headers, size_t header_count,
    const pr_bytes *body, size_t body_count);
void envoy_dynamic_module_on_listener_filter_scheduled(pr_newcomer newcomer, const void *filter, uint64_t event);
void envoy_dynamic_module_on_listener_filter_config_scheduled(pr_config config, const void *own, uint64_t event);

/* ---- filters of listeners: the proxy's functions ---- */

/* What came and was not taken yet: in the hook about it. Draining takes of it in front, for good. */
bool envoy_dynamic_module_callback_listener_filter_get_buffer_chunk(pr_newcomer newcomer, pr_bytes *out);
bool envoy_dynamic_module_callback_listener_filter_drain_buffer(pr_newcomer newcomer, size_t length);
/* What the module answers to get_max_read_bytes. */
size_t envoy_dynamic_module_callback_listener_filter_max_read_bytes(pr_newcomer newcomer);
/* What a filter chain is chosen by. `tls` is a transport protocol; other ones choose no chain in Postrider. */
void envoy_dynamic_module_callback_listener_filter_set_detected_transport_protocol(pr_newcomer newcomer, pr_bytes protocol);
void envoy_dynamic_module_callback_listener_filter_set_requested_server_name(pr_newcomer newcomer, pr_bytes name);
void envoy_dynamic_module_callback_listener_filter_set_ja3_hash(pr_newcomer newcomer, pr_bytes hash);
void envoy_dynamic_module_callback_listener_filter_set_ja4_hash(pr_newcomer newcomer, pr_bytes hash);
void envoy_dynamic_module_callback_listener_filter_set_requested_application_protocols(
    pr_newcomer newcomer, const pr_bytes *protocols, size_t count);
bool envoy_dynamic_module_callback_listener_filter_get_detected_transport_protocol(pr_newcomer newcomer, pr_bytes *out);
bool envoy_dynamic_module_callback_listener_filter_get_requested_server_name(pr_newcomer newcomer, pr_bytes *out);
bool envoy_dynamic_module_callback_listener_filter_get_ja3_hash(pr_newcomer newcomer, pr_bytes *out);
bool envoy_dynamic_module_callback_listener_filter_get_ja4_hash(pr_newcomer newcomer, pr_bytes *out);
size_t envoy_dynamic_module_callback_listener_filter_get_requested_application_protocols_size(pr_newcomer newcomer);
bool envoy_dynamic_module_callback_listener_filter_get_requested_application_protocols(pr_newcomer newcomer, pr_bytes *out);
/* Nothing is known of certificates yet. */
bool envoy_dynamic_module_callback_listener_filter_is_ssl(pr_newcomer newcomer);
size_t envoy_dynamic_module_callback_listener_filter_get_ssl_uri_sans_size(pr_newcomer newcomer);
bool envoy_dynamic_module_callback_listener_filter_get_ssl_uri_sans(pr_newcomer newcomer, pr_bytes *out);
size_t envoy_dynamic_module_callback_listener_filter_get_ssl_dns_sans_size(pr_newcomer newcomer);
bool envoy_dynamic_module_callback_listener_filter_get_ssl_dns_sans(pr_newcomer newcomer, pr_bytes *out);
bool envoy_dynamic_module_callback_listener_filter_get_ssl_subject(pr_newcomer newcomer, pr_bytes *out);
/* Addresses without their ports. */
bool envoy_dynamic_module_callback_listener_filter_get_remote_address(pr_newcomer newcomer, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_listener_filter_get_direct_remote_address(
    pr_newcomer newcomer, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_listener_filter_get_local_address(pr_newcomer newcomer, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_listener_filter_get_direct_local_address(
    pr_newcomer newcomer, pr_bytes *out, uint32_t *port);
bool envoy_dynamic_module_callback_listener_filter_get_original_dst(pr_newcomer newcomer, pr_bytes *out, uint32_t *port);
int envoy_dynamic_module_callback_listener_filter_get_address_type(pr_newcomer newcomer);
bool envoy_dynamic_module_callback_listener_filter_is_local_address_restored(pr_newcomer newcomer);
/* Where the client is said to be, and where the connection was meant to go. */
bool envoy_dynamic_module_callback_listener_filter_set_remote_address(
    pr_newcomer newcomer, pr_bytes address, uint32_t port, bool is_v6);
bool envoy_dynamic_module_callback_listener_filter_restore_local_address(
    pr_newcomer newcomer, pr_bytes address, uint32_t port, bool is_v6);
/* The filter whose turn it is is done; without success the connection ends. */
void envoy_dynamic_module_callback_listener_filter_continue_filter_chain(pr_newcomer newcomer, bool success);
/* Another listener serves the connection, if there is one where it was meant to go. */
void envoy_dynamic_module_callback_listener_filter_use_original_dst(pr_newcomer newcomer, bool wanted);
void envoy_dynamic_module_callback_listener_filter_close_socket(pr_newcomer newcomer, pr_bytes details);
void envoy_dynamic_module_callback_listener_filter_set_downstream_transport_failure_reason(
    pr_newcomer newcomer, pr_bytes reason);
/* As much of it as the system takes at once, or -1. */
int64_t envoy_dynamic_module_callback_listener_filter_write_to_socket(pr_newcomer newcomer, pr_bytes data);
int64_t envoy_dynamic_module_callback_listener_filter_get_socket_fd(pr_newcomer newcomer);
bool envoy_dynamic_module_callback_listener_filter_set_socket_option_int(
    pr_newcomer newcomer, int64_t level, int64_t name, int64_t value);
bool envoy_dynamic_module_callback_listener_filter_set_socket_option_bytes(
    pr_newcomer newcomer, int64_t level, int64_t name, pr_bytes value);
bool envoy_dynamic_module_callback_listener_filter_get_socket_option_int(
    pr_newcomer newcomer, int64_t level, int64_t name, int64_t *out);
bool envoy_dynamic_module_callback_listener_filter_get_socket_option_bytes(
    pr_newcomer newcomer, int64_t level, int64_t name, char *value, size_t room, size_t *length);
/* For logs and requests. */
void envoy_dynamic_module_callback_listener_filter_set_dynamic_metadata_string(
    pr_newcomer newcomer, pr_bytes space, pr_bytes key, pr_bytes value);
void envoy_dynamic_module_callback_listener_filter_set_dynamic_metadata_string_batch(
    pr_newcomer newcomer, pr_bytes space, const pr_header *entries, size_t count);
void envoy_dynamic_module_callback_listener_filter_set_dynamic_metadata_number(
    pr_newcomer newcomer, pr_bytes space, pr_bytes key, double value);
bool envoy_dynamic_module_callback_listener_filter_get_dynamic_metadata_string(
    pr_newcomer newcomer, pr_bytes space, pr_bytes key, pr_bytes *out);
bool envoy_dynamic_module_callback_listener_filter_get_dynamic_metadata_number(
    pr_newcomer newcomer, pr_bytes space, pr_bytes key, double *out);
/* Bytes, or with a type what Envoy's factory of the key's name makes of them. */
bool envoy_dynamic_module_callback_listener_filter_set_filter_state(pr_newcomer newcomer, pr_bytes key, pr_bytes value);
bool envoy_dynamic_module_callback_listener_filter_get_filter_state(pr_newcomer newcomer, pr_bytes key, pr_bytes *out);
bool envoy_dynamic_module_callback_listener_filter_set_filter_state_typed(
    pr_newcomer newcomer, pr_bytes key, pr_bytes value);
bool envoy_dynamic_module_callback_listener_filter_get_filter_state_typed(
    pr_newcomer newcomer, pr_bytes key, pr_bytes *out);
bool envoy_dynamic_module_callback_listener_filter_get_attribute_string(pr_newcomer newcomer, int attribute, pr_bytes *out);
bool envoy_dynamic_module_callback_listener_filter_get_attribute_int(pr_newcomer newcomer, int attribute, uint64_t *out);
bool envoy_dynamic_module_callback_listener_filter_get_attribute_bool(pr_newcomer newcomer, int attribute, bool *out);
uint64_t envoy_dynamic_module_callback_listener_filter_get_connection_start_time_ms(pr_newcomer newcomer);
uint32_t envoy_dynamic_module_callback_listener_filter_get_worker_index(pr_newcomer newcomer);
int envoy_dynamic_module_callback_listener_filter_http_callout(
    pr_newcomer newcomer, uint64_t *id, pr_bytes cluster, const pr_header *headers, size_t count, pr_bytes body, uint64_t timeout);
int envoy_dynamic_module_callback_listener_filter_increment_counter(pr_newcomer newcomer, size_t id, uint64_t value);
int envoy_dynamic_module_callback_listener_filter_increment_gauge(pr_newcomer newcomer, size_t id, uint64_t value);
int envoy_dynamic_module_callback_listener_filter_decrement_gauge(pr_newcomer newcomer, size_t id, uint64_t value);
int envoy_dynamic_module_callback_listener_filter_set_gauge(pr_newcomer newcomer, size_t id, uint64_t value);
int envoy_dynamic_module_callback_listener_filter_record_histogram_value(pr_newcomer newcomer, size_t id, uint64_t value);
void *envoy_dynamic_module_callback_listener_filter_scheduler_new(pr_newcomer newcomer);
/* Statistics of a configuration; those below may be changed from any thread, and count a little later. */
int envoy_dynamic_module_callback_listener_filter_config_define_counter(pr_config config, pr_bytes name, size_t *out);
int envoy_dynamic_module_callback_listener_filter_config_define_gauge(pr_config config, pr_bytes name, size_t *out);
int envoy_dynamic_module_callback_listener_filter_config_define_histogram(pr_config config, pr_bytes name, size_t *out);
int envoy_dynamic_module_callback_listener_filter_config_increment_counter(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_listener_filter_config_increment_gauge(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_listener_filter_config_decrement_gauge(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_listener_filter_config_set_gauge(pr_config config, size_t id, uint64_t value);
int envoy_dynamic_module_callback_listener_filter_config_record_histogram_value(
    pr_config config, size_t id, uint64_t value);
void *envoy_dynamic_module_callback_listener_filter_config_scheduler_new(pr_config config);
void envoy_dynamic_module_callback_listener_filter_scheduler_commit(void *scheduler, uint64_t event);
void envoy_dynamic_module_callback_listener_filter_scheduler_delete(void *scheduler);
void envoy_dynamic_module_callback_listener_filter_config_scheduler_commit(void *scheduler, uint64_t event);
void envoy_dynamic_module_callback_listener_filter_config_scheduler_delete(void *scheduler);

#ifdef __cplusplus
}
#endif

#endif
