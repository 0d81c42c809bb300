/* HTTP filters as a native module in C, one for each name, for what few modules do:
 *
 * spans    says of the request's span what can be said, and sees to a part of it until the answer comes; its configuration may
 *          be `unsampled` or `settled`: the span is not told, and with the second whatever another route says
 * anew     the request begins anew under each of the paths that its x-way names; its configuration may be `for ever`
 * again    an answer of 503 has the request begin anew under /good
 * options  sets the option of a socket that the request's x-option names: direction, level, name and value */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name

static pr_bytes bytes(const char *text) { return (pr_bytes){text, strlen(text)}; }

typedef struct {
  char name[16], text[16];
} settings;

/* Of one stream. */
typedef struct {
  const settings *of;
  pr_span child;
} state;

static bool is(const char *text, const char *other) { return !strcmp(text, other); }

static void tell(pr_stream stream, int map, const char *name, const char *text) {
  CALL(http_set_header)(stream, map, bytes(name), bytes(text));
}

/* A field of the request, which ends with a zero. */
static void field(pr_stream stream, const char *name, char *out, size_t room) {
  pr_bytes value = bytes("");
  size_t count;
  CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes(name), &value, 0, &count);
  snprintf(out, room, "%.*s", (int)value.length, value.start ? value.start : "");
}

const char *ON(program_init)(void) { return PR_VERSION; }

const void *ON(http_filter_config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  (void)config;
  settings *made = calloc(1, sizeof(settings));
  snprintf(made->name, sizeof made->name, "%.*s", (int)name.length, name.start);
  snprintf(made->text, sizeof made->text, "%.*s", (int)text.length, text.start ? text.start : "");
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
  state *made = calloc(1, sizeof(state));
  made->of = own;
  return made;
}
void ON(http_filter_destroy)(const void *own) { free((void *)own); }

/* ---- spans ---- */

static void trace(pr_stream stream, state *own) {
  char text[128];
  pr_bytes trace = bytes(""), id = bytes(""), baggage = bytes("");
  pr_span span = CALL(http_get_active_span)(stream);
  if (!span) return tell(stream, PR_REQUEST_HEADERS, "x-span", "none");
  bool same = CALL(http_get_active_span)(stream) == span;
  CALL(http_span_set_operation)(span, bytes("named by a module"));
  CALL(http_span_set_tag)(span, bytes("module"), bytes("1"));
  CALL(http_span_set_tag)(span, bytes("module"), bytes("2"));
  CALL(http_span_set_tag)(span, bytes("component"), bytes("not the module's to say"));
  pr_header tags[] = {{"one", 3, "1", 1}, {"two", 3, "2", 1}};
  CALL(http_span_set_tag_batch)(span, tags, 2);
  CALL(http_span_log)(stream, span, bytes("seen"));
  CALL(http_span_set_baggage)(span, bytes("key"), bytes("value"));
  bool has_trace = CALL(http_span_get_trace_id)(span, &trace);
  int at = snprintf(text, sizeof text, "%d%d %.*s ", same, has_trace, (int)trace.length, trace.start);
  bool has_baggage = CALL(http_span_get_baggage)(span, bytes("key"), &baggage);
  bool has_id = CALL(http_span_get_span_id)(span, &id);
  snprintf(text + at, sizeof text - at, "%.*s %d%d", (int)id.length, id.start, has_id, has_baggage);
  tell(stream, PR_REQUEST_HEADERS, "x-span", text);
  own->child = CALL(http_span_spawn_child)(stream, span, bytes("part"));
  CALL(http_span_set_tag)(own->child, bytes("of"), bytes("a module"));
  pr_span grandchild = CALL(http_span_spawn_child)(stream, own->child, bytes("part of a part"));
  CALL(http_child_span_finish)(grandchild);
  if (own->of->text[0]) CALL(http_span_set_sampled)(span, false);
  if (is(own->of->text, "settled")) CALL(http_span_disable_local_decision)(span);
  CALL(http_clear_route_cache)(stream);
}

/* ---- a request that begins anew ---- */

static int anew(pr_stream stream, const state *own) {
  char way[64];
  field(stream, "x-way", way, sizeof way);
  char *rest = strchr(way, ' ');
  if (!rest && !is(own->of->text, "for ever")) return PR_HEAD_CONTINUE;
  if (rest) {
    *rest = 0;
    tell(stream, PR_REQUEST_HEADERS, ":path", way);
    tell(stream, PR_REQUEST_HEADERS, "x-way", rest + 1);
  }
  pr_header answer[] = {{":status", 7, "307", 3}, {"location", 8, way, strlen(way)}};
  if (CALL(http_filter_recreate_stream)(stream, answer, 2)) return PR_HEAD_STOP;
  tell(stream, PR_REQUEST_HEADERS, "x-anew", "not");
  return PR_HEAD_CONTINUE;
}

/* ---- options ---- */

static void option(pr_stream stream) {
  char text[64];
  int direction = 0;
  long long level = 0, name = 0, value = 0;
  int64_t found = 0;
  pr_bytes raw = bytes("");
  field(stream, "x-option", text, sizeof text);
  if (sscanf(text, "%d %lld %lld %lld", &direction, &level, &name, &value) != 4) return;
  bool set = CALL(http_set_socket_option_int)(stream, level, name, PR_SOCKET_BEFORE_BIND, direction, value);
  bool got = CALL(http_get_socket_option_int)(stream, level, name, PR_SOCKET_BEFORE_BIND, direction, &found);
  bool other = CALL(http_get_socket_option_int)(stream, level, name, PR_SOCKET_BOUND, direction, &found);
  bool as_bytes = CALL(http_get_socket_option_bytes)(stream, level, name, PR_SOCKET_BEFORE_BIND, direction, &raw);
  snprintf(text, sizeof text, "%d%d%d%d %d", set, got, other, as_bytes, (int)found);
  tell(stream, PR_REQUEST_HEADERS, "x-set", text);
}

/* ---- the hooks ---- */

int ON(http_filter_request_headers)(pr_stream stream, const void *of, bool end) {
  (void)end;
  state *own = (state *)of;
  if (is(own->of->name, "spans")) trace(stream, own);
  if (is(own->of->name, "anew")) return anew(stream, own);
  if (is(own->of->name, "options")) option(stream);
  return PR_HEAD_CONTINUE;
}

int ON(http_filter_response_headers)(pr_stream stream, const void *of, bool end) {
  (void)end;
  state *own = (state *)of;
  pr_bytes status = bytes("");
  size_t count;
  if (own->child) {
    CALL(http_span_log)(stream, CALL(http_get_active_span)(stream), bytes("answered"));
    CALL(http_span_log)(stream, own->child, bytes("over"));
    CALL(http_child_span_finish)(own->child);
    own->child = NULL;
  }
  CALL(http_get_header)(stream, PR_RESPONSE_HEADERS, bytes(":status"), &status, 0, &count);
  if (is(own->of->name, "again") && status.length == 3 && !memcmp(status.start, "503", 3)) {
    tell(stream, PR_REQUEST_HEADERS, ":path", "/good");
    if (CALL(http_filter_recreate_stream)(stream, NULL, 0)) return PR_HEAD_STOP;
    tell(stream, PR_RESPONSE_HEADERS, "x-anew", "not");
  }
  return PR_HEAD_CONTINUE;
}

/* Envoy wants these to be there, too. */
void ON(http_filter_http_stream_headers)(pr_stream stream, const void *own, uint64_t id, const pr_header *headers,
                                         size_t count, bool end) {
  (void)stream, (void)own, (void)id, (void)headers, (void)count, (void)end;
}
void ON(http_filter_http_stream_data)(pr_stream stream, const void *own, uint64_t id, const pr_bytes *chunks, size_t count,
                                      bool end) {
  (void)stream, (void)own, (void)id, (void)chunks, (void)count, (void)end;
}
void ON(http_filter_http_stream_trailers)(pr_stream stream, const void *own, uint64_t id, const pr_header *trailers,
                                          size_t count) {
  (void)stream, (void)own, (void)id, (void)trailers, (void)count;
}
void ON(http_filter_http_stream_complete)(pr_stream stream, const void *own, uint64_t id) {
  (void)stream, (void)own, (void)id;
}
void ON(http_filter_http_stream_reset)(pr_stream stream, const void *own, uint64_t id, int reason) {
  (void)stream, (void)own, (void)id, (void)reason;
}
int ON(http_filter_request_body)(pr_stream stream, const void *own, bool end) {
  (void)stream, (void)own, (void)end;
  return PR_BODY_CONTINUE;
}
int ON(http_filter_request_trailers)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
  return PR_TRAILERS_CONTINUE;
}
int ON(http_filter_response_body)(pr_stream stream, const void *own, bool end) {
  (void)stream, (void)own, (void)end;
  return PR_BODY_CONTINUE;
}
int ON(http_filter_response_trailers)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
  return PR_TRAILERS_CONTINUE;
}
void ON(http_filter_stream_complete)(pr_stream stream, const void *own) { (void)stream, (void)own; }
int ON(http_filter_local_reply)(pr_stream stream, const void *own, uint32_t status, pr_bytes details, bool reset) {
  (void)stream, (void)own, (void)status, (void)details, (void)reset;
  return 0;
}
void ON(http_filter_downstream_above_write_buffer_high_watermark)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
}
void ON(http_filter_downstream_below_write_buffer_low_watermark)(pr_stream stream, const void *own) {
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
