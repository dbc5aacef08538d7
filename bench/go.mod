module margay.dev/bench

go 1.26.0

require (
	github.com/quic-go/quic-go v0.65.0
	golang.org/x/sync v0.25.0
	golang.org/x/sys v0.50.0
	margay.dev/cluster v0.0.0
	margay.dev/storage v0.0.0
	margay.dev/wire v0.0.0
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.62.0 // indirect
)

replace margay.dev/wire => ../wire

replace margay.dev/router => ../router

replace margay.dev/storage => ../storage

replace margay.dev/client => ../client

replace margay.dev/broker => ../broker

replace margay.dev/controlplane => ../controlplane

replace margay.dev/cluster => ../cluster
