-- envoy.httpCall() and envoy.respond().
local border = ...
local api, ctx, out, out2, str, envoy = border.api, border.context, border.out, border.out2, border.string, border.envoy
local field_add, field_set, field_next, field_check = api.field_add, api.field_set, api.field_next, api.field_check
local type, error, pairs, tostring, tonumber, lower, byte = type, error, pairs, tostring, tonumber, string.lower, string.byte
local REPLY, CALL, ANSWER, NO_CLUSTER, NOT_HERE, LIMIT =
  border.REPLY, border.CALL, border.ANSWER, border.NO_CLUSTER, border.NOT_HERE, border.LIMIT

local MALFORMED = "upstream connect error or disconnect/reset before headers. reset reason: protocol error"

-- What stands in a table of headers, as text.
local function text(name, value, level)
  if type(name) ~= "string" then error("header name must be a string", level + 1) end
  if type(value) == "number" then return tostring(value) end
  if type(value) ~= "string" then error("header value of `" .. name .. "` must be a string or a number", level + 1) end
  return value
end

local function body_text(body, level)
  if body == nil then return nil, 0 end
  if type(body) == "number" then body = tostring(body) end
  if type(body) ~= "string" then error("body must be a string", level + 1) end
  return body, #body
end

-- Comes back with the headers and the body of the answer.
function envoy.httpCall(cluster, headers, body, timeout)
  if ctx.side < 0 then error("there is no stream here: httpCall is for hooks", 2) end
  if type(cluster) ~= "string" then error("http call cluster must be a string", 2) end
  if type(headers) ~= "table" then error("http call headers must be a table", 2) end
  if type(timeout) ~= "number" then error("http call timeout must be a number", 2) end
  if not (timeout >= 0) then error("http call timeout must be >= 0", 2) end
  local bytes, length = body_text(body, 2)
  local code = api.call_begin(cluster, #cluster)
  if code ~= 0 then error("http call cluster invalid: `" .. cluster .. "` must not be called by this plugin", 2) end
  local method, path, authority = false, false, false
  for name, value in pairs(headers) do
    value = text(name, value, 2)
    local put = byte(name) == 58 and field_set or field_add
    local put_code = put(CALL, name, #name, value, #value)
    if put_code == LIMIT then error(border.TOO_MUCH, 2) end
    if put_code ~= 0 then error("http call header `" .. name .. "` cannot be sent", 2) end
    method, path = method or name == ":method", path or name == ":path"
    authority = authority or name == ":authority" or lower(name) == "host"
  end
  if not (method and path and authority) then
    error("http call headers must include ':path', ':method', and ':authority'", 2)
  end
  code = api.call_send(bytes, length, timeout, 0, -1)
  if code == NO_CLUSTER then error("http call cluster invalid: there is no `" .. cluster .. "`", 2) end
  if code == NOT_HERE then error("http call must be invoked in a hook", 2) end
  if code == LIMIT then error("http call body is too large, or the calls on their way are", 2) end
  if code ~= 0 then error("http call headers or timeout are invalid", 2) end
  border.wait(border.WAIT_CALL)
  code = api.call_outcome()
  if code == 1 then return { [":status"] = "503" }, "upstream failure" end
  if code == 3 then return { [":status"] = "502" }, MALFORMED end
  if code ~= 0 then return { [":status"] = "504" }, "upstream request timeout" end
  local answer = {}
  local cursor = field_next(ANSWER, 0, out, out2)
  while cursor >= 0 do
    answer[str(out.p, out.n)] = str(out2.p, out2.n)
    cursor = field_next(ANSWER, cursor, out, out2)
  end
  if api.body_get(2, out) == 0 then return answer, str(out.p, out.n) end
  return answer, nil
end

-- Does not come back.
function envoy.respond(headers, body)
  if ctx.side < 0 then error("there is no stream here: respond is for hooks on requests", 2) end
  if ctx.side ~= 0 then error("respond not currently supported in the response path", 2) end
  if type(headers) ~= "table" then error("respond headers must be a table", 2) end
  local status = headers[":status"]
  if type(status) == "string" then status = tonumber(status) end
  if type(status) ~= "number" or not (status >= 200 and status < 600) then
    error(":status must be between 200-599", 2)
  end
  local bytes, length = body_text(body, 2)
  -- `content-length` is the proxy's to say.
  for name, value in pairs(headers) do
    value = text(name, value, 2)
    if name ~= ":status" and field_check(name, #name, value, #value) ~= 0 or byte(name) == 58 and name ~= ":status" then
      error("respond header `" .. name .. "` cannot be sent", 2)
    end
  end
  api.respond_begin(status)
  for name, value in pairs(headers) do
    value = text(name, value, 2)
    if name ~= ":status" and lower(name) ~= "content-length" and field_add(REPLY, name, #name, value, #value) == LIMIT then
      error(border.TOO_MUCH, 2)
    end
  end
  if api.respond_end(bytes, length) ~= 0 then error("respond body is too large", 2) end
  border.wait(border.RESPONDED)
end
