-- inspect: any value as text for people.
--
-- Functions get what they share in a table, since LuaJIT compiles none that makes functions.
local border, json = ...
local array_mt, empty_array_mt, getmetatable, setmetatable = json.array_mt, json.empty_array_mt, getmetatable, setmetatable
local type, tostring, pairs, ipairs, format, rep, concat, sort, floor = type, tostring, pairs, ipairs, string.format,
  string.rep, table.concat, table.sort, math.floor
local find, gsub, byte = string.find, string.gsub, string.byte

local ORDER = { number = 1, boolean = 2, string = 3, table = 4, ["function"] = 5, userdata = 6, thread = 7, cdata = 8 }
local function before(a, b)
  local kind_a, kind_b = type(a), type(b)
  if kind_a == kind_b and (kind_a == "string" or kind_a == "number") then return a < b end
  local rank_a, rank_b = ORDER[kind_a] or 9, ORDER[kind_b] or 9
  if rank_a == rank_b then return tostring(a) < tostring(b) end
  return rank_a < rank_b
end

local function escape(c) return format("\\%03d", byte(c)) end
local function quoted(text)
  text = gsub(gsub(format("%q", text), "\\\n", "\\n"), "%c", escape)
  return text
end

-- `state`: how to write, the tables that are being written, and the numbers of what cannot be.
local function label(state, value)
  local numbers = state.numbers
  if not numbers[value] then
    state.count = state.count + 1
    numbers[value] = state.count
  end
  return "<" .. type(value) .. " " .. numbers[value] .. ">"
end

local write
local function write_key(state, key, depth)
  if type(key) == "string" and find(key, "^[%a_][%w_]*$") then return key end
  return "[" .. write(state, key, depth) .. "]"
end

function write(state, value, depth)
  local kind = type(value)
  if kind == "string" then return quoted(value) end
  if kind == "number" or kind == "boolean" or kind == "nil" or kind == "cdata" then return tostring(value) end
  if kind ~= "table" or state.open[value] then return label(state, value) end
  if depth >= state.deepest then return "{...}" end
  state.open[value] = true
  local parts, length, keys = {}, #value, {}
  for i = 1, length do parts[i] = write(state, value[i], depth + 1) end
  for key in pairs(value) do
    local in_list = type(key) == "number" and key >= 1 and key <= length and floor(key) == key
    if not in_list then keys[#keys + 1] = key end
  end
  sort(keys, before)
  -- What marks JSON's arrays is no metatable of the plugin's.
  local mark = getmetatable(value)
  if type(mark) ~= "table" or mark == array_mt or mark == empty_array_mt then mark = nil end
  local pad = state.newline .. rep(state.indent, depth + 1)
  for _, key in ipairs(keys) do
    parts[#parts + 1] = pad .. write_key(state, key, depth + 1) .. " = " .. write(state, value[key], depth + 1)
  end
  if mark then parts[#parts + 1] = pad .. "<metatable> = " .. write(state, mark, depth + 1) end
  state.open[value] = nil
  if #keys == 0 and not mark then return #parts == 0 and "{}" or "{ " .. concat(parts, ", ") .. " }" end
  return "{" .. (length > 0 and " " or "") .. concat(parts, ",") .. state.newline .. rep(state.indent, depth) .. "}"
end

-- What `process` makes of a value and of all in it, which stays as it is. `path` leads there: keys, and behind a key or in
-- front of a metatable what says so.
local KEY, METATABLE = setmetatable({}, { __tostring = function() return "inspect.KEY" end }),
  setmetatable({}, { __tostring = function() return "inspect.METATABLE" end })

local function below(path, step, mark)
  local longer = {}
  for i, item in ipairs(path) do longer[i] = item end
  longer[#longer + 1], longer[#longer + 2] = step, mark
  return longer
end

local function processed(process, item, path, made)
  if item == nil then return nil end
  if made[item] then return made[item] end
  local new = process(item, path)
  if type(new) ~= "table" then return new end
  local copied = {}
  made[item] = copied
  for key, value in pairs(new) do
    local new_key = processed(process, key, below(path, key, KEY), made)
    if new_key ~= nil then copied[new_key] = processed(process, value, below(path, new_key), made) end
  end
  local mark = processed(process, getmetatable(new), below(path, METATABLE), made)
  if type(mark) == "table" then setmetatable(copied, mark) end
  return copied
end

local function inspect(root, options)
  options = options or {}
  if options.process then root = processed(options.process, root, {}, {}) end
  return write({
    open = {}, numbers = {}, count = 0,
    deepest = options.depth or math.huge, newline = options.newline or "\n", indent = options.indent or "  ",
  }, root, 0)
end

local module = setmetatable({ inspect = inspect, KEY = KEY, METATABLE = METATABLE }, { __call = function(_, root, options) return inspect(root, options) end })
border.modules.inspect = module
return module
