-- Envoy's Lua filter: the handle that its two functions get. The objects behind it are in `envoy/`.
local border, kit = ...
local api, ctx, out, str = border.api, border.context, border.out, border.string
local type, error, setmetatable, floor = type, error, setmetatable, math.floor
local select, tonumber, rawset, match = select, tonumber, rawset, string.match
local text, expected, dead = kit.text, kit.expected, kit.dead
local now = api.now

local Handle = kit.class("StreamHandle", "message")

-- Fields of a handle: its message, its side, whether the script has seen a body, and the keys that it imported.
local MESSAGE, SIDE, SEEN, KEYS = 1, 2, 3, 4

-- A constant in the list would have the table copied from a template, which takes longer than filling it.
local unseen = false

local function handle(side)
  return setmetatable({ ctx.message, side, unseen }, Handle)
end

-- The same object for every call of one turn. A turn has one message, so the last object of each kind is enough, and
-- handles, which every stream has, stay small.
local last_headers = false

function Handle:headers()
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "headers") end
  local object = last_headers
  if object and object[1] == ctx.turn then return object end
  object = kit.headers(self[SIDE])
  last_headers = object
  return object
end

local function once(method, make)
  local last = false
  Handle[method] = function(self)
    if self[MESSAGE] ~= ctx.message then dead(self, Handle, method) end
    local object = last
    if object and object[1] == ctx.turn then return object end
    object = make(self[SIDE])
    last = object
    return object
  end
end
once("streamInfo", kit.stream_info)
once("stats", kit.stats)

local last_metadata = false

function Handle:metadata(name)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "metadata") end
  if name ~= nil and name ~= "" then
    local named = kit.named_metadata(name, 4)
    return named
  end
  local object = last_metadata
  if object and object[1] == ctx.turn then return object end
  object = kit.metadata(border.ROUTE_OR_USUAL)
  last_metadata = object
  return object
end

for method, make in pairs {
  route = kit.route, virtualHost = kit.virtual_host, connection = kit.connection,
  connectionStreamInfo = kit.connection_stream_info,
  filterContext = function() return kit.metadata(border.FILTER_CONTEXT) end,
  requestHeaders = function() return kit.headers(border.REQUEST) end,
  downstreamRequestHeaders = function() return kit.headers(border.REQUEST) end,
  clearRouteCache = function() api.clear_route_cache() end,
} do
  Handle[method] = function(self)
    if self[MESSAGE] ~= ctx.message then dead(self, Handle, method) end
    return make()
  end
end

local last_body = false

function Handle:body(...)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "body") end
  local always_wrap = ...
  if select("#", ...) > 0 and type(always_wrap) ~= "boolean" then expected("boolean", always_wrap, 1, "body") end
  local object = last_body
  if object and object[1] == ctx.turn then return object end
  object = kit.body(self[SIDE], self[SEEN], always_wrap)
  if not object then return end
  last_body, self[SEEN] = object, true
  return object
end

function Handle:bodyChunks()
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "bodyChunks") end
  local step, side = kit.chunks(self[SIDE])
  return step, side, nil
end

function Handle:trailers()
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "trailers") end
  local object = kit.trailers(self[SIDE])
  if object then return object end
end

-- Not tail calls: errors name the line that called the method.
function Handle:respond(headers, body)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "respond") end
  kit.respond(self[SIDE], headers, body)
end

function Handle:httpCall(cluster, headers, body, ...)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "httpCall") end
  local answer, text = kit.http_call(cluster, headers, body, ...)
  if answer then return answer, text end
end

function Handle:setUpstreamOverrideHost(host, ...)
  local strict = ...
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "setUpstreamOverrideHost") end
  if type(host) ~= "string" then host = text(host, 1, "setUpstreamOverrideHost") end
  if select("#", ...) > 0 and type(strict) ~= "boolean" then expected("boolean", strict, 2, "setUpstreamOverrideHost") end
  if api.override_host(host, #host, strict and 1 or 0) ~= 0 then error("host is not a valid IP address", 2) end
end

function Handle:base64Escape(bytes)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "base64Escape") end
  if type(bytes) ~= "string" then bytes = text(bytes, 1, "base64Escape") end
  -- Without an answer `out` is of some earlier call.
  if api.base64_encode(bytes, #bytes, 0, out) ~= 0 then dead(self, Handle, "base64Escape") end
  return str(out.p, out.n)
end

function Handle:base64Decode(encoded)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "base64Decode") end
  if type(encoded) ~= "string" then encoded = text(encoded, 1, "base64Decode") end
  if api.base64_decode_strict(encoded, #encoded, out) == 0 then return str(out.p, out.n) end
  return nil
end

EnvoyTimestampResolution = { MILLISECOND = 0, MICROSECOND = 1 }

-- The number of a resolution, which may be a text; nil for anything else.
local function numbered(resolution, method)
  resolution = text(resolution, 1, method, 4)
  if resolution == "" then return 0 end
  local digits = match(resolution, "^%s*%+?(%d+)%s*$")
  return digits and tonumber(digits)
end

function Handle:timestamp(resolution)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "timestamp") end
  if resolution ~= nil and resolution ~= 0 then resolution = numbered(resolution, "timestamp") or -1 end
  if resolution ~= nil and resolution ~= 0 then error("timestamp format must be MILLISECOND.", 2) end
  return floor(now())
end

function Handle:timestampString(resolution)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "timestampString") end
  if resolution ~= nil and resolution ~= 0 and resolution ~= 1 then
    resolution = numbered(resolution, "timestampString") or -1
  end
  if resolution == nil or resolution == 0 then return string.format("%.0f", floor(now())) end
  if resolution ~= 1 then error("timestamp format must be MILLISECOND or MICROSECOND.", 2) end
  return string.format("%.0f", floor(now() * 1000))
end

-- Keys and signatures.
local Key = kit.class("PublicKey", "turn")

-- What `verifySignature` takes for the key; nil when it is none.
function Key:get()
  if self[1] ~= ctx.turn then dead(self, Key, "get") end
  return self[2] or nil
end

function Handle:importPublicKey(der, length)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "importPublicKey") end
  if type(der) ~= "string" then der = text(der, 1, "importPublicKey") end
  der = der:sub(1, kit.integer(length, 2, "importPublicKey"))
  local good = api.key_check(der, #der) == 0
  if good then
    if not self[KEYS] then rawset(self, KEYS, {}) end
    self[KEYS][der] = true
  end
  return setmetatable({ ctx.turn, good and der }, Key)
end

function Handle:verifySignature(hash, key, signature, signature_length, data, length)
  if self[MESSAGE] ~= ctx.message then dead(self, Handle, "verifySignature") end
  hash, key = text(hash, 1, "verifySignature"), text(key, 2, "verifySignature")
  if not (self[KEYS] and self[KEYS][key]) then error("invalid public key", 2) end
  signature = text(signature, 3, "verifySignature"):sub(1, kit.integer(signature_length, 4, "verifySignature"))
  data = text(data, 5, "verifySignature"):sub(1, kit.integer(length, 6, "verifySignature"))
  local code = api.verify(hash, #hash, key, #key, signature, #signature, data, #data)
  if code == 0 then return true, nil end
  if code == border.INVALID then return false, hash .. " is not supported." end
  return false, "Failed to verify digest. Error code: 0"
end

-- Modules of ours, which come behind files: a script may bring its own under these names, as it must in Envoy.
local modules, preload = {}, package.preload
for _, name in ipairs { "cjson", "cjson.safe" } do
  modules[name], preload[name] = preload[name], nil
end

-- The script's function of that name.
local function defined(name)
  local act = rawget(_G, name)
  if type(act) == "function" then return act end
end

return function(script)
  -- The sandbox is closed now: it takes searchers away.
  local searchers = package.loaders
  searchers[#searchers + 1] = function(name) return modules[name] end
  script()
  local hooks, idle = {}, {}
  -- Tracebacks call the script's functions as they are called here.
  local envoy_on_request, envoy_on_response = defined("envoy_on_request"), defined("envoy_on_response")
  if envoy_on_request then
    local side = border.REQUEST
    function hooks.request_headers() envoy_on_request(handle(side)) end
    idle.request_headers = border.does_nothing(envoy_on_request)
  end
  if envoy_on_response then
    local side = border.RESPONSE
    function hooks.response_headers() envoy_on_response(handle(side)) end
    idle.response_headers = border.does_nothing(envoy_on_response)
  end
  hooks.idle = idle
  return hooks
end
