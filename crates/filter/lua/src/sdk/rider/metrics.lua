-- Statistics that plugins name: /stats shows them as `rider.<plugin>.<name>`.
local border = ...
local api, envoy = border.api, border.envoy
local define, add, record, value = api.metric_define, api.metric_add, api.metric_record, api.metric_value
local type, error = type, error

-- A number above 0, the same for the same name; a negative one when it cannot be.
function envoy.define_metric(kind, name)
  if type(kind) ~= "number" or type(name) ~= "string" then return -3 end
  if kind ~= 0 and kind ~= 1 and kind ~= 2 then return -3 end
  return define(kind, name, #name)
end

local function checked(id, number)
  if type(id) ~= "number" or id < 1 or id > 0x7fffffff then error("there is no such metric", 3) end
  if type(number) ~= "number" then error("a metric counts numbers", 3) end
end

function envoy.increment_metric(id, offset)
  checked(id, offset)
  if add(id, offset) ~= 0 then error("there is no such metric, or it cannot be incremented by that", 2) end
end

function envoy.record_metric(id, number)
  checked(id, number)
  if record(id, number) ~= 0 then error("there is no such metric, or it cannot record that", 2) end
end

function envoy.get_metric(id)
  if type(id) ~= "number" or id < 1 or id > 0x7fffffff then return -1 end
  return value(id)
end
