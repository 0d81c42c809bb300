-- Metadata, dynamic metadata and filter state: structured values.
local border, kit, json = ...
local api, ctx, out, str, value = border.api, border.context, border.out, border.string, border.value
local value_get, value_set, namespace = api.value_get, api.value_set, api.namespace
local type, error, format, pairs, next, pcall = type, error, string.format, pairs, next, pcall
local setmetatable, getmetatable = setmetatable, getmetatable
local find, concat, floor, huge = string.find, table.concat, math.floor, math.huge
local text, dead = kit.text, kit.dead

-- What `abi/values.rs` calls them.
local BOOL, NUMBER, STRING, LIST, MAP = 1, 2, 3, 4, 5

-- JSON nulls are nil to these scripts.
local function without_nulls(value)
  for key, inner in pairs(value) do
    if inner == json.null then
      value[key] = nil
    elseif type(inner) == "table" then
      without_nulls(inner)
    end
  end
  return value
end

local function decode(source)
  local value = json.decode(source)
  return find(source, "null", 1, true) and without_nulls(value) or value
end

-- The value that an answer of `value_get` left.
local function taken()
  local kind = value.kind
  if kind == STRING then return str(value.text.p, value.text.n) end
  if kind == NUMBER then return value.number end
  if kind == BOOL then return value.number ~= 0 end
  return decode(str(value.text.p, value.text.n))
end

-- A table as JSON: whole keys from 1 make a list, with null where there is none, texts a map; nothing else fits in metadata.
local MAX_HOLES = 1024
local write
local function write_table(table, parts, depth)
  if depth > 100 then error("table nested too deeply in dynamicMetadata", 0) end
  local count, n, named = 0, 0, false
  for key in pairs(table) do
    if type(key) == "string" then
      named = true
    elseif type(key) == "number" and key >= 1 and floor(key) == key then
      count = count + 1
      if key > n then n = key end
    else
      error(format("unexpected type %s in table key (only string keys are supported)", type(key)), 0)
    end
  end
  if n > 0 and named then
    error("unexpected type number in table key (only string keys are supported)", 0)
  end
  if n - count > MAX_HOLES then
    error(format("a list in dynamicMetadata lacks more than %d of its elements", MAX_HOLES), 0)
  end
  local mark = getmetatable(table)
  if n > 0 or mark == json.array_mt or mark == json.empty_array_mt then
    parts[#parts + 1] = "["
    for i = 1, n do
      if i > 1 then parts[#parts + 1] = "," end
      write(table[i], parts, depth + 1)
    end
    parts[#parts + 1] = "]"
    return LIST
  end
  parts[#parts + 1] = "{"
  local comma = ""
  for key, inner in pairs(table) do
    parts[#parts + 1] = comma .. json.encode(key) .. ":"
    write(inner, parts, depth + 1)
    comma = ","
  end
  parts[#parts + 1] = "}"
  return MAP
end

function write(value, parts, depth)
  local kind = type(value)
  if kind == "table" and not kit.is_object(value) then return write_table(value, parts, depth) end
  if kind == "string" or kind == "boolean" then
    parts[#parts + 1] = json.encode(value)
  elseif kind == "number" and value == value and value ~= huge and value ~= -huge then
    parts[#parts + 1] = format("%.17g", value)
  elseif kind == "number" or kind == "nil" then
    parts[#parts + 1] = "null"
  else
    error(format("unexpected type '%s' in dynamicMetadata", kind), 0)
  end
end

local function store(which, name, key, new)
  local kind = type(new)
  if kind == "string" then return value_set(which, name, #name, key, #key, STRING, 0, new, #new) end
  if kind == "number" then return value_set(which, name, #name, key, #key, NUMBER, new, nil, 0) end
  if kind == "boolean" then return value_set(which, name, #name, key, #key, BOOL, new and 1 or 0, nil, 0) end
  if new == nil then return value_set(which, name, #name, key, #key, 0, 0, nil, 0) end
  local parts = {}
  local ok, what = pcall(write, new, parts, 0)
  if not ok then error(what, 3) end
  local source = concat(parts)
  return value_set(which, name, #name, key, #key, what, 0, source, #source)
end

-- Iteration over a table of what was there when it began; the object takes no second one meanwhile.
local OPEN = 3
local Iterator = {}
function Iterator.__call(state)
  local object = state[1]
  if not object or object[1] ~= ctx.turn then error("object used outside of proper scope", 2) end
  local key, item = next(state[2], state[3])
  if key == nil then
    object[OPEN] = false
    state[1] = false
    return nil
  end
  state[3] = key
  return key, item
end

-- Begins one, for a `__pairs`.
local function iterate(object, items)
  if object[OPEN] then error("cannot create a second iterator before completing the first", 3) end
  object[OPEN] = true
  return setmetatable({ object, items, nil }, Iterator)
end

-- Values that no script changes: a route's, a virtual host's, the filter context.
local Metadata = kit.class("MetadataMap", "turn")
local WHICH, NAME = 2, 4

-- Without a name the namespace is the filter's own.
function kit.metadata(which)
  return setmetatable({ ctx.turn, which, false, "" }, Metadata)
end

-- That of a route under a name which a script gave; `level` says who is blamed when it is none.
function kit.named_metadata(name, level)
  if type(name) ~= "string" then name = text(name, 1, "metadata", level) end
  return setmetatable({ ctx.turn, border.ROUTE, false, name }, Metadata)
end

function Metadata:get(key)
  if self[1] ~= ctx.turn then dead(self, Metadata, "get") end
  if type(key) ~= "string" then key = text(key, 1, "get") end
  local name = self[NAME]
  if key ~= "" and value_get(self[WHICH], name, #name, key, #key, value) == 0 then return taken() end
end

function Metadata:__pairs()
  if self[1] ~= ctx.turn then dead(self, Metadata, "pairs") end
  -- Not a tail call: an error names the line that iterates. So below.
  local name = self[NAME]
  local iterator = iterate(self, value_get(self[WHICH], name, #name, "", 0, value) == 0 and taken() or {})
  return iterator, nil, nil
end

local Dynamic = kit.class("DynamicMetadataMap", "turn")

function kit.dynamic_metadata()
  return setmetatable({ ctx.turn, border.DYNAMIC, false }, Dynamic)
end

function Dynamic:get(name)
  if self[1] ~= ctx.turn then dead(self, Dynamic, "get") end
  if type(name) ~= "string" then name = text(name, 1, "get") end
  if value_get(border.DYNAMIC, name, #name, "", 0, value) == 0 then return taken() end
end

function Dynamic:set(name, key, new)
  if self[1] ~= ctx.turn then dead(self, Dynamic, "set") end
  if self[OPEN] then error("dynamic metadata map cannot be modified while iterating", 2) end
  if type(name) ~= "string" then name = text(name, 1, "set") end
  if type(key) ~= "string" then key = text(key, 2, "set") end
  if store(border.DYNAMIC, name, key, new) == border.LIMIT then error(border.TOO_MUCH, 2) end
end

local function namespaces(which)
  local names, items, cursor = {}, {}, 0
  while true do
    cursor = namespace(which, cursor, out)
    if cursor < 0 then break end
    names[#names + 1] = str(out.p, out.n)
  end
  for i = 1, #names do
    local name = names[i]
    if value_get(which, name, #name, "", 0, value) == 0 then items[name] = taken() end
  end
  return items
end

function Dynamic:__pairs()
  if self[1] ~= ctx.turn then dead(self, Dynamic, "pairs") end
  local iterator = iterate(self, namespaces(border.DYNAMIC))
  return iterator, nil, nil
end

-- A connection's, which its listener noted.
local Connection = kit.class("ConnectionDynamicMetadataMap", "turn")
function kit.connection_metadata()
  return setmetatable({ ctx.turn, 0, false }, Connection)
end
function Connection:get(name)
  if self[1] ~= ctx.turn then dead(self, Connection, "get") end
  if type(name) ~= "string" then name = text(name, 1, "get") end
  if value_get(border.CONNECTION, name, #name, "", 0, value) == 0 then return taken() end
end
function Connection:__pairs()
  if self[1] ~= ctx.turn then dead(self, Connection, "pairs") end
  local iterator = iterate(self, namespaces(border.CONNECTION))
  return iterator, nil, nil
end

-- Messages: tables of the fields that are set, under the names of their types.
local message_load, message_next = api.message_load, api.message_next

local function part()
  message_next(value)
  local kind = value.kind
  if kind == STRING then return str(value.text.p, value.text.n) end
  if kind == NUMBER then return value.number end
  if kind == BOOL then return value.number ~= 0 end
  local table, count = {}, value.number
  for i = 1, count do
    local key = kind == LIST and i or part()
    table[key] = part()
  end
  return table
end

local function message(which, name)
  if type(name) ~= "string" then name = text(name, 1, "dynamicTypedMetadata", 4) end
  if message_load(which, name, #name) ~= 0 then return nil end
  local whole = part()
  return whole
end

function kit.typed_metadata(name) return message(border.DYNAMIC, name) end
function kit.connection_typed_metadata(name) return message(border.CONNECTION, name) end

-- What objects are made by.
local FACTORIES = {
  ["envoy.string"] = true,
  ["envoy.hashable_string"] = true,
  ["envoy.bool"] = true,
  ["envoy.filters.listener.original_dst.local_ip"] = true,
  ["envoy.filters.listener.original_dst.remote_ip"] = true,
  ["envoy.network.ip"] = true,
  ["envoy.network.network_namespace"] = true,
  ["envoy.network.transport_socket.original_dst_address"] = true,
  ["envoy.tcp_proxy.disable_tunneling"] = true,
  ["envoy.tcp_proxy.per_connection_idle_timeout_ms"] = true,
  ["envoy.ratelimit.hits_addend"] = true,
  ["envoy.network.upstream_server_name"] = true,
  ["envoy.network.application_protocols"] = true,
  ["envoy.network.upstream_subject_alt_names"] = true,
  ["envoy.tcp_proxy.cluster"] = true,
}
-- Those that Envoy has and nothing here would act upon.
local WITHOUT_EFFECT = {
  ["envoy.upstream.dynamic_host"] = true,
  ["envoy.upstream.dynamic_port"] = true,
}
local State = kit.class("FilterState", "turn")

function kit.filter_state()
  return setmetatable({ ctx.turn, border.FILTER_STATE, false }, State)
end

function State:get(name, field)
  if self[1] ~= ctx.turn then dead(self, State, "get") end
  if type(name) ~= "string" then name = text(name, 1, "get") end
  if value_get(border.FILTER_STATE, name, #name, "", 0, value) ~= 0 then return end
  local found = taken()
  if field == nil then return found end
  if type(field) ~= "string" then field = text(field, 2, "get") end
  if type(found) == "table" and found[field] ~= nil then return found[field] end
end

function State:set(name, factory, bytes)
  if self[1] ~= ctx.turn then dead(self, State, "set") end
  if type(name) ~= "string" then name = text(name, 1, "set") end
  if type(factory) ~= "string" then factory = text(factory, 2, "set") end
  if type(bytes) ~= "string" then bytes = text(bytes, 3, "set") end
  if WITHOUT_EFFECT[factory] then error(format("'%s' would have no effect: Postrider does not support it", factory), 2) end
  if not FACTORIES[factory] then error(format("'%s' does not have an object factory", factory), 2) end
  local code = store(border.FILTER_STATE, name, factory, bytes)
  if code == border.LIMIT then error(border.TOO_MUCH, 2) end
  if code ~= 0 then
    error(format("failed to create an object '%s' from value '%s'", name, bytes), 2)
  end
end
