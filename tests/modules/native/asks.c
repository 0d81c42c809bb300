/* An HTTP filter as a native module in C that notes what can be noted of a stream, and asks for what can be asked: it tells
 * what it found in fields of the request, and of the answer. As `fetch`, it asks the cluster of its configuration, and answers
 * with what it was told of that answer. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name

static pr_bytes bytes(const char *text) { return (pr_bytes){text, strlen(text)}; }

static void tell(pr_stream stream, int map, const char *name, const char *text) {
  CALL(http_set_header)(stream, map, bytes(name), bytes(text));
}

/* What a configuration found while it was made. */
typedef struct {
  char runtime[512];
  char cluster[32];
  size_t token, again, of_file, absent, elsewhere;
  bool reads;
} settings;

/* What streams left behind: their objects were destroyed, each once. */
static int destroyed;
static int things[8];

static void destroy(void *object) {
  int *thing = object;
  destroyed += thing ? ++*thing : 100;
}

const char *ON(program_init)(void) { return PR_VERSION; }

/* ---- the configuration: runtime values and secrets ---- */

static void runtime(char *text, size_t size) {
  const char *keys[] = {"on", "count", "share", "below", "words", "digits", "absent"};
  text[0] = 0;
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    char key[32];
    snprintf(key, sizeof key, "module.%s", keys[i]);
    size_t at = strlen(text);
    snprintf(text + at, size - at, "%s%s=%d%d,%d,%g", i ? " " : "", keys[i], CALL(get_runtime_bool)(bytes(key), false),
             CALL(get_runtime_bool)(bytes(key), true), (int)CALL(get_runtime_int)(bytes(key), 77),
             CALL(get_runtime_number)(bytes(key), 7.5));
  }
}

const void *ON(http_filter_config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  settings *made = calloc(1, sizeof(settings));
  if (name.length == 5 && !memcmp(name.start, "fetch", 5))
    snprintf(made->cluster, sizeof made->cluster, "%.*s", (int)text.length, text.start);
  runtime(made->runtime, sizeof made->runtime);
  pr_bytes secret, none = {NULL, 0};
  made->token = CALL(http_filter_config_generic_secret_subscribe)(config, bytes("token"), none);
  made->again = CALL(http_filter_config_generic_secret_subscribe)(config, bytes("token"), none);
  made->of_file = CALL(http_filter_config_generic_secret_subscribe)(config, bytes("of_file"), none);
  made->absent = CALL(http_filter_config_generic_secret_subscribe)(config, bytes("absent"), none);
  made->elsewhere = CALL(http_filter_config_generic_secret_subscribe)(config, bytes("token"), bytes("nonsense"));
  made->reads = CALL(http_filter_config_get_generic_secret)(config, made->token, &secret) && secret.length == 4;
  return made;
}
void ON(http_filter_config_destroy)(const void *own) { free((void *)own); }
const void *ON(http_filter_per_route_config_new)(pr_bytes name, pr_bytes text) {
  (void)name, (void)text;
  return "a route's";
}
void ON(http_filter_per_route_config_destroy)(const void *own) { (void)own; }
const void *ON(http_filter_new)(const void *own, pr_stream stream) {
  (void)stream;
  return own;
}
void ON(http_filter_destroy)(const void *own) { (void)own; }

static void secrets(pr_stream stream, const settings *own) {
  char text[256];
  size_t numbers[] = {own->token, own->again, own->of_file, own->absent, own->elsewhere, 99};
  int at = snprintf(text, sizeof text, "%d", own->reads);
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    pr_bytes secret;
    bool known = CALL(http_filter_get_generic_secret)(stream, numbers[i], &secret);
    at += snprintf(text + at, sizeof text - at, " %.*s", known ? (int)secret.length : 4, known ? secret.start : "none");
  }
  tell(stream, PR_REQUEST_HEADERS, "x-secrets", text);
}

/* ---- metadata ---- */

/* {"a": 1.5, "l": ["x", null], "s": {"b": true}} as a google.protobuf.Struct. */
static const char STRUCT[] = "\x0a\x0e\x0a\x01" "a\x12\x09\x11\0\0\0\0\0\0\xf8\x3f"
                             "\x0a\x10\x0a\x01l\x12\x0b\x32\x09\x0a\x03\x1a\x01x\x0a\x02\x08\0"
                             "\x0a\x10\x0a\x01s\x12\x0b\x2a\x09\x0a\x07\x0a\x01" "b\x12\x02\x20\x01";
/* A google.protobuf.Any of a type that nobody knows. */
static const char ANY[] = "\x0a\x1etype.googleapis.com/some.Thing\x12\x03xyz";

static void metadata(pr_stream stream) {
  char text[128];
  pr_bytes kind = bytes(""), value = bytes("");
  CALL(http_set_dynamic_metadata_string)(stream, bytes("m"), bytes("kept"), bytes("yes"));
  CALL(http_set_dynamic_metadata_string)(stream, bytes("m"), bytes("a"), bytes("old"));
  CALL(http_set_dynamic_metadata_struct)(stream, bytes("m"), (pr_bytes){STRUCT, sizeof STRUCT - 1});
  CALL(http_set_dynamic_metadata_struct)(stream, bytes("m"), bytes("nonsense"));
  CALL(http_set_dynamic_metadata_struct)(stream, bytes("empty"), bytes(""));
  bool before = CALL(http_get_typed_metadata)(stream, PR_METADATA_DYNAMIC, bytes("t"), &kind, &value);
  CALL(http_set_dynamic_typed_metadata)(stream, bytes("t"), (pr_bytes){ANY, sizeof ANY - 1});
  CALL(http_set_dynamic_typed_metadata)(stream, bytes("t"), bytes("nonsense"));
  CALL(http_set_dynamic_metadata_string)(stream, bytes("t"), bytes("k"), bytes("v"));
  bool after = CALL(http_get_typed_metadata)(stream, PR_METADATA_DYNAMIC, bytes("t"), &kind, &value);
  snprintf(text, sizeof text, "%d %d %.*s %.*s", before, after, (int)kind.length, kind.start, (int)value.length, value.start);
  tell(stream, PR_REQUEST_HEADERS, "x-typed", text);
}

/* What the cluster, its host and the host's locality say: texts, how many keys, and the first item of a list. */
static void tell_around(pr_stream stream, int map) {
  char text[256] = "";
  int at = 0;
  for (int source = PR_METADATA_CLUSTER; source <= PR_METADATA_LOCALITY; source++) {
    pr_bytes value = bytes("none"), item = bytes("-"), namespace = bytes("-");
    CALL(http_get_metadata_string)(stream, source, bytes("m"), bytes("of"), &value);
    CALL(http_get_metadata_list_string)(stream, source, bytes("m"), bytes("list"), 0, &item);
    if (CALL(http_get_metadata_namespaces_count)(stream, source) == 1) CALL(http_get_metadata_namespaces)(stream, source, &namespace);
    at += snprintf(text + at, sizeof text - at, "%s%.*s %d %.*s %.*s", at ? ", " : "", (int)value.length, value.start,
                   (int)CALL(http_get_metadata_keys_count)(stream, source, bytes("m")), (int)item.length, item.start,
                   (int)namespace.length, namespace.start);
  }
  tell(stream, map, "x-around", text);
}

/* The messages that the route, the cluster, its host and the host's locality have: the last letters of the type, and the bytes. */
static void tell_messages(pr_stream stream, int map) {
  char text[256] = "";
  int at = 0;
  for (int source = PR_METADATA_ROUTE; source <= PR_METADATA_LOCALITY; source++) {
    pr_bytes kind = bytes("none"), value = bytes("");
    bool found = CALL(http_get_typed_metadata)(stream, source, bytes("x"), &kind, &value);
    bool other = CALL(http_get_typed_metadata)(stream, source, bytes("m"), &kind, &value);
    size_t skipped = found && kind.length > 11 ? kind.length - 11 : 0;
    at += snprintf(text + at, sizeof text - at, "%s%d%d %.*s", at ? ", " : "", found, other, (int)(kind.length - skipped),
                   kind.start + skipped);
    for (size_t i = 0; i < value.length; i++) at += snprintf(text + at, sizeof text - at, " %02x", (unsigned char)value.start[i]);
  }
  tell(stream, map, "x-messages", text);
}

/* ---- filter state ---- */

static const char *text_of(pr_stream stream, const char *key) {
  static char text[64];
  pr_bytes value;
  bool known = CALL(http_get_filter_state_bytes)(stream, bytes(key), &value);
  snprintf(text, sizeof text, "%.*s", known ? (int)value.length : 4, known ? value.start : "none");
  return text;
}

/* Whether that is these bytes, which are no text. */
static bool is_raw(pr_stream stream, const char *key) {
  pr_bytes value;
  return CALL(http_get_filter_state_bytes)(stream, bytes(key), &value) && value.length == 2 && !memcmp(value.start, "\x80\xff", 2);
}

static void values(pr_stream stream) {
  char text[256];
  bool one = CALL(http_set_filter_state_value)(stream, bytes("value"), bytes("one"), PR_SPAN_FILTER_CHAIN, PR_SHARED_NOT);
  bool two = CALL(http_set_filter_state_value)(stream, bytes("value"), bytes("two"), PR_SPAN_FILTER_CHAIN, PR_SHARED_NOT);
  bool request = CALL(http_set_filter_state_value)(stream, bytes("longer"), bytes("x"), PR_SPAN_REQUEST, PR_SHARED_ONCE);
  int at = snprintf(text, sizeof text, "%d%d%d %s", one, two, request, text_of(stream, "value"));
  const char *typed[][2] = {{"envoy.string", "text"}, {"envoy.bool", "true"}, {"envoy.bool", "maybe"}, {"mine", "text"}};
  for (size_t i = 0; i < sizeof typed / sizeof typed[0]; i++) {
    pr_bytes value = bytes("");
    bool set = CALL(http_set_filter_state_typed)(stream, bytes(typed[i][0]), bytes(typed[i][1]));
    bool got = CALL(http_get_filter_state_typed)(stream, bytes(typed[i][0]), &value);
    at += snprintf(text + at, sizeof text - at, " %d%d%.*s", set, got, (int)value.length, value.start);
  }
  bool raw = CALL(http_set_filter_state_bytes)(stream, bytes("raw"), (pr_bytes){"\x80\xff", 2});
  snprintf(text + at, sizeof text - at, " %d%d%d", raw, is_raw(stream, "raw"), is_raw(stream, "own.raw"));
  tell(stream, PR_REQUEST_HEADERS, "x-state", text);
}

static void objects(pr_stream stream) {
  char text[256];
  int before = destroyed;
  memset(things, 0, sizeof things);
  bool set = CALL(http_set_filter_state_object)(stream, bytes("first"), &things[0], destroy, PR_SPAN_REQUEST);
  bool got = CALL(http_get_filter_state_object)(stream, bytes("first")) == &things[0];
  bool has = CALL(http_has_filter_state)(stream, bytes("first"));
  bool none = !CALL(http_get_filter_state_object)(stream, bytes("value")) && !CALL(http_get_filter_state_object)(stream, bytes("no"));
  /* Another one, and then a text, in its place. */
  CALL(http_set_filter_state_object)(stream, bytes("second"), &things[1], destroy, PR_SPAN_FILTER_CHAIN);
  CALL(http_set_filter_state_object)(stream, bytes("second"), &things[2], destroy, PR_SPAN_FILTER_CHAIN);
  bool other = CALL(http_get_filter_state_object)(stream, bytes("second")) == &things[2];
  CALL(http_set_filter_state_bytes)(stream, bytes("second"), bytes("text"));
  bool gone = !CALL(http_get_filter_state_object)(stream, bytes("second"));
  CALL(http_set_filter_state_object)(stream, bytes("third"), &things[3], NULL, PR_SPAN_REQUEST);
  snprintf(text, sizeof text, "%d%d%d%d %d%d%d %d%d %s", set, got, has, none, other, gone, destroyed - before, things[1],
           things[2], text_of(stream, "second"));
  tell(stream, PR_REQUEST_HEADERS, "x-objects", text);
  /* What an earlier stream left. */
  snprintf(text, sizeof text, "%d", before);
  tell(stream, PR_REQUEST_HEADERS, "x-destroyed", text);
}

/* What stays with the client's connection, and what does not take its place. */
static int lasting, refused;

static void part(void *object) {
  if (object == &refused) refused++;
  else CALL(log)(PR_LOG_CRITICAL, bytes("asks: the connection took it along"));
}

static void connection(pr_stream stream) {
  char text[128];
  int at = snprintf(text, sizeof text, "%s", text_of(stream, "lasts"));
  bool there = CALL(http_get_filter_state_object)(stream, bytes("lasting")) == &lasting;
  bool set = CALL(http_set_filter_state_value)(stream, bytes("lasts"), bytes("long"), PR_SPAN_CONNECTION, PR_SHARED_NOT);
  bool shorter = CALL(http_set_filter_state_value)(stream, bytes("lasts"), bytes("short"), PR_SPAN_REQUEST, PR_SHARED_NOT);
  bool plain = CALL(http_set_filter_state_bytes)(stream, bytes("lasts"), bytes("plain"));
  bool longer = CALL(http_set_filter_state_value)(stream, bytes("longer"), bytes("y"), PR_SPAN_CONNECTION, PR_SHARED_NOT);
  at += snprintf(text + at, sizeof text - at, " %d, %d%d%d%d %s", there, set, shorter, plain, longer, text_of(stream, "lasts"));
  at += snprintf(text + at, sizeof text - at, " %s, ", text_of(stream, "longer"));
  refused = 0;
  bool kept = there || CALL(http_set_filter_state_object)(stream, bytes("lasting"), &lasting, part, PR_SPAN_CONNECTION);
  bool other = CALL(http_set_filter_state_object)(stream, bytes("lasting"), &refused, part, PR_SPAN_REQUEST);
  bool same = CALL(http_get_filter_state_object)(stream, bytes("lasting")) == &lasting;
  snprintf(text + at, sizeof text - at, "%d%d%d %d", kept, other, same, refused);
  tell(stream, PR_REQUEST_HEADERS, "x-lasting", text);
}

/* ---- fetch: one request at a time ---- */

static char told[512];

static void tell_more(const char *what, pr_bytes bytes, bool end) {
  size_t at = strlen(told);
  snprintf(told + at, sizeof told - at, "%s%s %.*s %d", at ? "; " : "", what, (int)bytes.length, bytes.start, end);
}

static int fetch(pr_stream stream, const settings *own) {
  uint64_t id;
  told[0] = 0;
  pr_header headers[] = {{":method", 7, "GET", 3}, {":path", 5, "/", 1}, {":authority", 10, "there", 5}};
  int started = CALL(http_filter_start_http_stream)(stream, &id, bytes(own->cluster), headers, 3, (pr_bytes){NULL, 0}, true, 5000);
  if (started != PR_CALL_STARTED) CALL(http_send_response)(stream, 500, NULL, 0, bytes("no call"), bytes("no_call"));
  return PR_HEAD_STOP_ALL_AND_BUFFER;
}

void ON(http_filter_http_stream_headers)(pr_stream stream, const void *own, uint64_t id, const pr_header *headers,
                                         size_t count, bool end) {
  (void)stream, (void)own, (void)id;
  for (size_t i = 0; i < count; i++)
    if (headers[i].name_length == 7 && !memcmp(headers[i].name, ":status", 7))
      tell_more("head", (pr_bytes){headers[i].value, headers[i].value_length}, end);
}
void ON(http_filter_http_stream_data)(pr_stream stream, const void *own, uint64_t id, const pr_bytes *chunks, size_t count,
                                      bool end) {
  (void)stream, (void)own, (void)id;
  for (size_t i = 0; i < count; i++) tell_more("body", chunks[i], end);
}
void ON(http_filter_http_stream_trailers)(pr_stream stream, const void *own, uint64_t id, const pr_header *trailers,
                                          size_t count) {
  (void)stream, (void)own, (void)id;
  for (size_t i = 0; i < count; i++) {
    tell_more("trailer", (pr_bytes){trailers[i].name, trailers[i].name_length}, true);
    tell_more("is", (pr_bytes){trailers[i].value, trailers[i].value_length}, true);
  }
}
void ON(http_filter_http_stream_complete)(pr_stream stream, const void *own, uint64_t id) {
  (void)own, (void)id;
  CALL(http_send_response)(stream, 200, NULL, 0, bytes(told), bytes("told"));
}
void ON(http_filter_http_stream_reset)(pr_stream stream, const void *own, uint64_t id, int reason) {
  (void)own, (void)id, (void)reason;
  CALL(http_send_response)(stream, 502, NULL, 0, bytes("reset"), bytes("reset"));
}

/* ---- the hooks ---- */

int ON(http_filter_request_headers)(pr_stream stream, const void *own, bool end) {
  (void)end;
  char text[512];
  if (((const settings *)own)->cluster[0]) return fetch(stream, own);
  tell(stream, PR_REQUEST_HEADERS, "x-runtime", ((const settings *)own)->runtime);
  runtime(text, sizeof text);
  tell(stream, PR_REQUEST_HEADERS, "x-runtime-here", text);
  secrets(stream, own);
  metadata(stream);
  tell_around(stream, PR_REQUEST_HEADERS);
  tell_messages(stream, PR_REQUEST_HEADERS);
  values(stream);
  objects(stream);
  connection(stream);
  CALL(http_add_custom_flag)(stream, bytes("SLOW"));
  CALL(http_add_custom_flag)(stream, bytes("ODD"));
  pr_moments moments;
  memset(&moments, 0x55, sizeof moments);
  CALL(http_get_timing_info)(stream, &moments);
  snprintf(text, sizeof text, "%d %d %zu %zu", moments.known[PR_MOMENT_START] && moments.times[PR_MOMENT_START] > 0,
           moments.known[PR_MOMENT_FIRST_SENT_UPSTREAM] || moments.times[PR_MOMENT_FIRST_SENT_UPSTREAM] != -1,
           CALL(http_get_upstream_hosts_attempted_size)(stream), CALL(http_get_upstream_connection_ids_attempted_size)(stream));
  tell(stream, PR_REQUEST_HEADERS, "x-before", text);
  const int *known = (const int[]){PR_MOMENT_CLIENT_CONNECTED, PR_MOMENT_CLIENT_HANDSHAKE_BEGAN, PR_MOMENT_CLIENT_SECURED};
  bool sorted = true;
  int64_t last = moments.times[known[0]];
  for (int i = 0; i < 3; i++) {
    if (!moments.known[known[i]]) continue;
    sorted = sorted && last <= moments.times[known[i]] && moments.times[known[i]] <= 0;
    last = moments.times[known[i]];
  }
  snprintf(text, sizeof text, "%d%d%d %d", moments.known[known[0]], moments.known[known[1]], moments.known[known[2]], sorted);
  tell(stream, PR_REQUEST_HEADERS, "x-connection", text);
  return PR_HEAD_CONTINUE;
}

int ON(http_filter_response_headers)(pr_stream stream, const void *own, bool end) {
  (void)own, (void)end;
  char text[256];
  pr_bytes host = bytes("none");
  uint64_t id = 0, known_id = CALL(http_get_upstream_connection_id)(stream);
  size_t hosts = CALL(http_get_upstream_hosts_attempted_size)(stream);
  size_t ids = CALL(http_get_upstream_connection_ids_attempted_size)(stream);
  if (hosts == 1) CALL(http_get_upstream_hosts_attempted)(stream, &host);
  if (ids == 1) CALL(http_get_upstream_connection_ids_attempted)(stream, &id);
  snprintf(text, sizeof text, "%zu %.*s %zu %d", hosts, (int)host.length, host.start, ids, ids && id == known_id);
  tell(stream, PR_RESPONSE_HEADERS, "x-hosts", text);
  tell_around(stream, PR_RESPONSE_HEADERS);
  tell_messages(stream, PR_RESPONSE_HEADERS);
  pr_moments moments;
  CALL(http_get_timing_info)(stream, &moments);
  const int order[] = {PR_MOMENT_CONNECT_BEGAN, PR_MOMENT_CONNECTED, PR_MOMENT_FIRST_SENT_UPSTREAM,
                       PR_MOMENT_LAST_SENT_UPSTREAM, PR_MOMENT_FIRST_RECEIVED_UPSTREAM};
  bool known = moments.known[PR_MOMENT_REQUEST_RECEIVED], sorted = true;
  for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
    known = known && moments.known[order[i]];
    sorted = sorted && (!i || moments.times[order[i - 1]] <= moments.times[order[i]]);
  }
  snprintf(text, sizeof text, "%d%d %d%d%d", known, sorted, moments.known[PR_MOMENT_SECURED],
           moments.known[PR_MOMENT_LAST_RECEIVED_UPSTREAM], moments.known[PR_MOMENT_COMPLETE]);
  tell(stream, PR_RESPONSE_HEADERS, "x-moments", text);
  return PR_HEAD_CONTINUE;
}

/* What is noted before the record is made, and read back. */
static void note_late(pr_stream stream) {
  pr_bytes noted = bytes("none"), state = bytes("none");
  CALL(http_set_dynamic_metadata_string)(stream, bytes("late"), bytes("text"), bytes("noted"));
  CALL(http_set_dynamic_metadata_number)(stream, bytes("late"), bytes("number"), 2);
  CALL(http_set_filter_state_bytes)(stream, bytes("late.state"), bytes("kept"));
  CALL(http_add_custom_flag)(stream, bytes("LATE"));
  CALL(http_get_metadata_string)(stream, 0, bytes("late"), bytes("text"), &noted);
  CALL(http_get_filter_state_bytes)(stream, bytes("late.state"), &state);
  char text[64];
  snprintf(text, sizeof text, "asks: late %.*s %.*s", (int)noted.length, noted.start, (int)state.length, state.start);
  CALL(log)(PR_LOG_CRITICAL, bytes(text));
}

void ON(http_filter_stream_complete)(pr_stream stream, const void *own) {
  char text[256];
  pr_bytes secret = bytes("none"), method = bytes("none"), path = bytes("none"), status = bytes("none");
  pr_moments moments;
  CALL(http_filter_get_attribute_string)(stream, PR_REQUEST_METHOD, &method);
  CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes(":path"), &path, 0, NULL);
  CALL(http_get_header)(stream, PR_RESPONSE_HEADERS, bytes(":status"), &status, 0, NULL);
  CALL(http_get_timing_info)(stream, &moments);
  CALL(http_filter_get_generic_secret)(stream, ((const settings *)own)->token, &secret);
  bool ends = moments.known[PR_MOMENT_LAST_RECEIVED_UPSTREAM] && moments.known[PR_MOMENT_FIRST_SENT_DOWNSTREAM] &&
              moments.known[PR_MOMENT_COMPLETE] &&
              moments.times[PR_MOMENT_LAST_RECEIVED_UPSTREAM] <= moments.times[PR_MOMENT_COMPLETE];
  int64_t head = moments.times[PR_MOMENT_FIRST_RECEIVED_UPSTREAM], body = moments.times[PR_MOMENT_BODY_BEGAN];
  const char *began = !moments.known[PR_MOMENT_BODY_BEGAN] ? "no" : body > head ? "later" : body == head ? "same" : "earlier";
  snprintf(text, sizeof text, "asks: %d %.*s %d%d, %s body of %.*s %.*s %.*s", ends, (int)secret.length, secret.start,
           CALL(http_has_filter_state)(stream, bytes("value")),
           CALL(http_get_filter_state_object)(stream, bytes("first")) == &things[0], began, (int)method.length,
           method.start, (int)path.length, path.start, (int)status.length, status.start);
  CALL(log)(PR_LOG_CRITICAL, bytes(text));
  if (path.length == 5 && memcmp(path.start, "/late", 5) == 0) {
    note_late(stream);
  }
}

/* Envoy wants these to be there, too. */
int ON(http_filter_request_body)(pr_stream stream, const void *own, bool end) {
  (void)stream, (void)own, (void)end;
  return PR_BODY_CONTINUE;
}
int ON(http_filter_request_trailers)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
  return PR_TRAILERS_CONTINUE;
}
/* Not one that does nothing: then nobody would look at bodies. */
int ON(http_filter_response_body)(pr_stream stream, const void *own, bool end) {
  (void)own, (void)end;
  CALL(http_get_body_size)(stream, 0);
  return PR_BODY_CONTINUE;
}
int ON(http_filter_response_trailers)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
  return PR_TRAILERS_CONTINUE;
}
int ON(http_filter_local_reply)(pr_stream stream, const void *own, uint32_t status, pr_bytes details, bool reset) {
  (void)stream, (void)own, (void)status, (void)details, (void)reset;
  return 0;
}
void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(pr_stream stream, const void *own) {
  (void)stream, (void)own;
}
void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(pr_stream stream, const void *own) {
  (void)stream, (void)own;
}
void ON(http_filter_scheduled)(pr_stream stream, const void *own, uint64_t event) { (void)stream, (void)own, (void)event; }
void ON(http_filter_config_scheduled)(pr_config config, const void *own, uint64_t event) {
  (void)config, (void)own, (void)event;
}
void ON(http_filter_http_callout_done)(pr_stream stream, const void *own, uint64_t id, int result, const pr_header *headers,
                                       size_t header_count, const pr_bytes *chunks, size_t chunk_count) {
  (void)stream, (void)own, (void)id, (void)result, (void)headers, (void)header_count, (void)chunks, (void)chunk_count;
}
void ON(http_filter_config_http_callout_done)(pr_config config, const void *own, uint64_t id, int result,
                                              const pr_header *headers, size_t header_count, const pr_bytes *chunks,
                                              size_t chunk_count) {
  (void)config, (void)own, (void)id, (void)result, (void)headers, (void)header_count, (void)chunks, (void)chunk_count;
}
