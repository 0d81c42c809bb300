-- envoy.get_base_config(), envoy.get_route_config() and their validation.
local border = ...
local api, value, str, envoy, json = border.api, border.value, border.string, border.envoy, border.json
local route_config_id, value_get = api.route_config_id, api.value_get
local type, error, pairs, tostring, setmetatable, getmetatable = type, error, pairs, tostring, setmetatable, getmetatable
local VALIDATE_OK, VALIDATE_FAIL = 0, 1

local module = { VALIDATE_OK = VALIDATE_OK, VALIDATE_FAIL = VALIDATE_FAIL }
-- Hand out copies of route configurations, for plugins that change what they get.
module.copy_route_config = border.copies_route_config

local validate_base, validate_route

-- A configuration as JSON; nil when there is none.
local function read(which)
  if value_get(which, "", 0, "", 0, value) ~= 0 then return nil end
  return str(value.text.p, value.text.n)
end

-- { config = … } or { failure = … }; validators are given the decoded configuration, and its text.
local function load(text, validate, what)
  local config
  if text ~= nil then config = json.decode(text) end
  if validate then
    local verdict, message = validate(config, text)
    if verdict ~= VALIDATE_OK and verdict ~= true then
      if message == nil then message = what .. " config validate failed: the validator refused it" end
      return { failure = message }
    end
  end
  return { config = config }
end

local base
local function load_base() return load(read(border.BASE_CONFIG) or "{}", validate_base, "base") end

function envoy.get_base_config()
  if base == nil then base = load_base() end
  if base.failure ~= nil then error(base.failure, 2) end
  return base.config
end

-- By the number that the proxy gives to each; the collector drops those that no stream asks for any more.
local known = setmetatable({}, { __mode = "v" })
local last_id, last = 0, nil

local function load_route(id)
  local entry = known[id]
  if entry == nil then
    entry = load(read(border.ROUTE_CONFIG), validate_route, "route")
    known[id] = entry
  end
  last_id, last = id, entry
  return entry
end

local function copy(item)
  if type(item) ~= "table" then return item end
  local copied = setmetatable({}, getmetatable(item))
  for key, inner in pairs(item) do copied[key] = copy(inner) end
  return copied
end

function envoy.get_route_config()
  local id = route_config_id()
  if id == 0 then return nil end
  local entry = last
  if id ~= last_id then entry = load_route(id) end
  if entry.failure ~= nil then error(entry.failure, 2) end
  if module.copy_route_config then return copy(entry.config) end
  return entry.config
end

-- The base configuration is validated at once: a plugin whose own does not fit is not loaded.
function module.register_config_validator(validate_base_config, validate_route_config)
  if validate_base_config ~= nil then
    if type(validate_base_config) ~= "function" then error("a validator must be a function", 2) end
    validate_base = validate_base_config
  end
  if validate_route_config ~= nil then
    if type(validate_route_config) ~= "function" then error("a validator must be a function", 2) end
    validate_route = validate_route_config
  end
  last_id, last = 0, nil
  known = setmetatable({}, { __mode = "v" })
  base = load_base()
  if base.failure ~= nil then
    -- The host tells it where the configuration stands, so it has no place of its own.
    border.refused = base.failure
    error(base.failure, 0)
  end
end

border.modules["rider.config"], border.modules["rider.v2.config"] = module, module
return module
