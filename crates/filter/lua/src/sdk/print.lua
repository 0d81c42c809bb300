-- Where standard output is a command's result, what scripts print goes to standard error.
local stderr, concat, select, tostring = io.stderr, table.concat, select, tostring

function print(...)
  local parts = {}
  for at = 1, select("#", ...) do parts[at] = tostring((select(at, ...))) end
  stderr:write(concat(parts, "\t"), "\n")
end
