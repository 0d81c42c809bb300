-- Files at the sandbox level `standard`: to be read only, and none that could keep the worker waiting, since it serves nobody
-- else meanwhile.
local border = ...
local may_wait = border.api.may_wait
local error, type, tostring, pairs, setmetatable = error, type, tostring, pairs, setmetatable
local collect, kind_of = collectgarbage, io.type
local open, lines, input, read = io.open, io.lines, io.input, io.read
local load_file, do_file = loadfile, dofile

local STANDARD_INPUT = "the process's standard input cannot be read (sandbox: standard)"

-- Files that the script may have open at a time: descriptors are the process's, and connections need them, too.
local MOST_OPEN = 64

-- What was opened, as far as anybody still has it, and how much that was when it was last counted.
local opened, count = setmetatable({}, { __mode = "k" }), 0

local function count_open()
  count = 0
  for file in pairs(opened) do
    if kind_of(file) == "closed file" then opened[file] = nil else count = count + 1 end
  end
  return count
end

local function is_full()
  if count < MOST_OPEN or count_open() < MOST_OPEN then return false end
  -- What the script lost is closed when it is collected.
  collect()
  return count_open() >= MOST_OPEN
end

local function noted(file, ...)
  if file then opened[file], count = true, count + 1 end
  return file, ...
end

-- Why a file is not opened; nothing for one that is.
local function refusal(name)
  if type(name) ~= "string" and type(name) ~= "number" then return end
  name = tostring(name)
  if is_full() then return name .. ": " .. MOST_OPEN .. " files are open, which is all that a script may have (sandbox: standard)" end
  if may_wait(name, #name) ~= 0 then return name .. ": reading this could wait without end (sandbox: standard)" end
end

io.open = function(name, mode)
  if mode ~= nil and not (mode == "r" or mode == "rb") then
    return nil, "files can only be read here (sandbox: standard)"
  end
  local why = refusal(name)
  if why then return nil, why end
  return noted(open(name, mode))
end

-- Whether there is a default input that the script chose.
local has_input = false

io.input = function(file)
  if file == nil and not has_input then error(STANDARD_INPUT, 2) end
  local why = refusal(file)
  if why then error(why, 2) end
  local chosen = input(file)
  has_input = true
  if file ~= nil then noted(chosen) end
  return chosen
end

io.read = function(...)
  if not has_input then error(STANDARD_INPUT, 2) end
  return read(...)
end

io.lines = function(name, ...)
  local why = refusal(name) or (name == nil and not has_input and STANDARD_INPUT)
  if why then error(why, 2) end
  if name == nil then return lines(name, ...) end
  return noted(lines(name, ...))
end

loadfile = function(name, ...)
  local why = refusal(name) or (name == nil and STANDARD_INPUT)
  if why then return nil, why end
  return load_file(name, ...)
end

dofile = function(name)
  local why = refusal(name) or (name == nil and STANDARD_INPUT)
  if why then error(why, 2) end
  return do_file(name)
end

io.stdin = nil
