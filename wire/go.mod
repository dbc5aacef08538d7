module margay.dev/wire

go 1.26.0

require (
	github.com/golang-jwt/jwt/v5 v5.3.1
	github.com/klauspost/compress v1.20.4
	pgregory.net/rapid v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.6

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/quic-go/quic-go v0.65.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.50.0
)

require (
	go.uber.org/mock v0.6.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.62.0 // indirect
)
