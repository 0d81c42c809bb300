/* What an Envoy Go filter costs before a proxy does anything for it: the SDK, called by a program whose own part does nothing.
 *
 *   go_floor LIBRARY REQUESTS ROUNDS
 *
 * A request is what it is to a proxy's kernel: four writes of 200 bytes on two connections over loopback, and what reads them.
 * In between, the library's filter `passthrough` is called as for a request and an answer with a body, with the smallest structures
 * of Envoy's interface (1.38). Each round runs without the calls and with them, and prints a line: the microseconds of CPU that a
 * request takes more with them, on the calling thread and on all threads of the process (Go's collector and monitor are threads).
 *
 * Built by .ci/native. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Of Envoy's contrib/golang/common/go/api/api.h. */
typedef struct {
  const char *data;
  uint64_t length;
} string;

typedef struct {
  string plugin;
  uint64_t config;
  uint32_t worker;
  int logs;
} request;

typedef struct {
  request *of;
  int is_answer;
  int state;
} message;

typedef struct {
  uint64_t plugin, plugin_length, config, config_length;
  int is_of_route;
  uint32_t concurrency;
} settings;

enum { HEADER = 1, DATA = 4, DONE = 7 };
enum { LOG_AT_END = 6, FIELDS = 5, FIELD_BYTES = 200 };

/* What the library calls. */
void envoyGoFilterHttpFinalize(void *it, int reason) { (void)reason, free(it); }
void envoyGoConfigHttpFinalize(void *it) { (void)it; }
void envoyGoFilterLog(uint32_t level, void *text, int length) { (void)level, (void)text, (void)length; }
uint32_t envoyGoFilterLogLevel(void) { return 3; }

/* What is called of it. */
static struct {
  uint64_t (*new_config)(settings *);
  uint64_t (*on_header)(message *, uint64_t ends, uint64_t fields, uint64_t bytes);
  uint64_t (*on_data)(message *, uint64_t ends, uint64_t buffer, uint64_t length);
  void (*on_log)(request *, uint64_t kind, message *, message *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                 uint64_t, uint64_t);
  void (*on_complete)(request *);
  void (*on_destroy)(request *, uint64_t reason);
} library;

static const char PLUGIN[] = "passthrough";

static void fail(const char *what) {
  fprintf(stderr, "go_floor: %s\n", what);
  exit(2);
}

static void *function(void *handle, const char *name) {
  void *it = dlsym(handle, name);
  if (!it) fail(dlerror());
  return it;
}

static uint64_t load(const char *path) {
  void *handle = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
  if (!handle) fail(dlerror());
  library.new_config = function(handle, "envoyGoFilterNewHttpPluginConfig");
  library.on_header = function(handle, "envoyGoFilterOnHttpHeader");
  library.on_data = function(handle, "envoyGoFilterOnHttpData");
  library.on_log = function(handle, "envoyGoFilterOnHttpLog");
  library.on_complete = function(handle, "envoyGoFilterOnHttpStreamComplete");
  library.on_destroy = function(handle, "envoyGoFilterOnHttpDestroy");
  settings of_plugin = {(uintptr_t)PLUGIN, sizeof PLUGIN - 1, (uintptr_t) "", 0, 0, 1};
  uint64_t config = library.new_config(&of_plugin);
  if (!config) fail("the library refuses the configuration");
  return config;
}

/* The request is the first: the library knows a stream by its address. */
typedef struct {
  request of;
  message asked, answered;
} stream;

static stream *begin(uint64_t config) {
  stream *it = calloc(1, sizeof *it);
  if (!it) fail("no memory");
  it->of = (request){{PLUGIN, sizeof PLUGIN - 1}, config, 0, 0};
  it->asked = (message){&it->of, 0, HEADER};
  it->answered = (message){&it->of, 1, HEADER};
  library.on_header(&it->asked, 1, FIELDS, FIELD_BYTES);
  it->asked.state = DONE;
  return it;
}

static void answer(stream *it) {
  library.on_header(&it->answered, 0, FIELDS, FIELD_BYTES);
  it->answered.state = DATA;
  library.on_data(&it->answered, 1, 0, 13);
  it->answered.state = DONE;
}

static void end(stream *it) {
  library.on_log(&it->of, LOG_AT_END, &it->asked, &it->answered, FIELDS, FIELD_BYTES, 0, 0, FIELDS, FIELD_BYTES, 0, 0);
  library.on_complete(&it->of);
  library.on_destroy(&it->of, 0);
}

typedef struct {
  int one, other;
} connection;

static connection connect_over_loopback(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  if (bind(listener, (void *)&address, length) || listen(listener, 1) || getsockname(listener, (void *)&address, &length))
    fail("no loopback");
  connection it = {.one = socket(AF_INET, SOCK_STREAM, 0)};
  if (connect(it.one, (void *)&address, length) || (it.other = accept(listener, 0, 0)) < 0) fail("no connection");
  setsockopt(it.one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(it.other, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  close(listener);
  return it;
}

static void carry(int from, int to) {
  static char bytes[200];
  if (write(from, bytes, sizeof bytes) != sizeof bytes || read(to, bytes, sizeof bytes) != sizeof bytes) fail("a short read");
}

static double microseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

typedef struct {
  double thread, process;
} cpu;

static cpu run(long requests, connection client, connection upstream, uint64_t config) {
  cpu before = {microseconds(CLOCK_THREAD_CPUTIME_ID), microseconds(CLOCK_PROCESS_CPUTIME_ID)};
  for (long i = 0; i < requests; i++) {
    stream *it = NULL;
    carry(client.one, client.other);
    if (config) it = begin(config);
    carry(upstream.one, upstream.other);
    carry(upstream.other, upstream.one);
    if (config) answer(it);
    carry(client.other, client.one);
    if (config) end(it);
  }
  return (cpu){(microseconds(CLOCK_THREAD_CPUTIME_ID) - before.thread) / (double)requests,
               (microseconds(CLOCK_PROCESS_CPUTIME_ID) - before.process) / (double)requests};
}

int main(int count, char **arguments) {
  if (count != 4) fail("go_floor LIBRARY REQUESTS ROUNDS");
  uint64_t config = load(arguments[1]);
  long requests = atol(arguments[2]), rounds = atol(arguments[3]);
  if (requests < 1 || rounds < 1) fail("REQUESTS and ROUNDS are numbers from 1 on");
  connection client = connect_over_loopback(), upstream = connect_over_loopback();
  run(requests / 10 + 1, client, upstream, config);
  for (long round = 0; round < rounds; round++) {
    cpu without = run(requests, client, upstream, 0), with = run(requests, client, upstream, config);
    printf("%.3f %.3f\n", with.thread - without.thread, with.process - without.process);
  }
  fflush(stdout);
  /* Go's threads run on. */
  _exit(0);
}
