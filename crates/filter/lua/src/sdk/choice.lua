-- Scripts beside the filter chain: `envoy_on_route(handle)` names a cluster, `envoy_match(text)` says yes or no. They
-- cannot wait, and see a request's headers only.
local border, kit = ...
local api, ctx, out, str, value = border.api, border.context, border.out, border.string, border.value
local header, load = api.choice_header, api.choice_load
local type, error, setmetatable, rawget, tostring = type, error, setmetatable, rawget, tostring
local text, dead = kit.text, kit.dead

local Headers = kit.class("HeaderMap", "turn")
function Headers:get(name)
  if self[1] ~= ctx.turn then dead(self, Headers, "get") end
  if type(name) ~= "string" then name = text(name, 1, "get") end
  if header(name, #name, out) == 0 then return str(out.p, out.n) end
end

local Cluster = kit.class("Cluster", "turn")
for what, method in pairs { [0] = "numConnections", "numRequests", "numPendingRequests" } do
  Cluster[method] = function(self)
    if self[1] ~= ctx.turn then dead(self, Cluster, method) end
    local name = self[2]
    load(name, #name, what, value)
    return value.number
  end
end

local Route = kit.class("RouteHandle", "turn")
function Route:headers()
  if self[1] ~= ctx.turn then dead(self, Route, "headers") end
  return setmetatable({ ctx.turn }, Headers)
end
-- Nothing for a cluster that is not there.
function Route:getCluster(name)
  if self[1] ~= ctx.turn then dead(self, Route, "getCluster") end
  name = text(name, 1, "getCluster")
  if load(name, #name, 0, value) == 0 then return setmetatable({ ctx.turn, name }, Cluster) end
end

return function(script)
  script()
  local on_route, match = rawget(_G, "envoy_on_route"), rawget(_G, "envoy_match")
  local chosen = {}
  if type(on_route) == "function" then
    function chosen.route()
      chosen.cluster = nil
      local cluster = on_route(setmetatable({ ctx.turn }, Route))
      -- A number is a text to Lua.
      if type(cluster) == "number" then cluster = tostring(cluster) end
      if type(cluster) ~= "string" then error("envoy_on_route has to answer with a cluster's name", 0) end
      chosen.cluster = cluster
    end
  end
  if type(match) == "function" then
    function chosen.match(text)
      chosen.matches = nil
      local verdict = match(text)
      if type(verdict) ~= "boolean" then error("envoy_match has to answer with true or false", 0) end
      if verdict then chosen.matches = "yes" end
    end
  end
  return chosen
end
