/* Filters of connections for tests:
 *
 *   loud     what the client says goes on in capitals, what it hears gets brackets
 *   eights   what the client says goes on once eight bytes are there
 *   script   does what lines of the client's say that begin with `!`, and lets everything else pass
 *
 * A configuration of `wait` holds connections back until a thread lets them go on, to the cluster `origin`; one of `pass`
 * until something passes; one of `none` ends them, one of `reset` resets them. */

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_network_##name
#define OF(name) envoy_dynamic_module_callback_network_filter_##name
#define ON(name) envoy_dynamic_module_on_network_filter_##name

typedef enum { LOUD, EIGHTS, SCRIPT } sort;

typedef struct {
  sort sort;
  bool waits, stops, makes_none, resets;
  pr_config config;
  void *scheduler;
  size_t lines, level, sizes, heard, by_client, by_proxy, connected, above, below;
} settings;

typedef struct {
  const settings *settings;
  /* It does not let its connection end. */
  bool stays;
} filter;

/* Reaches the connection that was told to stay, and how many ended so far. */
static void *kept;
static size_t ended;

static pr_bytes literal(const char *text) { return (pr_bytes){text, strlen(text)}; }

static bool is(pr_bytes text, const char *other) {
  return text.length == strlen(other) && !memcmp(text.start, other, text.length);
}

const char *envoy_dynamic_module_on_program_init(void) { return PR_VERSION; }

const void *ON(config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  settings *made = calloc(1, sizeof(settings));
  made->config = config;
  made->sort = is(name, "loud") ? LOUD : is(name, "eights") ? EIGHTS : SCRIPT;
  made->waits = is(text, "wait");
  made->stops = is(text, "pass");
  made->makes_none = is(text, "none");
  made->resets = is(text, "reset");
  if ((made->sort == SCRIPT && !is(name, "script")) || is(text, "refused")) {
    free(made);
    return NULL;
  }
  OF(config_define_counter)(config, literal("lines"), &made->lines);
  OF(config_define_gauge)(config, literal("level"), &made->level);
  OF(config_define_histogram)(config, literal("sizes"), &made->sizes);
  OF(config_define_counter)(config, literal("heard"), &made->heard);
  OF(config_define_counter)(config, literal("by_client"), &made->by_client);
  OF(config_define_counter)(config, literal("by_proxy"), &made->by_proxy);
  OF(config_define_counter)(config, literal("connected"), &made->connected);
  OF(config_define_counter)(config, literal("above"), &made->above);
  OF(config_define_counter)(config, literal("below"), &made->below);
  made->scheduler = OF(config_scheduler_new)(config);
  return made;
}

void ON(config_destroy)(const void *own) {
  settings *gone = (settings *)own;
  OF(config_scheduler_delete)(gone->scheduler);
  free(gone);
}

void ON(config_scheduled)(const void *own, uint64_t event) {
  const settings *known = own;
  OF(config_increment_counter)(known->config, known->heard, event);
  OF(config_set_gauge)(known->config, known->level, 10);
  OF(config_increment_gauge)(known->config, known->level, 2);
  OF(config_decrement_gauge)(known->config, known->level, 1);
  OF(config_record_histogram_value)(known->config, known->sizes, 1);
}

const void *ON(new)(const void *own, pr_connection connection) {
  const settings *known = own;
  (void)connection;
  if (known->makes_none) return NULL;
  filter *made = calloc(1, sizeof(filter));
  made->settings = known;
  return made;
}

void ON(destroy)(const void *own) { free((void *)own); }

static void *commit_later(void *scheduler) {
  OF(scheduler_commit)(scheduler, 7);
  OF(scheduler_delete)(scheduler);
  return NULL;
}

static void commit_later_for(pr_connection connection) {
  pthread_t thread;
  pthread_create(&thread, NULL, commit_later, OF(scheduler_new)(connection));
  pthread_detach(thread);
}

int ON(new_connection)(pr_connection connection, const void *own) {
  const settings *known = ((const filter *)own)->settings;
  if (known->waits) commit_later_for(connection);
  if (known->resets) OF(close)(connection, PR_CLOSE_RESET);
  return known->waits || known->stops ? PR_STOP : PR_PASS;
}

static void say(pr_connection connection, const char *text) { OF(write)(connection, literal(text), false); }

/* Whether the address is that of this machine, with some port. */
static const char *local(bool there, pr_bytes address, uint32_t port) {
  return there && is(address, "127.0.0.1") && port ? "here" : "none";
}

static void say_facts(pr_connection connection) {
  pr_bytes remote, direct, own, name, subject, upstream, cluster, host, address;
  uint32_t remote_port = 0, direct_port = 0, own_port = 0, upstream_port = 0;
  uint64_t number = 0;
  bool has_remote = OF(get_remote_address)(connection, &remote, &remote_port);
  bool has_direct = OF(get_direct_remote_address)(connection, &direct, &direct_port);
  bool has_own = OF(get_local_address)(connection, &own, &own_port);
  bool has_name = OF(get_requested_server_name)(connection, &name);
  bool has_subject = OF(get_ssl_subject)(connection, &subject);
  bool has_upstream = OF(get_upstream_host_address)(connection, &upstream, &upstream_port);
  bool has_cluster = OF(get_upstream_host_cluster)(connection, &cluster);
  bool has_host = OF(get_upstream_host_hostname)(connection, &host);
  bool has_address = OF(get_attribute_string)(connection, PR_SOURCE_ADDRESS, &address);
  bool has_number = OF(get_attribute_int)(connection, PR_CONNECTION_ID, &number);
  bool mutual = true;
  bool has_mutual = OF(get_attribute_bool)(connection, PR_CONNECTION_MTLS, &mutual);
  char text[1024];
  snprintf(
      text, sizeof text,
      "remote=%s direct=%s own=%s same=%d tls=%d name=%.*s subject=%.*s uris=%zu dns=%zu upstream=%s/%d cluster=%.*s "
      "host=%.*s state=%d reads=%d half=%d limit=%u full=%d held=%zu worker=%u address=%d number=%d mutual=%d/%d secure=%d%d\n",
      local(has_remote, remote, remote_port), local(has_direct, direct, direct_port), local(has_own, own, own_port),
      remote_port == direct_port, OF(is_ssl)(connection),
      has_name ? (int)name.length : 4, has_name ? name.start : "none", has_subject ? (int)subject.length : 4,
      has_subject ? subject.start : "none", OF(get_ssl_uri_sans_size)(connection), OF(get_ssl_dns_sans_size)(connection),
      local(has_upstream, upstream, upstream_port), OF(has_upstream_host)(connection), has_cluster ? (int)cluster.length : 4,
      has_cluster ? cluster.start : "none", has_host ? (int)host.length : 1,
      has_host ? host.start : "0", OF(get_connection_state)(connection), OF(read_enabled)(connection),
      OF(is_half_close_enabled)(connection), OF(get_buffer_limit)(connection), OF(above_high_watermark)(connection),
      OF(get_read_buffer_size)(connection), OF(get_worker_index)(connection),
      has_address && address.length > 9 && !memcmp(address.start, "127.0.0.1:", 10), has_number && number == OF(get_connection_id)(connection),
      has_mutual, has_mutual && mutual, OF(start_downstream_secure_transport)(connection),
      OF(start_upstream_secure_transport)(connection));
  say(connection, text);
}

static void note(pr_connection connection) {
  pr_header batch[] = {{"a", 1, "one", 3}, {"b", 1, "two", 3}};
  CALL(set_dynamic_metadata_string)(connection, literal("own"), literal("text"), literal("value"));
  CALL(set_dynamic_metadata_number)(connection, literal("own"), literal("number"), 2.5);
  CALL(set_dynamic_metadata_bool)(connection, literal("own"), literal("truth"), true);
  CALL(set_dynamic_metadata_string_batch)(connection, literal("own"), batch, 2);
  bool set = CALL(set_filter_state_bytes)(connection, literal("own.state"), literal("kept"));
  pr_bytes raw = {"\x80\xff", 2}, found = {0};
  bool has_raw = CALL(set_filter_state_bytes)(connection, literal("own.raw"), raw) &&
                 CALL(get_filter_state_bytes)(connection, literal("own.raw"), &found) && found.length == 2 &&
                 !memcmp(found.start, raw.start, 2);
  pr_bytes text = {0}, second = {0}, state = {0}, typed = {0}, none;
  double number = 0;
  bool truth = false;
  CALL(get_dynamic_metadata_string)(connection, literal("own"), literal("text"), &text);
  CALL(get_dynamic_metadata_string)(connection, literal("own"), literal("b"), &second);
  CALL(get_dynamic_metadata_number)(connection, literal("own"), literal("number"), &number);
  CALL(get_dynamic_metadata_bool)(connection, literal("own"), literal("truth"), &truth);
  CALL(get_filter_state_bytes)(connection, literal("own.state"), &state);
  CALL(get_filter_state_typed)(connection, literal("own.state"), &typed);
  bool other = CALL(get_dynamic_metadata_string)(connection, literal("own"), literal("number"), &none);
  bool unknown = CALL(set_filter_state_typed)(connection, literal("no.such.kind"), literal("x"));
  pr_bytes flag = {0};
  CALL(set_filter_state_typed)(connection, literal("envoy.bool"), literal("true"));
  CALL(get_filter_state_typed)(connection, literal("envoy.bool"), &flag);
  char line[256];
  snprintf(line, sizeof line, "%.*s %.*s %.1f %d %d %.*s %.*s %d %d %d %.*s\n", (int)text.length, text.start, (int)second.length,
           second.start, number, truth, set, (int)state.length, state.start, (int)typed.length, typed.start, other, unknown, has_raw,
           (int)flag.length, flag.start);
  say(connection, line);
}

static void call(pr_connection connection, char *cluster, char *path) {
  pr_header headers[] = {{":method", 7, "GET", 3}, {":path", 5, path, strlen(path)}, {":authority", 10, "test", 4}};
  uint64_t id = 0;
  bool whole = strcmp(path, "none");
  int code = OF(http_callout)(connection, &id, literal(cluster), headers, whole ? 3 : 1, literal(""), 5000);
  char line[64];
  snprintf(line, sizeof line, "call %d\n", code);
  say(connection, line);
}

static void perform(pr_connection connection, filter *filter, char *line) {
  const settings *known = filter->settings;
  char *rest = strchr(line, ' ');
  rest = rest ? (*rest = 0, rest + 1) : line + strlen(line);
  OF(increment_counter)(connection, known->lines, 1);
  OF(record_histogram_value)(connection, known->sizes, strlen(rest));
  char text[256];
  if (!strcasecmp(line, "say")) {
    snprintf(text, sizeof text, "%s\n", rest);
    say(connection, text);
  } else if (!strcasecmp(line, "length")) {
    snprintf(text, sizeof text, "%zu\n", strlen(rest));
    say(connection, text);
  } else if (!strcasecmp(line, "facts")) {
    say_facts(connection);
  } else if (!strcasecmp(line, "note")) {
    note(connection);
  } else if (!strcasecmp(line, "forth")) {
    snprintf(text, sizeof text, "%s\n", rest);
    OF(inject_read_data)(connection, literal(text), false);
  } else if (!strcasecmp(line, "last")) {
    snprintf(text, sizeof text, "%s\n", rest);
    OF(inject_read_data)(connection, literal(text), true);
  } else if (!strcasecmp(line, "back")) {
    snprintf(text, sizeof text, "%s\n", rest);
    OF(inject_write_data)(connection, literal(text), false);
  } else if (!strcasecmp(line, "later")) {
    commit_later_for(connection);
  } else if (!strcasecmp(line, "background")) {
    OF(config_scheduler_commit)(known->scheduler, 3);
  } else if (!strcasecmp(line, "call")) {
    char *path = strchr(rest, ' ');
    *path = 0;
    call(connection, rest, path + 1);
  } else if (!strcasecmp(line, "hosts")) {
    size_t all = 9, healthy = 9, degraded = 9;
    bool found = OF(get_cluster_host_count)(connection, literal(rest), 0, &all, &healthy, &degraded);
    bool second = OF(get_cluster_host_count)(connection, literal(rest), 1, NULL, NULL, NULL);
    snprintf(text, sizeof text, "%d %zu %zu %zu %d\n", found, all, healthy, degraded, second);
    say(connection, text);
  } else if (!strcasecmp(line, "half")) {
    OF(enable_half_close)(connection, true);
  } else if (!strcasecmp(line, "finish")) {
    OF(write)(connection, literal("last\n"), true);
  } else if (!strcasecmp(line, "reading")) {
    int codes[] = {OF(read_disable)(connection, true), OF(read_disable)(connection, true),
                   OF(read_disable)(connection, false), OF(read_disable)(connection, false)};
    snprintf(text, sizeof text, "%d%d%d%d\n", codes[0], codes[1], codes[2], codes[3]);
    say(connection, text);
  } else if (!strcasecmp(line, "deaf")) {
    OF(read_disable)(connection, true);
    commit_later_for(connection);
  } else if (!strcasecmp(line, "flood")) {
    OF(set_buffer_limits)(connection, 65536);
    size_t length = strtoul(rest, NULL, 10);
    char *much = malloc(length);
    memset(much, 'x', length);
    OF(write)(connection, (pr_bytes){much, length}, false);
    free(much);
  } else if (!strcasecmp(line, "close")) {
    say(connection, "bye\n");
    OF(close)(connection, atoi(rest));
  } else if (!strcasecmp(line, "stay")) {
    /* It ends in the way of the number, and not before a thread lets it. */
    filter->stays = true;
    OF(disable_close)(connection, true);
    say(connection, "bye\n");
    if (*rest != '-') OF(close)(connection, atoi(rest));
    commit_later_for(connection);
  } else if (!strcasecmp(line, "keep")) {
    filter->stays = true;
    OF(disable_close)(connection, true);
    kept = OF(scheduler_new)(connection);
    say(connection, "kept\n");
  } else if (!strcasecmp(line, "release")) {
    snprintf(text, sizeof text, "%zu ended\n", ended);
    say(connection, text);
    OF(scheduler_commit)(kept, 8);
    OF(scheduler_delete)(kept);
  } else if (!strcasecmp(line, "because")) {
    OF(close_with_details)(connection, PR_CLOSE_FLUSHED, literal(rest));
  } else if (!strcasecmp(line, "gauge")) {
    OF(set_gauge)(connection, known->level, 5);
    OF(increment_gauge)(connection, known->level, 4);
    OF(decrement_gauge)(connection, known->level, 2);
    snprintf(text, sizeof text, "%d\n", OF(increment_counter)(connection, 99, 1));
    say(connection, text);
  }
}

/* The bytes that are held, to be freed. */
static char *held(pr_connection connection, size_t *length) {
  *length = OF(get_read_buffer_size)(connection);
  size_t count = OF(get_read_buffer_chunks_size)(connection), at = 0;
  pr_bytes *chunks = calloc(count + 1, sizeof(pr_bytes));
  char *all = malloc(*length + 1);
  if (OF(get_read_buffer_chunks)(connection, chunks)) {
    for (size_t i = 0; i < count; at += chunks[i++].length) memcpy(all + at, chunks[i].start, chunks[i].length);
  }
  free(chunks);
  all[at] = 0;
  return all;
}

int ON(read)(pr_connection connection, const void *own, size_t length, bool end) {
  filter *filter = (void *)own;
  size_t have;
  int answer = PR_PASS;
  char *data = held(connection, &have);
  if (have != length) abort();
  switch (filter->settings->sort) {
    case LOUD:
      for (size_t i = 0; i < have; i++) data[i] = (char)toupper(data[i]);
      OF(drain_read_buffer)(connection, have);
      if (have) OF(append_read_buffer)(connection, (pr_bytes){data, have});
      break;
    case EIGHTS:
      answer = have < 8 && !end ? PR_STOP : PR_PASS;
      break;
    case SCRIPT:
      for (;;) {
        char *line_end = memchr(data, '\n', have);
        if (!have || data[0] != '!' || !line_end) break;
        *line_end = 0;
        size_t taken = (size_t)(line_end - data) + 1;
        OF(drain_read_buffer)(connection, taken);
        perform(connection, filter, data + 1);
        free(data);
        data = held(connection, &have);
      }
      if (have && data[0] == '!') answer = PR_STOP;
      /* A command alone begins nothing behind a filter that holds connections back. */
      if (!have && !end && filter->settings->stops) answer = PR_STOP;
      break;
  }
  free(data);
  return answer;
}

int ON(write)(pr_connection connection, const void *own, size_t length, bool end) {
  (void)end;
  if (length != OF(get_write_buffer_size)(connection)) abort();
  if (((const filter *)own)->settings->sort == LOUD && length) {
    pr_bytes chunk;
    if (OF(get_write_buffer_chunks_size)(connection) == 1) OF(get_write_buffer_chunks)(connection, &chunk);
    OF(prepend_write_buffer)(connection, literal("["));
    OF(append_write_buffer)(connection, literal("]"));
  }
  return PR_PASS;
}

void ON(event)(pr_connection connection, const void *own, int event) {
  const settings *known = ((const filter *)own)->settings;
  size_t counters[] = {known->by_client, known->by_proxy, known->connected};
  ended += event == 0 || event == 1;
  if (event == PR_CLOSED_BY_CLIENT || event == PR_CLOSED_BY_PROXY)
    CALL(set_dynamic_metadata_string)(connection, literal("own"), literal("end"), literal(event ? "proxy" : "client"));
  if (event >= 0 && event < 3) OF(increment_counter)(connection, counters[event], 1);
}

void ON(scheduled)(pr_connection connection, const void *own, uint64_t event) {
  char text[64];
  if (((const filter *)own)->settings->waits) {
    CALL(set_filter_state_typed)(connection, literal("envoy.tcp_proxy.cluster"), literal("origin"));
    OF(continue_reading)(connection);
    return;
  }
  filter *filter = (void *)own;
  if (filter->stays) {
    filter->stays = false;
    if (event == 7) OF(inject_write_data)(connection, literal("stayed\n"), false);
    OF(disable_close)(connection, false);
    return;
  }
  if (!OF(read_enabled)(connection)) OF(read_disable)(connection, false);
  snprintf(text, sizeof text, "event %d held %zu\n", (int)event, OF(get_read_buffer_size)(connection));
  say(connection, text);
}

void ON(http_callout_done)(
    pr_connection connection, const void *own, uint64_t id, int result, const pr_header *headers, size_t header_count,
    const pr_bytes *body, size_t body_count) {
  (void)own, (void)id;
  char text[256];
  snprintf(text, sizeof text, "done %d %.*s %.*s\n", result, header_count ? (int)headers[0].value_length : 0,
           header_count ? headers[0].value : "", body_count ? (int)body[0].length : 0, body_count ? body[0].start : "");
  say(connection, text);
}

void ON(above_write_buffer_high_watermark)(pr_connection connection, const void *own) {
  OF(increment_counter)(connection, ((const filter *)own)->settings->above, 1);
}

void ON(below_write_buffer_low_watermark)(pr_connection connection, const void *own) {
  OF(increment_counter)(connection, ((const filter *)own)->settings->below, 1);
}
