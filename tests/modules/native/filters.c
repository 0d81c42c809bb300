/* HTTP filters as a native module in C, one for each thing that filters do. The configuration's filter_name chooses:
 *
 * passthrough   nothing
 * basic_auth    401 without `authorization: Basic <configuration>`; upstream sees `x-user: known`
 * headers       sets, adds and removes fields on both ways, and tells facts in them
 * body          collects each body and replaces it by its bytes in capitals
 * stream        bodies in capitals, each piece as it comes
 * callout       asks the cluster of the configuration; only its 200 lets a request go on
 * scheduler     another thread lets a request go on
 * pieces        answers itself, in pieces, from another thread
 * failing       cannot make its part of a stream
 * notes         metadata, filter state, statistics, the route's configuration
 * reset         cuts the stream off
 * tasks         the configuration counts by itself, from a thread of its own; answers say both ends' addresses */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name

/* Tells two builds apart. */
#ifndef MARK
#define MARK "first"
#endif

typedef struct {
  char name[32];
  char *text;
  size_t counter, gauge, histogram;
  void *scheduler;
  pthread_t thread;
} settings;

typedef struct {
  const settings *settings;
  pr_stream stream;
  void *scheduler;
  pthread_t thread;
  bool has_thread;
} filter;

static pr_bytes bytes(const char *text) { return (pr_bytes){text, strlen(text)}; }

static char *copy(pr_bytes from) {
  char *to = malloc(from.length + 1);
  if (from.length) memcpy(to, from.start, from.length);
  to[from.length] = 0;
  return to;
}

static bool is(const void *own, const char *name) { return !strcmp(((const filter *)own)->settings->name, name); }

static void set(pr_stream stream, int map, const char *name, pr_bytes value) {
  CALL(http_set_header)(stream, map, bytes(name), value);
}

const char *ON(program_init)(void) { return PR_VERSION; }

static void *commit_task(void *scheduler) {
  CALL(http_filter_config_scheduler_commit)(scheduler, 5);
  return NULL;
}

const void *ON(http_filter_config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  settings *made = calloc(1, sizeof(settings));
  snprintf(made->name, sizeof made->name, "%.*s", (int)name.length, name.start ? name.start : "");
  made->text = copy(text);
  if (!strcmp(made->text, "refused")) {
    free(made->text);
    free(made);
    return NULL;
  }
  pr_bytes label = bytes("kind");
  CALL(http_filter_config_define_counter)(config, bytes("seen"), &label, 1, &made->counter);
  CALL(http_filter_config_define_gauge)(config, bytes("level"), NULL, 0, &made->gauge);
  CALL(http_filter_config_define_histogram)(config, bytes("sizes"), NULL, 0, &made->histogram);
  if (!strcmp(made->name, "tasks")) {
    made->scheduler = CALL(http_filter_config_scheduler_new)(config);
    pthread_create(&made->thread, NULL, commit_task, made->scheduler);
  }
  return made;
}

void ON(http_filter_config_destroy)(const void *own) {
  settings *gone = (settings *)own;
  if (gone->scheduler) {
    pthread_join(gone->thread, NULL);
    CALL(http_filter_config_scheduler_delete)(gone->scheduler);
  }
  free(gone->text);
  free(gone);
}

const void *ON(http_filter_per_route_config_new)(pr_bytes name, pr_bytes text) {
  (void)name;
  return copy(text);
}

void ON(http_filter_per_route_config_destroy)(const void *own) { free((void *)own); }

const void *ON(http_filter_new)(const void *own, pr_stream stream) {
  if (!strcmp(((const settings *)own)->name, "failing")) return NULL;
  filter *made = calloc(1, sizeof(filter));
  made->settings = own;
  made->stream = stream;
  return made;
}

void ON(http_filter_destroy)(const void *own) {
  filter *gone = (filter *)own;
  if (gone->has_thread) pthread_join(gone->thread, NULL);
  if (gone->scheduler) CALL(http_filter_scheduler_delete)(gone->scheduler);
  free(gone);
}

/* ---- basic_auth ---- */

static int basic_auth(pr_stream stream, const filter *own) {
  pr_bytes given;
  char wanted[256];
  int length = snprintf(wanted, sizeof wanted, "Basic %s", own->settings->text);
  bool known = CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes("authorization"), &given, 0, NULL);
  if (known && given.length == (size_t)length && !memcmp(given.start, wanted, given.length)) {
    set(stream, PR_REQUEST_HEADERS, "x-user", bytes("known"));
    return PR_HEAD_CONTINUE;
  }
  pr_header challenge = {"www-authenticate", 16, "Basic realm=\"module\"", 20};
  CALL(http_send_response)(stream, 401, &challenge, 1, bytes("who are you?"), bytes("no_credentials"));
  return PR_HEAD_STOP;
}

/* ---- headers ---- */

static void tell(pr_stream stream, int map, const char *name, int fact) {
  pr_bytes text;
  set(stream, map, name, CALL(http_filter_get_attribute_string)(stream, fact, &text) ? text : bytes("none"));
}

static void request_headers(pr_stream stream) {
  char number[32];
  pr_bytes value;
  size_t count = 0;
  CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes("x-many"), &value, 1, &count);
  snprintf(number, sizeof number, "%zu:%.*s", count, (int)value.length, value.length ? value.start : "");
  set(stream, PR_REQUEST_HEADERS, "x-count", bytes(number));
  set(stream, PR_REQUEST_HEADERS, "x-gone", (pr_bytes){NULL, 0});
  set(stream, PR_REQUEST_HEADERS, ":path", bytes("/changed?by=module"));
  CALL(http_add_header)(stream, PR_REQUEST_HEADERS, bytes("x-many"), bytes("last"));
  tell(stream, PR_REQUEST_HEADERS, "x-method", PR_REQUEST_METHOD);
  tell(stream, PR_REQUEST_HEADERS, "x-host", PR_REQUEST_HOST);
  tell(stream, PR_REQUEST_HEADERS, "x-protocol", PR_REQUEST_PROTOCOL);
  tell(stream, PR_REQUEST_HEADERS, "x-query", PR_REQUEST_QUERY);
  tell(stream, PR_REQUEST_HEADERS, "x-route", PR_ROUTE_NAME);
  tell(stream, PR_REQUEST_HEADERS, "x-cluster", PR_CLUSTER_NAME);
  tell(stream, PR_REQUEST_HEADERS, "x-agent", PR_REQUEST_USER_AGENT);
  tell(stream, PR_REQUEST_HEADERS, "x-tls", PR_TLS_VERSION);
}

static int compare(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

static void response_headers(pr_stream stream) {
  uint64_t code = 0;
  char text[512] = "";
  size_t count = CALL(http_get_headers_size)(stream, PR_REQUEST_HEADERS);
  pr_header all[64];
  char *names[64];
  if (count <= 64 && CALL(http_get_headers)(stream, PR_REQUEST_HEADERS, all)) {
    for (size_t i = 0; i < count; i++) names[i] = copy((pr_bytes){all[i].name, all[i].name_length});
    qsort(names, count, sizeof names[0], compare);
    for (size_t i = 0; i < count; i++) {
      if (names[i][0] == ':') strncat(text, names[i], sizeof text - strlen(text) - 1);
      free(names[i]);
    }
  }
  set(stream, PR_RESPONSE_HEADERS, "x-pseudo", bytes(text));
  CALL(http_filter_get_attribute_int)(stream, PR_RESPONSE_CODE, &code);
  snprintf(text, sizeof text, "%d", (int)code);
  set(stream, PR_RESPONSE_HEADERS, "x-code", bytes(text));
  set(stream, PR_RESPONSE_HEADERS, ":status", bytes("201"));
  tell(stream, PR_RESPONSE_HEADERS, "x-details", PR_RESPONSE_CODE_DETAILS);
}

/* ---- tasks ---- */

static void tell_addresses(pr_stream stream) {
  pr_bytes direct, upstream;
  char text[128];
  bool has_direct = CALL(http_get_downstream_direct_remote_address)(stream, &direct);
  bool has_upstream = CALL(http_get_upstream_remote_address)(stream, &upstream);
  snprintf(text, sizeof text, "%d %.*s %d", has_direct && direct.length > 10 && !memcmp(direct.start, "127.0.0.1:", 10),
           has_upstream ? (int)upstream.length : 0, upstream.start, CALL(http_get_upstream_connection_id)(stream) > 0);
  set(stream, PR_RESPONSE_HEADERS, "x-addresses", bytes(text));
}

/* ---- body, stream ---- */

/* Replaces some of a body by its capitals. */
static void capitals(pr_stream stream, int body) {
  size_t count = CALL(http_get_body_chunks_size)(stream, body), size = CALL(http_get_body_size)(stream, body), at = 0;
  pr_bytes *chunks = calloc(count + 1, sizeof(pr_bytes));
  char *text = malloc(size + 1);
  if (CALL(http_get_body_chunks)(stream, body, chunks))
    for (size_t i = 0; i < count; i++)
      for (size_t j = 0; j < chunks[i].length; j++) {
        char c = chunks[i].start[j];
        text[at++] = c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c;
      }
  CALL(http_drain_body)(stream, body, size);
  CALL(http_append_body)(stream, body, (pr_bytes){text, at});
  free(text);
  free(chunks);
}

static int on_body(pr_stream stream, const void *own, int received, int kept, bool end) {
  if (is(own, "stream")) capitals(stream, received);
  if (!is(own, "body")) return PR_BODY_CONTINUE;
  if (!end) return PR_BODY_STOP_AND_BUFFER;
  /* What came last may be part of what was kept, or stand behind it. */
  capitals(stream, kept);
  capitals(stream, received);
  return PR_BODY_CONTINUE;
}

/* ---- callout ---- */

static int callout(pr_stream stream, const filter *own) {
  uint64_t id;
  pr_bytes path;
  if (!CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes(":path"), &path, 0, NULL)) path = bytes("/");
  pr_header headers[] = {{":method", 7, "GET", 3}, {":path", 5, path.start, path.length}, {":authority", 10, "check", 5}};
  int started = CALL(http_filter_http_callout)(stream, &id, bytes(own->settings->text), headers, 3, (pr_bytes){NULL, 0}, 2000);
  if (started != PR_CALL_STARTED) {
    char text[32];
    snprintf(text, sizeof text, "no call: %d", started);
    CALL(http_send_response)(stream, 500, NULL, 0, bytes(text), bytes("no_call"));
  }
  return PR_HEAD_STOP;
}

void ON(http_filter_http_callout_done)(pr_stream stream, const void *own, uint64_t id, int result, const pr_header *headers,
                                       size_t header_count, const pr_bytes *chunks, size_t chunk_count) {
  (void)own, (void)id;
  for (size_t i = 0; result == PR_CALL_ANSWERED && i < header_count; i++) {
    if (headers[i].name_length == 7 && !memcmp(headers[i].name, ":status", 7) && !memcmp(headers[i].value, "200", 3)) {
      set(stream, PR_REQUEST_HEADERS, "x-checked", chunk_count ? chunks[0] : bytes("empty"));
      CALL(http_filter_continue_decoding)(stream);
      return;
    }
  }
  CALL(http_send_response)(stream, 403, NULL, 0, bytes(result == PR_CALL_ANSWERED ? "no" : "no answer"), bytes("not_allowed"));
}

/* ---- scheduler, pieces ---- */

static void *elsewhere(void *own) {
  filter *of = own;
  bool pieces = !strcmp(of->settings->name, "pieces");
  for (uint64_t event = 1; event <= (pieces ? 4 : 1); event++) CALL(http_filter_scheduler_commit)(of->scheduler, event);
  return NULL;
}

static int start_thread(pr_stream stream, filter *own) {
  own->scheduler = CALL(http_filter_scheduler_new)(stream);
  own->has_thread = !pthread_create(&own->thread, NULL, elsewhere, own);
  return PR_HEAD_STOP;
}

void ON(http_filter_scheduled)(pr_stream stream, const void *own, uint64_t event) {
  pr_header head[] = {{":status", 7, "202", 3}, {"x-from", 6, "pieces", 6}};
  if (is(own, "scheduler")) {
    set(stream, PR_REQUEST_HEADERS, "x-scheduled", bytes("yes"));
    CALL(http_filter_continue_decoding)(stream);
  } else if (event == 1) {
    CALL(http_send_response_headers)(stream, head, 2, false);
  } else {
    CALL(http_send_response_data)(stream, bytes(event == 2 ? "one " : event == 3 ? "two " : "three"), event == 4);
  }
}

/* ---- notes ---- */

static void notes(pr_stream stream, const filter *own) {
  pr_bytes value = bytes("none"), label = bytes("request");
  double number = 0;
  bool truth = false;
  char text[128];
  CALL(http_set_dynamic_metadata_string)(stream, bytes("module"), bytes("text"), bytes("noted"));
  CALL(http_set_dynamic_metadata_number)(stream, bytes("module"), bytes("number"), 2.5);
  CALL(http_set_dynamic_metadata_bool)(stream, bytes("module"), bytes("truth"), true);
  CALL(http_get_metadata_number)(stream, PR_METADATA_DYNAMIC, bytes("module"), bytes("number"), &number);
  CALL(http_get_metadata_bool)(stream, PR_METADATA_DYNAMIC, bytes("module"), bytes("truth"), &truth);
  bool wrong = CALL(http_get_metadata_string)(stream, PR_METADATA_DYNAMIC, bytes("module"), bytes("number"), &value);
  CALL(http_get_metadata_string)(stream, PR_METADATA_DYNAMIC, bytes("module"), bytes("text"), &value);
  snprintf(text, sizeof text, "%.*s %.1f %d %d", (int)value.length, value.start, number, truth, wrong);
  set(stream, PR_REQUEST_HEADERS, "x-metadata", bytes(text));
  set(stream, PR_REQUEST_HEADERS, "x-config", bytes(own->settings->text));
  set(stream, PR_REQUEST_HEADERS, "x-mark", bytes(MARK));
  value = bytes("none");
  CALL(http_get_metadata_string)(stream, PR_METADATA_ROUTE, bytes("module"), bytes("of"), &value);
  set(stream, PR_REQUEST_HEADERS, "x-of-route", value);
  CALL(http_set_filter_state_bytes)(stream, bytes("module.state"), bytes("kept"));
  value = bytes("none");
  CALL(http_get_filter_state_bytes)(stream, bytes("module.state"), &value);
  set(stream, PR_REQUEST_HEADERS, "x-state", value);
  bool has = CALL(http_has_filter_state)(stream, bytes("module.state"));
  int level = CALL(get_log_level)();
  snprintf(text, sizeof text, "%d %d %d %d", has, CALL(http_has_filter_state)(stream, bytes("module.other")),
           CALL(log_enabled)(level), level > PR_LOG_TRACE && CALL(log_enabled)(level - 1));
  set(stream, PR_REQUEST_HEADERS, "x-asked", bytes(text));
  CALL(log_v2)(PR_LOG_CRITICAL, bytes("a module wrote this"), bytes("filters.c"), 7);
  CALL(log_v2)(PR_LOG_CRITICAL, bytes("and this"), bytes(""), 0);
  const char *route = CALL(get_most_specific_route_config)(stream);
  set(stream, PR_REQUEST_HEADERS, "x-route-config", bytes(route ? route : "none"));
  CALL(http_filter_increment_counter)(stream, own->settings->counter, &label, 1, 3);
  CALL(http_filter_increment_gauge)(stream, own->settings->gauge, NULL, 0, 5);
  CALL(http_filter_decrement_gauge)(stream, own->settings->gauge, NULL, 0, 2);
  CALL(http_filter_record_histogram_value)(stream, own->settings->histogram, NULL, 0, 7);
  snprintf(text, sizeof text, "%d %d", CALL(http_filter_increment_counter)(stream, own->settings->counter, NULL, 0, 1),
           CALL(http_filter_increment_counter)(stream, 77, NULL, 0, 1));
  set(stream, PR_REQUEST_HEADERS, "x-metrics", bytes(text));
}

/* ---- the hooks ---- */

int ON(http_filter_request_headers)(pr_stream stream, const void *own, bool end) {
  filter *of = (filter *)own;
  if (is(own, "basic_auth")) return basic_auth(stream, of);
  if (is(own, "headers")) request_headers(stream);
  if (is(own, "callout")) return callout(stream, of);
  if (is(own, "scheduler") || is(own, "pieces")) return start_thread(stream, of);
  if (is(own, "notes")) notes(stream, of);
  if (is(own, "reset")) CALL(http_filter_reset_stream)(stream, 0, bytes("enough"));
  if (is(own, "body") && !end) {
    set(stream, PR_REQUEST_HEADERS, "content-length", (pr_bytes){NULL, 0});
    return PR_HEAD_STOP;
  }
  return is(own, "reset") ? PR_HEAD_STOP : PR_HEAD_CONTINUE;
}

int ON(http_filter_request_body)(pr_stream stream, const void *own, bool end) {
  if (is(own, "callout") || is(own, "scheduler")) return PR_BODY_STOP_AND_BUFFER;
  if (is(own, "pieces")) return PR_BODY_STOP_NO_BUFFER;
  return on_body(stream, own, PR_REQUEST_RECEIVED, PR_REQUEST_KEPT, end);
}

int ON(http_filter_request_trailers)(pr_stream stream, const void *own) {
  if (is(own, "headers")) set(stream, PR_REQUEST_TRAILERS, "x-trailer-seen", bytes("yes"));
  return PR_TRAILERS_CONTINUE;
}

int ON(http_filter_response_headers)(pr_stream stream, const void *own, bool end) {
  if (is(own, "headers")) response_headers(stream);
  if (is(own, "tasks")) tell_addresses(stream);
  if (is(own, "body") && !end) {
    set(stream, PR_RESPONSE_HEADERS, "content-length", (pr_bytes){NULL, 0});
    return PR_HEAD_STOP;
  }
  return PR_HEAD_CONTINUE;
}

int ON(http_filter_response_body)(pr_stream stream, const void *own, bool end) {
  return on_body(stream, own, PR_RESPONSE_RECEIVED, PR_RESPONSE_KEPT, end);
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
void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(pr_stream stream, const void *own) {
  (void)stream, (void)own;
}
void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(pr_stream stream, const void *own) {
  (void)stream, (void)own;
}
void ON(http_filter_config_scheduled)(pr_config config, const void *own, uint64_t event) {
  const settings *known = own;
  pr_bytes label = bytes("task");
  CALL(http_filter_config_increment_counter)(config, known->counter, &label, 1, event);
  CALL(http_filter_config_set_gauge)(config, known->gauge, NULL, 0, 20);
  CALL(http_filter_config_increment_gauge)(config, known->gauge, NULL, 0, 4);
  CALL(http_filter_config_decrement_gauge)(config, known->gauge, NULL, 0, 1);
  CALL(http_filter_config_record_histogram_value)(config, known->histogram, NULL, 0, 1);
  /* Two labels where there is one. */
  pr_bytes labels[] = {label, label};
  CALL(http_filter_config_increment_counter)(config, known->counter, labels, 2, 1000);
  pr_header headers[] = {{":method", 7, "GET", 3}, {":path", 5, "/", 1}, {":authority", 10, "test", 4}};
  pr_bytes nowhere = bytes("nowhere");
  uint64_t id = 0;
  int code = CALL(http_filter_config_http_callout)(config, &id, nowhere, headers, 3, bytes(""), 1000);
  CALL(http_filter_config_increment_counter)(config, known->counter, &nowhere, 1, (uint64_t)code);
}
void ON(http_filter_config_http_callout_done)(pr_config config, const void *own, uint64_t id, int result,
                                              const pr_header *headers, size_t header_count, const pr_bytes *chunks,
                                              size_t chunk_count) {
  (void)config, (void)own, (void)id, (void)result, (void)headers, (void)header_count, (void)chunks, (void)chunk_count;
}
