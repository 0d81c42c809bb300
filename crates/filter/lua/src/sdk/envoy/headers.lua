-- Heads and trailers.
local border, kit = ...
local api, ctx, out, out2, str = border.api, border.context, border.out, border.out2, border.string
local get, count, at, next_field = api.field_get, api.field_count, api.field_at, api.field_next
local set, add, remove, set_reason = api.field_set, api.field_add, api.field_remove, api.set_reason
local type, error, format, setmetatable = type, error, string.format, setmetatable
local text, integer, dead = kit.text, kit.integer, kit.dead
local LOCKED, RESPONSE, RESPONSE_TRAILERS = border.LOCKED, border.RESPONSE, border.RESPONSE_TRAILERS

-- Fields of an object: the turn that it is good for, which fields, and whether an iterator is open.
local TURN, MAP, OPEN = 1, 2, 3

-- The first number that is no index.
local TOO_LARGE = 2 ^ 31

local Headers = kit.class("HeaderMap", "turn")

-- A constant in the list would have the table copied from a template, which takes longer than filling it.
local closed = false

function kit.headers(map)
  return setmetatable({ ctx.turn, map, closed }, Headers)
end

-- Why an edit was not made.
local function refused(code, name)
  if code == LOCKED then error("header map can no longer be modified", 3) end
  if code == border.LIMIT then error(border.TOO_MUCH, 3) end
  error(format("invalid name or value of header '%s'", name), 3)
end

local function check_closed(self)
  if self[OPEN] then error("header map cannot be modified while iterating", 3) end
end

function Headers:get(name)
  if self[TURN] ~= ctx.turn then dead(self, Headers, "get") end
  if type(name) ~= "string" then name = text(name, 1, "get") end
  if get(self[MAP], name, #name, out) == 0 then return str(out.p, out.n) end
end

function Headers:getAtIndex(name, index)
  if self[TURN] ~= ctx.turn then dead(self, Headers, "getAtIndex") end
  if type(name) ~= "string" then name = text(name, 1, "getAtIndex") end
  if type(index) ~= "number" then index = integer(index, 2, "getAtIndex") end
  -- Written so that what is no number at all (0/0) is none, too.
  if index > -1 and index < TOO_LARGE and at(self[MAP], name, #name, index, out) == 0 then return str(out.p, out.n) end
end

function Headers:getNumValues(name)
  if self[TURN] ~= ctx.turn then dead(self, Headers, "getNumValues") end
  if type(name) ~= "string" then name = text(name, 1, "getNumValues") end
  return count(self[MAP], name, #name)
end

function Headers:add(name, value)
  if self[TURN] ~= ctx.turn then dead(self, Headers, "add") end
  if type(name) ~= "string" then name = text(name, 1, "add") end
  if type(value) ~= "string" then value = text(value, 2, "add") end
  if self[OPEN] then check_closed(self) end
  local code = add(self[MAP], name, #name, value, #value)
  if code ~= 0 then refused(code, name) end
end

function Headers:replace(name, value)
  if self[TURN] ~= ctx.turn then dead(self, Headers, "replace") end
  if type(name) ~= "string" then name = text(name, 1, "replace") end
  if type(value) ~= "string" then value = text(value, 2, "replace") end
  if self[OPEN] then check_closed(self) end
  local code = set(self[MAP], name, #name, value, #value)
  if code ~= 0 then refused(code, name) end
end

function Headers:remove(name)
  if self[TURN] ~= ctx.turn then dead(self, Headers, "remove") end
  if type(name) ~= "string" then name = text(name, 1, "remove") end
  if self[OPEN] then check_closed(self) end
  local code = remove(self[MAP], name, #name)
  if code ~= 0 then refused(code, name) end
end

-- Requests have no reason phrase: asked of one, this does nothing.
function Headers:setHttp1ReasonPhrase(phrase)
  if self[TURN] ~= ctx.turn then dead(self, Headers, "setHttp1ReasonPhrase") end
  if type(phrase) ~= "string" then phrase = text(phrase, 1, "setHttp1ReasonPhrase") end
  if self[OPEN] then check_closed(self) end
  if self[MAP] == RESPONSE and set_reason(phrase, #phrase) == border.INVALID then
    error("invalid reason phrase", 2)
  end
end

-- The map is locked from here until its last field was seen: behind a `break` it stays so.
-- The iterator is a table that can be called: it costs one allocation, and calling it is compiled.
local Iterator = {}
function Iterator.__call(state)
  local headers = state[1]
  if not headers or headers[TURN] ~= ctx.turn then error("object used outside of proper scope", 2) end
  local cursor = next_field(headers[MAP], state[2], out, out2)
  if cursor < 0 then
    headers[OPEN] = false
    state[1] = false
    return nil
  end
  state[2] = cursor
  return str(out.p, out.n), str(out2.p, out2.n)
end

function Headers:__pairs()
  if self[TURN] ~= ctx.turn then dead(self, Headers, "pairs") end
  if self[OPEN] then error("cannot create a second iterator before completing the first", 2) end
  self[OPEN] = true
  return setmetatable({ self, 0 }, Iterator), nil, nil
end
