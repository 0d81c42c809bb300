-- JSON (RFC 8259) for scripts, with lua-cjson's names, conventions and settings. Ours alone: empty arrays come back as
-- tables that encode as arrays, and no setting makes anything but JSON be read.
--
-- Texts are read through a pointer, and the proxy scans what would be a loop over bytes: nothing here uses patterns, and
-- short loops, which would keep traces from being compiled, are none of Lua's.
local border = ...
local char, format, band = string.char, string.format, bit.band
local concat, floor, huge = table.concat, math.floor, math.huge
local tonumber, type, pairs, error, pcall = tonumber, type, pairs, error, pcall
local setmetatable, getmetatable = setmetatable, getmetatable
local ffi = require("ffi")
local cast, str, pointer = ffi.cast, ffi.string, ffi.typeof("const char *")
local scan_blanks, scan_plain = border.api.scan_blanks, border.api.scan_plain
local scan_unescaped, scan_number = border.api.scan_unescaped, border.api.scan_number
local number = ffi.new("double[1]")

local null = border.null
-- Tables with these are arrays, of whatever length; and arrays as long as nothing is in them.
local array_mt, empty_array_mt = { __name = "json array" }, { __name = "json empty array" }
local empty_array = setmetatable({}, array_mt)

-- What stands at `at`, as lua-cjson names it.
local function found(p, at, size)
  if at >= size then return "T_END" end
  local code = p[at]
  if code == 34 then return "T_STRING" end
  if code == 123 then return "T_OBJ_BEGIN" elseif code == 125 then return "T_OBJ_END" end
  if code == 91 then return "T_ARR_BEGIN" elseif code == 93 then return "T_ARR_END" end
  if code == 58 then return "T_COLON" elseif code == 44 then return "T_COMMA" end
  if code == 45 or code >= 48 and code <= 57 then return "T_NUMBER" end
  return "invalid token"
end

-- Positions in messages count from 1.
local function fail(p, at, size, expected)
  error(format("Expected %s but found %s at character %d", expected, found(p, at, size), at + 1), 0)
end

-- Behind the text stands a zero byte, so reading one byte too far is harmless.
local function skip(p, at, size)
  local code = p[at]
  if code > 32 or code <= 0 then return at end
  return at + scan_blanks(p + at, size - at)
end

local function hex4(p, at)
  local value = 0
  for i = at, at + 3 do
    local code = p[i]
    if code >= 48 and code <= 57 then
      value = value * 16 + code - 48
    elseif code >= 97 and code <= 102 then
      value = value * 16 + code - 87
    elseif code >= 65 and code <= 70 then
      value = value * 16 + code - 55
    else
      return -1
    end
  end
  return value
end

local function utf8(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xc0 + floor(code / 0x40), 0x80 + code % 0x40) end
  if code < 0x10000 then
    return char(0xe0 + floor(code / 0x1000), 0x80 + floor(code / 0x40) % 0x40, 0x80 + code % 0x40)
  end
  return char(0xf0 + floor(code / 0x40000), 0x80 + floor(code / 0x1000) % 0x40, 0x80 + floor(code / 0x40) % 0x40,
    0x80 + code % 0x40)
end

local ESCAPES = { [34] = '"', [92] = "\\", [47] = "/", [98] = "\b", [102] = "\f", [110] = "\n", [114] = "\r", [116] = "\t" }

-- A text with escapes; `at` is behind the opening quote, `stop` where the plain part ends.
local function read_escaped(p, at, stop, size)
  local parts, n = {}, 0
  while true do
    if stop > at then
      n = n + 1
      parts[n] = str(p + at, stop - at)
    end
    local code = p[stop]
    if code == 34 then return concat(parts), stop + 1 end
    if stop >= size then error(format("Expected value but found unexpected end of string at character %d", stop + 1), 0) end
    if code ~= 92 then error(format("Expected value but found invalid token at character %d", stop + 1), 0) end
    local plain = ESCAPES[p[stop + 1]]
    n = n + 1
    if plain then
      parts[n] = plain
      at = stop + 2
    elseif p[stop + 1] == 117 then
      local point = hex4(p, stop + 2)
      at = stop + 6
      if point >= 0xd800 and point < 0xdc00 then
        local low = p[at] == 92 and p[at + 1] == 117 and hex4(p, at + 2) or -1
        at = at + 6
        point = low >= 0xdc00 and low < 0xe000 and 0x10000 + (point - 0xd800) * 0x400 + low - 0xdc00 or -1
      elseif point >= 0xdc00 and point < 0xe000 then
        point = -1
      end
      if point < 0 then
        error(format("Expected value but found invalid unicode escape code at character %d", stop + 1), 0)
      end
      parts[n] = utf8(point)
    else
      error(format("Expected value but found invalid escape code at character %d", stop + 1), 0)
    end
    stop = at + scan_plain(p + at, size - at)
  end
end

local function read_string(p, at, size)
  local stop = at + scan_plain(p + at, size - at)
  if p[stop] == 34 then return str(p + at, stop - at), stop + 1 end
  return read_escaped(p, at, stop, size)
end

local QUOTED = {}
for code = 0, 31 do QUOTED[code] = format("\\u%04x", code) end
QUOTED[8], QUOTED[9], QUOTED[10], QUOTED[12], QUOTED[13] = "\\b", "\\t", "\\n", "\\f", "\\r"
QUOTED[34], QUOTED[92], QUOTED[47], QUOTED[127] = '\\"', "\\\\", "\\/", "\\u007f"

-- A text with characters that must be escaped, the first of them at `stop`.
local function escaped(p, size, stop)
  local parts, n, at = { '"' }, 1, 0
  while stop < size do
    parts[n + 1], parts[n + 2] = str(p + at, stop - at), QUOTED[band(p[stop], 255)]
    n = n + 2
    at = stop + 1
    stop = at + scan_unescaped(p + at, size - at)
  end
  parts[n + 1], parts[n + 2] = str(p + at, size - at), '"'
  return concat(parts)
end

local function quoted(text)
  local p, size = cast(pointer, text), #text
  local stop = scan_unescaped(p, size)
  if stop == size then return '"' .. text .. '"' end
  return escaped(p, size, stop)
end

-- A module with settings of its own.
local instance
function instance()
  local M = {
    null = null, _NAME = "cjson", _VERSION = "2.1.0",
    array_mt = array_mt, empty_array_mt = empty_array_mt, empty_array = empty_array,
  }
  local sparse_converts, sparse_ratio, sparse_safe = false, 2, 10
  local encode_depth, decode_depth = 1000, 1000
  local precision, number_format, keeps_buffer, invalid_numbers = 14, "%.14g", true, false
  local empty_is_object, marks_arrays = true, false

  local read_value

  local function read_object(p, at, size, depth)
    local object = {}
    at = skip(p, at, size)
    if p[at] == 125 then return object, at + 1 end
    while true do
      if p[at] ~= 34 then fail(p, at, size, "object key string") end
      local key, value
      key, at = read_string(p, at + 1, size)
      at = skip(p, at, size)
      if p[at] ~= 58 then fail(p, at, size, "colon") end
      value, at = read_value(p, skip(p, at + 1, size), size, depth)
      object[key] = value
      at = skip(p, at, size)
      local code = p[at]
      if code == 125 then return object, at + 1 end
      if code ~= 44 then fail(p, at, size, "comma or object end") end
      at = skip(p, at + 1, size)
    end
  end

  local function read_array(p, at, size, depth)
    local array, n = {}, 0
    at = skip(p, at, size)
    if p[at] == 93 then return setmetatable(array, marks_arrays and array_mt or empty_array_mt), at + 1 end
    while true do
      local value
      value, at = read_value(p, at, size, depth)
      n = n + 1
      array[n] = value
      at = skip(p, at, size)
      local code = p[at]
      if code == 93 then return marks_arrays and setmetatable(array, array_mt) or array, at + 1 end
      if code ~= 44 then fail(p, at, size, "comma or array end") end
      at = skip(p, at + 1, size)
    end
  end

  function read_value(p, at, size, depth)
    local code = p[at]
    if code == 34 then return read_string(p, at + 1, size) end
    if code == 123 or code == 91 then
      if depth >= decode_depth then
        error(format("Found too many nested data structures (%d) at character %d", depth + 1, at + 1), 0)
      end
      if code == 123 then return read_object(p, at + 1, size, depth + 1) end
      return read_array(p, at + 1, size, depth + 1)
    end
    if code == 116 and p[at + 1] == 114 and p[at + 2] == 117 and p[at + 3] == 101 then return true, at + 4 end
    if code == 102 and p[at + 1] == 97 and p[at + 2] == 108 and p[at + 3] == 115 and p[at + 4] == 101 then
      return false, at + 5
    end
    if code == 110 and p[at + 1] == 117 and p[at + 2] == 108 and p[at + 3] == 108 then return null, at + 4 end
    if code ~= 45 and (code < 48 or code > 57) then fail(p, at, size, "value") end
    local length = scan_number(p + at, size - at, number)
    if length == 0 then error(format("Expected value but found invalid number at character %d", at + 1), 0) end
    return number[0], at + length
  end

  function M.decode(text)
    if type(text) == "number" then text = format("%.14g", text) end
    if type(text) ~= "string" then error("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")", 2) end
    local p, size = cast(pointer, text), #text
    local value, at = read_value(p, skip(p, 0, size), size, 0)
    at = skip(p, at, size)
    if at < size then fail(p, at, size, "the end") end
    return value
  end

  -- The length of a table that is an array; nil for an object.
  local function array_length(value)
    local count, highest = 0, 0
    for key in pairs(value) do
      if type(key) ~= "number" or key <= 0 or floor(key) ~= key then return nil end
      count = count + 1
      if key > highest then highest = key end
    end
    if sparse_ratio > 0 and highest > sparse_safe and highest > count * sparse_ratio then
      if sparse_converts then return nil end
      error("Cannot serialise table: excessively sparse array", 0)
    end
    return highest
  end

  local function number_text(value)
    if value ~= value or value == huge or value == -huge then
      if invalid_numbers == "null" then return "null" end
      if not invalid_numbers then error("Cannot serialise number: must not be NaN or Infinity", 0) end
      return value ~= value and "NaN" or value > 0 and "Infinity" or "-Infinity"
    end
    return format(number_format, value)
  end

  local function write(value, parts, n, depth)
    local kind = type(value)
    n = n + 1
    if kind == "string" then
      parts[n] = quoted(value)
      return n
    elseif kind == "number" then
      parts[n] = number_text(value)
      return n
    elseif kind == "boolean" then
      parts[n] = value and "true" or "false"
      return n
    elseif kind == "nil" or value == null then
      parts[n] = "null"
      return n
    elseif kind ~= "table" then
      error("Cannot serialise " .. kind .. ": type not supported", 0)
    end
    if depth >= encode_depth then error("Cannot serialise, excessive depth (" .. depth + 1 .. ")", 0) end
    local mark = getmetatable(value)
    local length = mark == array_mt and #value or array_length(value)
    if length and (length > 0 or mark == array_mt or mark == empty_array_mt or not empty_is_object) then
      parts[n] = "["
      for i = 1, length do
        if i > 1 then
          n = n + 1
          parts[n] = ","
        end
        n = write(value[i], parts, n, depth + 1)
      end
      parts[n + 1] = "]"
      return n + 1
    end
    local before = "{"
    for key, item in pairs(value) do
      local kind_of_key = type(key)
      if kind_of_key == "string" then
        parts[n] = before .. quoted(key) .. ":"
      elseif kind_of_key == "number" then
        parts[n] = before .. '"' .. number_text(key) .. '":'
      else
        error("Cannot serialise table: table key must be a number or string", 0)
      end
      n = write(item, parts, n, depth + 1) + 1
      before = ","
    end
    if before == "{" then
      parts[n] = "{}"
      return n
    end
    parts[n] = "}"
    return n
  end

  function M.encode(value)
    local kind = type(value)
    if kind == "string" then return quoted(value) end
    local parts = {}
    write(value, parts, 0, 0)
    return concat(parts)
  end

  -- Settings of lua-cjson. Each function answers with what holds after it.
  local function flag(value, name)
    if value == "on" then return true end
    if value == "off" then return false end
    if type(value) ~= "boolean" then error("bad argument #1 to '" .. name .. "' (true or false expected)", 3) end
    return value
  end
  local function whole(value, at, name, least, most)
    if type(value) ~= "number" or floor(value) ~= value or value < least or value > most then
      local expected = " (expected integer between " .. least .. " and " .. most .. ")"
      error("bad argument #" .. at .. " to '" .. name .. "'" .. expected, 3)
    end
    return value
  end
  local MOST = 2147483647
  function M.encode_sparse_array(converts, ratio, safe)
    if converts ~= nil then sparse_converts = flag(converts, "encode_sparse_array") end
    if ratio ~= nil then sparse_ratio = whole(ratio, 2, "encode_sparse_array", 0, MOST) end
    if safe ~= nil then sparse_safe = whole(safe, 3, "encode_sparse_array", 0, MOST) end
    return sparse_converts, sparse_ratio, sparse_safe
  end
  function M.encode_max_depth(depth)
    if depth ~= nil then encode_depth = whole(depth, 1, "encode_max_depth", 1, MOST) end
    return encode_depth
  end
  function M.decode_max_depth(depth)
    if depth ~= nil then decode_depth = whole(depth, 1, "decode_max_depth", 1, MOST) end
    return decode_depth
  end
  function M.encode_number_precision(digits)
    if digits ~= nil then
      precision = whole(digits, 1, "encode_number_precision", 1, 16)
      number_format = "%." .. precision .. "g"
    end
    return precision
  end
  -- There is no buffer to keep: the setting is remembered, and that is all that can be seen of it in lua-cjson, too.
  function M.encode_keep_buffer(keep)
    if keep ~= nil then keeps_buffer = flag(keep, "encode_keep_buffer") end
    return keeps_buffer
  end
  function M.encode_invalid_numbers(how)
    if how ~= nil then
      invalid_numbers = how == "null" and "null" or flag(how, "encode_invalid_numbers")
    end
    return invalid_numbers
  end
  function M.decode_invalid_numbers(how)
    if how ~= nil and flag(how, "decode_invalid_numbers") then
      error("decode_invalid_numbers: what is no JSON is not read here", 2)
    end
    return false
  end
  function M.encode_empty_table_as_object(as_object)
    if as_object ~= nil then empty_is_object = flag(as_object, "encode_empty_table_as_object") end
    return empty_is_object
  end
  function M.decode_array_with_array_mt(marks)
    if marks ~= nil then marks_arrays = flag(marks, "decode_array_with_array_mt") end
    return marks_arrays
  end

  M.new = instance
  return M
end

-- cjson.safe: failures are answers.
local safe_instance
function safe_instance()
  local M = instance()
  local safe = setmetatable({}, { __index = M })
  function safe.decode(text)
    local ok, value = pcall(M.decode, text)
    if ok then return value end
    return nil, value
  end
  function safe.encode(value)
    local ok, text = pcall(M.encode, value)
    if ok then return text end
    return nil, text
  end
  safe.new = safe_instance
  return safe
end

-- The scripts' own: settings change nothing of what the SDK reads and writes.
local cjson, safe = instance(), safe_instance()
package.preload["cjson"] = function() return cjson end
package.preload["cjson.safe"] = function() return safe end
return instance()
