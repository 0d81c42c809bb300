-- JSON Schemas: `jsonschema`, and `rider.json_validator`, which validates configurations by them.
local border = ...
local api, out, str, json = border.api, border.out, border.string, border.json
local check_schema, check_is_schema = api.check_schema, api.check_is_schema
local type, error, pairs, next, pcall = type, error, pairs, next, pcall
local setmetatable, getmetatable = setmetatable, getmetatable

-- Lua has one empty table, JSON two: which keywords hold lists, and which hold schemas by names of the author's.
local LISTS = { required = true, enum = true, allOf = true, anyOf = true, oneOf = true, examples = true }
local NAMED = { properties = true, patternProperties = true, definitions = true, ["$defs"] = true, dependencies = true }

-- Finalisers run where the proxy is not to be reached.
local UNREACHABLE = "the proxy cannot be called from a finaliser"

-- Of draft 4 alone `exclusiveMinimum` and `exclusiveMaximum` are true or false.
local is_draft4

local function plain(schema, by_name)
  if type(schema) ~= "table" then return schema end
  local copied = setmetatable({}, getmetatable(schema))
  for key, item in pairs(schema) do
    if not by_name and (key == "exclusiveMinimum" or key == "exclusiveMaximum") and type(item) == "boolean" then
      is_draft4 = true
    end
    if not by_name and LISTS[key] and type(item) == "table" and next(item) == nil then
      copied[key] = json.empty_array
    elseif not by_name and key == "required" and type(item) == "boolean" then
      -- Draft 3's, which nothing heeds.
      copied[key] = nil
    else
      copied[key] = plain(item, not by_name and NAMED[key])
    end
  end
  return copied
end

local function text_of(schema)
  if type(schema) ~= "table" and type(schema) ~= "boolean" then error("a schema must be a table", 3) end
  is_draft4 = false
  local copied = plain(schema, false)
  if type(copied) == "table" and copied["$schema"] == nil then
    copied["$schema"] = is_draft4 and "http://json-schema.org/draft-04/schema#" or "http://json-schema.org/draft-07/schema#"
  end
  local text = json.encode(copied)
  local code = check_is_schema(text, #text, out)
  if code == border.INVALID then error("invalid schema: " .. str(out.p, out.n), 3) end
  if code ~= 0 then error(UNREACHABLE, 3) end
  return text
end

local function check(schema, text)
  local code = check_schema(schema, #schema, text, #text, out)
  if code == 0 then return true end
  if code ~= border.INVALID then return false, UNREACHABLE end
  return false, str(out.p, out.n)
end

local jsonschema = {}
-- A function that answers true, or false and what is wrong. Options are passed over: nothing is fetched.
function jsonschema.generate_validator(schema)
  local compiled = text_of(schema)
  return function(data)
    local ok, text = pcall(json.encode, data)
    if not ok then return false, text end
    local fits, message = check(compiled, text)
    if fits then return true end
    return false, message
  end
end

local validator = {}
function validator.register_validator(base_schema, route_schema)
  local config = border.modules["rider.config"]
  local function by(schema, what)
    if schema == nil then return nil end
    local compiled = text_of(schema)
    return function(_, text)
      if text == nil then
        return config.VALIDATE_FAIL, what .. " config validate failed: there is no config"
      end
      local fits, message = check(compiled, text)
      if fits then return config.VALIDATE_OK end
      return config.VALIDATE_FAIL, what .. " config validate failed: " .. message
    end
  end
  config.register_config_validator(by(base_schema, "base"), by(route_schema, "route"))
end

border.modules.jsonschema, border.modules["rider.json_validator"] = jsonschema, validator
return jsonschema
