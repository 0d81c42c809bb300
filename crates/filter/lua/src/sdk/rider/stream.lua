-- What is known about the stream, metadata, and the table that a plugin has for each stream.
local border = ...
local api, ctx, out, value, str = border.api, border.context, border.out, border.value, border.string
local envoy, info, value_get, value_set = border.envoy, api.info, api.value_get, api.value_set
local type, error, format, floor, ceil = type, error, string.format, math.floor, math.ceil
local pairs, rawset, setmetatable = pairs, rawset, setmetatable

local streaminfo = envoy.streaminfo
local function fact(number, default)
  return function()
    if info(number, out) == 0 then return str(out.p, out.n) end
    return default
  end
end
streaminfo.upstream_cluster, streaminfo.upstream_host = fact(8, nil), fact(9, nil)
streaminfo.downstream_local_address, streaminfo.downstream_remote_address = fact(4, ""), fact(6, "")
function streaminfo.start_time() return floor(api.start_time()) end
function envoy.nowms() return floor(api.now()) end
streaminfo.current_time_milliseconds = envoy.nowms

function envoy.req.clear_route_cache() api.clear_route_cache() end

-- Texts, and numbers cut to whole ones as texts; nothing else.
local function metadata(which)
  return function(key, filter)
    if type(key) ~= "string" then error("metadata key must be a string", 2) end
    if type(filter) ~= "string" then error("filter name must be a string", 2) end
    if key == "" or filter == "" or value_get(which, filter, #filter, key, #key, value) ~= 0 then return nil end
    if value.kind == 3 then return str(value.text.p, value.text.n) end
    if value.kind ~= 2 then return nil end
    local number = value.number
    -- Zero is added so that none is negative.
    return format("%.0f", (number < 0 and ceil(number) or floor(number)) + 0)
  end
end
envoy.req.get_metadata, envoy.req.get_dynamic_metadata = metadata(border.ROUTE), metadata(border.DYNAMIC)

function envoy.req.set_dynamic_metadata(key, text, filter)
  if type(key) ~= "string" then error("metadata key must be a string", 2) end
  if type(text) ~= "string" then error("metadata value must be a string", 2) end
  if type(filter) ~= "string" then error("filter name must be a string", 2) end
  if key == "" or filter == "" then error("metadata key and filter name must not be empty", 2) end
  local code = value_set(border.DYNAMIC, filter, #filter, key, #key, 3, 0, text, #text)
  if code ~= 0 then error(code == border.LIMIT and border.TOO_MUCH or "there is no stream here", 2) end
end

-- envoy.stream.shared
local shared = {}
local function shared_table()
  local stream = ctx.stream
  local found = shared[stream]
  if found == nil then
    if ctx.side < 0 then error("there is no stream here: stream.shared is for hooks", 3) end
    found = {}
    shared[stream] = found
    api.keep()
  end
  return found
end
border.shared = shared

-- For plugins that keep `envoy.stream.shared` in a local when they are loaded: it means the current stream's.
local proxy = setmetatable({}, {
  __index = function(_, key) return shared_table()[key] end,
  __newindex = function(_, key, item) shared_table()[key] = item end,
  __pairs = function() return pairs(shared_table()) end,
  __len = function() return #shared_table() end,
})

setmetatable(envoy.stream, {
  __index = function(_, key)
    if key ~= "shared" then return nil end
    if ctx.side < 0 then return proxy end
    return shared_table()
  end,
  __newindex = function(stream, key, item)
    if key ~= "shared" then return rawset(stream, key, item) end
    if type(item) ~= "table" then error("stream.shared must be a table", 2) end
    if item == proxy then return end
    shared_table()
    shared[ctx.stream] = item
  end,
})
