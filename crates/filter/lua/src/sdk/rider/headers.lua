-- envoy.req and envoy.resp: heads.
local border = ...
local api, out, out2, str, envoy = border.api, border.out, border.out2, border.string, border.envoy
local field_get, field_count, field_at, field_set = api.field_get, api.field_count, api.field_at, api.field_set
local field_add, field_remove, field_len, field_next = api.field_add, api.field_remove, api.field_len, api.field_next
local fields_clear, field_check = api.fields_clear, api.field_check
local type, error, pairs, next, floor, sub = type, error, pairs, next, math.floor, string.sub
local NOT_HERE, LOCKED = border.NOT_HERE, border.LOCKED

local function refuse(code, name, level)
  if code == NOT_HERE then error("there is no such message here: its headers cannot be changed", level + 1) end
  if code == LOCKED then error("the headers have gone on: they can no longer be changed", level + 1) end
  if code == border.LIMIT then error(border.TOO_MUCH, level + 1) end
  error("`" .. name .. "` cannot be set to that, or not removed: no message could carry it", level + 1)
end

local function install(to, map)
  function to.get_header(name)
    if type(name) ~= "string" then error("header name must be a string", 2) end
    if field_get(map, name, #name, out) == 0 then return str(out.p, out.n) end
    return nil
  end

  function to.get_header_size(name)
    if type(name) ~= "string" then error("header name must be a string", 2) end
    return field_count(map, name, #name)
  end

  -- `index` counts from 0.
  function to.get_header_index(name, index)
    if type(name) ~= "string" then error("header name must be a string", 2) end
    if type(index) ~= "number" then error("header index must be a number", 2) end
    if index < 0 or index > 0x7fffffff then return nil end
    if field_at(map, name, #name, index, out) == 0 then return str(out.p, out.n) end
    return nil
  end

  function to.get_header_map_size()
    local size = field_len(map)
    return size < 0 and 0 or size
  end

  -- Of several values of one name the last.
  function to.get_headers()
    local cursor = field_next(map, 0, out, out2)
    if cursor < 0 then return nil end
    local all = {}
    while cursor >= 0 do
      all[str(out.p, out.n)] = str(out2.p, out2.n)
      cursor = field_next(map, cursor, out, out2)
    end
    return all
  end

  function to.set_header(name, value)
    if type(name) ~= "string" then error("header name must be a string", 2) end
    if type(value) ~= "string" then error("header value must be a string", 2) end
    if name == "" or value == "" then error("header name and value must not be empty", 2) end
    local code = field_set(map, name, #name, value, #value)
    if code ~= 0 then refuse(code, name, 2) end
  end

  function to.remove_header(name)
    if type(name) ~= "string" then error("header name must be a string", 2) end
    if name == "" then error("header name must not be empty", 2) end
    local code = field_remove(map, name, #name)
    if code ~= 0 then refuse(code, name, 2) end
  end
  to.clear_header = to.remove_header

  -- All is checked first: a mistake leaves the headers as they were.
  function to.set_headers(headers)
    if type(headers) ~= "table" then error("headers must be a table", 2) end
    if next(headers) == nil then error("headers must not be empty", 2) end
    for name, value in pairs(headers) do
      if type(name) ~= "string" then error("header name must be a string", 2) end
      if type(value) ~= "string" then error("header value must be a string", 2) end
      if field_check(name, #name, value, #value) ~= 0 then refuse(0, name, 2) end
    end
    local code = fields_clear(map)
    if code ~= 0 then refuse(code, "", 2) end
    for name, value in pairs(headers) do
      local set = sub(name, 1, 1) == ":" and field_set or field_add
      code = set(map, name, #name, value, #value)
      if code ~= 0 then refuse(code, name, 2) end
    end
  end
end

install(envoy.req, border.REQUEST)
install(envoy.resp, border.RESPONSE)

local find = string.find
local MAX_PARAMETERS = 100

-- The first `max` names in the order of their bytes; of several values of one name the first. Nothing is decoded.
function envoy.req.get_query_parameters(max)
  if max == nil then
    max = MAX_PARAMETERS
  elseif type(max) ~= "number" then
    error("max_args must be a number", 2)
  elseif not (max >= 1) then
    error("max_args must be >= 1", 2)
  elseif max > MAX_PARAMETERS then
    error("max_args must be <= " .. MAX_PARAMETERS, 2)
  end
  local all, count = {}, 0
  if field_get(border.REQUEST, ":path", 5, out) ~= 0 then return all end
  local path = str(out.p, out.n)
  local mark = find(path, "?", 1, true)
  local at = mark and mark + 1 or #path + 1
  while at <= #path do
    local stop = find(path, "&", at, true) or #path + 1
    local name, value = sub(path, at, stop - 1), ""
    local equals = find(name, "=", 1, true)
    if equals then name, value = sub(name, 1, equals - 1), sub(name, equals + 1) end
    if all[name] == nil then
      all[name] = value
      count = count + 1
    end
    at = stop + 1
  end
  if count > max then
    local names = {}
    for name in pairs(all) do names[#names + 1] = name end
    -- Lua compares by the locale's rules, which are those of bytes: nothing sets another locale.
    table.sort(names)
    for i = floor(max) + 1, count do all[names[i]] = nil end
  end
  return all
end
