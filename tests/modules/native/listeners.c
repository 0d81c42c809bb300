/* Filters of listeners for tests:
 *
 *   script   does what the first line of a connection says, if that begins with `!`: commands with `;` between them. The line
 *            is taken; what it found out is noted as `module:told`.
 *   wait     holds connections back until a thread lets them go on (`go`), or ends them (`end`), as the configuration says;
 *            with `none` there is none of them, with `never` nobody does anything.
 *   tells    notes what it knows of the connection without reading anything. */

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "postrider_module.h"

#define OF(name) envoy_dynamic_module_callback_listener_filter_##name
#define ON(name) envoy_dynamic_module_on_listener_filter_##name

enum { MOST = 1024, TOLD = 1024 };

typedef struct {
  char name[16], text[64];
  pr_config config;
  void *scheduler;
  size_t lines, level, sizes, left, scheduled;
} settings;

typedef struct {
  const settings *settings;
  pr_newcomer newcomer;
  uint64_t call;
  bool waits, knows;
  char told[TOLD];
} filter;

static pr_bytes bytes(const char *text) { return (pr_bytes){text, strlen(text)}; }

const char *envoy_dynamic_module_on_program_init(void) { return PR_VERSION; }

const void *ON(config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  settings *made = calloc(1, sizeof(settings));
  made->config = config;
  snprintf(made->name, sizeof made->name, "%.*s", (int)name.length, name.start);
  snprintf(made->text, sizeof made->text, "%.*s", (int)text.length, text.start);
  if (!strcmp(made->text, "refused")) {
    free(made);
    return NULL;
  }
  OF(config_define_counter)(config, bytes("lines"), &made->lines);
  OF(config_define_gauge)(config, bytes("level"), &made->level);
  OF(config_define_histogram)(config, bytes("sizes"), &made->sizes);
  OF(config_define_counter)(config, bytes("left"), &made->left);
  OF(config_define_counter)(config, bytes("scheduled"), &made->scheduled);
  if (!strcmp(made->name, "script")) {
    made->scheduler = OF(config_scheduler_new)(config);
    OF(config_scheduler_commit)(made->scheduler, 7);
  }
  return made;
}

void ON(config_destroy)(const void *own) {
  settings *gone = (settings *)own;
  if (gone->scheduler) OF(config_scheduler_delete)(gone->scheduler);
  free(gone);
}

void ON(config_scheduled)(pr_config config, const void *own, uint64_t event) {
  OF(config_increment_counter)(config, ((const settings *)own)->scheduled, event);
}

const void *ON(new)(const void *own, pr_newcomer newcomer) {
  if (!strcmp(((const settings *)own)->text, "none")) return NULL;
  filter *made = calloc(1, sizeof(filter));
  made->settings = own;
  made->newcomer = newcomer;
  return made;
}
void ON(destroy)(const void *own) { free((void *)own); }

static void say(filter *of, const char *text, size_t length) {
  size_t at = strlen(of->told);
  snprintf(of->told + at, TOLD - at, "%s%.*s", at ? "," : "", (int)length, text);
}
static void say_text(filter *of, const char *text) { say(of, text, strlen(text)); }
static void say_found(filter *of, bool found, pr_bytes text) {
  if (found) say(of, text.start, text.length);
  else say_text(of, "-");
}
static void say_number(filter *of, int64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)number);
  say_text(of, text);
}

static void told(filter *of) {
  if (of->told[0]) OF(set_dynamic_metadata_string)(of->newcomer, bytes("module"), bytes("told"), bytes(of->told));
}

/* ---- threads ---- */

typedef struct {
  void *scheduler;
  uint64_t event;
} task;

static void *later(void *own) {
  task *mine = own;
  OF(scheduler_commit)(mine->scheduler, mine->event);
  OF(scheduler_delete)(mine->scheduler);
  free(mine);
  return NULL;
}

static void schedule(filter *of, uint64_t event) {
  pthread_t thread;
  task *made = calloc(1, sizeof(task));
  made->scheduler = OF(scheduler_new)(of->newcomer);
  made->event = event;
  pthread_create(&thread, NULL, later, made);
  pthread_detach(thread);
}

void ON(scheduled)(pr_newcomer newcomer, const void *own, uint64_t event) {
  filter *of = (filter *)own;
  say_text(of, "scheduled");
  told(of);
  OF(continue_filter_chain)(newcomer, event == 1);
}

void ON(http_callout_done)(pr_newcomer newcomer, const void *own, uint64_t id, int result, const pr_header *headers,
                           size_t header_count, const pr_bytes *body, size_t body_count) {
  filter *of = (filter *)own;
  (void)headers, (void)result;
  say_text(of, id == of->call && header_count ? "answered" : "other");
  for (size_t i = 0; i < body_count; i++) say(of, body[i].start, body[i].length);
  told(of);
  OF(continue_filter_chain)(newcomer, true);
}

/* ---- commands ---- */

static void addresses(filter *of) {
  pr_bytes text = {NULL, 0};
  uint32_t port = 0;
  bool found = OF(get_remote_address)(of->newcomer, &text, &port);
  say_found(of, found && port, text);
  found = OF(get_direct_remote_address)(of->newcomer, &text, &port);
  say_found(of, found && port, text);
  found = OF(get_local_address)(of->newcomer, &text, &port);
  say_found(of, found && port, text);
  found = OF(get_direct_local_address)(of->newcomer, &text, &port);
  say_found(of, found && port, text);
  say_number(of, OF(get_address_type)(of->newcomer));
  say_number(of, OF(is_local_address_restored)(of->newcomer));
}

static void sockets(filter *of) {
  int64_t value = 0;
  char held[sizeof(int)];
  size_t length = 0;
  int on = 1;
  say_number(of, OF(get_socket_fd)(of->newcomer) >= 0);
  say_number(of, OF(set_socket_option_int)(of->newcomer, IPPROTO_TCP, TCP_KEEPIDLE, 77));
  say_number(of, OF(get_socket_option_int)(of->newcomer, IPPROTO_TCP, TCP_KEEPIDLE, &value));
  say_number(of, value);
  say_number(of, OF(set_socket_option_bytes)(of->newcomer, SOL_SOCKET, SO_KEEPALIVE, (pr_bytes){(char *)&on, sizeof on}));
  say_number(of, OF(get_socket_option_bytes)(of->newcomer, SOL_SOCKET, SO_KEEPALIVE, held, sizeof held, &length));
  say_number(of, (int64_t)length);
  say_number(of, OF(set_socket_option_int)(of->newcomer, 4711, 4711, 1));
}

static void known(filter *of) {
  pr_bytes text = {NULL, 0}, all[8];
  bool found = OF(get_requested_server_name)(of->newcomer, &text);
  say_found(of, found, text);
  found = OF(get_detected_transport_protocol)(of->newcomer, &text);
  say_found(of, found, text);
  size_t count = OF(get_requested_application_protocols_size)(of->newcomer);
  if (count <= 8 && OF(get_requested_application_protocols)(of->newcomer, all))
    for (size_t i = 0; i < count; i++) say(of, all[i].start, all[i].length);
  found = OF(get_ja3_hash)(of->newcomer, &text);
  say_found(of, found, text);
  found = OF(get_ja4_hash)(of->newcomer, &text);
  say_found(of, found, text);
  say_number(of, OF(is_ssl)(of->newcomer));
  say_number(of, OF(get_ssl_uri_sans_size)(of->newcomer) + OF(get_ssl_dns_sans_size)(of->newcomer));
}

static void notes(filter *of) {
  pr_bytes text = {NULL, 0};
  pr_header two[] = {{"a", 1, "1", 1}, {"b", 1, "2", 1}};
  double number = 0;
  OF(set_dynamic_metadata_number)(of->newcomer, bytes("module"), bytes("number"), 2.5);
  OF(set_dynamic_metadata_string_batch)(of->newcomer, bytes("module"), two, 2);
  say_number(of, OF(get_dynamic_metadata_number)(of->newcomer, bytes("module"), bytes("number"), &number) && number == 2.5);
  bool found = OF(get_dynamic_metadata_string)(of->newcomer, bytes("module"), bytes("b"), &text);
  say_found(of, found, text);
  found = OF(get_dynamic_metadata_string)(of->newcomer, bytes("module"), bytes("number"), &text);
  say_found(of, found, text);
  say_number(of, OF(set_filter_state)(of->newcomer, bytes("module.state"), bytes("kept")));
  found = OF(get_filter_state)(of->newcomer, bytes("module.state"), &text);
  say_found(of, found, text);
  found = OF(get_filter_state)(of->newcomer, bytes("module.none"), &text);
  say_found(of, found, text);
  say_number(of, OF(set_filter_state_typed)(of->newcomer, bytes("envoy.string"), bytes("typed")));
  found = OF(get_filter_state_typed)(of->newcomer, bytes("envoy.string"), &text);
  say_found(of, found, text);
  say_number(of, OF(set_filter_state_typed)(of->newcomer, bytes("envoy.bool"), bytes("true")));
  found = OF(get_filter_state_typed)(of->newcomer, bytes("envoy.bool"), &text);
  say_found(of, found, text);
  say_number(of, OF(set_filter_state_typed)(of->newcomer, bytes("no.such.kind"), bytes("x")));
  OF(set_filter_state)(of->newcomer, bytes("own.raw"), (pr_bytes){"\x80\xff", 2});
  found = OF(get_filter_state)(of->newcomer, bytes("own.raw"), &text);
  say_number(of, found && text.length == 2 && !memcmp(text.start, "\x80\xff", 2));
}

/* One command; whether the connection waits for something. */
static bool act(filter *of, char *line) {
  char *word = strtok(line, " "), *one = strtok(NULL, " "), *two = strtok(NULL, " ");
  pr_newcomer to = of->newcomer;
  if (!word) return false;
  if (!one) one = "";
  if (!strcmp(word, "server")) OF(set_requested_server_name)(to, bytes(one));
  else if (!strcmp(word, "transport")) OF(set_detected_transport_protocol)(to, bytes(one));
  else if (!strcmp(word, "protocols")) {
    pr_bytes all[] = {bytes(one), bytes(two ? two : "")};
    OF(set_requested_application_protocols)(to, all, two ? 2 : 1);
  } else if (!strcmp(word, "ja3")) OF(set_ja3_hash)(to, bytes(one));
  else if (!strcmp(word, "ja4")) OF(set_ja4_hash)(to, bytes(one));
  else if (!strcmp(word, "from")) say_number(of, OF(set_remote_address)(to, bytes(one), atoi(two), strchr(one, ':') != NULL));
  else if (!strcmp(word, "for")) say_number(of, OF(restore_local_address)(to, bytes(one), atoi(two), strchr(one, ':') != NULL));
  else if (!strcmp(word, "say")) say_number(of, OF(write_to_socket)(to, bytes(one)));
  else if (!strcmp(word, "close")) {
    OF(close_socket)(to, bytes(one));
    return true;
  } else if (!strcmp(word, "fail")) OF(set_downstream_transport_failure_reason)(to, bytes(one));
  else if (!strcmp(word, "addresses")) addresses(of);
  else if (!strcmp(word, "sockets")) sockets(of);
  else if (!strcmp(word, "known")) known(of);
  else if (!strcmp(word, "notes")) notes(of);
  else if (!strcmp(word, "facts")) {
    pr_bytes text = {NULL, 0};
    uint64_t number = 0;
    say_number(of, OF(get_connection_start_time_ms)(to) > 1700000000000u);
    say_number(of, OF(get_worker_index)(to));
    say_number(of, of->knows);
    say_number(of, (int64_t)OF(max_read_bytes)(to));
    say_number(of, OF(get_attribute_string)(to, PR_SOURCE_ADDRESS, &text) && text.length > 9);
    say_number(of, OF(get_attribute_int)(to, PR_SOURCE_PORT, &number) && number > 0);
  } else if (!strcmp(word, "stats")) {
    OF(increment_counter)(to, of->settings->lines, 3);
    OF(increment_gauge)(to, of->settings->level, 5);
    OF(decrement_gauge)(to, of->settings->level, 2);
    OF(record_histogram_value)(to, of->settings->sizes, 9);
    say_number(of, OF(increment_counter)(to, 4711, 1));
  } else if (!strcmp(word, "thread")) {
    schedule(of, 1);
    return true;
  } else if (!strcmp(word, "call")) {
    pr_header headers[] = {{":method", 7, "GET", 3}, {":path", 5, "/", 1}, {":authority", 10, "there", 5}};
    int started = OF(http_callout)(to, &of->call, bytes(one), headers, 3, (pr_bytes){NULL, 0}, 5000);
    if (started == PR_CALL_STARTED) return true;
    say_number(of, started);
  } else say_text(of, "what?");
  return false;
}

/* ---- hooks ---- */

int ON(on_accept)(pr_newcomer newcomer, const void *own) {
  filter *of = (filter *)own;
  if (!strcmp(of->settings->name, "tells")) {
    known(of);
    told(of);
    return PR_PASS;
  }
  if (!strcmp(of->settings->text, "go")) schedule(of, 1);
  if (!strcmp(of->settings->text, "end")) schedule(of, 2);
  (void)newcomer;
  return PR_STOP;
}

size_t ON(get_max_read_bytes)(pr_newcomer newcomer, const void *own) {
  pr_bytes address = {NULL, 0};
  uint32_t port = 0;
  ((filter *)own)->knows = OF(get_remote_address)(newcomer, &address, &port) && port;
  return strcmp(((const filter *)own)->settings->name, "script") ? 0 : MOST;
}

int ON(on_data)(pr_newcomer newcomer, const void *own, size_t length) {
  filter *of = (filter *)own;
  char line[MOST + 1];
  pr_bytes data = {NULL, 0};
  if (of->waits) return PR_STOP;
  if (!OF(get_buffer_chunk)(newcomer, &data) || data.length != length || !length) return PR_STOP;
  if (data.start[0] != '!') return PR_PASS;
  const char *end = memchr(data.start, '\n', data.length);
  if (!end) return PR_STOP;
  size_t size = (size_t)(end - data.start) + 1;
  snprintf(line, sizeof line, "%.*s", (int)size - 2, data.start + 1);
  if (!OF(drain_buffer)(newcomer, size)) return PR_STOP;
  bool waits = false;
  char *rest = line, *next;
  while ((next = strsep(&rest, ";"))) waits |= act(of, next);
  told(of);
  of->waits = waits;
  return waits ? PR_STOP : PR_PASS;
}

void ON(on_close)(pr_newcomer newcomer, const void *own) {
  OF(increment_counter)(newcomer, ((const filter *)own)->settings->left, 1);
}
