-- Bodies: all of one, its pieces, and the trailers behind it.
local border, kit = ...
local api, ctx, out, str = border.api, border.context, border.out, border.string
local body_get, body_set, flow = api.body_get, api.body_set, api.flow
local type, error, tonumber, setmetatable = type, error, tonumber, setmetatable
local band, wait = require("bit").band, border.wait
local text, integer, dead = kit.text, kit.integer, kit.dead
local COMPLETE, ENDED, TRAILERS, STREAMED = border.COMPLETE, border.ENDED, border.TRAILERS, border.STREAMED
local WAIT_BODY, WAIT_CHUNK, WAIT_TRAILERS = border.WAIT_BODY, border.WAIT_CHUNK, border.WAIT_TRAILERS

local TURN, SIDE = 1, 2

local Buffer = kit.class("Buffer", "turn")

local function buffer(side)
  return setmetatable({ ctx.turn, side }, Buffer)
end

function Buffer:length()
  if self[TURN] ~= ctx.turn then dead(self, Buffer, "length") end
  body_get(self[SIDE], out)
  return tonumber(out.n)
end

function Buffer:getBytes(index, length)
  if self[TURN] ~= ctx.turn then dead(self, Buffer, "getBytes") end
  if type(index) ~= "number" or index % 1 ~= 0 then index = integer(index, 1, "getBytes") end
  if type(length) ~= "number" or length % 1 ~= 0 then length = integer(length, 2, "getBytes") end
  body_get(self[SIDE], out)
  -- Written so that what is no number at all (0/0) is refused, too.
  if not (index >= 0 and length >= 0 and index + length <= tonumber(out.n)) then
    error("index/length must be >= 0 and (index + length) must be <= buffer size", 2)
  end
  return str(out.p + index, length)
end

function Buffer:setBytes(bytes)
  if self[TURN] ~= ctx.turn then dead(self, Buffer, "setBytes") end
  if type(bytes) ~= "string" then bytes = text(bytes, 1, "setBytes") end
  body_set(self[SIDE], bytes, #bytes)
  return #bytes
end

-- `known`: the script has seen this body before, so there is one even if it is empty by now.
function kit.body(side, known, always_wrap)
  local at = flow(side)
  if band(at, STREAMED) ~= 0 then
    if band(at, ENDED) ~= 0 then error("cannot call body() after body has been streamed", 3) end
    error("cannot call body() after body streaming has started", 3)
  end
  if band(at, COMPLETE + ENDED) == 0 then wait(WAIT_BODY) end
  if always_wrap or known or body_get(side, out) == 0 then return buffer(side) end
end

local function next_chunk(side)
  if band(flow(side), ENDED) ~= 0 then return nil end
  wait(WAIT_CHUNK)
  -- Trailers end the body without a piece.
  if band(flow(side), TRAILERS) ~= 0 then return nil end
  return buffer(side)
end

function kit.chunks(side)
  local at = flow(side)
  if band(at, STREAMED + COMPLETE) ~= 0 then
    error("cannot call bodyChunks after body processing has begun", 3)
  end
  return next_chunk, side, nil
end

function kit.trailers(side)
  local at = flow(side)
  if band(at, TRAILERS + ENDED) == 0 then
    wait(WAIT_TRAILERS)
    at = flow(side)
  end
  if band(at, TRAILERS) ~= 0 then
    return kit.headers(side == 0 and border.REQUEST_TRAILERS or border.RESPONSE_TRAILERS)
  end
end
