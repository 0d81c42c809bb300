-- Rider plugins: a script that returns a table of hooks.
local border, filesystem = ...
local type, error, pairs, ipairs, next, tostring = type, error, pairs, ipairs, next, tostring
local concat = table.concat
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
  v1 = { { "request_headers", "on_request" }, { "response_headers", "on_response" } },
  v2 = {
    { "request_headers", "on_request_header" }, { "request_body", "on_request_body" },
    { "response_headers", "on_response_header" }, { "response_body", "on_response_body" },
  },
}

-- What the author of a plugin should hear that has these hooks and says this version: functions that nobody will call; nil when
-- there is nothing to say.
local function notice(handler, named, hooks)
  if named ~= nil and not HOOKS[named] then
    return "there is no version `" .. tostring(named) .. "` of plugins: no hook of it is called"
  end
  local own, other = named or "v1", named == "v2" and "v1" or "v2"
  local idle = {}
  for _, hook in ipairs(HOOKS[other]) do
    if type(handler[hook[2]]) == "function" then idle[#idle + 1] = "`" .. hook[2] .. "`" end
  end
  local says = named and "says `version = \"" .. own .. "\"`" or "says no `version`, which is \"v1\""
  if #idle > 0 then
    return concat(idle, ", ") .. " of version \"" .. other .. "\" will never be called: the plugin's table " .. says
  end
  if next(hooks) == nil then
    local names = {}
    for place, hook in ipairs(HOOKS[own]) do names[place] = "`" .. hook[2] .. "`" end
    return "the plugin does nothing: its table " .. says .. " and has none of " .. concat(names, ", ")
  end
end

return function(script)
  -- The sandbox is closed now: it takes searchers away, so ours comes behind what is left.
  if filesystem then border.add_last_searcher() end
  local handler = script()
  if type(handler) ~= "table" then
    error("the plugin must return a table of hooks, it returned " .. type(handler), 0)
  end
  local named = handler.version
  local hooks, idle = {}, {}
  border.is_v2 = named == "v2"
  for _, known in ipairs(HOOKS[named == nil and "v1" or named] or {}) do
    local entry, hook = known[1], handler[known[2]]
    if type(hook) == "function" then hooks[entry], idle[entry] = hook, border.does_nothing(hook) end
  end
  hooks.notice = notice(handler, named, hooks)
  hooks.idle = idle
  local shared, forget_bodies = border.shared, border.forget_bodies
  function hooks.forget(stream)
    shared[stream] = nil
    forget_bodies(stream)
  end
  if type(handler.on_configure) == "function" then handler.on_configure() end
  return hooks
end
