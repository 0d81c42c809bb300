/* HTTP filters as a native module in C whose requests to clusters travel in pieces. Each filter's configuration is the name of
 * the cluster.
 *
 * - `relay` sends each request to the cluster as it comes, and answers with what comes back, as it comes. What it did not begin
 *   an answer with it tells as a status.
 * - `tell` asks the cluster, for at most the milliseconds of `x-timeout`, and answers with what it was told. It gives the
 *   request up at the first of the body where there is an `x-give-up`, and leaves the request without an end where there is an
 *   `x-open`.
 * - `alone` asks the cluster by its configuration: two pieces and a trailer, and one request that it gives up at once. Requests
 *   are answered with what it was told. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name

enum { FIELDS = 32, TOLD = 1024 };

typedef struct {
  char kind[16];
  char cluster[32];
  void *scheduler;
} settings;

typedef struct {
  const settings *settings;
  pr_stream stream;
  uint64_t id;
  bool sends, begun, over, gives_up;
  /* The body of the answer is told as a whole: pieces are cut differently each time. */
  size_t body;
  char first[64];
  char told[TOLD];
} filter;

static pr_bytes bytes(const char *text) { return (pr_bytes){text, strlen(text)}; }
static const pr_bytes nothing = {NULL, 0};
static bool is(pr_bytes found, const char *text) {
  return found.length == strlen(text) && !memcmp(found.start, text, found.length);
}

static pr_bytes field(pr_stream stream, const char *name) {
  pr_bytes value = nothing;
  CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes(name), &value, 0, NULL);
  return value;
}

static void add(char *told, const char *text) {
  size_t at = strlen(told);
  snprintf(told + at, TOLD - at, "%s%s", at ? "; " : "", text);
}

static void add_status(char *told, const pr_header *headers, size_t count) {
  char text[64];
  for (size_t i = 0; i < count; i++)
    if (is((pr_bytes){headers[i].name, headers[i].name_length}, ":status")) {
      snprintf(text, sizeof text, "head %.*s", (int)headers[i].value_length, headers[i].value);
      add(told, text);
    }
}

static void add_trailers(char *told, const pr_header *headers, size_t count) {
  char text[128];
  for (size_t i = 0; i < count; i++) {
    snprintf(text, sizeof text, "trailer %.*s=%.*s", (int)headers[i].name_length, headers[i].name,
             (int)headers[i].value_length, headers[i].value);
    add(told, text);
  }
}

const char *ON(program_init)(void) { return PR_VERSION; }

/* ---- configurations ---- */

/* What the configuration of `alone` was told. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char alone[TOLD];
static size_t alone_body;
static uint64_t alone_id, given_up;
static bool alone_over, given_up_over;

const void *ON(http_filter_config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  settings *made = calloc(1, sizeof(settings));
  snprintf(made->kind, sizeof made->kind, "%.*s", (int)name.length, name.start);
  snprintf(made->cluster, sizeof made->cluster, "%.*s", (int)text.length, text.start);
  if (!strcmp(made->kind, "alone")) {
    made->scheduler = CALL(http_filter_config_scheduler_new)(config);
    CALL(http_filter_config_scheduler_commit)(made->scheduler, 1);
  }
  return made;
}
void ON(http_filter_config_destroy)(const void *own) {
  settings *gone = (settings *)own;
  if (gone->scheduler) CALL(http_filter_config_scheduler_delete)(gone->scheduler);
  free(gone);
}
const void *ON(http_filter_per_route_config_new)(pr_bytes name, pr_bytes text) {
  (void)name, (void)text;
  return "a route's";
}
void ON(http_filter_per_route_config_destroy)(const void *own) { (void)own; }

static bool send_alone(pr_config config, uint64_t id) {
  pr_header trailer = {"x-behind", 8, "yes", 3};
  return CALL(http_filter_config_stream_send_data)(config, id, bytes("two"), false) &&
         CALL(http_filter_config_stream_send_trailers)(config, id, &trailer, 1) &&
         !CALL(http_filter_config_stream_send_data)(config, 4711, bytes("no"), false);
}

void ON(http_filter_config_scheduled)(pr_config config, const void *own, uint64_t event) {
  (void)event;
  const settings *mine = own;
  pr_header headers[] = {{":method", 7, "POST", 4}, {":path", 5, "/alone", 6}, {":authority", 10, "there", 5}};
  uint64_t id = 0, other = 0, none = 0;
  int lacking = CALL(http_filter_config_start_http_stream)(config, &none, bytes(mine->cluster), headers, 1, nothing, true, 0);
  int first =
      CALL(http_filter_config_start_http_stream)(config, &id, bytes(mine->cluster), headers, 3, bytes("one"), false, 5000);
  int second = CALL(http_filter_config_start_http_stream)(config, &other, bytes(mine->cluster), headers, 3, nothing, false, 0);
  pthread_mutex_lock(&lock);
  alone_id = id, given_up = other;
  if (first != PR_CALL_STARTED || second != PR_CALL_STARTED || lacking != PR_CALL_LACKS_HEADERS || !send_alone(config, id)) {
    add(alone, "it does not begin");
    alone_over = given_up_over = true;
  }
  pthread_mutex_unlock(&lock);
  CALL(http_filter_config_reset_http_stream)(config, other);
}
void ON(http_filter_config_http_stream_headers)(pr_config config, const void *own, uint64_t id, const pr_header *headers,
                                                size_t count, bool end) {
  (void)config, (void)own, (void)end;
  pthread_mutex_lock(&lock);
  if (id == alone_id) add_status(alone, headers, count);
  pthread_mutex_unlock(&lock);
}
void ON(http_filter_config_http_stream_data)(pr_config config, const void *own, uint64_t id, const pr_bytes *chunks,
                                             size_t count, bool end) {
  (void)config, (void)own, (void)end;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < count && id == alone_id; i++) alone_body += chunks[i].length;
  pthread_mutex_unlock(&lock);
}
void ON(http_filter_config_http_stream_trailers)(pr_config config, const void *own, uint64_t id, const pr_header *trailers,
                                                 size_t count) {
  (void)config, (void)own;
  pthread_mutex_lock(&lock);
  if (id == alone_id) add_trailers(alone, trailers, count);
  pthread_mutex_unlock(&lock);
}
void ON(http_filter_config_http_stream_complete)(pr_config config, const void *own, uint64_t id) {
  (void)config, (void)own;
  char text[64];
  pthread_mutex_lock(&lock);
  snprintf(text, sizeof text, "body %zu; complete", alone_body);
  if (id == alone_id) add(alone, text), alone_over = true;
  pthread_mutex_unlock(&lock);
}
void ON(http_filter_config_http_stream_reset)(pr_config config, const void *own, uint64_t id, int reason) {
  (void)config, (void)own, (void)reason;
  pthread_mutex_lock(&lock);
  if (id == given_up) given_up_over = true;
  if (id == alone_id) add(alone, "reset"), alone_over = true;
  pthread_mutex_unlock(&lock);
}

/* ---- streams ---- */

const void *ON(http_filter_new)(const void *own, pr_stream stream) {
  filter *made = calloc(1, sizeof(filter));
  made->settings = own;
  made->stream = stream;
  return made;
}
void ON(http_filter_destroy)(const void *own) { free((void *)own); }

static void respond(filter *of, uint32_t status, const char *body) {
  of->over = true;
  CALL(http_send_response)(of->stream, status, NULL, 0, bytes(body), bytes("by_module"));
}

static int relay(filter *of, bool end) {
  pr_header headers[FIELDS];
  size_t count = CALL(http_get_headers_size)(of->stream, PR_REQUEST_HEADERS);
  if (count > FIELDS || !CALL(http_get_headers)(of->stream, PR_REQUEST_HEADERS, headers)) return PR_HEAD_CONTINUE;
  of->sends = true;
  if (CALL(http_filter_start_http_stream)(of->stream, &of->id, bytes(of->settings->cluster), headers, count, nothing, end, 0))
    respond(of, 500, "no call");
  return end ? PR_HEAD_STOP_ALL_AND_WATERMARK : PR_HEAD_STOP;
}

static int tell(filter *of) {
  char path[64];
  pr_bytes asked = field(of->stream, ":path"), time = field(of->stream, "x-timeout");
  snprintf(path, sizeof path, "%.*s", (int)asked.length, asked.start);
  uint64_t milliseconds = time.length ? strtoull(time.start, NULL, 10) : 0;
  bool open = field(of->stream, "x-open").length > 0;
  of->gives_up = field(of->stream, "x-give-up").length > 0;
  pr_header headers[] = {
      {":method", 7, "POST", 4}, {":path", 5, path, strlen(path)}, {":authority", 10, "there", 5}, {"x-mine", 6, "yes", 3}};
  uint64_t id = 0;
  bool lacks = CALL(http_filter_start_http_stream)(of->stream, &id, bytes(of->settings->cluster), headers, 1, nothing, true, 0) ==
               PR_CALL_LACKS_HEADERS;
  bool none = CALL(http_filter_start_http_stream)(of->stream, &id, bytes("absent"), headers, 4, nothing, true, 0) ==
              PR_CALL_NO_CLUSTER;
  int started = CALL(http_filter_start_http_stream)(of->stream, &of->id, bytes(of->settings->cluster), headers, 4,
                                                    bytes("begin "), false, milliseconds);
  if (started) add(of->told, "it does not begin"), respond(of, 500, of->told);
  if (!lacks || !none) add(of->told, "what cannot begin did");
  if (!open) {
    pr_header trailer = {"x-behind", 8, "yes", 3};
    if (!CALL(http_stream_send_data)(of->stream, of->id, bytes("end"), false) ||
        !CALL(http_stream_send_trailers)(of->stream, of->id, &trailer, 1))
      add(of->told, "it does not go on");
    /* What follows the end is nobody's. */
    CALL(http_stream_send_data)(of->stream, of->id, bytes("late"), true);
  }
  if (CALL(http_stream_send_data)(of->stream, 4711, bytes("no"), false)) add(of->told, "to whom");
  return PR_HEAD_STOP_ALL_AND_WATERMARK;
}

int ON(http_filter_request_headers)(pr_stream stream, const void *own, bool end) {
  filter *of = (filter *)own;
  if (!strcmp(of->settings->kind, "relay")) return relay(of, end);
  if (!strcmp(of->settings->kind, "tell")) return tell(of);
  pthread_mutex_lock(&lock);
  pr_bytes told = alone_over && given_up_over ? bytes(alone) : bytes("not yet");
  CALL(http_send_response)(stream, 200, NULL, 0, told, bytes("told"));
  pthread_mutex_unlock(&lock);
  return PR_HEAD_STOP_ALL_AND_WATERMARK;
}

int ON(http_filter_request_body)(pr_stream stream, const void *own, bool end) {
  filter *of = (filter *)own;
  if (!of->sends) return PR_BODY_CONTINUE;
  size_t count = CALL(http_get_body_chunks_size)(stream, PR_REQUEST_RECEIVED);
  pr_bytes *chunks = calloc(count + 1, sizeof(pr_bytes));
  if (!CALL(http_get_body_chunks)(stream, PR_REQUEST_RECEIVED, chunks)) count = 0;
  for (size_t i = 0; i < count; i++) CALL(http_stream_send_data)(stream, of->id, chunks[i], false);
  free(chunks);
  if (end) CALL(http_stream_send_data)(stream, of->id, nothing, true);
  return PR_BODY_STOP_NO_BUFFER;
}

int ON(http_filter_request_trailers)(pr_stream stream, const void *own) {
  filter *of = (filter *)own;
  if (!of->sends) return PR_TRAILERS_CONTINUE;
  pr_header trailers[FIELDS];
  size_t count = CALL(http_get_headers_size)(stream, PR_REQUEST_TRAILERS);
  if (count > FIELDS || !CALL(http_get_headers)(stream, PR_REQUEST_TRAILERS, trailers)) count = 0;
  CALL(http_stream_send_trailers)(stream, of->id, trailers, count);
  return PR_TRAILERS_STOP;
}

void ON(http_filter_http_stream_headers)(pr_stream stream, const void *own, uint64_t id, const pr_header *headers,
                                         size_t count, bool end) {
  filter *of = (filter *)own;
  if (id != of->id || of->over) return;
  add_status(of->told, headers, count);
  if (!of->sends) return;
  of->begun = true;
  pr_header given[FIELDS];
  size_t some = 0;
  for (size_t i = 0; i < count && some < FIELDS; i++) {
    pr_bytes name = {headers[i].name, headers[i].name_length};
    if (is(name, ":status") || (name.length > 2 && !memcmp(name.start, "x-", 2) && memcmp(name.start, "x-envoy", 7)))
      given[some++] = headers[i];
  }
  CALL(http_send_response_headers)(stream, given, some, end);
}

void ON(http_filter_http_stream_data)(pr_stream stream, const void *own, uint64_t id, const pr_bytes *chunks, size_t count,
                                      bool end) {
  filter *of = (filter *)own;
  if (id != of->id || of->over) return;
  for (size_t i = 0; i < count; i++) {
    if (!of->body) snprintf(of->first, sizeof of->first, "%.*s", (int)chunks[i].length, chunks[i].start);
    of->body += chunks[i].length;
    if (of->sends) CALL(http_send_response_data)(stream, chunks[i], false);
  }
  if (of->sends && end) CALL(http_send_response_data)(stream, nothing, true);
  if (of->gives_up && of->body) CALL(http_filter_reset_http_stream)(stream, id);
}

void ON(http_filter_http_stream_trailers)(pr_stream stream, const void *own, uint64_t id, const pr_header *trailers,
                                          size_t count) {
  filter *of = (filter *)own;
  if (id != of->id || of->over) return;
  add_trailers(of->told, trailers, count);
  if (of->sends) CALL(http_send_response_trailers)(stream, trailers, count);
}

static void finished(filter *of, const char *how) {
  char text[128];
  snprintf(text, sizeof text, "body %zu %s; %s", of->body, of->first, how);
  add(of->told, text);
  if (!of->sends && !of->over) respond(of, 200, of->told);
}

void ON(http_filter_http_stream_complete)(pr_stream stream, const void *own, uint64_t id) {
  (void)stream;
  if (id == ((filter *)own)->id) finished((filter *)own, "complete");
}

void ON(http_filter_http_stream_reset)(pr_stream stream, const void *own, uint64_t id, int reason) {
  filter *of = (filter *)own;
  char text[32];
  if (id != of->id) return;
  snprintf(text, sizeof text, "reset %d", reason);
  finished(of, text);
  if (of->sends && of->begun) CALL(http_filter_reset_stream)(stream, 1, bytes("broken"));
  else if (of->sends) respond(of, 502, text);
}

/* ---- Envoy wants these to be there, too ---- */

int ON(http_filter_response_headers)(pr_stream stream, const void *own, bool end) {
  (void)stream, (void)own, (void)end;
  return PR_HEAD_CONTINUE;
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
void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(pr_stream stream, const void *own) {
  (void)stream, (void)own;
}
void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(pr_stream stream, const void *own) {
  (void)stream, (void)own;
}
void ON(http_filter_scheduled)(pr_stream stream, const void *own, uint64_t event) { (void)stream, (void)own, (void)event; }
void ON(http_filter_http_callout_done)(pr_stream stream, const void *own, uint64_t id, int result, const pr_header *headers,
                                       size_t header_count, const pr_bytes *chunks, size_t chunk_count) {
  (void)stream, (void)own, (void)id, (void)result, (void)headers, (void)header_count, (void)chunks, (void)chunk_count;
}
