module postrider.dev/tests/golang/old

go 1.24.6

require github.com/envoyproxy/envoy v1.30.1

require google.golang.org/protobuf v1.33.0 // indirect
