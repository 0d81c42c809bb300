-- a call: answer, failure, missing cluster, arguments
-- The results of a call, or its error, as one line.
local function try(f, ...)
  local function line(ok, ...)
    local parts = { ok and select("#", ...) or "error" }
    for i = 1, select("#", ...) do parts[#parts + 1] = tostring((select(i, ...))) end
    return (table.concat(parts, " "):gsub("[%c]", "|"))
  end
  return line(pcall(f, ...))
end
function envoy_on_request(handle)
  local get = { [":method"] = "GET", [":path"] = "/echo", [":authority"] = "a", ["x-list"] = { "1", "2" }, ["x-num"] = 7 }
  local c = function(...) local a, n = { ... }, select("#", ...); return try(function() local h, b = handle:httpCall(unpack(a, 1, n)); return h and h[":status"], type(b) == "string" and #b < 60 and b or type(b) end) end
  local out = {
    ok = c("origin", get, nil, 1000), down = c("down", get, nil, 1000), nocluster = c("nope", get, nil, 1000),
    nomethod = c("origin", { [":path"] = "/", [":authority"] = "a" }, nil, 1000), noheaders = c("origin", nil, nil, 1000),
    notimeout = c("origin", get, nil), minus = c("origin", get, nil, -1), word = c("origin", get, nil, "x"), slow = c("origin", { [":method"] = "GET", [":path"] = "/slow", [":authority"] = "a" }, nil, 50),
    bodytable = c("origin", get, {}, 100), flagnil = c("origin", get, nil, 1000, nil), flagword = c("origin", get, nil, 1000, "x"), async = c("origin", get, nil, 1000, true),
    optnone = c("origin", get, nil, {}), optbad = c("origin", get, nil, { timeout_ms = 100, nope = 1 }), opttype = c("origin", get, nil, { timeout_ms = "x" }),
    optok = c("origin", get, "abc", { timeout_ms = 1000, asynchronous = false, return_duplicate_headers = true, send_xff = false, trace_sampled = true }),
    optbool = c("origin", get, nil, { timeout_ms = 1000, asynchronous = 1 }), empty = c("origin", { [":method"] = "GET", [":path"] = "/empty", [":authority"] = "a" }, nil, 1000),
    minusopt = c("origin", get, nil, { timeout_ms = -1 }), sampled = c("origin", get, nil, { timeout_ms = 1000, trace_sampled = 5 }),
    badvalue = c("origin", { [":method"] = "GET", [":path"] = "/", [":authority"] = "a", x = function() end }, nil, 100),
    boolvalue = c("origin", { [":method"] = "GET", [":path"] = "/", [":authority"] = "a", x = true }, nil, 100),
    numkey = c("origin", { [":method"] = "GET", [":path"] = "/", [":authority"] = "a", [1] = "x" }, nil, 100),
    noargs = c(),
  }
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
