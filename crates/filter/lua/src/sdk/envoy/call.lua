-- Answers of the script's own, and calls to other clusters.
local border, kit = ...
local api, ctx, out, out2, str = border.api, border.context, border.out, border.out2, border.string
local type, tostring, tonumber, error, format, pairs, select = type, tostring, tonumber, error, string.format, pairs, select
local match, lower, pcall = string.match, string.lower, pcall
local band, wait = require("bit").band, border.wait
local expected, integer = kit.expected, kit.integer
local add, next_field = api.field_add, api.field_next

-- The longest that a call may be given: a number of 32 bits, of milliseconds.
local MAX_TIMEOUT = 2 ^ 31 - 1

-- For `body_get`: the body of the answer to the last call.
local ANSWER_BODY = 2

-- Adds a value that a script gave for a field.
local function add_value(map, name, value, method, position)
  if type(value) == "number" then value = tostring(value) end
  if type(value) ~= "string" then
    error(format("bad argument #%d to '%s' (string expected, got %s)", position, method, type(value)), 0)
  end
  local code = add(map, name, #name, value, #value)
  if code == border.LIMIT then error(border.TOO_MUCH, 0) end
  if code ~= 0 then error(format("invalid name or value of header '%s'", name), 0) end
end

-- Adds all that a script gave for a field: a text, a number, or a list of those.
local function add_values(map, name, value, method, position)
  if type(name) ~= "string" then expected("string", name, position, method, 0) end
  if type(value) ~= "table" then return add_value(map, name, value, method, position) end
  if kit.is_object(value) then expected("string", value, position, method, 0) end
  for _, item in pairs(value) do add_value(map, name, item, method, position) end
end

local function first(value)
  if type(value) == "table" then return value[1] end
  return value
end

local function check_table(value, position, method, level)
  if type(value) ~= "table" or kit.is_object(value) then expected("table", value, position, method, level) end
end

-- A status as a whole number; nil for what is none. Several make none.
local function status_of(value)
  if type(value) == "table" and not kit.is_object(value) then
    if #value > 1 then return nil end
    value = value[1]
  end
  if type(value) == "number" then value = tostring(value) end
  local digits = type(value) == "string" and match(value, "^%s*%+?(%d+)%s*$")
  return digits and tonumber(digits)
end

-- Why there is no answer with these fields: a field that cannot be one goes before the status.
local function refuse(headers)
  for name, value in pairs(headers) do
    local items = type(value) == "table" and not kit.is_object(value) and value or { value }
    if type(name) ~= "string" then expected("string", name, 1, "respond", 5) end
    for _, item in pairs(items) do kit.text(item, 1, "respond", 5) end
  end
  error(":status must be between 200-599", 4)
end

function kit.respond(side, headers, body)
  if side ~= 0 then error("respond not currently supported in the response path", 3) end
  if band(api.flow(side), border.RELEASED) ~= 0 then
    error("respond() cannot be called if headers have been continued", 3)
  end
  check_table(headers, 1, "respond", 5)
  if body ~= nil then body = kit.text(body, 2, "respond", 4) end
  local status = status_of(headers[":status"])
  if not status or status < 200 or status > 599 then refuse(headers) end
  api.respond_begin(status)
  for name, value in pairs(headers) do
    -- The length is the body's.
    if name ~= ":status" and (type(name) ~= "string" or lower(name) ~= "content-length") then
      local ok, what = pcall(add_values, border.REPLY, name, value, "respond", 1)
      if not ok then error(what, 3) end
    end
  end
  if api.respond_end(body, body and #body or 0) ~= 0 then error("the body of respond() is too large", 3) end
  wait(border.RESPONDED)
end

local OPTIONS = {
  asynchronous = true, timeout_ms = true, trace_sampled = true, return_duplicate_headers = true, send_xff = true,
}

-- The two signatures: a timeout and perhaps a flag, or a table of options.
local function options(timeout, ...)
  if type(timeout) ~= "table" or kit.is_object(timeout) then
    timeout = integer(timeout, 4, "httpCall", 0)
    local flag = ...
    if select("#", ...) > 0 and type(flag) ~= "boolean" then
      error("http call asynchronous flag must be 'true', 'false', or empty", 0)
    end
    return timeout, flag, false, true, -1
  end
  local given = timeout
  for key in pairs(given) do
    if not OPTIONS[key] then error(format('"%s" is not valid key for httpCall() options', tostring(key)), 0) end
  end
  timeout = given.timeout_ms == nil and 0 or integer(given.timeout_ms, 4, "httpCall", 0)
  local told = given.trace_sampled == nil and -1 or given.trace_sampled and 1 or 0
  return timeout, given.asynchronous, given.return_duplicate_headers, given.send_xff ~= false, told
end

-- The address that the client reached: what this proxy is called in `x-forwarded-for`.
local function own_address()
  if api.info(4, out) ~= 0 then return nil end
  local address = str(out.p, out.n)
  return match(address, "^%[(.+)%]:%d+$") or match(address, "^(.+):%d+$")
end

local function begin(cluster, headers, body, send_xff, timeout)
  cluster = kit.text(cluster, 1, "httpCall", 0)
  check_table(headers, 2, "httpCall", 0)
  if api.call_begin(cluster, #cluster) ~= 0 then error("http call cluster invalid. Must be configured", 0) end
  if not (first(headers[":path"]) and first(headers[":method"]) and first(headers[":authority"])) then
    error("http call headers must include ':path', ':method', and ':authority'", 0)
  end
  local forwarded
  for name, value in pairs(headers) do
    local plain = type(name) == "string" and lower(name)
    if plain == "x-forwarded-for" and send_xff then
      forwarded = tostring(first(value))
    elseif plain ~= "content-length" then
      add_values(border.CALL, name, value, "httpCall", 2)
    end
  end
  add_value(border.CALL, "x-envoy-internal", "true")
  local address = send_xff and own_address()
  if forwarded or address then
    local both = forwarded and address and forwarded .. "," .. address
    add_value(border.CALL, "x-forwarded-for", both or forwarded or address)
  end
  if timeout > 0 then add_value(border.CALL, "x-envoy-expected-rq-timeout-ms", timeout) end
  if body ~= nil and type(body) ~= "string" then body = kit.text(body, 3, "httpCall", 0) end
  return body
end

local function prepare(cluster, headers, body, ...)
  local timeout, asynchronous, duplicates, send_xff, told = options(...)
  -- Written so that what is no number at all (0/0) is refused, too.
  if not (timeout >= 0 and timeout <= MAX_TIMEOUT) then error("http call timeout must be >= 0", 0) end
  body = begin(cluster, headers, body, send_xff, timeout)
  local code = api.call_send(body, body and #body or 0, timeout, asynchronous and 1 or 0, told)
  if code == border.NO_CLUSTER then error("http call cluster invalid. Must be configured", 0) end
  if code == border.INVALID then
    error("http call headers must include ':path', ':method', and ':authority'", 0)
  end
  if code ~= 0 then error("the body of httpCall() is too large, or the calls on their way are", 0) end
  return asynchronous, duplicates
end

local MALFORMED = "upstream connect error or disconnect/reset before headers. reset reason: protocol error"

-- What stands for an answer when there is none.
local function failure(status, text)
  return { [":status"] = status, ["content-length"] = tostring(#text), ["content-type"] = "text/plain" }, text
end

function kit.http_call(cluster, headers, body, ...)
  local ok, asynchronous, duplicates = pcall(prepare, cluster, headers, body, ...)
  if not ok then error(asynchronous, 3) end
  if asynchronous then return end
  wait(border.WAIT_CALL)
  local outcome = api.call_outcome()
  if outcome == 2 then return failure("504", "upstream request timeout") end
  if outcome == 3 then return failure("502", MALFORMED) end
  if outcome ~= 0 then return failure("503", "upstream failure") end
  local answer, cursor = {}, 0
  while true do
    cursor = next_field(border.ANSWER, cursor, out, out2)
    if cursor < 0 then break end
    local name, value = lower(str(out.p, out.n)), str(out2.p, out2.n)
    local known = duplicates and answer[name]
    if not known then
      answer[name] = value
    elseif type(known) == "table" then
      known[#known + 1] = value
    else
      answer[name] = { known, value }
    end
  end
  if api.body_get(ANSWER_BODY, out) == 0 then return answer, str(out.p, out.n) end
  return answer, nil
end
