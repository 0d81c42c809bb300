-- Rider plugins: a script that returns a table of hooks.
local border, filesystem = ...
local type, error, pairs, tostring = type, error, pairs, tostring
local modules, preload, loaded = border.modules, package.preload, package.loaded

local version = { version = "2.0.0" }
for _, name in ipairs { "rider", "rider.v2", "rider.httpstream", "rider.v2.httpstream" } do
  modules[name] = { version = version.version }
end

_G.envoy = border.envoy
modules.envoy = border.envoy

if filesystem then
  -- Files come first, ours stand in for what the disk lacks. Rider's own parts must be there.
  loaded.envoy = border.envoy
  for _, name in ipairs { "cjson", "cjson.safe" } do
    modules[name] = preload[name]()
    preload[name] = nil
  end
  local searchers = package.loaders
  border.last_searcher = function(name)
    local module = not name:find("^rider") and modules[name]
    if module then return function() return module end end
    return "\n\tno module '" .. name .. "' of the proxy's own"
  end
  border.add_last_searcher = function() searchers[#searchers + 1] = border.last_searcher end
else
  for name, module in pairs(modules) do
    preload[name] = function() return module end
  end
end

local HOOKS = {
  v1 = { request_headers = "on_request", response_headers = "on_response" },
  v2 = {
    request_headers = "on_request_header", request_body = "on_request_body",
    response_headers = "on_response_header", response_body = "on_response_body",
  },
}

return function(script)
  -- The sandbox is closed now: it takes searchers away, so ours comes behind what is left.
  if filesystem then border.add_last_searcher() end
  local handler = script()
  if type(handler) ~= "table" then
    error("the plugin must return a table of hooks, it returned " .. type(handler), 0)
  end
  local named = handler.version
  local hooks, idle = {}, {}
  hooks.idle = idle
  if named == nil or named == "v1" or named == "v2" then
    border.is_v2 = named == "v2"
    for entry, name in pairs(HOOKS[named or "v1"]) do
      local hook = handler[name]
      if type(hook) == "function" then hooks[entry], idle[entry] = hook, border.does_nothing(hook) end
    end
  else
    local text = "there is no version `" .. tostring(named) .. "` of plugins: no hook of it is called"
    border.api.log(3, text, #text)
  end
  local shared, forget_bodies = border.shared, border.forget_bodies
  function hooks.forget(stream)
    shared[stream] = nil
    forget_bodies(stream)
  end
  if type(handler.on_configure) == "function" then handler.on_configure() end
  return hooks
end
