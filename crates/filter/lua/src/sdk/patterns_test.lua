-- Compares the matcher in Lua with the C one on many random patterns and texts; raises on the first difference.
local find, match, gmatch, gsub = string.find, string.match, string.gmatch, string.gsub
local kit = ...
kit.always(0)

local seed = 42
local function random(n)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return math.floor(seed / 65536) % n + 1
end
local function pick(list) return list[random(#list)] end

local ITEMS = { "a", "b", ".", "%a", "%d", "%s", "%w", "%x", "%p", "%A", "%W", "[ab]", "[^ab]", "[a-c]", "[%d_]", "[]a]",
  "[^]a]", "[a%-]", "%%", "%.", "x", " ", "1", "[%a-z]" }
local TAILS = { "", "", "", "*", "+", "-", "?" }
local SPECIAL = { "%b()", "%f[%a]", "()", "%1", "$", "^", "%b" , "%f", "(", ")", "[", "%", "[a" }

local function pattern()
  local parts, open = {}, 0
  if random(6) == 1 then parts[1] = "^" end
  for _ = 1, random(5) do
    local kind = random(12)
    if kind == 1 then
      parts[#parts + 1] = "("
      open = open + 1
    elseif kind == 2 and open > 0 then
      parts[#parts + 1] = ")"
      open = open - 1
    elseif kind == 3 then
      parts[#parts + 1] = pick(SPECIAL)
    else
      parts[#parts + 1] = pick(ITEMS) .. pick(TAILS)
    end
  end
  for _ = 1, open do parts[#parts + 1] = ")" end
  if random(6) == 1 then parts[#parts + 1] = "$" end
  return table.concat(parts)
end

local LETTERS = { "a", "b", "c", "x", "1", "2", " ", ".", "(", ")", "_", "-", "]", "%", "A", "Z", "\0", "\255" }
local function text()
  local parts = {}
  for i = 1, random(12) - 1 do parts[i] = pick(LETTERS) end
  return table.concat(parts)
end

local function show(...)
  local parts = {}
  for i = 1, select("#", ...) do
    -- Places and words of errors differ.
    parts[i] = type((select(i, ...))) == "string" and string.format("%q", (select(i, ...))) or tostring((select(i, ...)))
  end
  return table.concat(parts, ",")
end
local function outcome(act, ...)
  local function pack(ok, ...)
    if not ok then return "error" end
    return show(...)
  end
  return pack(pcall(act, ...))
end
local function each(iterate, t, p)
  local parts = {}
  for a, b in iterate(t, p) do parts[#parts + 1] = show(a, b) end
  return table.concat(parts, ";")
end

local REPLACEMENTS = { "<%0>", "%1", "-", "%%", { a = "A", b = false }, function(a, b) return a and tostring(a) .. tostring(b) end }
for _ = 1, 20000 do
  local t, p, by, init = text(), pattern(), pick(REPLACEMENTS), random(6) - 3
  for name, pair in pairs {
    find = { outcome(find, t, p, init), outcome(string.find, t, p, init) },
    match = { outcome(match, t, p, init), outcome(string.match, t, p, init) },
    gsub = { outcome(gsub, t, p, by, random(3)), nil },
    gmatch = { outcome(each, gmatch, t, p), outcome(each, string.gmatch, t, p) },
  } do
    if name == "gsub" then
      local limit = random(3)
      pair = { outcome(gsub, t, p, by, limit), outcome(string.gsub, t, p, by, limit) }
    end
    if pair[1] ~= pair[2] then
      error(string.format("%s(%q, %q, %s): C %s, Lua %s", name, t, p, tostring(by), pair[1], pair[2]))
    end
  end
end
