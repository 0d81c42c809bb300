-- The border to the proxy: types and functions of `abi/table.rs`, in its order. Each function is cast once and kept in
-- a local by whoever uses it, so that traces hold its address.
local address, context_address, mark, null = ...
local ffi = require("ffi")

ffi.cdef [[
typedef struct { const char *p; size_t n; } pr_str;
typedef struct { int32_t stream, turn, side, message, plugin; } pr_ctx;
typedef struct { int kind; double number; pr_str text; } pr_value;
typedef struct {
  int (*field_get)(int map, const char *name, size_t n, pr_str *out);
  int (*field_count)(int map, const char *name, size_t n);
  int (*field_at)(int map, const char *name, size_t n, int index, pr_str *out);
  int (*field_set)(int map, const char *name, size_t n, const char *value, size_t vn);
  int (*field_add)(int map, const char *name, size_t n, const char *value, size_t vn);
  int (*field_remove)(int map, const char *name, size_t n);
  int (*field_len)(int map);
  int (*field_next)(int map, int cursor, pr_str *name, pr_str *value);
  int (*fields_clear)(int map);
  int (*set_reason)(const char *text, size_t n);
  int (*body_get)(int side, pr_str *out);
  double (*body_length)(int side);
  int (*body_part)(int side, double index, double length, pr_str *out);
  int (*body_set)(int side, const char *bytes, size_t n);
  int (*flow)(int side);
  int (*respond_begin)(int status);
  int (*respond_end)(const char *body, size_t n);
  int (*call_begin)(const char *cluster, size_t n);
  int (*call_send)(const char *body, size_t n, double timeout_ms, int asynchronous, int told);
  int (*call_outcome)(void);
  int (*info)(int what, pr_str *out);
  double (*start_time)(void);
  double (*now)(void);
  int (*log)(int level, const char *text, size_t n);
  int (*log_enabled)(int level);
  int (*file_log)(const char *text, size_t n);
  int (*clear_route_cache)(void);
  int (*drain)(void);
  int (*override_host)(const char *host, size_t n, int strict);
  int (*route_kind)(void);
  int (*keep)(void);
  int (*value_get)(int which, const char *ns, size_t nn, const char *key, size_t kn, pr_value *out);
  int (*value_set)(int which, const char *ns, size_t nn, const char *key, size_t kn, int kind, double number, const char *text, size_t n);
  int (*message_load)(int which, const char *ns, size_t nn);
  int (*message_next)(pr_value *out);
  int (*namespace)(int which, int cursor, pr_str *out);
  double (*route_config_id)(void);
  int (*check_schema)(const char *schema, size_t sn, const char *value, size_t n, pr_str *out);
  int (*metric_define)(int kind, const char *name, size_t n);
  int (*metric_add)(int id, double offset);
  int (*metric_record)(int id, double value);
  double (*metric_value)(int id);
  // envoy
  int (*base64_decode_strict)(const char *bytes, size_t n, pr_str *out);
  int (*key_check)(const char *der, size_t n);
  int (*verify)(const char *hash, size_t hn, const char *key, size_t kn, const char *sig, size_t sn, const char *data, size_t n);
  int (*required)(const char *path, size_t n);
  int (*tls_part)(int what, int index, pr_str *out);
  int (*tls_agreed)(int what, pr_str *out);
  double (*tls_number)(int what);
  // rider
  int (*field_check)(const char *name, size_t n, const char *value, size_t vn);
  int (*check_is_schema)(const char *schema, size_t n, pr_str *out);
  int (*digest)(int kind, const char *bytes, size_t n, pr_str *out);
  int (*hmac)(int kind, const char *key, size_t kn, const char *bytes, size_t n, pr_str *out);
  int (*shake)(int kind, size_t size, const char *bytes, size_t n, pr_str *out);
  int (*blake2)(int kind, size_t size, const char *key, size_t kn, const char *salt, size_t sn, const char *bytes, size_t n, pr_str *out);
  int (*blake2x)(int kind, uint64_t total, uint64_t from, size_t size, const char *key, size_t kn, const char *salt, size_t sn, const char *bytes, size_t n, pr_str *out);
  int (*blake3)(int derives, const char *key, size_t kn, uint64_t from, size_t size, const char *bytes, size_t n, pr_str *out);
  int (*base64_encode)(const char *bytes, size_t n, int url, pr_str *out);
  int (*base64_decode)(const char *bytes, size_t n, pr_str *out);
  int (*scan_blanks)(const char *text, size_t n);
  int (*scan_plain)(const char *text, size_t n);
  int (*scan_unescaped)(const char *text, size_t n);
  int (*scan_number)(const char *text, size_t n, double *out);
  double (*whole_number)(const char *digits, size_t n, int base);
  int (*choice_header)(const char *name, size_t n, pr_str *out);
  int (*choice_load)(const char *cluster, size_t n, int what, pr_value *out);
  int (*may_wait)(const char *name, size_t n);
  int (*stack_is_low)(void);
} pr_api;
]]

local yield = coroutine.yield

return {
  -- LuaJIT's recorder looks into a table that nothing but some of these functions keeps alive.
  ffi = ffi,
  api = ffi.cast("pr_api *", address),
  context = ffi.cast("pr_ctx *", context_address),
  -- Places for answers; whoever calls copies them out before the next call.
  out = ffi.new("pr_str"),
  out2 = ffi.new("pr_str"),
  value = ffi.new("pr_value"),
  string = ffi.string,

  -- Codes of `abi/mod.rs`.
  OK = 0, NONE = 1, NOT_HERE = -1, LOCKED = -2, INVALID = -3, NO_CLUSTER = -4, LIMIT = -5,
  -- What LIMIT means for headers and metadata.
  TOO_MUCH = "the stream's headers and metadata take more memory than the script's budget allows",

  -- Maps of fields (`abi/fields.rs`).
  REQUEST = 0, RESPONSE = 1, REQUEST_TRAILERS = 2, RESPONSE_TRAILERS = 3, ANSWER = 4, REPLY = 5, CALL = 6,

  -- Bits of flow() (`abi/body.rs`).
  RELEASED = 1, BODYLESS = 2, COMPLETE = 4, ENDED = 8, TRAILERS = 16, STREAMED = 32,

  -- Values (`abi/values.rs`).
  ROUTE = 0, VIRTUAL_HOST = 1, DYNAMIC = 2, FILTER_CONTEXT = 3, BASE_CONFIG = 4, ROUTE_CONFIG = 5, FILTER_STATE = 6,
  CONNECTION = 7, ROUTE_OR_USUAL = 8,

  -- What a script may wait for (`script.rs`): wait(WAIT_…) comes back when it is there.
  WAIT_BODY = 1, WAIT_CHUNK = 2, WAIT_TRAILERS = 3, WAIT_CALL = 4, RESPONDED = 5,
  wait = function(what) return yield(mark, what) end,

  -- rider
  -- The null pointer as a light userdata: what JSON's null is.
  null = null,
}
