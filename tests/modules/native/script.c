/* Does what each request's `x-do` says (../wasm/c/script.h): one operation for each function of the proxy. The dynamic metadata
 * `module`, `trace` are what came of them. Beside the phases there are `event1`, `event2` and so on: events of another thread. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../wasm/c/script.h"
#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name

enum { FIELDS = 64, CHUNKS = 64 };

typedef struct {
  size_t counter, labelled, gauge, histogram;
} settings;

typedef struct {
  const settings *settings;
  pr_stream stream;
  sc_stream script;
  void *scheduler;
  pthread_t thread;
  uint64_t events;
  bool has_thread;
} filter;

static pr_bytes literal(const char *text) { return (pr_bytes){text, strlen(text)}; }
static pr_bytes bytes(sc_text text) { return (pr_bytes){text.at, text.size}; }
static sc_text found(pr_bytes from) { return (sc_text){from.start, from.length}; }

const char *ON(program_init)(void) { return PR_VERSION; }

const void *ON(http_filter_config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  pr_bytes label = literal("kind");
  (void)text;
  if (name.length != 6 || memcmp(name.start, "script", 6)) return NULL;
  settings *made = calloc(1, sizeof(settings));
  CALL(http_filter_config_define_counter)(config, literal("counted"), NULL, 0, &made->counter);
  CALL(http_filter_config_define_counter)(config, literal("labelled"), &label, 1, &made->labelled);
  CALL(http_filter_config_define_gauge)(config, literal("level"), NULL, 0, &made->gauge);
  CALL(http_filter_config_define_histogram)(config, literal("sizes"), NULL, 0, &made->histogram);
  return made;
}

void ON(http_filter_config_destroy)(const void *own) { free((void *)own); }

const void *ON(http_filter_per_route_config_new)(pr_bytes name, pr_bytes text) {
  (void)name;
  char *made = calloc(1, text.length + 1);
  if (text.length) memcpy(made, text.start, text.length);
  return made;
}

void ON(http_filter_per_route_config_destroy)(const void *own) { free((void *)own); }

const void *ON(http_filter_new)(const void *own, pr_stream stream) {
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

/* ---- operations: they answer whether they know their name ---- */

static void say(filter *of, bool there, pr_bytes value) {
  sc_say(&of->script, there ? ":" : "/none");
  if (there) sc_say_text(&of->script, found(value));
}

static void say_number(filter *of, uint64_t number) {
  sc_say(&of->script, ":");
  sc_say_number(&of->script, number);
}

static size_t pairs(pr_header *out, const sc_text *words, size_t first, size_t count) {
  size_t used = 0;
  for (size_t i = first; i < count; i++) {
    sc_text key = sc_key(words[i]), value = sc_value(words[i]);
    out[used++] = (pr_header){key.at, key.size, value.at, value.size};
  }
  return used;
}

static bool on_fields(filter *of, const sc_text *words, size_t count) {
  int map = (int)sc_number(words[1]);
  pr_bytes value = {NULL, 0};
  size_t many = 0;
  pr_header all[FIELDS];
  if (sc_is(words[0], "get")) {
    bool there = CALL(http_get_header)(of->stream, map, bytes(words[2]), &value, (size_t)sc_number(words[3]), &many);
    say(of, there, value);
    say_number(of, many);
  } else if (sc_is(words[0], "add")) {
    say_number(of, CALL(http_add_header)(of->stream, map, bytes(words[2]), bytes(words[3])));
  } else if (sc_is(words[0], "set")) {
    say_number(of, CALL(http_set_header)(of->stream, map, bytes(words[2]), bytes(words[3])));
  } else if (sc_is(words[0], "remove")) {
    say_number(of, CALL(http_set_header)(of->stream, map, bytes(words[2]), (pr_bytes){NULL, 0}));
  } else if (sc_is(words[0], "count")) {
    say_number(of, CALL(http_get_headers_size)(of->stream, map));
  } else if (sc_is(words[0], "pairs")) {
    many = CALL(http_get_headers_size)(of->stream, map);
    if (many > FIELDS || !CALL(http_get_headers)(of->stream, map, all)) many = 0;
    sc_say(&of->script, ":");
    for (size_t i = 0; i < many; i++)
      sc_say_field(&of->script, (sc_text){all[i].name, all[i].name_length}, (sc_text){all[i].value, all[i].value_length});
  } else {
    return false;
  }
  (void)count;
  return true;
}

static bool on_bytes(filter *of, const sc_text *words) {
  int body = (int)sc_number(words[1]);
  pr_bytes chunks[CHUNKS];
  if (sc_is(words[0], "body")) {
    size_t count = CALL(http_get_body_chunks_size)(of->stream, body);
    bool there = count <= CHUNKS && CALL(http_get_body_chunks)(of->stream, body, chunks);
    sc_say(&of->script, there ? ":" : "/none");
    for (size_t i = 0; there && i < count; i++) sc_say_text(&of->script, found(chunks[i]));
  } else if (sc_is(words[0], "length")) {
    say_number(of, CALL(http_get_body_size)(of->stream, body));
  } else if (sc_is(words[0], "append")) {
    say_number(of, CALL(http_append_body)(of->stream, body, bytes(words[2])));
  } else if (sc_is(words[0], "drain")) {
    say_number(of, CALL(http_drain_body)(of->stream, body, (size_t)sc_number(words[2])));
  } else if (sc_is(words[0], "limit")) {
    say_number(of, CALL(http_get_buffer_limit)(of->stream));
  } else if (sc_is(words[0], "setlimit")) {
    CALL(http_set_buffer_limit)(of->stream, (uint64_t)sc_number(words[1]));
  } else {
    return false;
  }
  return true;
}

static bool on_answers(filter *of, const sc_text *words, size_t count) {
  pr_header all[SC_WORDS];
  if (sc_is(words[0], "respond")) {
    size_t many = pairs(all, words, 4, count);
    CALL(http_send_response)(of->stream, (uint32_t)sc_number(words[1]), all, many, bytes(words[3]), bytes(words[2]));
  } else if (sc_is(words[0], "head")) {
    size_t many = pairs(all, words, 2, count);
    CALL(http_send_response_headers)(of->stream, all, many, sc_number(words[1]) != 0);
  } else if (sc_is(words[0], "data")) {
    CALL(http_send_response_data)(of->stream, bytes(words[2]), sc_number(words[1]) != 0);
  } else if (sc_is(words[0], "trailers")) {
    size_t many = pairs(all, words, 1, count);
    CALL(http_send_response_trailers)(of->stream, all, many);
  } else if (sc_is(words[0], "resume")) {
    if (sc_is(words[1], "q")) CALL(http_filter_continue_decoding)(of->stream);
    else CALL(http_filter_continue_encoding)(of->stream);
  } else if (sc_is(words[0], "reset")) {
    CALL(http_filter_reset_stream)(of->stream, (int)sc_number(words[1]), literal("by_script"));
  } else {
    return false;
  }
  return true;
}

static bool on_facts(filter *of, const sc_text *words) {
  pr_bytes value = {NULL, 0};
  uint64_t number = 0;
  double fraction = 0;
  bool truth = false, there;
  int which = (int)sc_number(words[1]);
  if (sc_is(words[0], "text")) {
    say(of, CALL(http_filter_get_attribute_string)(of->stream, which, &value), value);
  } else if (sc_is(words[0], "number")) {
    there = CALL(http_filter_get_attribute_int)(of->stream, which, &number);
    say(of, there, (pr_bytes){NULL, 0});
    sc_say_number(&of->script, number);
  } else if (sc_is(words[0], "truth")) {
    there = CALL(http_filter_get_attribute_bool)(of->stream, which, &truth);
    say(of, there, (pr_bytes){NULL, 0});
    sc_say_number(&of->script, truth);
  } else if (sc_is(words[0], "note")) {
    CALL(http_set_dynamic_metadata_string)(of->stream, bytes(words[1]), bytes(words[2]), bytes(words[3]));
  } else if (sc_is(words[0], "notenumber")) {
    CALL(http_set_dynamic_metadata_number)(of->stream, bytes(words[1]), bytes(words[2]), (double)sc_number(words[3]) / 4);
  } else if (sc_is(words[0], "notetruth")) {
    CALL(http_set_dynamic_metadata_bool)(of->stream, bytes(words[1]), bytes(words[2]), sc_number(words[3]) != 0);
  } else if (sc_is(words[0], "noted")) {
    say(of, CALL(http_get_metadata_string)(of->stream, which, bytes(words[2]), bytes(words[3]), &value), value);
    there = CALL(http_get_metadata_number)(of->stream, which, bytes(words[2]), bytes(words[3]), &fraction);
    say(of, there, (pr_bytes){NULL, 0});
    sc_say_number(&of->script, (uint64_t)(fraction * 100));
    there = CALL(http_get_metadata_bool)(of->stream, which, bytes(words[2]), bytes(words[3]), &truth);
    say(of, there, (pr_bytes){NULL, 0});
    sc_say_number(&of->script, truth);
  } else if (sc_is(words[0], "state")) {
    say(of, CALL(http_get_filter_state_bytes)(of->stream, bytes(words[1]), &value), value);
  } else if (sc_is(words[0], "setstate")) {
    say_number(of, CALL(http_set_filter_state_bytes)(of->stream, bytes(words[1]), bytes(words[2])));
  } else if (sc_is(words[0], "route")) {
    const char *own = CALL(get_most_specific_route_config)(of->stream);
    say(of, own != NULL, literal(own ? own : ""));
  } else if (sc_is(words[0], "cluster")) {
    say(of, CALL(http_get_cluster_name)(of->stream, &value), value);
  } else if (sc_is(words[0], "worker")) {
    say_number(of, CALL(http_filter_get_worker_index)(of->stream));
  } else if (sc_is(words[0], "reroute")) {
    CALL(http_clear_route_cache)(of->stream);
  } else {
    return false;
  }
  return true;
}

static bool on_metrics(filter *of, const sc_text *words) {
  const settings *own = of->settings;
  uint64_t by = (uint64_t)sc_number(words[1]);
  pr_bytes label = bytes(words[2]);
  if (sc_is(words[0], "counter")) say_number(of, (uint64_t)CALL(http_filter_increment_counter)(of->stream, own->counter, NULL, 0, by));
  else if (sc_is(words[0], "labelled"))
    say_number(of, (uint64_t)CALL(http_filter_increment_counter)(of->stream, own->labelled, &label, words[2].at ? 1 : 0, by));
  else if (sc_is(words[0], "gauge")) say_number(of, (uint64_t)CALL(http_filter_increment_gauge)(of->stream, own->gauge, NULL, 0, by));
  else if (sc_is(words[0], "lower")) say_number(of, (uint64_t)CALL(http_filter_decrement_gauge)(of->stream, own->gauge, NULL, 0, by));
  else if (sc_is(words[0], "setgauge")) say_number(of, (uint64_t)CALL(http_filter_set_gauge)(of->stream, own->gauge, NULL, 0, by));
  else if (sc_is(words[0], "histogram"))
    say_number(of, (uint64_t)CALL(http_filter_record_histogram_value)(of->stream, own->histogram, NULL, 0, by));
  else if (sc_is(words[0], "unknown")) say_number(of, (uint64_t)CALL(http_filter_increment_counter)(of->stream, 77, NULL, 0, by));
  else return false;
  return true;
}

static void *elsewhere(void *own) {
  filter *of = own;
  for (uint64_t event = 1; event <= of->events; event++) CALL(http_filter_scheduler_commit)(of->scheduler, event);
  return NULL;
}

static bool on_others(filter *of, const sc_text *words, size_t count) {
  if (sc_is(words[0], "call")) {
    pr_header headers[SC_WORDS] = {{":method", 7, "GET", 3}, {":path", 5, words[2].at, words[2].size}, {":authority", 10, "called.test", 11}};
    size_t many = count > 5 ? pairs(headers, words, 5, count) : 3;
    if (count <= 5 && words[3].size) headers[0].value = "POST", headers[0].value_length = 4;
    uint64_t timeout = (uint64_t)sc_number(words[4]);
    say_number(of, (uint64_t)CALL(http_filter_http_callout)(of->stream, &of->script.call, bytes(words[1]), headers, many, bytes(words[3]), timeout));
  } else if (sc_is(words[0], "events")) {
    of->events = (uint64_t)sc_number(words[1]);
    of->scheduler = CALL(http_filter_scheduler_new)(of->stream);
    of->has_thread = !pthread_create(&of->thread, NULL, elsewhere, of);
  } else if (sc_is(words[0], "log")) {
    CALL(log)((int)sc_number(words[1]), bytes(words[2]));
  } else if (sc_is(words[0], "concurrency")) {
    say_number(of, CALL(get_concurrency)());
  } else {
    return false;
  }
  return true;
}

/* Runs the statements of a phase; what its hook answers, `usual` unless `answer` says otherwise. */
static int run(filter *of, const char *phase, int usual) {
  sc_text words[SC_WORDS];
  size_t at = 0, count;
  while ((count = sc_next(&of->script, phase, &at, words)) > 0) {
    sc_say(&of->script, " ");
    sc_say_text(&of->script, words[0]);
    if (sc_is(words[0], "answer")) usual = (int)sc_number(words[1]);
    else if (!on_fields(of, words, count) && !on_bytes(of, words) && !on_answers(of, words, count) && !on_facts(of, words)
             && !on_metrics(of, words) && !on_others(of, words, count))
      sc_say(&of->script, "?");
  }
  CALL(http_set_dynamic_metadata_string)(of->stream, literal("module"), literal("trace"), (pr_bytes){of->script.found, of->script.found_size});
  return usual;
}

static int enter(const void *own, const char *phase, const char *last, uint64_t size, uint64_t end, int usual) {
  filter *of = (filter *)own;
  if (!of->script.used) return usual;
  sc_enter(&of->script, phase, size, end);
  usual = run(of, phase, usual);
  return last && end ? run(of, last, 0) : usual;
}

int ON(http_filter_request_headers)(pr_stream stream, const void *own, bool end) {
  filter *of = (filter *)own;
  pr_bytes plan;
  if (CALL(http_get_header)(stream, PR_REQUEST_HEADERS, literal("x-do"), &plan, 0, NULL)) sc_begin(&of->script, 0, found(plan));
  return enter(own, "qh", NULL, CALL(http_get_headers_size)(stream, PR_REQUEST_HEADERS), end, PR_HEAD_CONTINUE);
}

int ON(http_filter_request_body)(pr_stream stream, const void *own, bool end) {
  return enter(own, "qb", "qe", CALL(http_get_body_size)(stream, PR_REQUEST_RECEIVED), end, PR_BODY_CONTINUE);
}

int ON(http_filter_request_trailers)(pr_stream stream, const void *own) {
  return enter(own, "qt", NULL, CALL(http_get_headers_size)(stream, PR_REQUEST_TRAILERS), 1, PR_TRAILERS_CONTINUE);
}

int ON(http_filter_response_headers)(pr_stream stream, const void *own, bool end) {
  return enter(own, "ah", NULL, CALL(http_get_headers_size)(stream, PR_RESPONSE_HEADERS), end, PR_HEAD_CONTINUE);
}

int ON(http_filter_response_body)(pr_stream stream, const void *own, bool end) {
  return enter(own, "ab", "ae", CALL(http_get_body_size)(stream, PR_RESPONSE_RECEIVED), end, PR_BODY_CONTINUE);
}

int ON(http_filter_response_trailers)(pr_stream stream, const void *own) {
  return enter(own, "at", NULL, CALL(http_get_headers_size)(stream, PR_RESPONSE_TRAILERS), 1, PR_TRAILERS_CONTINUE);
}

int ON(http_filter_local_reply)(pr_stream stream, const void *own, uint32_t status, pr_bytes details, bool reset) {
  const filter *of = own;
  (void)reset;
  if (!of->script.used) return 0;
  CALL(http_set_dynamic_metadata_string)(stream, literal("module"), literal("local"), details);
  CALL(http_set_dynamic_metadata_number)(stream, literal("module"), literal("status"), status);
  return 0;
}

void ON(http_filter_http_callout_done)(pr_stream stream, const void *own, uint64_t id, int result, const pr_header *headers,
                                       size_t header_count, const pr_bytes *chunks, size_t chunk_count) {
  filter *of = (filter *)own;
  (void)stream;
  sc_enter(&of->script, "call", (uint64_t)result, id == of->script.call);
  sc_say(&of->script, " answered");
  for (size_t i = 0; i < header_count; i++)
    if (headers[i].name_length == 7 && !memcmp(headers[i].name, ":status", 7))
      sc_say_text(&of->script, (sc_text){headers[i].value, headers[i].value_length});
  sc_say(&of->script, ":");
  for (size_t i = 0; i < chunk_count; i++) sc_say_text(&of->script, found(chunks[i]));
  run(of, "call", 0);
}

void ON(http_filter_scheduled)(pr_stream stream, const void *own, uint64_t event) {
  filter *of = (filter *)own;
  char phase[16];
  (void)stream;
  /* `event1`, `event2` and so on. */
  snprintf(phase, sizeof phase, "event%d", (int)event);
  sc_enter(&of->script, phase, event, 0);
  run(of, phase, 0);
}

/* The others have nothing to do; Envoy wants them to be there. */
void ON(http_filter_stream_complete)(pr_stream stream, const void *own) { (void)stream, (void)own; }
void ON(http_filter_http_stream_headers)(pr_stream stream, const void *own, uint64_t id, const pr_header *headers, size_t count,
                                         bool end) {
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
void ON(http_filter_http_stream_complete)(pr_stream stream, const void *own, uint64_t id) { (void)stream, (void)own, (void)id; }
void ON(http_filter_http_stream_reset)(pr_stream stream, const void *own, uint64_t id, int reason) {
  (void)stream, (void)own, (void)id, (void)reason;
}
void ON(http_filter_downstream_above_write_buffer_high_watermark)(pr_stream stream, const void *own) { (void)stream, (void)own; }
void ON(http_filter_downstream_below_write_buffer_low_watermark)(pr_stream stream, const void *own) { (void)stream, (void)own; }
void ON(http_filter_config_scheduled)(pr_config config, const void *own, uint64_t event) {
  (void)config, (void)own, (void)event;
}
void ON(http_filter_config_http_callout_done)(pr_config config, const void *own, uint64_t id, int result,
                                              const pr_header *headers, size_t header_count, const pr_bytes *chunks,
                                              size_t chunk_count) {
  (void)config, (void)own, (void)id, (void)result, (void)headers, (void)header_count, (void)chunks, (void)chunk_count;
}
