-- What is known about the stream, its connection and its route, and statistics of the script's own.
local border, kit = ...
local api, ctx, out, str = border.api, border.context, border.out, border.string
local info = api.info
local type, error, setmetatable = type, error, setmetatable
local text, dead = kit.text, kit.dead

local TURN = 1

-- The client's TLS session. Numbers of `abi/tls.rs`.
local Ssl = kit.class("SslConnection", "turn")
local Subject = kit.class("ParsedX509Name", "turn")
local tls_part, tls_agreed, tls_number = api.tls_part, api.tls_agreed, api.tls_number

local function part(what, index)
  if tls_part(what, index, out) == 0 then return str(out.p, out.n) end
end

local function parts(what)
  local all = {}
  repeat
    local value = part(what, #all)
    all[#all + 1] = value
  until not value
  return all
end

local function agreed(what)
  if tls_agreed(what, out) == 0 then return str(out.p, out.n) end
  return ""
end

local function method(class, name, answer)
  class[name] = function(self)
    if self[TURN] ~= ctx.turn then dead(self, class, name) end
    return answer()
  end
end

for name, what in pairs {
  uriSanPeerCertificate = 0, uriSanLocalCertificate = 1, dnsSansPeerCertificate = 2, dnsSansLocalCertificate = 3,
  oidsPeerCertificate = 4, oidsLocalCertificate = 5,
} do
  method(Ssl, name, function() return parts(what) end)
end
for name, what in pairs {
  sha256PeerCertificateDigest = 6, serialNumberPeerCertificate = 7, issuerPeerCertificate = 8,
  subjectPeerCertificate = 9, subjectLocalCertificate = 10, urlEncodedPemEncodedPeerCertificate = 11,
  urlEncodedPemEncodedPeerCertificateChain = 12,
} do
  method(Ssl, name, function() return part(what, 0) or "" end)
end
for name, what in pairs { tlsVersion = 0, ciphersuiteString = 1, ciphersuiteId = 2 } do
  method(Ssl, name, function() return agreed(what) end)
end
for name, what in pairs { peerCertificatePresented = 1, peerCertificateValidated = 2 } do
  method(Ssl, name, function() return tls_number(what) ~= 0 end)
end
for name, what in pairs { validFromPeerCertificate = 3, expirationPeerCertificate = 4 } do
  method(Ssl, name, function() return tls_number(what) end)
end
-- The library does not tell it.
method(Ssl, "sessionId", function() return "" end)
method(Ssl, "parsedSubjectPeerCertificate", function()
  if tls_number(1) == 0 then return nil end
  return setmetatable({ ctx.turn }, Subject)
end)
method(Subject, "commonName", function() return part(13, 0) or "" end)
method(Subject, "organizationName", function() return parts(14) end)

-- Nil for a plain connection.
local function ssl()
  if tls_number(0) == 0 then return nil end
  return setmetatable({ ctx.turn }, Ssl)
end

local Info = kit.class("StreamInfo", "turn")

function kit.stream_info()
  return setmetatable({ ctx.turn }, Info)
end

-- Numbers of `abi/facts.rs`. Each is written out: a loop that calls two closures of one function looks like a recursion to
-- LuaJIT when it begins to record in one of them, and then nothing of it is compiled.
function Info:protocol()
  if self[TURN] ~= ctx.turn then dead(self, Info, "protocol") end
  if info(0, out) == 0 then return str(out.p, out.n) end
  return ""
end

function Info:routeName()
  if self[TURN] ~= ctx.turn then dead(self, Info, "routeName") end
  if info(1, out) == 0 then return str(out.p, out.n) end
  return ""
end

function Info:downstreamLocalAddress()
  if self[TURN] ~= ctx.turn then dead(self, Info, "downstreamLocalAddress") end
  if info(4, out) == 0 then return str(out.p, out.n) end
  return ""
end

function Info:downstreamDirectLocalAddress()
  if self[TURN] ~= ctx.turn then dead(self, Info, "downstreamDirectLocalAddress") end
  if info(5, out) == 0 then return str(out.p, out.n) end
  return ""
end

function Info:downstreamRemoteAddress()
  if self[TURN] ~= ctx.turn then dead(self, Info, "downstreamRemoteAddress") end
  if info(6, out) == 0 then return str(out.p, out.n) end
  return ""
end

function Info:downstreamDirectRemoteAddress()
  if self[TURN] ~= ctx.turn then dead(self, Info, "downstreamDirectRemoteAddress") end
  if info(7, out) == 0 then return str(out.p, out.n) end
  return ""
end

for method, answer in pairs {
  virtualClusterName = function() return info(10, out) == 0 and str(out.p, out.n) or "" end,
  requestedServerName = function() return agreed(3) end,
  downstreamSslConnection = ssl,
  dynamicTypedMetadata = kit.typed_metadata,
  dynamicMetadata = kit.dynamic_metadata,
  filterState = kit.filter_state,
} do
  Info[method] = function(self, argument)
    if self[TURN] ~= ctx.turn then dead(self, Info, method) end
    -- Not a tail call: LuaJIT gives up on a trace with many of them.
    local value = answer(argument)
    return value
  end
end

function Info:drainConnectionUponCompletion()
  if self[TURN] ~= ctx.turn then dead(self, Info, "drainConnectionUponCompletion") end
  api.drain()
end

kit.connection = kit.facade("Connection", { ssl = ssl })
kit.connection_stream_info = kit.facade("ConnectionStreamInfo",
  { dynamicMetadata = kit.connection_metadata, dynamicTypedMetadata = kit.connection_typed_metadata })
kit.route = kit.facade("Route", {
  metadata = function(name)
    local values = name == nil and kit.metadata(border.ROUTE) or kit.named_metadata(name, 5)
    return values
  end,
})
kit.virtual_host = kit.facade("VirtualHost", { metadata = function() return kit.metadata(border.VIRTUAL_HOST) end })

-- Statistics. A metric is good for its filter, which says what its number means.
local define, metric_add, metric_record, metric_value = api.metric_define, api.metric_add, api.metric_record, api.metric_value
local PLUGIN, ID = 1, 2

-- The first number that is too large for 64 bits.
local TOO_LARGE = 2 ^ 63

local function amount(value, method, what)
  if type(value) ~= "number" then value = kit.integer(value, 1, method, 4) end
  -- What is left of a fraction is a whole number. Written so that what is no number at all (0/0) is refused, too.
  if not (value > -1 and value < TOO_LARGE) then error(what .. " must be non-negative", 3) end
  return value
end

-- Not for tail calls: its errors name the caller of the method.
local function metric(class, kind, name)
  local id = define(kind, name, #name)
  if id < 0 then
    error(id == border.LIMIT and "too many statistics" or "invalid name of a statistic: '" .. name .. "'", 3)
  end
  return setmetatable({ ctx.plugin, id }, class)
end

local Counter = kit.class("Counter", "plugin")
function Counter:inc()
  if self[PLUGIN] ~= ctx.plugin then dead(self, Counter, "inc") end
  metric_add(self[ID], 1)
end
function Counter:add(value)
  if self[PLUGIN] ~= ctx.plugin then dead(self, Counter, "add") end
  metric_add(self[ID], amount(value, "add", "counter add amount"))
end
function Counter:value()
  if self[PLUGIN] ~= ctx.plugin then dead(self, Counter, "value") end
  return metric_value(self[ID])
end

local Gauge = kit.class("Gauge", "plugin")
function Gauge:inc()
  if self[PLUGIN] ~= ctx.plugin then dead(self, Gauge, "inc") end
  metric_add(self[ID], 1)
end
function Gauge:dec()
  if self[PLUGIN] ~= ctx.plugin then dead(self, Gauge, "dec") end
  metric_add(self[ID], -1)
end
function Gauge:add(value)
  if self[PLUGIN] ~= ctx.plugin then dead(self, Gauge, "add") end
  metric_add(self[ID], amount(value, "add", "gauge add amount"))
end
function Gauge:sub(value)
  if self[PLUGIN] ~= ctx.plugin then dead(self, Gauge, "sub") end
  metric_add(self[ID], -amount(value, "sub", "gauge sub amount"))
end
function Gauge:set(value)
  if self[PLUGIN] ~= ctx.plugin then dead(self, Gauge, "set") end
  metric_record(self[ID], amount(value, "set", "gauge set value"))
end
function Gauge:value()
  if self[PLUGIN] ~= ctx.plugin then dead(self, Gauge, "value") end
  return metric_value(self[ID])
end

local Histogram = kit.class("Histogram", "plugin")
function Histogram:recordValue(value)
  if self[PLUGIN] ~= ctx.plugin then dead(self, Histogram, "recordValue") end
  metric_record(self[ID], amount(value, "recordValue", "histogram value"))
end

-- Kinds of `abi/metrics.rs`.
local UNITS = { unspecified = 2, nanoseconds = 2, ms = 3, milliseconds = 3, microseconds = 4, bytes = 5 }
local Stats = kit.class("StatsScope", "turn")

function kit.stats()
  return setmetatable({ ctx.turn }, Stats)
end
function Stats:counter(name)
  if self[TURN] ~= ctx.turn then dead(self, Stats, "counter") end
  local counter = metric(Counter, 0, text(name, 1, "counter"))
  return counter
end
function Stats:gauge(name)
  if self[TURN] ~= ctx.turn then dead(self, Stats, "gauge") end
  local gauge = metric(Gauge, 1, text(name, 1, "gauge"))
  return gauge
end
function Stats:histogram(name, unit)
  if self[TURN] ~= ctx.turn then dead(self, Stats, "histogram") end
  name = text(name, 1, "histogram")
  local kind = unit == nil and 2 or UNITS[text(unit, 2, "histogram")]
  if not kind then
    error("invalid histogram unit '" .. unit .. "', expected 'ms', 'milliseconds', 'microseconds', 'nanoseconds', "
      .. "'bytes', or 'unspecified'", 2)
  end
  local histogram = metric(Histogram, kind, name)
  return histogram
end
