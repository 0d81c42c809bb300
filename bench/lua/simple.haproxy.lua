-- R5 simple: ten headers read.
core.register_action("bench_request", { "http-req" }, function(txn)
  for i = 1, 10 do
    local _ = txn.sf:req_hdr("test" .. i)
  end
end)
