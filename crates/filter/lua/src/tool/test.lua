-- The tests' side of the runner (`cases.rs`): what `require("postrider.test")` gives, and what the runner calls.
--
-- Results for the runner are plain texts in the fields of M. `stream:run()` leaves its request in M.request and yields;
-- the runner answers by M.deliver or M.refuse and goes on.
local mark = ...
local RUN = 1

local M = {}
local cases, current, result, refusal = {}, nil, nil, nil

-- What a failed check raises.
local Failure = {}

local function shown(value, depth)
  depth = depth or 0
  if type(value) == "string" then
    return '"' .. value:gsub('[%c"\\\127-\255]', function(c)
      return ({ ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t" })[c] or ("\\%03d"):format(c:byte())
    end) .. '"'
  end
  if type(value) ~= "table" or depth > 8 then return tostring(value) end
  local names, parts = {}, {}
  for name in pairs(value) do
    if not (type(name) == "number" and name >= 1 and name <= #value) then names[#names + 1] = name end
  end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, item in ipairs(value) do parts[#parts + 1] = shown(item, depth + 1) end
  for _, name in ipairs(names) do
    local key = type(name) == "string" and name:find("^[%a_][%w_]*$") and name or "[" .. shown(name, depth + 1) .. "]"
    parts[#parts + 1] = key .. " = " .. shown(value[name], depth + 1)
  end
  return #parts == 0 and "{}" or "{ " .. table.concat(parts, ", ") .. " }"
end

local function same(a, b)
  if a == b then return true end
  if type(a) ~= "table" or type(b) ~= "table" then return false end
  for key, value in pairs(a) do
    if not same(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

-- JSON whose texts have a character for each byte, so that every byte comes through.
local function encode(value, out, depth)
  local kind = type(value)
  if depth > 64 then error("a table that is nested so deeply, or holds itself, cannot be shown to a plugin", 0) end
  if kind == "string" then
    out[#out + 1] = '"' .. value:gsub('[%c"\\\127-\255]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
  elseif kind == "number" then
    if value ~= value or value == math.huge or value == -math.huge then error("no JSON number: " .. tostring(value), 0) end
    out[#out + 1] = value == math.floor(value) and ("%.0f"):format(value) or ("%.17g"):format(value)
  elseif kind == "boolean" then
    out[#out + 1] = tostring(value)
  elseif kind == "nil" then
    out[#out + 1] = "null"
  elseif kind ~= "table" then
    error("a " .. kind .. " cannot be shown to a plugin", 0)
  elseif #value > 0 then
    for at, item in ipairs(value) do
      out[#out + 1] = at == 1 and "[" or ","
      encode(item, out, depth + 1)
    end
    out[#out + 1] = "]"
  else
    local names = {}
    for name in pairs(value) do names[#names + 1] = name end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
    out[#out + 1] = "{"
    for at, name in ipairs(names) do
      if at > 1 then out[#out + 1] = "," end
      encode(tostring(name), out, depth + 1)
      out[#out + 1] = ":"
      encode(value[name], out, depth + 1)
    end
    out[#out + 1] = "}"
  end
end

-- Raises a failure at the line that called the check.
local function fail(failure)
  local at = debug.getinfo(3, "Sl")
  failure.source, failure.line = at.source, at.currentline
  error(setmetatable(failure, Failure), 0)
end

local test = {}

-- A case: `run` is called with nothing and passes unless it raises.
function test.case(name, run)
  if type(name) ~= "string" or type(run) ~= "function" then error("test.case takes a name and a function", 2) end
  -- Its turn would never come: how many there are is known when the first begins.
  if current then error("test.case does not belong into another case", 2) end
  cases[#cases + 1] = { name = name, run = run }
  M.count = #cases
end

-- The plugin under test, relative to the test's folder; `runtime` if it does not show.
function test.plugin(path, runtime)
  if type(path) ~= "string" then error("test.plugin takes a path", 2) end
  M.plugin, M.runtime = path, runtime
end

function test.equal(actual, expected, what)
  if not same(actual, expected) then
    fail { message = what or "not equal", expected = shown(expected), actual = shown(actual) }
  end
end

function test.ok(value, what)
  if not value then fail { message = what or "expected a true value", expected = "a true value", actual = shown(value) } end
end

function test.matches(text, pattern, what)
  if type(text) ~= "string" or not text:find(pattern) then
    fail { message = what or "no match", expected = "a text that matches " .. shown(pattern), actual = shown(text) }
  end
end

function test.fail(what)
  fail { message = what or "failed" }
end

local KEYS = { request = true, response = true, config = true, route_config = true, rules = true, calls = true }
local Stream = {}
Stream.__index = Stream

-- A stream to show to the plugin.
function test.stream(spec)
  for key in pairs(spec or {}) do
    if not KEYS[key] then
      error("a stream has no `" .. tostring(key) .. "`; it has request, response, config, route_config, rules and calls", 2)
    end
  end
  return setmetatable({ spec = spec or {} }, Stream)
end

-- Runs it; what came of it.
function Stream:run()
  if not current then error("run() belongs into a test.case", 2) end
  local out = {}
  encode(self.spec, out, 0)
  M.request = table.concat(out)
  coroutine.yield(mark, RUN)
  local got, refused = result, refusal
  result, refusal, M.request = nil, nil, nil
  if refused then fail { message = refused } end
  return got
end

-- It would end all tests, and with 0 say that they passed.
function os.exit() error("os.exit would end the run of all tests: a case ends where its function does", 2) end

package.preload["postrider.test"] = function() return test end

-- For the runner.

function M.search(folder)
  package.path = folder .. "/?.lua;" .. folder .. "/?/init.lua;" .. package.path
end

function M.select(number)
  current = cases[number]
  M.name, M.failed = current.name, nil
  M.message, M.source, M.line, M.expected, M.actual, M.traceback = nil, nil, nil, nil, nil, nil
end

-- Runs the selected case.
function M.run()
  xpcall(current.run, function(problem)
    M.failed = "yes"
    M.traceback = debug.traceback("", 2):gsub("^%s*stack traceback:%s*", ""):gsub("\n%s*%[C%]: in function 'xpcall'.*$", "")
    if getmetatable(problem) == Failure then
      for _, key in ipairs { "message", "source", "line", "expected", "actual" } do M[key] = problem[key] end
      return
    end
    M.message = type(problem) == "string" and problem or shown(problem)
  end)
  current = nil
end

function M.deliver(table) result = table end
function M.refuse(text) refusal = text end

-- The lines of a chunk that have code: of each function but the return that every one ends with.
function M.lines(chunk)
  local util, found = require("jit.util"), {}
  local function walk(func)
    local about = util.funcinfo(func)
    for pc = 1, about.bytecodes - 1 do
      local line = util.funcinfo(func, pc).currentline
      if not (pc == about.bytecodes - 1 and line == about.lastlinedefined) then found[line] = true end
    end
    for n = -1, -1e9, -1 do
      local constant = util.funck(func, n)
      if constant == nil then break end
      if type(constant) == "proto" then walk(constant) end
    end
  end
  walk(chunk)
  local lines = {}
  for line in pairs(found) do lines[#lines + 1] = line end
  table.sort(lines)
  M.executable = table.concat(lines, ",")
end

return M
