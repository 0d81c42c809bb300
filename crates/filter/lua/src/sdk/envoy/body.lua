-- Bodies: all of one, its pieces, and the trailers behind it.
local border, kit = ...
local api, ctx, out, str = border.api, border.context, border.out, border.string
local body_length, body_part, body_set, flow = api.body_length, api.body_part, api.body_set, api.flow
local type, error, setmetatable = type, error, setmetatable
local band, wait = require("bit").band, border.wait
local text, integer, dead = kit.text, kit.integer, kit.dead
local COMPLETE, ENDED, TRAILERS, STREAMED = border.COMPLETE, border.ENDED, border.TRAILERS, border.STREAMED
local TRAILERS_ENDED = TRAILERS + ENDED
local WAIT_BODY, WAIT_CHUNK, WAIT_TRAILERS = border.WAIT_BODY, border.WAIT_CHUNK, border.WAIT_TRAILERS

local TURN, SIDE = 1, 2

local Buffer = kit.class("Buffer", "turn")

local function buffer(side)
  return setmetatable({ ctx.turn, side }, Buffer)
end

function Buffer:length()
  if self[TURN] ~= ctx.turn then dead(self, Buffer, "length") end
  return body_length(self[SIDE])
end

-- The beginning of a body as it was read last, and in which turn: within one turn only setBytes() changes a body. A text above
-- this size is not kept.
local LARGE = 65536
local read, read_side, read_turn = "", 0, 0

function Buffer:getBytes(index, length)
  if self[TURN] ~= ctx.turn then dead(self, Buffer, "getBytes") end
  if type(index) ~= "number" or index % 1 ~= 0 then index = integer(index, 1, "getBytes") end
  if type(length) ~= "number" or length % 1 ~= 0 then length = integer(length, 2, "getBytes") end
  local side = self[SIDE]
  if index == 0 and read_turn == ctx.turn and read_side == side and length == #read then return read end
  if body_part(side, index, length, out) ~= 0 then
    error("index/length must be >= 0 and (index + length) must be <= buffer size", 2)
  end
  local bytes = str(out.p, out.n)
  if index == 0 and length <= LARGE then read, read_side, read_turn = bytes, side, ctx.turn end
  return bytes
end

function Buffer:setBytes(bytes)
  if self[TURN] ~= ctx.turn then dead(self, Buffer, "setBytes") end
  if type(bytes) ~= "string" then bytes = text(bytes, 1, "setBytes") end
  read_turn = 0
  body_set(self[SIDE], bytes, #bytes)
  return #bytes
end

-- `known`: the script has seen this body before, so there is one even if it is empty by now. One that ends without a byte
-- is one, too, unless trailers end it.
function kit.body(side, known, always_wrap)
  local at = flow(side)
  if band(at, STREAMED) ~= 0 then
    if band(at, ENDED) ~= 0 then error("cannot call body() after body has been streamed", 3) end
    error("cannot call body() after body streaming has started", 3)
  end
  local came = false
  if band(at, COMPLETE + ENDED) == 0 then
    wait(WAIT_BODY)
    came = band(flow(side), TRAILERS) == 0
  end
  if always_wrap or known or came or body_length(side) ~= 0 then return buffer(side) end
end

local function next_chunk(side)
  if band(flow(side), ENDED) ~= 0 then return nil end
  wait(WAIT_CHUNK)
  -- Trailers end the body without a piece. They may be known already when the last piece is shown, which they do not end.
  if band(flow(side), TRAILERS_ENDED) == TRAILERS_ENDED then return nil end
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
