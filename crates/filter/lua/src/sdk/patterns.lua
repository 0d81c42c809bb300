-- Patterns that cannot hang a worker. Lua's own matcher is C code that nothing can interrupt, and some patterns take
-- exponential time. What is certain to be quick goes there; the rest goes to a matcher in Lua, which the watchdog stops
-- like any other loop. The results are the same.
local byte, sub, char = string.byte, string.sub, string.char
local c_find, c_match, c_gmatch, c_gsub = string.find, string.match, string.gmatch, string.gsub
local type, tonumber, tostring, error, unpack, concat = type, tonumber, tostring, error, unpack, table.concat

-- Steps that the C matcher may take at worst.
local QUICK = 3e7

-- What a pattern costs at worst: an exponent of the subject's length and a factor. Few patterns are ever seen.
local exponents, factors, known = {}, {}, 0
local function weigh(pattern)
  local exponent, factor, i, n = 1, 1, 1, #pattern
  if byte(pattern, 1) == 94 then exponent, i = 0, 2 end
  while i <= n do
    local c = byte(pattern, i)
    if c == 37 then
      -- A balanced match walks on from each place.
      if byte(pattern, i + 1) == 98 then exponent = exponent + 1 end
      i = i + 2
    elseif c == 91 then
      i = i + 1
      if byte(pattern, i) == 94 then i = i + 1 end
      repeat
        if byte(pattern, i) == 37 then i = i + 1 end
        i = i + 1
      until i > n or byte(pattern, i) == 93
      i = i + 1
    else
      if c == 42 or c == 43 or c == 45 then exponent = exponent + 1 end
      if c == 63 then factor = factor * 2 end
      i = i + 1
    end
  end
  known = known + 1
  if known > 1000 then exponents, factors, known = {}, {}, 1 end
  exponents[pattern], factors[pattern] = exponent, factor
  return exponent, factor
end

local function is_quick(text, pattern)
  local exponent, factor = exponents[pattern], factors[pattern]
  if not exponent then exponent, factor = weigh(pattern) end
  return (#text) ^ exponent * factor <= QUICK
end

-- Sets of bytes by class letter.
local CLASSES = {}
for letter in c_gmatch("acdglpsuwxACDGLPSUWX", ".") do
  local set = {}
  for code = 0, 255 do set[code] = c_find(char(code), "%" .. letter) ~= nil end
  CLASSES[byte(letter)] = set
end

local POSITION, OPEN = -2, -1

local function in_class(code, class)
  local set = CLASSES[class]
  if set then return set[code] end
  return class == code
end

-- The place behind the item that begins at `at`.
local function item_end(pattern, at)
  local c = byte(pattern, at)
  at = at + 1
  if c == 37 then
    if at > #pattern then error("malformed pattern (ends with '%')", 0) end
    return at + 1
  end
  if c == 91 then
    if byte(pattern, at) == 94 then at = at + 1 end
    repeat
      if at > #pattern then error("malformed pattern (missing ']')", 0) end
      local inside = byte(pattern, at)
      at = at + 1
      if inside == 37 and at <= #pattern then at = at + 1 end
    until byte(pattern, at) == 93
    return at + 1
  end
  return at
end

-- `at` is the bracket, `last` the one that closes it.
local function in_set(code, pattern, at, last)
  local wanted = true
  at = at + 1
  if byte(pattern, at) == 94 then wanted, at = false, at + 1 end
  while at < last do
    local c = byte(pattern, at)
    if c == 37 then
      if in_class(code, byte(pattern, at + 1)) then return wanted end
      at = at + 2
    elseif byte(pattern, at + 1) == 45 and at + 2 < last then
      if c <= code and code <= byte(pattern, at + 2) then return wanted end
      at = at + 3
    else
      if c == code then return wanted end
      at = at + 1
    end
  end
  return not wanted
end

local function item_matches(state, at, item, behind)
  local code = byte(state.text, at)
  if not code then return false end
  local c = byte(state.pattern, item)
  if c == 46 then return true end
  if c == 37 then return in_class(code, byte(state.pattern, item + 1)) end
  if c == 91 then return in_set(code, state.pattern, item, behind - 1) end
  return c == code
end

local function capture(state, index)
  local length = state.lengths[index]
  if length == POSITION then return state.starts[index] end
  if length == OPEN then error("unfinished capture", 0) end
  return sub(state.text, state.starts[index], state.starts[index] + length - 1)
end

local walk

local function longest(state, at, item, behind)
  local count = 0
  while item_matches(state, at + count, item, behind) do count = count + 1 end
  while count >= 0 do
    local stop = walk(state, at + count, behind + 1)
    if stop then return stop end
    count = count - 1
  end
end

local function shortest(state, at, item, behind)
  while true do
    local stop = walk(state, at, behind + 1)
    if stop then return stop end
    if not item_matches(state, at, item, behind) then return nil end
    at = at + 1
  end
end

local function balanced(state, at, item)
  local open, close = byte(state.pattern, item), byte(state.pattern, item + 1)
  if not close then error("unbalanced pattern", 0) end
  if byte(state.text, at) ~= open then return nil end
  local depth = 1
  for i = at + 1, #state.text do
    local c = byte(state.text, i)
    if c == close then
      depth = depth - 1
      if depth == 0 then return i + 1 end
    elseif c == open then
      depth = depth + 1
    end
  end
end

-- Matches the pattern from `item` on with the text from `at` on; the place behind the match.
function walk(state, at, item)
  local pattern, text = state.pattern, state.text
  while item <= #pattern do
    local c = byte(pattern, item)
    local next_c = byte(pattern, item + 1)
    if c == 40 then
      local level = state.level + 1
      if level > 32 then error("too many captures", 0) end
      state.level, state.starts[level] = level, at
      local is_position = next_c == 41
      state.lengths[level] = is_position and POSITION or OPEN
      local stop = walk(state, at, item + (is_position and 2 or 1))
      if not stop then state.level = level - 1 end
      return stop
    elseif c == 41 then
      local level = state.level
      while level > 0 and state.lengths[level] ~= OPEN do level = level - 1 end
      if level == 0 then error("invalid pattern capture", 0) end
      state.lengths[level] = at - state.starts[level]
      local stop = walk(state, at, item + 1)
      if not stop then state.lengths[level] = OPEN end
      return stop
    elseif c == 36 and item == #pattern then
      return at == #text + 1 and at or nil
    elseif c == 37 and next_c == 98 then
      at = balanced(state, at, item + 2)
      if not at then return nil end
      item = item + 4
    elseif c == 37 and next_c == 102 then
      item = item + 2
      if byte(pattern, item) ~= 91 then error("missing '[' after '%f' in pattern", 0) end
      local behind = item_end(pattern, item)
      local before, here = byte(text, at - 1) or 0, byte(text, at) or 0
      if at == 1 then before = 0 end
      if in_set(before, pattern, item, behind - 1) or not in_set(here, pattern, item, behind - 1) then return nil end
      item = behind
    elseif c == 37 and next_c and next_c >= 48 and next_c <= 57 then
      local index = next_c - 48
      if index == 0 or index > state.level or state.lengths[index] == OPEN then error("invalid capture index", 0) end
      local again = capture(state, index)
      if sub(text, at, at + #again - 1) ~= again then return nil end
      at, item = at + #again, item + 2
    else
      local behind = item_end(pattern, item)
      local follows = byte(pattern, behind)
      if follows == 63 then
        if item_matches(state, at, item, behind) then
          local stop = walk(state, at + 1, behind + 1)
          if stop then return stop end
        end
        item = behind + 1
      elseif follows == 42 then
        return longest(state, at, item, behind)
      elseif follows == 43 then
        return item_matches(state, at, item, behind) and longest(state, at + 1, item, behind) or nil
      elseif follows == 45 then
        return shortest(state, at, item, behind)
      else
        if not item_matches(state, at, item, behind) then return nil end
        at, item = at + 1, behind
      end
    end
  end
  return at
end

local function new_state(text, pattern)
  return { text = text, pattern = pattern, level = 0, starts = {}, lengths = {} }
end

-- All captures, or the whole match when there is none.
local function captures(state, first, stop)
  if state.level == 0 then return sub(state.text, first, stop - 1) end
  local all = {}
  for i = 1, state.level do all[i] = capture(state, i) end
  return unpack(all, 1, state.level)
end

local function search(text, pattern, at)
  local state = new_state(text, pattern)
  local item = 1
  if byte(pattern, 1) == 94 then item = 2 end
  repeat
    state.level = 0
    local stop = walk(state, at, item)
    if stop then return state, at, stop end
    at = at + 1
  until item == 2 or at > #text + 1
end

local function first_place(text, init)
  init = init and (tonumber(init) or error("bad argument #3 (number expected, got " .. type(init) .. ")", 3)) or 1
  if init < 0 then init = #text + init + 1 end
  return init < 1 and 1 or init
end

-- Whether the C function may have it: also whatever it refuses.
local function is_plain(text, pattern)
  return type(text) ~= "string" or type(pattern) ~= "string" or is_quick(text, pattern)
end

function string.find(text, pattern, init, plain)
  if plain or is_plain(text, pattern) then return c_find(text, pattern, init, plain) end
  local at = first_place(text, init)
  if at > #text + 1 then return nil end
  local state, first, stop = search(text, pattern, at)
  if not state then return nil end
  if state.level == 0 then return first, stop - 1 end
  return first, stop - 1, captures(state, first, stop)
end

function string.match(text, pattern, init)
  if is_plain(text, pattern) then return c_match(text, pattern, init) end
  local at = first_place(text, init)
  if at > #text + 1 then return nil end
  local state, first, stop = search(text, pattern, at)
  if not state then return nil end
  return captures(state, first, stop)
end

function string.gmatch(text, pattern)
  if is_plain(text, pattern) then return c_gmatch(text, pattern) end
  local at = 1
  return function()
    while at <= #text + 1 do
      local state = new_state(text, pattern)
      local first = at
      local stop = walk(state, first, 1)
      if stop then
        at = stop > first and stop or stop + 1
        return captures(state, first, stop)
      end
      at = at + 1
    end
  end
end
string.gfind = string.gfind and string.gmatch

-- What takes the place of one match.
local function replaced(state, first, stop, by)
  local kind = type(by)
  local value
  if kind == "table" then
    value = by[(captures(state, first, stop))]
  elseif kind == "function" then
    value = by(captures(state, first, stop))
  else
    return (c_gsub(by, "%%(.)", function(c)
      local index = tonumber(c)
      if not index then return c end
      if index == 0 then return sub(state.text, first, stop - 1) end
      if index == 1 and state.level == 0 then return sub(state.text, first, stop - 1) end
      if index > state.level then error("invalid capture index", 0) end
      return tostring(capture(state, index))
    end))
  end
  if not value then return sub(state.text, first, stop - 1) end
  if type(value) ~= "string" and type(value) ~= "number" then
    error("invalid replacement value (a " .. type(value) .. ")", 0)
  end
  return tostring(value)
end

function string.gsub(text, pattern, by, limit)
  if is_plain(text, pattern) then return c_gsub(text, pattern, by, limit) end
  local kind = type(by)
  if kind == "number" then by, kind = tostring(by), "string" end
  if kind ~= "string" and kind ~= "table" and kind ~= "function" then return c_gsub(text, pattern, by, limit) end
  local anchored = byte(pattern, 1) == 94
  limit = limit or #text + 1
  local parts, n, count, at = {}, 0, 0, 1
  while count < limit do
    local state = new_state(text, pattern)
    local stop = walk(state, at, anchored and 2 or 1)
    if stop then
      count = count + 1
      n = n + 1
      parts[n] = replaced(state, at, stop, by)
    end
    if stop and stop > at then
      at = stop
    elseif at <= #text then
      n = n + 1
      parts[n] = sub(text, at, at)
      at = at + 1
    else
      break
    end
    if anchored then break end
  end
  n = n + 1
  parts[n] = sub(text, at)
  return concat(parts), count
end

-- For tests: the matcher in Lua, whatever the pattern costs.
return { always = function(limit) QUICK = limit end }
