-- A token bucket for each client, on each worker: there is no state across workers, so the limit of the whole proxy is
-- `rate` times the number of workers.
--   config: { "rate": requests per second, "burst": requests, "header": name of the client's key (its address without) }
require("rider.v2")
local req, streaminfo, respond, nowms = envoy.req, envoy.streaminfo, envoy.respond, envoy.nowms

local schema = {
  type = "object",
  properties = {
    rate = { type = "number", exclusiveMinimum = 0 },
    burst = { type = "integer", minimum = 1 },
    header = { type = "string", minLength = 1 },
  },
  required = { "rate", "burst" },
}
require("rider.json_validator").register_validator(nil, schema)

-- Clients beyond this number begin anew: memory has a limit.
local MOST_CLIENTS = 10000
local tokens, seen, clients = {}, {}, 0

local plugin = { version = "v2" }

function plugin.on_request_header()
  local config = envoy.get_route_config()
  if not config then return end
  local key = config.header and req.get_header(config.header)
  if not key then
    local address = streaminfo.downstream_remote_address()
    key = address:match("^(.*):%d+$") or address
  end
  local now = nowms()
  if not seen[key] then
    if clients >= MOST_CLIENTS then tokens, seen, clients = {}, {}, 0 end
    tokens[key], seen[key], clients = config.burst, now, clients + 1
  end
  local left = math.min(config.burst, tokens[key] + (now - seen[key]) / 1000 * config.rate)
  seen[key] = now
  if left < 1 then
    tokens[key] = left
    respond({ [":status"] = 429, ["retry-after"] = math.ceil((1 - left) / config.rate) }, "slow down\n")
  end
  tokens[key] = left - 1
end

return plugin
