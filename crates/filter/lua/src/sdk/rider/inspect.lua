-- inspect: any value as text for people.
local border = ...
local type, tostring, pairs, format, rep, concat, sort, floor = type, tostring, pairs, string.format, string.rep,
  table.concat, table.sort, math.floor

local ORDER = { number = 1, boolean = 2, string = 3, table = 4, ["function"] = 5, userdata = 6, thread = 7, cdata = 8 }
local function before(a, b)
  local kind_a, kind_b = type(a), type(b)
  if kind_a == kind_b and (kind_a == "string" or kind_a == "number") then return a < b end
  local rank_a, rank_b = ORDER[kind_a] or 9, ORDER[kind_b] or 9
  if rank_a == rank_b then return tostring(a) < tostring(b) end
  return rank_a < rank_b
end

local function quoted(text)
  text = format("%q", text):gsub("\\\n", "\\n"):gsub("%c", function(c) return format("\\%03d", c:byte()) end)
  return text
end

local function inspect(root, options)
  options = options or {}
  local deepest, newline, indent = options.depth or math.huge, options.newline or "\n", options.indent or "  "
  local open, numbers, count = {}, {}, 0
  local write
  local function label(value)
    if not numbers[value] then
      count = count + 1
      numbers[value] = count
    end
    return "<" .. type(value) .. " " .. numbers[value] .. ">"
  end
  local function write_key(key, depth)
    if type(key) == "string" and key:find("^[%a_][%w_]*$") then return key end
    return "[" .. write(key, depth) .. "]"
  end
  function write(value, depth)
    local kind = type(value)
    if kind == "string" then return quoted(value) end
    if kind == "number" or kind == "boolean" or kind == "nil" or kind == "cdata" then return tostring(value) end
    if kind ~= "table" then return label(value) end
    if open[value] then return label(value) end
    if depth >= deepest then return "{...}" end
    open[value] = true
    local parts, length, keys = {}, #value, {}
    for i = 1, length do parts[i] = write(value[i], depth + 1) end
    for key in pairs(value) do
      local in_list = type(key) == "number" and key >= 1 and key <= length and floor(key) == key
      if not in_list then keys[#keys + 1] = key end
    end
    sort(keys, before)
    local pad = newline .. rep(indent, depth + 1)
    for _, key in ipairs(keys) do
      parts[#parts + 1] = pad .. write_key(key, depth + 1) .. " = " .. write(value[key], depth + 1)
    end
    open[value] = nil
    if #keys == 0 then return #parts == 0 and "{}" or "{ " .. concat(parts, ", ") .. " }" end
    return "{" .. (length > 0 and " " or "") .. concat(parts, ",") .. newline .. rep(indent, depth) .. "}"
  end
  return write(root, 0)
end

local module = setmetatable({ inspect = inspect }, { __call = function(_, root, options) return inspect(root, options) end })
border.modules.inspect = module
return module
