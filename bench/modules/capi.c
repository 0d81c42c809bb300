/* Bodies by Lua's C API: a function in C that a script calls, and that pushes a string, as hosts offered them before there was
 * LuaJIT's FFI. What the bench compares the SDK's reads with. Built by .ci/native. */

#include <stddef.h>

/* Of Lua 5.1's lua.h; the proxy exports them. */
typedef struct lua_State lua_State;
typedef int (*lua_CFunction)(lua_State *state);
void lua_createtable(lua_State *state, int items, int fields);
void lua_pushcclosure(lua_State *state, lua_CFunction function, int values);
void lua_pushlstring(lua_State *state, const char *bytes, size_t length);
void lua_pushnil(lua_State *state);
void lua_setfield(lua_State *state, int index, const char *name);

/* Of the published SDK; the proxy exports it, too. */
typedef struct {
  int len;
  const char *data;
} envoy_lua_ffi_str_t;
int envoy_http_lua_ffi_v2_get_body(int source, envoy_lua_ffi_str_t *body);

static int get_body(lua_State *state) {
  envoy_lua_ffi_str_t body;
  if (envoy_http_lua_ffi_v2_get_body(0, &body) == 0) {
    lua_pushlstring(state, body.data, (size_t)body.len);
  } else {
    lua_pushnil(state);
  }
  return 1;
}

int luaopen_capi(lua_State *state);
int luaopen_capi(lua_State *state) {
  lua_createtable(state, 0, 1);
  lua_pushcclosure(state, get_body, 0);
  lua_setfield(state, -2, "get_body");
  return 1;
}
