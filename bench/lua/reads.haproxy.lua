-- A header read a thousand times: what one read costs.
core.register_action("bench_request", { "http-req" }, function(txn)
  for _ = 1, 1000 do
    if txn.sf:req_hdr("authorization") == "" then return end
  end
end)
