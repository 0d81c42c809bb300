-- R5: the body read a hundred times.
core.register_action("bench_request", { "http-req" }, function(txn)
  for _ = 1, 100 do
    local _ = txn.sf:req_body()
  end
end)
