-- Patterns as Lua code. Lua's own matcher is C: nothing can interrupt it, some patterns take it exponential time, and
-- LuaJIT compiles neither the calls to it nor what `gsub` calls back. So a pattern that is used often, or that might
-- take long, becomes a Lua function, which LuaJIT compiles and the watchdog stops like any other. The results are the
-- same. All else goes to the C functions: making a function costs more than a few calls do.
--
-- The code of a search for "(%w+)=(.*)xyz" from `at` on (`set1` has a one for each byte of %w):
--
--   for first = at, n - 4 do
--     ::try_first::
--     do
--       c = byte(s, first)
--       if not (c and set1[c] == 1) then goto fail_first end
--       local e1 = first + 1
--       c = byte(s, e1)
--       while c and set1[c] == 1 do e1 = e1 + 1; c = byte(s, e1) end    -- no "=" can come earlier
--       c = byte(s, e1)
--       if not (c == 61) then goto fail_first end
--       local e2 = n + 1
--       ::try_e2::
--       do
--         if sub(s, e2, e2 + 2) ~= "xyz" then goto fail_e2 end
--         do return (sub(s, first, e1 - 1)), (sub(s, e1 + 1, e2 - 1)) end
--       end
--       ::fail_e2::
--       e2 = e2 - 1
--       if e2 < e1 + 1 then goto fail_first end
--       goto try_e2
--     end
--     ::fail_first::
--   end
--   return nil
--
-- So where there is a choice, the code for all that follows stands between `try` and `fail`: a failure goes to the last
-- choice. Captures are expressions where the match is complete.
local byte, sub, char, rep, format = string.byte, string.sub, string.char, string.rep, string.format
local c_find, c_match, c_gmatch, c_gsub = string.find, string.match, string.gmatch, string.gsub
local type, tonumber, tostring, error, load, unpack = type, tonumber, tostring, error, load, unpack
local pairs, ipairs, select, concat = pairs, ipairs, select, table.concat
local huge, max, min, abs = math.huge, math.max, math.min, math.abs
local pcall, flush = pcall, jit.flush
local new_buffer = require("string.buffer").new

-- Steps that the C matcher may take at worst.
local QUICK = 3e7

-- Bytes that C may compare for a text without magic characters: it compares anew at each place.
local QUICK_BYTES = 1e8

-- Bytes of a text that C may replace matches in by a text: each match takes as long as some ten steps of a search.
local QUICK_REPLACED = 1e6

-- A pattern is compiled when it is used so often. Patterns made from data are not.
local uses_before = 30

-- Longer patterns are not compiled for speed: LuaJIT gives up on traces that are too long.
local LONGEST = 100

-- A longer list of bytes is not taken to pieces: C looks at all of it for each of the 256.
local LONGEST_SET = 10000

-- C's steps for one byte of the text grow with the pattern, from this length on.
local SHORT = 8

-- So many patterns are known at a time. Few are ever seen, unless they are made from data.
local KNOWN = 1000
local KNOWN_TEMPLATES = 100

-- So many repetitions are written out; more are a loop, which costs a trace of its own.
local WRITTEN_OUT = 8

local MAX_CAPTURES = 32

-- Sets of bytes -------------------------------------------------------------------------------------------------------

local LETTERS = {}
for code = 0, 255 do LETTERS[code] = char(code) end
local ALL_BYTES = concat(LETTERS, "", 0)

-- The bytes that a single item like `x`, `%a` or `[^,]` matches, as ranges.
local function set_of(item)
  local ranges, names = {}, {}
  if #item == 1 and item ~= "." then
    ranges[1] = { byte(item), byte(item) }
  else
    for from, behind in c_gmatch(ALL_BYTES, "()" .. item .. "+()") do
      ranges[#ranges + 1] = { from - 1, behind - 2 }
    end
  end
  for i, range in ipairs(ranges) do names[i] = range[1] .. "-" .. range[2] end
  return { ranges = ranges, name = concat(names, ",") }
end

local function overlap(a, b)
  for _, one in ipairs(a.ranges) do
    for _, other in ipairs(b.ranges) do
      if one[1] <= other[2] and other[1] <= one[2] then return true end
    end
  end
  return false
end

-- The one byte of a set; nil where it has more.
local function only_byte(set)
  local range = set.ranges[1]
  if #set.ranges == 1 and range[1] == range[2] then return range[1] end
end

-- One or zero for each byte, by the set's name: patterns share them. Not true or false: LuaJIT takes a later load of
-- the same place for the earlier one when it copies a loop, and with that loses the check whether it is true or false.
local lookups = {}
local function lookup(set)
  local known = lookups[set.name]
  if known then return known end
  local of_byte = {}
  for code = 0, 255 do of_byte[code] = 0 end
  for _, range in ipairs(set.ranges) do
    for code = range[1], range[2] do of_byte[code] = 1 end
  end
  lookups[set.name] = of_byte
  return of_byte
end

-- From the pattern to a list of items ---------------------------------------------------------------------------------

-- The place behind the single item at `at`, or nil and what is wrong with it.
local function behind_single(pattern, at)
  local c = sub(pattern, at, at)
  if c == "%" then
    if at == #pattern then return nil, "malformed pattern (ends with '%')" end
    return at + 2
  end
  if c ~= "[" then return at + 1 end
  at = at + 1
  if sub(pattern, at, at) == "^" then at = at + 1 end
  repeat
    if at > #pattern then return nil, "malformed pattern (missing ']')" end
    at = at + (sub(pattern, at, at) == "%" and at < #pattern and 2 or 1)
  until sub(pattern, at, at) == "]"
  return at + 1
end

local REPEATS = {
  ["?"] = { least = 0, most = 1 },
  ["*"] = { least = 0, most = huge },
  ["+"] = { least = 1, most = huge },
  ["-"] = { least = 0, most = huge, lazy = true },
}
local ONCE = { least = 1, most = 1 }

-- Runs of the same bytes become one: `%d%d?%d?` takes what one item of one to three digits would, in the same order.
local function add_run(items, set, repeats)
  local last = items[#items]
  if last and last.kind == "run" and last.set.name == set.name and not last.lazy and not repeats.lazy then
    last.least, last.most = last.least + repeats.least, last.most + repeats.most
  else
    items[#items + 1] =
      { kind = "run", set = set, least = repeats.least, most = repeats.most, lazy = repeats.lazy, seen = 0 }
  end
end

-- The last capture that is open.
local function innermost(captures)
  for i = #captures, 1, -1 do
    if captures[i] == "open" then return i end
  end
end

-- What is wrong with a pattern is an item, too: it is an error only where the match gets there. Likewise the C matcher.
local function parse(pattern)
  -- It takes patterns for C strings.
  pattern = c_match(pattern, "^%Z*")
  local items, captures = { anchored = sub(pattern, 1, 1) == "^" }, {}
  local at = items.anchored and 2 or 1
  local function add(item, length)
    items[#items + 1] = item
    at = at + length
  end
  local function fault(text) add({ kind = "fault", text = text }, #pattern) end
  while at <= #pattern do
    local two = sub(pattern, at, at + 1)
    local c = sub(two, 1, 1)
    if c == "(" then
      local is_place = two == "()"
      if #captures == MAX_CAPTURES then
        fault("too many captures")
      else
        captures[#captures + 1] = is_place and "place" or "open"
        add({ kind = captures[#captures], index = #captures }, is_place and 2 or 1)
      end
    elseif c == ")" then
      local index = innermost(captures)
      if index then
        captures[index] = "closed"
        add({ kind = "close", index = index }, 1)
      else
        fault("invalid pattern capture")
      end
    elseif c == "$" and at == #pattern then
      add({ kind = "stop" }, 1)
    elseif two == "%b" then
      local open, close = byte(pattern, at + 2, at + 3)
      if close then add({ kind = "balance", open = open, close = close }, 4) else fault("unbalanced pattern") end
    elseif two == "%f" then
      local is_set = sub(pattern, at + 2, at + 2) == "["
      local behind, wrong = nil, "missing '[' after '%f' in pattern"
      if is_set then behind, wrong = behind_single(pattern, at + 2) end
      if behind and behind - at > LONGEST_SET then behind, wrong = nil, "pattern too complex" end
      if behind then
        add({ kind = "frontier", set = set_of(sub(pattern, at + 2, behind - 1)) }, behind - at)
      else
        fault(wrong)
      end
    elseif c_find(two, "^%%%d") then
      local index = tonumber(sub(two, 2))
      if captures[index] and captures[index] ~= "open" then
        add({ kind = "again", index = index }, 2)
      else
        fault("invalid capture index")
      end
    else
      local behind, wrong = behind_single(pattern, at)
      if behind and behind - at > LONGEST_SET then behind, wrong = nil, "pattern too complex" end
      if behind then
        local repeats = REPEATS[sub(pattern, behind, behind)]
        add_run(items, set_of(sub(pattern, at, behind - 1)), repeats or ONCE)
        at = repeats and behind + 1 or behind
      else
        fault(wrong)
      end
    end
  end
  items.captures = #captures
  return items
end

local NO_WIDTH = { open = true, close = true, place = true }

-- Whether the items from `index` on match anywhere.
local function always_matches(items, index)
  for i = index, #items do
    local item = items[i]
    if not NO_WIDTH[item.kind] and not (item.kind == "run" and item.least == 0) then return false end
  end
  return true
end

-- Whether the items from `index` on never match where a byte of `set` comes next.
local function never_matches_at(items, index, set)
  for i = index, #items do
    local item = items[i]
    if item.kind == "stop" then return true end
    if item.kind == "balance" then return not overlap(set, set_of(char(item.open))) end
    if item.kind == "run" then
      if overlap(set, item.set) then return false end
      if item.least > 0 then return true end
    elseif not NO_WIDTH[item.kind] then
      return false
    end
  end
  return false
end

-- The bytes that each match begins with: C looks for them faster. Marks the items that they are the beginning of.
local function literal_beginning(items)
  local bytes = {}
  for _, item in ipairs(items) do
    if item.kind == "run" then
      local code = only_byte(item.set)
      if not code then break end
      for _ = 1, item.least do bytes[#bytes + 1] = char(code) end
      item.seen = item.least
      if item.least < item.most then break end
    elseif item.kind == "balance" then
      bytes[#bytes + 1] = char(item.open)
      break
    elseif not NO_WIDTH[item.kind] then
      break
    end
  end
  return concat(bytes)
end

-- From the items to Lua code ------------------------------------------------------------------------------------------

-- Code under construction. Later, `base` and `offset` say where in the text the match has got to (a variable and a
-- number), and `fail` is the label to go to from there. `success` makes what the match returns; `depth` is the level at
-- which errors are those of the script that called.
local function new_code(items, depth, success)
  return {
    lines = {}, loops = 0, sets = {}, captures = {}, items = items, depth = depth, success = success,
  }
end

local function add(code, line, ...)
  code.lines[#code.lines + 1] = select("#", ...) > 0 and format(line, ...) or line
end

-- The place that the match has got to, or so many bytes further.
local function place(code, further)
  local offset = code.offset + (further or 0)
  if offset == 0 then return code.base end
  return format("%s %s %d", code.base, offset < 0 and "-" or "+", abs(offset))
end

local function set_name(code, set)
  local sets = code.sets
  for i, known in ipairs(sets) do
    if known.name == set.name then return "set" .. i end
  end
  sets[#sets + 1] = set
  return "set" .. #sets
end

-- Whether the byte `c`, which is nil behind the end, is in the set. Each way through a comparison costs LuaJIT a trace:
-- beyond one range a table is better.
local function contains(code, set)
  local ranges = set.ranges
  local low, high = ranges[1], ranges[2]
  if #ranges == 0 then return "false" end
  if #ranges == 1 then
    if low[1] == low[2] then return "c == " .. low[1] end
    if low[1] == 0 then return low[2] == 255 and "c" or "c and c <= " .. low[2] end
    if low[2] == 255 then return "c and c >= " .. low[1] end
    return format("c and c >= %d and c <= %d", low[1], low[2])
  end
  if #ranges == 2 and low[1] == 0 and high[2] == 255 and high[1] - low[2] == 2 then
    return "c and c ~= " .. low[2] + 1
  end
  return "c and " .. set_name(code, set) .. "[c] == 1"
end

local function raise(text, depth) return format("error(%q, %d)", text, depth) end

local function is_unfinished(code, index)
  local it = code.captures[index]
  return it and not it.last and not it.is_place
end

-- What stands between two places. In brackets: LuaJIT does not compile functions that end with a call of a built-in one.
-- A single byte is looked up: to make a text is to hash it and to search for it among all others.
local function piece(from, last)
  if from == last then return format("letters[byte(s, %s)]", from) end
  return format("(sub(s, %s, %s))", from, last)
end

-- What a capture is where the match is complete.
local function capture(code, index)
  local it = code.captures[index]
  if it.is_place then return it.from end
  if is_unfinished(code, index) then return format("(%s)", raise("unfinished capture", code.depth)) end
  return piece(it.from, it.last)
end

local function all_captures(code, whole)
  if code.items.captures == 0 then return { whole } end
  local all = {}
  for i = 1, code.items.captures do all[i] = capture(code, i) end
  return all
end

local function at_new_variable(code, value)
  code.loops = code.loops + 1
  local name = "e" .. code.loops
  add(code, "local %s = %s", name, value)
  return name
end

-- Bytes that must be there.
local function emit_mandatory(code, set, from, to)
  for k = from, to - 1 do
    add(code, "c = byte(s, %s)", place(code, k))
    add(code, "if not (%s) then goto %s end", contains(code, set), code.fail)
  end
end

-- Moves the variable `stop` over as many bytes of the set as may be.
local function emit_scan(code, set, stop, most)
  local test = contains(code, set)
  if most <= WRITTEN_OUT then
    for _ = 1, most do
      add(code, "c = byte(s, %s)", stop)
      add(code, "if not (%s) then goto done_%s end", test, stop)
      add(code, "%s = %s + 1", stop, stop)
    end
    add(code, "::done_%s::", stop)
  else
    local bound = most < huge and format("%s < %s and ", stop, place(code, most)) or ""
    add(code, "c = byte(s, %s)", stop)
    add(code, "while %s%s do %s = %s + 1; c = byte(s, %s) end", bound, test, stop, stop, stop)
  end
end

local emit_rest

-- The rest of the match, with `stop` for where it begins; a failure comes out behind it. Who goes back for another try
-- does so by `goto`, and in the same block: LuaJIT takes that for a loop, but, unlike `while`, only when it happens.
local function emit_try(code, index, stop)
  local outer = code.fail
  code.fail, code.base, code.offset = "fail_" .. stop, stop, 0
  add(code, "::try_%s::", stop)
  add(code, "do")
  emit_rest(code, index + 1)
  add(code, "end")
  add(code, "::fail_%s::", stop)
  code.fail = outer
end

-- Each emitter takes the index of its item and answers whether it emitted the rest of the match, too.
local EMITTERS = {}

local function emit_lazy(code, item, index)
  if always_matches(code.items, index + 1) then return false end
  local stop = at_new_variable(code, place(code))
  emit_try(code, index, stop)
  add(code, "c = byte(s, %s)", stop)
  add(code, "if not (%s) then goto %s end", contains(code, item.set), code.fail)
  add(code, "%s = %s + 1", stop, stop)
  add(code, "goto try_%s", stop)
  return true
end

function EMITTERS.run(code, item, index)
  local set, least, most = item.set, item.least, item.most
  local never_shorter = never_matches_at(code.items, index + 1, set)
  if item.lazy and not never_shorter then return emit_lazy(code, item, index) end
  if least <= WRITTEN_OUT then
    emit_mandatory(code, set, item.seen, least)
    code.offset = code.offset + least
    least, most = 0, most - least
  end
  if most == 0 then return false end
  local lowest = place(code, least)
  local is_rest = set.name == "0-255" and most == huge
  local stop = at_new_variable(code, is_rest and "n + 1" or place(code))
  if not is_rest then emit_scan(code, set, stop, most) end
  if least > 0 then add(code, "if %s < %s then goto %s end", stop, lowest, code.fail) end
  if never_shorter or always_matches(code.items, index + 1) then
    code.base, code.offset = stop, 0
    return false
  end
  emit_try(code, index, stop)
  add(code, "%s = %s - 1", stop, stop)
  add(code, "if %s < %s then goto %s end", stop, lowest, code.fail)
  add(code, "goto try_%s", stop)
  return true
end

function EMITTERS.open(code, item) code.captures[item.index] = { from = place(code) } end

function EMITTERS.close(code, item) code.captures[item.index].last = place(code, -1) end

function EMITTERS.place(code, item) code.captures[item.index] = { from = place(code), is_place = true } end

function EMITTERS.stop(code) add(code, "if %s <= n then goto %s end", place(code), code.fail) end

function EMITTERS.balance(code, item)
  local stop = at_new_variable(code, format("balanced(s, %s, %d, %d)", place(code), item.open, item.close))
  add(code, "if not %s then goto %s end", stop, code.fail)
  code.base, code.offset = stop, 0
end

-- There is a zero byte around the text.
function EMITTERS.frontier(code, item)
  local test = contains(code, item.set)
  add(code, "c = byte(s, %s) or 0", place(code, -1))
  add(code, "if %s then goto %s end", test, code.fail)
  add(code, "c = byte(s, %s) or 0", place(code))
  add(code, "if not (%s) then goto %s end", test, code.fail)
end

function EMITTERS.again(code, item)
  local it = code.captures[item.index]
  -- The C matcher takes a place for a text that is longer than any.
  if it.is_place then return add(code, "goto %s", code.fail) end
  local stop = at_new_variable(code, format("%s + (%s) - (%s) + 1", place(code), it.last, it.from))
  add(code, "if sub(s, %s, %s - 1) ~= sub(s, %s, %s) then goto %s end", place(code), stop, it.from, it.last, code.fail)
  code.base, code.offset = stop, 0
end

function EMITTERS.fault(code, item) add(code, raise(item.text, code.depth)) end

-- The text that the items from `index` on spell, as far as it goes, and the item behind.
local function literal_at(items, index)
  local bytes = {}
  while index <= #items do
    local item = items[index]
    local is_fixed = item.kind == "run" and item.least == item.most and item.seen == 0
    local letter = is_fixed and only_byte(item.set)
    if not letter then break end
    bytes[#bytes + 1] = rep(char(letter), item.least)
    index = index + 1
  end
  return concat(bytes), index
end

function emit_rest(code, index)
  while index <= #code.items do
    local literal, behind = literal_at(code.items, index)
    if #literal > 2 then
      add(code, "if sub(s, %s, %s) ~= %q then goto %s end", place(code), place(code, #literal - 1), literal, code.fail)
      code.offset, index = code.offset + #literal, behind
    else
      local item = code.items[index]
      if EMITTERS[item.kind](code, item, index) then return end
      index = index + 1
    end
  end
  add(code, "do return %s end", code.success(code))
end

-- The last place where a match, or one up to an error, may begin: there is room for the shortest one. With an end at
-- `n + 1` for all LuaJIT would try to compile loops that end in their first round, again and again.
local function last_beginning(items)
  local shortest = 0
  for _, item in ipairs(items) do
    if item.kind == "fault" then break end
    shortest = shortest + (item.kind == "balance" and 2 or item.least or 0)
  end
  return shortest == 0 and "n + 1" or format("n - %d", shortest - 1)
end

-- Goes through the places from `at` on where a match may begin.
local function emit_search(code)
  local beginning = code.items.anchored and "" or literal_beginning(code.items)
  if code.items.anchored then
    add(code, "local first = at")
    emit_try(code, 0, "first")
    add(code, "return nil")
  elseif beginning == "" then
    add(code, "for first = at, %s do", last_beginning(code.items))
    emit_try(code, 0, "first")
    add(code, "end")
    add(code, "return nil")
  else
    local find = #beginning > LONGEST and "find_plain" or "find"
    add(code, "local first = %s(s, %q, at, true)", find, beginning)
    add(code, "if not first then return nil end")
    emit_try(code, 0, "first")
    add(code, "first = %s(s, %q, first + 1, true)", find, beginning)
    add(code, "if not first then return nil end")
    add(code, "goto try_first")
  end
end

-- What code calls -----------------------------------------------------------------------------------------------------

-- A search without magic: C's, in pieces where that might take long, since nothing stops C within one.
local function find_plain(text, pattern, init)
  if type(text) ~= "string" or type(pattern) ~= "string" or #text * #pattern <= QUICK_BYTES then
    return c_find(text, pattern, init, true)
  end
  local at, length = c_find(text, "", init, true), #pattern
  local places = max(QUICK_BYTES / length - QUICK_BYTES / length % 1, 1)
  while at and at + length - 1 <= #text do
    local first, last = c_find(sub(text, at, at + places + length - 2), pattern, 1, true)
    if first then return at + first - 1, at + last - 1 end
    at = at + places
  end
  return nil
end

local function balanced(text, at, open, close)
  if byte(text, at) ~= open then return nil end
  local depth = 1
  for i = at + 1, #text do
    local c = byte(text, i)
    if c == close then
      depth = depth - 1
      if depth == 0 then return i + 1 end
    elseif c == open then
      depth = depth + 1
    end
  end
end

-- Each `gsub` under way has a buffer of its own: what it calls back may call it again, wait or fail.
local spare = {}
local function take_buffer()
  local last = #spare
  if last == 0 then return new_buffer() end
  local buffer = spare[last]
  spare[last] = nil
  return buffer
end

local function finish(buffer)
  local text = buffer:get()
  if #text < 65536 then spare[#spare + 1] = buffer end
  return text
end

-- How often `gsub` replaces at most. What is not a usual number the C function reads.
local function times(text, limit)
  limit = tonumber(limit) or limit
  if type(limit) == "number" and limit >= 0 and limit < 2 ^ 31 then return limit - limit % 1 end
  local _, count = c_gsub(sub(text, 1, QUICK_REPLACED), "", "", limit)
  return count > QUICK_REPLACED and huge or count
end

-- Functions around the code of a search -------------------------------------------------------------------------------

local KIT = {
  byte = byte, sub = sub, find = c_find, find_plain = find_plain, type = type, tonumber = tonumber, error = error,
  balanced = balanced, take_buffer = take_buffer, finish = finish, times = times,
  letters = LETTERS,
}

local HEADER = [[
local kit, sets, c_function = ...
local byte, sub, find, type, tonumber, error = kit.byte, kit.sub, kit.find, kit.type, kit.tonumber, kit.error
local balanced, take_buffer, finish, times = kit.balanced, kit.take_buffer, kit.finish, kit.times
local find_plain, letters = kit.find_plain, kit.letters
local with_template = kit.with_template
]]

-- An `init` that is no number is the C function's to refuse. Otherwise C says where it is in the text.
local ONE_MATCH = [[
return function(s, pattern, init)
  local n, at, c = #s, 1
  if init ~= nil then
    if not tonumber(init) then return c_function(s, pattern, init) end
    at = find(s, "", init)
    if not at then return nil end
  end
  $search
end
]]

-- A function of its own: LuaJIT compiles it also where it cannot compile what is done with the matches.
local SEARCH = [[
local function search(s, at)
  local n, c = #s
  $search
end
]]

local GMATCH = SEARCH .. [[
return function(s)
  local at = 1
  return function()
    local first, last, $values = search(s, at)
    if not first then return end
    at = (last < first and first or last) + 1
    return $values
  end
end
]]

-- The next search begins behind a match; behind an empty one the next byte stays as it is.
local GSUB = SEARCH .. [[
return function(s, pattern, by, limit)
  $check
  local most = #s + 1
  if limit ~= nil then
    if not tonumber(limit) then return c_function(s, pattern, by, limit) end
    most = times(s, limit)
    if most < 1 then return s, 0 end
  end
  local $found = search(s, 1)
  if not first then return s, 0 end
  local out, count, done = take_buffer(), 0, 1
  ::again::
  count = count + 1
  do
    $replace
  end
  $next
  ::done::
  out:put(sub(s, done))
  return finish(out), count
end
]]

-- Not for a pattern with an anchor.
local NEXT = [[
  if count == most then goto done end
  if last < first then last = first end
  $found = search(s, last + 1)
  if not first then goto done end
  goto again
]]

-- `nil` and `false` leave the match as it is.
local PUT_VALUE = [[
local value = $value
if value then
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" then error("invalid replacement value (a " .. kind .. ")", 2) end
  out:put(sub(s, done, first - 1), value)
  done = last + 1
end
]]

local PUT_TEXT = [[
out:put(sub(s, done, first - 1), $text)
done = last + 1
]]

local function filled(source, parts) return (c_gsub(source, "%$(%w+)", parts)) end

-- The function that `source` makes with the code of a search; nil where it is too much for Lua.
local function build(source, code, parts, c_function)
  local sets = {}
  for i, set in ipairs(code.sets) do
    sets[i] = lookup(set)
    source = format("local set%d = sets[%d]\n", i, i) .. source
  end
  parts.search = concat(code.lines, "\n")
  local chunk = load(HEADER .. filled(source, parts), "=pattern", "t")
  return chunk and chunk(KIT, sets, c_function)
end

-- The levels at which an error is the script's: from the function that it calls, and from a search in that.
local DIRECT, IN_SEARCH = 2, 3

local function search_for(pattern, depth, success)
  local code = new_code(parse(pattern), depth, success)
  emit_search(code)
  return code
end

local function whole_or_captures(code) return all_captures(code, piece("first", place(code, -1))) end

local function compile_find(pattern)
  local code = search_for(pattern, DIRECT, function(code)
    return concat({ "first", place(code, -1), unpack(all_captures(code)) }, ", ")
  end)
  return build(ONE_MATCH, code, {}, c_find)
end

local function compile_match(pattern)
  local code = search_for(pattern, DIRECT, function(code) return concat(whole_or_captures(code), ", ") end)
  return build(ONE_MATCH, code, {}, c_match)
end

-- A search for `first`, `last` and the captures that are wanted, and the names of those.
local function search_with(pattern, is_wanted)
  local names = {}
  local code = search_for(pattern, IN_SEARCH, function(code)
    local results = { "first", place(code, -1) }
    for i, value in ipairs(whole_or_captures(code)) do
      if is_wanted(i, code) then results[#results + 1] = value end
    end
    return concat(results, ", ")
  end)
  for i = 1, max(code.items.captures, 1) do
    if is_wanted(i, code) then names[#names + 1] = "c" .. i end
  end
  return code, names
end

local function all() return true end
local function only_first(index) return index == 1 end
local function none() return false end

local function compile_gmatch(pattern)
  local code, names = search_with(pattern, all)
  return build(GMATCH, code, { values = concat(names, ", ") }, c_gmatch)
end

local function build_gsub(code, names, replace, check)
  local found = concat({ "first", "last", unpack(names) }, ", ")
  local next = code.items.anchored and "" or filled(NEXT, { found = found })
  return build(GSUB, code, { found = found, next = next, replace = replace, check = check or "" }, c_gsub)
end

local function compile_gsub_function(pattern)
  local code, names = search_with(pattern, all)
  return build_gsub(code, names, filled(PUT_VALUE, { value = format("by(%s)", concat(names, ", ")) }))
end

local function compile_gsub_table(pattern)
  local code, names = search_with(pattern, only_first)
  return build_gsub(code, names, filled(PUT_VALUE, { value = "by[c1]" }))
end

local function compile_gsub_text(pattern)
  local check = "if find(by, '%', 1, true) then return with_template(s, pattern, by, limit) end"
  local code, names = search_with(pattern, none)
  return build_gsub(code, names, filled(PUT_TEXT, { text = "by" }), check)
end

-- What stands for `%` and a letter in a replacement.
local function escaped(letter, code)
  local index = tonumber(letter)
  -- The C function finds the zero byte behind the end.
  if not index then return format("%q", letter == "" and "\0" or letter) end
  if index == 0 then return "sub(s, first, last)" end
  if is_unfinished(code, index) then return raise("unfinished capture", DIRECT) end
  return index <= max(code.items.captures, 1) and "c" .. index or raise("invalid capture index", DIRECT)
end

-- For a text with captures in it, like "<%1>".
local function compile_template(pattern, by)
  local is_used = {}
  for index in c_gmatch(by, "%%(.?)") do is_used[tonumber(index) or index] = true end
  local code, names = search_with(pattern, function(index, code)
    return is_used[index] and not is_unfinished(code, index)
  end)
  local parts, at = {}, 1
  while at <= #by do
    local escape = c_find(by, "%", at, true) or #by + 1
    if escape > at then parts[#parts + 1] = format("%q", sub(by, at, escape - 1)) end
    if escape <= #by then parts[#parts + 1] = escaped(sub(by, escape + 1, escape + 1), code) end
    at = escape + 2
  end
  return build_gsub(code, names, filled(PUT_TEXT, { text = concat(parts, ", ") }))
end

-- Which function to use -----------------------------------------------------------------------------------------------

-- How long a text may be for the C matcher: its steps are at worst a power of the length, times a factor.
local function longest_quick(pattern)
  local exponent, factor, i, n = 1, 1, 1, #pattern
  if byte(pattern, 1) == 94 then exponent, i = 0, 2 end
  while i <= n do
    local c = byte(pattern, i)
    if c == 37 then
      -- A balanced match walks on from each place.
      local letter = byte(pattern, i + 1)
      -- So does what was captured before, byte by byte.
      if letter == 98 or letter and letter >= 49 and letter <= 57 then exponent = exponent + 1 end
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
  if exponent == 0 then return factor <= QUICK and huge or -1 end
  -- A long pattern takes as long at each place, and so does a long list of bytes.
  factor = factor * max(n / SHORT, 1)
  return (QUICK / factor) ^ (1 / exponent)
end

local find, match, gmatch, gsub

-- Functions by what calls them: `gsub` by the type of its replacement.
local C = { find = c_find, match = c_match, gmatch = c_gmatch, ["function"] = c_gsub, table = c_gsub, string = c_gsub }

-- What a match is replaced by: `by` is a function or a table.
local function replaced(text, by, first, last, ...)
  if not first then return nil end
  local value = ...
  if select("#", ...) == 0 then value = sub(text, first, last) end
  if type(by) == "table" then
    value = by[value]
  elseif select("#", ...) == 0 then
    value = by(value)
  else
    value = by(...)
  end
  return first, last, value
end

-- `gsub` that calls back, match by match: when C calls, each call within a call takes kilobytes of the thread's stack.
local function gsub_calling(text, pattern, by, limit)
  if type(pattern) ~= "string" or limit ~= nil and not tonumber(limit) then return c_gsub(text, pattern, by, limit) end
  local most = limit == nil and huge or times(text, limit)
  local is_anchored = byte(pattern) == 94
  local out, count, done, at = take_buffer(), 0, 1, 1
  while count < most and at <= #text + 1 and not (is_anchored and at > 1) do
    local first, last, value = replaced(text, by, c_find(text, pattern, at))
    if not first then break end
    count = count + 1
    if value then
      local kind = type(value)
      if kind ~= "string" and kind ~= "number" then error("invalid replacement value (a " .. kind .. ")", 2) end
      out:put(sub(text, done, first - 1), value)
      done = last + 1
    end
    at = (last < first and first or last) + 1
  end
  out:put(sub(text, done))
  return finish(out), count
end

-- For patterns that are not settled.
local UNSETTLED = {
  find = c_find, match = c_match, gmatch = c_gmatch,
  ["function"] = gsub_calling, table = gsub_calling, string = c_gsub,
}

local OF_NUMBERS = {
  find = function(number, ...) return find(tostring(number), ...) end,
  match = function(number, ...) return match(tostring(number), ...) end,
  gmatch = function(number, ...) return gmatch(tostring(number), ...) end,
}
local function gsub_number(number, ...) return gsub(tostring(number), ...) end
for _, kind in ipairs { "function", "table", "string", "number" } do OF_NUMBERS[kind] = gsub_number end

local COMPILERS = {
  find = function(pattern)
    -- LuaJIT compiles this one.
    if not c_find(pattern, "[%^%$%*%+%?%.%(%[%%%-]") then return find_plain end
    return compile_find(pattern)
  end,
  match = compile_match,
  gmatch = function(pattern)
    if byte(pattern) ~= 94 then return compile_gmatch(pattern) end
    -- No anchor here.
    return function(text) return gmatch(text, "%" .. pattern) end
  end,
  ["function"] = compile_gsub_function,
  table = compile_gsub_table,
  string = compile_gsub_text,
}

-- In place of what cannot be compiled.
local function uncompiled(c_function, most)
  return function(text, ...)
    if #text <= most then return c_function(text, ...) end
    error("pattern too complex", 2)
  end
end

-- Patterns that have a function of their own for each use, or have `false` until it is used so.
local settled, settled_count = {}, 0
-- How often the others were used.
local seen, seen_count = {}, 0

local function first_seen(pattern)
  seen_count = seen_count + 1
  if seen_count > KNOWN then
    for known in pairs(seen) do seen[known] = nil end
    seen_count = 1
  end
  local young = { uses = 0, longest = longest_quick(pattern) }
  seen[pattern] = young
  return young
end

local function settle_at(pattern, longest)
  settled_count = settled_count + 1
  if settled_count > KNOWN then
    for known in pairs(settled) do settled[known] = nil end
    for known in pairs(lookups) do lookups[known] = nil end
    settled_count = 1
  end
  local record = {
    find = false, match = false, gmatch = false, ["function"] = false, table = false, string = false,
    longest = longest, templates = {}, template_count = 0,
  }
  settled[pattern] = record
  return record
end

local function settle(pattern)
  local young = seen[pattern] or first_seen(pattern)
  seen[pattern] = nil
  return settle_at(pattern, young.longest)
end

-- The functions for a pattern that is not settled.
local function unsettled(text, pattern)
  if type(text) == "number" then return OF_NUMBERS end
  if type(text) ~= "string" or type(pattern) ~= "string" then return C end
  local young = seen[pattern] or first_seen(pattern)
  young.uses = young.uses + 1
  if (young.uses <= uses_before or #pattern > LONGEST) and #text <= young.longest then return UNSETTLED end
  return settle(pattern)
end

local function function_for(record, pattern, name)
  local compile = COMPILERS[name]
  -- Such a replacement the C function refuses.
  if not compile then return C[name] or c_gsub end
  local most = name == "string" and min(record.longest, QUICK_REPLACED) or record.longest
  local run = compile(pattern) or uncompiled(C[name], most)
  record[name] = run
  return run
end

function find(text, pattern, init, plain)
  if plain then return find_plain(text, pattern, init) end
  local record = type(text) == "string" and settled[pattern] or unsettled(text, pattern)
  return (record.find or function_for(record, pattern, "find"))(text, pattern, init)
end

function match(text, pattern, init)
  local record = type(text) == "string" and settled[pattern] or unsettled(text, pattern)
  return (record.match or function_for(record, pattern, "match"))(text, pattern, init)
end

function gmatch(text, pattern)
  local record = type(text) == "string" and settled[pattern] or unsettled(text, pattern)
  return (record.gmatch or function_for(record, pattern, "gmatch"))(text, pattern)
end

function gsub(text, pattern, by, limit)
  local kind = type(by)
  if kind == "number" then by, kind = tostring(by), "string" end
  if type(pattern) == "number" then pattern = tostring(pattern) end
  local record = type(text) == "string" and settled[pattern] or unsettled(text, pattern)
  if record == UNSETTLED and kind == "string" and #text > QUICK_REPLACED then record = settle(pattern) end
  local run = record[kind]
  if not run then
    run = function_for(record, pattern, kind)
    -- LuaJIT's code for it returns to the C function.
    if kind == "function" then pcall(flush, by) end
  end
  return run(text, pattern, by, limit)
end

-- A template is compiled when it is used often, like a pattern.
function KIT.with_template(text, pattern, by, limit)
  local record = settled[pattern]
  local run = record.templates[by]
  if type(run) ~= "function" then
    if not run then record.template_count = record.template_count + 1 end
    if record.template_count > KNOWN_TEMPLATES then record.templates, record.template_count = {}, 1 end
    local uses = (run or 0) + 1
    if uses <= uses_before and #text <= min(record.longest, QUICK_REPLACED) then
      record.templates[by] = uses
      return c_gsub(text, pattern, by, limit)
    end
    run = compile_template(pattern, by) or uncompiled(c_gsub, min(record.longest, QUICK_REPLACED))
    record.templates[by] = run
  end
  return run(text, pattern, by, limit)
end

string.find, string.match, string.gmatch, string.gsub = find, match, gmatch, gsub
string.gfind = string.gfind and gmatch

-- For tests: the C functions, and what makes patterns be compiled when they are first used.
return { c = C, always = function() uses_before = 0 end }
