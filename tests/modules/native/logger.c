/* An access logger: writes a line for each record to the file that its configuration names, with what it finds of it. The
   one by the name of "slow" takes 60 ms for a record, and writes when, in microseconds. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_##name
#define ABOUT(name) envoy_dynamic_module_callback_access_logger_##name
#define ON(name) envoy_dynamic_module_on_access_logger_##name

typedef struct {
  char *path;
  pr_config config;
  size_t told, level, sizes;
  bool slow;
} settings;

typedef struct {
  const settings *settings;
  FILE *file;
} logger;

static pr_bytes literal(const char *text) { return (pr_bytes){text, strlen(text)}; }

const char *envoy_dynamic_module_on_program_init(void) { return PR_VERSION; }

const void *ON(config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  bool slow = name.length == 4 && !memcmp(name.start, "slow", 4);
  if (!slow && (name.length != 5 || memcmp(name.start, "lines", 5))) return NULL;
  if (!text.length) return NULL;
  settings *made = calloc(1, sizeof(settings));
  made->slow = slow;
  made->path = strndup(text.start, text.length);
  made->config = config;
  ABOUT(config_define_counter)(config, literal("told"), &made->told);
  ABOUT(config_define_gauge)(config, literal("level"), &made->level);
  ABOUT(config_define_histogram)(config, literal("sizes"), &made->sizes);
  return made;
}

void ON(config_destroy)(const void *own) {
  settings *gone = (settings *)own;
  free(gone->path);
  free(gone);
}

const void *ON(new)(const void *own, pr_logger told) {
  logger *made = calloc(1, sizeof(logger));
  made->settings = own;
  made->file = fopen(made->settings->path, "a");
  (void)told;
  return made;
}

static void say(FILE *file, const char *name, bool there, pr_bytes text) {
  fprintf(file, " %s=%.*s", name, there ? (int)text.length : 4, there ? text.start ? text.start : "" : "none");
}

static void say_field(FILE *file, pr_logger told, const char *name, int map, const char *field) {
  pr_bytes value;
  size_t count = 0;
  bool there = ABOUT(get_header_value)(told, map, literal(field), &value, 0, &count);
  say(file, name, there, value);
  fprintf(file, "/%zu", count);
}

static void say_address(FILE *file, const char *name, bool there, pr_bytes address, uint32_t port) {
  say(file, name, there, address);
  fprintf(file, ":%s", there && port > 0 ? "port" : "none");
}

static long long now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static void take_time(FILE *file, int moment) {
  long long began = now();
  struct timespec length = {0, 60000000};
  nanosleep(&length, NULL);
  fprintf(file, "%d %lld %lld\n", moment, began, now());
  fflush(file);
}

void ON(log)(pr_logger told, const void *own, int moment) {
  const logger *of = own;
  FILE *file = of->file;
  if (of->settings->slow) {
    take_time(file, moment);
    return;
  }
  pr_bytes text = {NULL, 0};
  pr_header all[64];
  pr_times times = {0};
  pr_moments moments;
  pr_sizes sizes = {0};
  pr_wire_sizes wire = {0};
  uint32_t port = 0;
  uint64_t whole = 0;
  double number = 0;
  bool truth = false, there;
  size_t count = ABOUT(get_headers_size)(told, PR_REQUEST_HEADERS), found = 0;

  fprintf(file, "moment=%d code=%u flags=%" PRIu64, moment, ABOUT(get_response_code)(told), ABOUT(get_response_flags)(told));
  fprintf(file, " no_route=%d", ABOUT(has_response_flag)(told, 8));
  say(file, "details", ABOUT(get_response_code_details)(told, &text), text);
  say(file, "protocol", ABOUT(get_protocol)(told, &text), text);
  say(file, "route", ABOUT(get_route_name)(told, &text), text);
  say(file, "cluster", ABOUT(get_upstream_cluster)(told, &text), text);
  say(file, "spoken", ABOUT(get_upstream_protocol)(told, &text), text);
  fprintf(file, " tries=%u", ABOUT(get_attempt_count)(told));
  say_field(file, told, "method", PR_REQUEST_HEADERS, ":method");
  say_field(file, told, "many", PR_REQUEST_HEADERS, "X-Many");
  say_field(file, told, "status", PR_RESPONSE_HEADERS, ":status");
  say_field(file, told, "trailer", PR_RESPONSE_TRAILERS, "x-end");
  say_field(file, told, "unknown", PR_REQUEST_TRAILERS, "x-end");
  if (count && count < 64 && ABOUT(get_headers)(told, PR_REQUEST_HEADERS, all))
    for (size_t i = 0; i < count; i++) found += all[i].name_length == 6 && !memcmp(all[i].name, "x-many", 6);
  fprintf(file, " listed=%zu", found);
  say(file, "text", ABOUT(get_dynamic_metadata)(told, literal("own"), literal("text"), &text), text);
  there = ABOUT(get_dynamic_metadata_number)(told, literal("own"), literal("number"), &number);
  fprintf(file, " number=%d/%g", there, number);
  there = ABOUT(get_dynamic_metadata_bool)(told, literal("own"), literal("truth"), &truth);
  fprintf(file, " truth=%d/%d", there, truth);
  say(file, "absent", ABOUT(get_dynamic_metadata)(told, literal("own"), literal("text.more"), &text), text);
  there = ABOUT(get_downstream_remote_address)(told, &text, &port);
  say_address(file, "client", there, text, port);
  there = ABOUT(get_downstream_local_address)(told, &text, &port);
  say_address(file, "here", there, text, port);
  there = ABOUT(get_upstream_remote_address)(told, &text, &port);
  say_address(file, "host", there, text, port);
  say(file, "called", ABOUT(get_upstream_host)(told, &text), text);
  say(file, "tls", ABOUT(get_downstream_tls_version)(told, &text), text);
  fprintf(file, " mtls=%d names=%zu", ABOUT(is_mtls)(told), ABOUT(get_downstream_peer_dns_san_size)(told));
  say(file, "attribute", ABOUT(get_attribute_string)(told, PR_RESPONSE_CODE_DETAILS, &text), text);
  there = ABOUT(get_attribute_int)(told, PR_RESPONSE_CODE, &whole);
  fprintf(file, " code=%d/%" PRIu64, there, whole);
  ABOUT(get_bytes_info)(told, &sizes);
  fprintf(file, " received=%" PRIu64 " sent=%" PRIu64, sizes.received, sizes.sent);
  ABOUT(get_timing_info)(told, &times);
  fprintf(file, " began=%d over=%d", times.start > 1000000000, times.complete >= 0);
  fprintf(file, " asked=%d answered=%d", times.last_sent_upstream >= 0, times.first_received_upstream >= 0);
  ABOUT(get_timing_info_v2)(told, &moments);
  fprintf(file, " same=%d%d", moments.known[PR_MOMENT_START] && moments.times[PR_MOMENT_START] == times.start,
          moments.known[PR_MOMENT_COMPLETE] && moments.times[PR_MOMENT_COMPLETE] == times.complete);
  fprintf(file, " counted=%d%d%d", ABOUT(increment_counter)(of->settings->config, of->settings->told, 2),
          ABOUT(set_gauge)(of->settings->config, of->settings->level, 7),
          ABOUT(record_histogram_value)(of->settings->config, of->settings->sizes, 5));
  fprintf(file, " unknown=%d", ABOUT(increment_counter)(of->settings->config, 77, 1));
  ABOUT(get_downstream_wire_bytes)(told, &wire);
  fprintf(file, " wire=%" PRIu64 "/%" PRIu64 "/%" PRIu64 "/%" PRIu64, wire.received, wire.sent, sizes.wire_received, sizes.wire_sent);
  say(file, "reply", ABOUT(get_local_reply_body)(told, &text), text);
  say(file, "state", ABOUT(get_filter_state)(told, literal("own"), &text), text);
  say(file, "trace", ABOUT(get_trace_id)(told, &text), text);
  say(file, "span", ABOUT(get_span_id)(told, &text), text);
  fprintf(file, " sampled=%d", ABOUT(is_trace_sampled)(told));
  there = ABOUT(get_request_id)(told, &text);
  fprintf(file, " id=%s", !there ? "none" : text.length == 36 ? "uuid" : "other");
  there = ABOUT(get_downstream_direct_local_address)(told, &text, &port);
  say_address(file, "direct", there, text, port);
  there = ABOUT(get_attribute_string)(told, PR_SOURCE_ADDRESS, &text);
  fprintf(file, " source=%s", there && memchr(text.start, ':', text.length) ? "port" : "none");
  fprintf(file, " site=%d", ABOUT(get_attribute_string)(told, PR_VIRTUAL_HOST_NAME, &text));
  say(file, "to", ABOUT(get_attribute_string)(told, PR_CLUSTER_NAME, &text), text);
  int facts[] = {PR_REQUEST_SIZE, PR_REQUEST_TOTAL_SIZE, PR_RESPONSE_FLAGS, PR_RESPONSE_SIZE, PR_RESPONSE_TOTAL_SIZE, PR_LISTENER_DIRECTION};
  fprintf(file, " known=");
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
    fprintf(file, "%d", ABOUT(get_attribute_int)(told, facts[i], &whole));
  fprintf(file, " last=%d\n", times.last_sent_downstream >= 0);
  fflush(file);
}

void ON(flush)(const void *own) { fprintf(((const logger *)own)->file, "flushed\n"); }

void ON(destroy)(const void *own) {
  logger *gone = (logger *)own;
  fclose(gone->file);
  free(gone);
}
