-- Compares patterns as Lua code with the C functions on many random patterns and texts; raises on the first difference.
-- What is compiled is called several times: LuaJIT's code for it must agree, too.
local kit, seed, rounds = ...
local c_find, c_match, c_gmatch, c_gsub = kit.c.find, kit.c.match, kit.c.gmatch, kit.c.string
kit.always()
seed, rounds = seed or 42, rounds or 1500

local function random(n)
  seed = (seed * 16807) % 2147483647
  return math.floor(seed / 32) % n + 1
end
local function pick(list) return list[random(#list)] end

local ITEMS = {
  "a", "b", ".", "%a", "%d", "%s", "%w", "%x", "%p", "%A", "%W", "%c", "%u", "%l", "%g", "%z", "%Z", "%D", "[ab]",
  "[^ab]", "[a-c]", "[%d_]", "[]a]", "[^]a]", "[a%-]", "[a-]", "[-a]", "[%a-z]", "[c-a]", "[^%s%S]", "[\1-\255]",
  "[^,]", "[^a-c]", "[%w%-_.]", "[\128-\255]", "[ab^]", "%%", "%.", "%]", "x", " ", "1", "aa", "abc", "ab1", "^", "$",
  "]", "*", "-", "\255", "\n", "\r", "a\n\r", "\\", "\"",
}
local TAILS = { "", "", "", "", "*", "+", "-", "?" }
local SPECIAL = {
  "%b()", "%bab", "%baa", "%b\255x", "%f[%a]", "%f[^%a]", "%f[%z]", "()", "%1", "%2", "%0", "%b", "%bx", "%f", "%f[a",
  "(", ")", "[", "%", "[a", "[%", "[^", "\0", "%\0", "[a\0]", "(a*)%1", "((.)(.))", "(()a)",
}
local RUNS = {
  "%d%d?%d?", "a?a?b?", "%a+%a*", "a*a+", "%d%d%d", "aaaaaaaaaa?", "a?a?a?a?a?a?a?a?a?a?", ".-.-", ".*.*", "a-b*$",
}

local function pattern()
  local parts, open = {}, 0
  if random(6) == 1 then parts[1] = "^" end
  for _ = 1, random(6) do
    local kind = random(14)
    if kind <= 2 then
      parts[#parts + 1] = "("
      open = open + 1
    elseif kind <= 4 and open > 0 then
      parts[#parts + 1] = ")"
      open = open - 1
    elseif kind == 5 then
      parts[#parts + 1] = pick(SPECIAL)
    elseif kind == 6 then
      parts[#parts + 1] = pick(RUNS)
    else
      parts[#parts + 1] = pick(ITEMS) .. pick(TAILS)
    end
  end
  if random(10) > 1 then parts[#parts + 1] = (")"):rep(open) end
  if random(6) == 1 then parts[#parts + 1] = "$" end
  return table.concat(parts)
end

local LETTERS = {
  "a", "a", "a", "b", "b", "c", "x", "1", "2", " ", ".", "(", ")", "_", "-", "]", "%", "^", "$", "A", "Z", ",", "\0",
  "\255", "\128", "\n", "\r", "\\", "\"", "aaaa", "aba", "abc", "ab1", "a\n\r", "12345678",
}
local function text()
  local parts = {}
  for i = 1, random(14) - 1 do parts[i] = pick(LETTERS) end
  return table.concat(parts)
end

local function show(...)
  local parts = {}
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    parts[i] = type(value) == "string" and string.format("%q", value) or tostring(value)
  end
  return table.concat(parts, ",")
end
local function outcome(act, ...)
  local function pack(ok, ...)
    if not ok then return "error " .. tostring((...)) end
    return show(...)
  end
  return pack(pcall(act, ...))
end
local function each(iterate, t, p)
  local parts, next_match = {}, iterate(t, p)
  for _ = 1, #tostring(t) + 3 do
    local function add(...)
      parts[#parts + 1] = show(...)
      return select("#", ...) > 0
    end
    if not add(next_match()) then break end
  end
  return table.concat(parts, ";")
end

local INITS = {
  1, 2, 3, 5, 0, -1, -2, -3, -100, 100, "2", "x", 1.5, -1.5, 2 ^ 31, 1e10, 1 / 0, -1 / 0, 0 / 0, true, {},
}
local LIMITS = { 0, 1, 2, 3, -1, 1.5, "1", "x", 100, 2 ^ 31, 1e10, 1 / 0, -1 / 0, 0 / 0, {} }
local REPLACEMENTS = {
  "<%0>", "%1", "-", "", "%%", "%2-%1", "%9", "%", "a%", "%x%", "\0%1\n\"", "%1%1%0", 5, 1.5, true,
  { a = "A", b = false, [1] = "one", [2] = 2, aa = {} },
  setmetatable({}, { __index = function(_, key) return key end }),
  function(a, b) return a and tostring(a) .. "|" .. tostring(b) end,
  function() end,
  function() return false end,
  function() return true end,
  function(...) return select("#", ...) end,
  function(a)
    if a == "b" then error("no b") end
    return a
  end,
  function(a) return (string.gsub(tostring(a), "[ab]", "<%0>")) end,
  function(a) return (coroutine.wrap(function() return (string.gsub(tostring(a), "a", tostring)) end)()) end,
}

local function compare(name, describe, c_function, lua_function, ...)
  local expected = outcome(c_function, ...)
  for _ = 1, 3 do
    local got = outcome(lua_function, ...)
    if got ~= expected then error(string.format("%s(%s): C %s, Lua %s", name, describe(), expected, got), 0) end
  end
end

for round = 1, rounds do
  local p = pattern()
  for _ = 1, 3 do
    local t = random(40) == 1 and random(1000) or text()
    local init, limit = nil, nil
    if random(2) == 1 then init = random(3) > 1 and random(10) - 4 or pick(INITS) end
    if random(3) == 1 then limit = pick(LIMITS) end
    local by = pick(REPLACEMENTS)
    local function describe() return show(t, p, init, by, limit) .. " in round " .. round end
    compare("find", describe, c_find, string.find, t, p, init)
    compare("match", describe, c_match, string.match, t, p, init)
    local function all_by_c() return each(c_gmatch, t, p) end
    local function all_by_lua() return each(string.gmatch, t, p) end
    compare("gmatch", describe, all_by_c, all_by_lua)
    compare("gsub", describe, c_gsub, string.gsub, t, p, by, limit)
  end
end
