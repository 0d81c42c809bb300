-- table.sort without a function that compares: in Lua, since nothing could stop the one in C before its end, and millions of
-- numbers, or few texts of megabytes, take it seconds. With a function the one in C calls that, and is stopped there.
local c_sort = table.sort
local type, error, floor, rawget, rawset, rawlen = type, error, math.floor, rawget, rawset, rawlen

-- Parts of this size are sorted by insertion.
local SMALL = 12

local function insert_all(t, first, last)
  for i = first + 1, last do
    local item, j = rawget(t, i), i - 1
    while j >= first do
      local other = rawget(t, j)
      if not (item < other) then break end
      rawset(t, j + 1, other)
      j = j - 1
    end
    rawset(t, j + 1, item)
  end
end

-- The median of the first, the middle and the last, which are put in order.
local function middle_of(t, first, last)
  local at = floor((first + last) / 2)
  local a, b, c = rawget(t, first), rawget(t, at), rawget(t, last)
  if b < a then a, b = b, a end
  if c < b then
    b, c = c, b
    if b < a then a, b = b, a end
  end
  rawset(t, first, a)
  rawset(t, at, b)
  rawset(t, last, c)
  return b
end

local function sort(t, first, last)
  while last - first >= SMALL do
    local pivot, i, j = middle_of(t, first, last), first, last
    while true do
      local low, high
      repeat
        i = i + 1
        if i > last then error("invalid order function for sorting", 0) end
        low = rawget(t, i)
      until not (low < pivot)
      repeat
        j = j - 1
        if j < first then error("invalid order function for sorting", 0) end
        high = rawget(t, j)
      until not (pivot < high)
      if i >= j then break end
      rawset(t, i, high)
      rawset(t, j, low)
    end
    -- The smaller part first: so the depth grows with the logarithm only.
    if j - first < last - j then
      sort(t, first, j)
      first = j + 1
    else
      sort(t, j + 1, last)
      last = j
    end
  end
  insert_all(t, first, last)
end

function table.sort(t, before)
  -- The one in C says what is wrong with its arguments, too.
  if before ~= nil or type(t) ~= "table" then return c_sort(t, before) end
  return sort(t, 1, rawlen(t))
end
