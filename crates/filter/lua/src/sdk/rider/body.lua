-- Bodies. The second SDK hands out texts in hooks of their own; the first waits, and hands out an object.
local border = ...
local api, ctx, out, str, envoy = border.api, border.context, border.out, border.string, border.envoy
local body_get, body_length, body_part = api.body_get, api.body_length, api.body_part
local body_set, flow, keep = api.body_set, api.flow, api.keep
local type, error, floor = type, error, math.floor
local band = bit.band
local COMPLETE, BODYLESS, RELEASED, STREAMED = border.COMPLETE, border.BODYLESS, border.RELEASED, border.STREAMED

-- A text of this size is not kept beyond its stream.
local LARGE = 65536

local function install(to, map)
  -- What was read last, and in which turn: within one turn only set() changes a body.
  local text, turn, large_stream = nil, 0, 0

  local function read()
    if turn == ctx.turn then return text end
    if body_get(map, out) == 0 then
      text = str(out.p, out.n)
      if #text > LARGE then
        large_stream = ctx.stream
        keep()
      end
    else
      text = nil
    end
    turn = ctx.turn
    return text
  end

  local function set(bytes)
    if type(bytes) ~= "string" then error("the body must be a string", 3) end
    if ctx.side ~= map then error("the body of the other message cannot be changed here", 3) end
    if body_set(map, bytes, #bytes) ~= 0 then error("there is no body to change here", 3) end
    turn = 0
    return #bytes
  end

  -- The body as an object: one serves all streams, since it always means the current one's.
  local buffer = {}
  function buffer.length() return body_length(map) end
  -- `index` counts from 0.
  function buffer.getBytes(_, index, length)
    if type(index) ~= "number" or type(length) ~= "number" then error("index and length must be numbers", 2) end
    index, length = floor(index), floor(length)
    if index == 0 and length == body_length(map) then return read() or "" end
    if body_part(map, index, length, out) ~= 0 then
      error("index/length must be >= 0 and (index + length) must be <= buffer size", 2)
    end
    return str(out.p, out.n)
  end
  function buffer.setBytes(_, bytes) return set(bytes) end

  -- Whether there is a body, all of which is here then.
  local function wait_for_body(name, level)
    local state = flow(map)
    if band(state, BODYLESS) ~= 0 then return false end
    if band(state, COMPLETE) == 0 then
      if band(state, RELEASED + STREAMED) ~= 0 then
        error("cannot call " .. name .. "() after body has been streamed", level)
      end
      border.wait(border.WAIT_BODY)
    end
    return true
  end

  local function wait_for_buffer()
    if ctx.side ~= map then error("the body of the other message cannot be read here", 3) end
    local known = band(flow(map), COMPLETE) ~= 0
    -- A message without a body may have been given one.
    if (not wait_for_body("get_body", 4) or not known) and body_length(map) == 0 then return nil end
    return buffer
  end

  function to.get_body()
    if border.is_v2 then return read() end
    -- Not a tail call: errors name the caller's line.
    local found = wait_for_buffer()
    return found
  end

  -- Ours: the published second SDK cannot change bodies. What is put in the place of a body takes it when all of it is
  -- here: put there earlier, it would be followed by what is still to come. So in a hook on the head this waits.
  function to.set_body(bytes)
    if ctx.side == map and type(bytes) == "string" then wait_for_body("set_body", 3) end
    local length = set(bytes)
    return length
  end

  return function(stream)
    if large_stream == stream then text, turn, large_stream = nil, 0, 0 end
  end
end

local forget_request = install(envoy.req, border.REQUEST)
local forget_response = install(envoy.resp, border.RESPONSE)
border.forget_bodies = function(stream)
  forget_request(stream)
  forget_response(stream)
end
