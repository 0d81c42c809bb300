-- What is known about the stream, its connection and its route, and statistics of the script's own.
local border, kit = ...
local api, ctx, out, str = border.api, border.context, border.out, border.string
local info = api.info
local type, error, setmetatable = type, error, setmetatable
local text, dead = kit.text, kit.dead

local TURN = 1

-- There is no TLS to tell about, and typed metadata comes from nowhere: nil.
local function none() return nil end

local Info = kit.class("StreamInfo", "turn")

function kit.stream_info()
  return setmetatable({ ctx.turn }, Info)
end

-- Numbers of `abi/facts.rs`.
for method, what in pairs {
  protocol = 0, routeName = 1, downstreamLocalAddress = 4, downstreamDirectLocalAddress = 5,
  downstreamRemoteAddress = 6, downstreamDirectRemoteAddress = 7,
} do
  Info[method] = function(self)
    if self[TURN] ~= ctx.turn then dead(self, Info, method) end
    if info(what, out) == 0 then return str(out.p, out.n) end
    return ""
  end
end

for method, answer in pairs {
  virtualClusterName = function() return "" end,
  requestedServerName = function() return "" end,
  downstreamSslConnection = none,
  dynamicTypedMetadata = none,
  dynamicMetadata = kit.dynamic_metadata,
  filterState = kit.filter_state,
} do
  Info[method] = function(self)
    if self[TURN] ~= ctx.turn then dead(self, Info, method) end
    return answer()
  end
end

function Info:drainConnectionUponCompletion()
  if self[TURN] ~= ctx.turn then dead(self, Info, "drainConnectionUponCompletion") end
  api.drain()
end

kit.connection = kit.facade("Connection", { ssl = none })
kit.connection_stream_info = kit.facade("ConnectionStreamInfo",
  { dynamicMetadata = kit.connection_metadata, dynamicTypedMetadata = none })
kit.route = kit.facade("Route", { metadata = function() return kit.metadata(border.ROUTE) end })
kit.virtual_host = kit.facade("VirtualHost", { metadata = function() return kit.metadata(border.VIRTUAL_HOST) end })

-- Statistics. A metric is good for its stream: which one its number means is the filter's to say.
local define, metric_add, metric_record, metric_value = api.metric_define, api.metric_add, api.metric_record, api.metric_value
local STREAM, ID = 1, 2

local function amount(value, method, what)
  if type(value) ~= "number" then value = kit.integer(value, 1, method, 4) end
  if value < 0 then error(what .. " must be non-negative", 3) end
  return value
end

-- Not for tail calls: its errors name the caller of the method.
local function metric(class, kind, name)
  local id = define(kind, name, #name)
  if id < 0 then
    error(id == border.LIMIT and "too many statistics" or "invalid name of a statistic: '" .. name .. "'", 3)
  end
  return setmetatable({ ctx.stream, id }, class)
end

local Counter = kit.class("Counter", "stream")
function Counter:inc()
  if self[STREAM] ~= ctx.stream then dead(self, Counter, "inc") end
  metric_add(self[ID], 1)
end
function Counter:add(value)
  if self[STREAM] ~= ctx.stream then dead(self, Counter, "add") end
  metric_add(self[ID], amount(value, "add", "counter add amount"))
end
function Counter:value()
  if self[STREAM] ~= ctx.stream then dead(self, Counter, "value") end
  return metric_value(self[ID])
end

local Gauge = kit.class("Gauge", "stream")
function Gauge:inc()
  if self[STREAM] ~= ctx.stream then dead(self, Gauge, "inc") end
  metric_add(self[ID], 1)
end
function Gauge:dec()
  if self[STREAM] ~= ctx.stream then dead(self, Gauge, "dec") end
  metric_add(self[ID], -1)
end
function Gauge:add(value)
  if self[STREAM] ~= ctx.stream then dead(self, Gauge, "add") end
  metric_add(self[ID], amount(value, "add", "gauge add amount"))
end
function Gauge:sub(value)
  if self[STREAM] ~= ctx.stream then dead(self, Gauge, "sub") end
  metric_add(self[ID], -amount(value, "sub", "gauge sub amount"))
end
function Gauge:set(value)
  if self[STREAM] ~= ctx.stream then dead(self, Gauge, "set") end
  metric_record(self[ID], amount(value, "set", "gauge set value"))
end
function Gauge:value()
  if self[STREAM] ~= ctx.stream then dead(self, Gauge, "value") end
  return metric_value(self[ID])
end

local Histogram = kit.class("Histogram", "stream")
function Histogram:recordValue(value)
  if self[STREAM] ~= ctx.stream then dead(self, Histogram, "recordValue") end
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
