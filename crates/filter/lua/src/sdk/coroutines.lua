-- coroutine.resume and wrap with a bound for coroutines that run within each other: each takes some of the thread's stack, which
-- LuaJIT does not count, so that one script ended the process. Lua 5.1 has the bound, and its words.
local border = ...
local stack_is_low = border.api.stack_is_low
local error, type, setmetatable, coroutine = error, type, setmetatable, coroutine
local create, resume, running = coroutine.create, coroutine.resume, coroutine.running

local MAX_DEPTH = 190

-- How many there were around each when it last went on. One that is stopped in the middle leaves nothing to be put right.
local depths = setmetatable({}, { __mode = "k" })

local function go_on(co, ...)
  if type(co) == "thread" then
    local depth = (depths[running()] or 0) + 1
    -- One by itself always has room.
    if depth > MAX_DEPTH or depth > 1 and stack_is_low() ~= 0 then return false, "C stack overflow" end
    depths[co] = depth
  end
  return resume(co, ...)
end

local function raise_or_give(ok, ...)
  if ok then return ... end
  local why = ...
  -- With the place of who called, if it is a text, as LuaJIT's own does.
  error(why, type(why) == "string" and 2 or 0)
end

coroutine.resume = go_on

coroutine.wrap = function(body)
  local co = create(body)
  return function(...) return raise_or_give(go_on(co, ...)) end
end

-- What waits gives the proxy its own coroutine back. From within one of the script's it would come out where the script went on
-- with that, and nothing would ever answer.
local wait = border.wait
function border.wait(what)
  if depths[running()] then error("this waits for the proxy, which a coroutine of the script's own cannot", 3) end
  return wait(what)
end
