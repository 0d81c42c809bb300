module postrider.dev/tests/golang

go 1.24.6

require (
	github.com/cncf/xds/go v0.0.0-20240905190251-b4127c9b8d78
	github.com/envoyproxy/envoy v1.31.0
	google.golang.org/protobuf v1.36.3
)

require (
	cel.dev/expr v0.15.0 // indirect
	github.com/envoyproxy/protoc-gen-validate v1.0.4 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20230822172742-b8732ec3820d // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240318140521-94a12d6c2237 // indirect
)
