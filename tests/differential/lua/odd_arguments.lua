-- arguments that nobody means
local function try(f)
  local ok, a, b = pcall(f)
  return (ok and "ok " or "error ") .. tostring(a) .. " " .. tostring(b)
end
function envoy_on_request(handle)
  local h, out = handle:headers(), {}
  out.named = try(function() return handle:metadata("lua"):get("s"), handle:metadata("none"):get("s") end)
  out.routenamed = try(function() return handle:route():metadata("lua"):get("n"), handle:route():metadata(""):get("n") end)
  out.badname = try(function() return handle:route():metadata({}) end)
  out.status = try(function() handle:respond({ [":status"] = 200.9 }) end)
  out.statuses = try(function() handle:respond({ [":status"] = { "201", "202" } }) end)
  out.field = try(function() handle:respond({ [":status"] = "1", ["x-a"] = true }) end)
  out.object = try(function() handle:respond(h) end)
  out.flag = try(function() return handle:body("x") end)
  out.strict = try(function() handle:setUpstreamOverrideHost("1.2.3.4", nil) end)
  out.nan = try(function() handle:stats():gauge("g"):set(0 / 0) end)
  out.huge = try(function() handle:stats():counter("c"):add(2 ^ 63) end)
  out.time = try(function() return type(handle:timestamp("0")), type(handle:timestampString(" 1 ")) end)
  out.badtime = try(function() return handle:timestamp("MILLISECOND") end)
  out.index = try(function() return h:getAtIndex("x-multi", 1 / 0), h:getAtIndex("x-multi", -0.5) end)
  out.space = try(function()
    local m = handle:streamInfo():dynamicMetadata()
    m:set("", "k", 1)
    return m:get("").k
  end)
  out.inside = try(function() handle:streamInfo():dynamicMetadata():set("ns", "k", { handle }) end)
  out.key = try(function() return handle:verifySignature("sha1", "none", {}) end)
  -- Their words have the kind of value in them.
  out.newfield = tostring((pcall(function() h.new = 1 end)))
  out.length = tostring((pcall(function() return #h end)))
  out.keys = try(function() for _ in pairs(handle) do end end)
  for k, v in pairs(out) do h:replace("r-" .. k, (v:gsub("^error .-:%d+: ", "error "))) end
end
