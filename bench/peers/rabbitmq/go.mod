module margay.dev/bench/peers/rabbitmq

go 1.26.0

require (
	github.com/rabbitmq/amqp091-go v1.16.0
	margay.dev/bench/peers/peer v0.0.0
	margay.dev/cluster v0.0.0
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace margay.dev/wire => ../../../wire

replace margay.dev/router => ../../../router

replace margay.dev/storage => ../../../storage

replace margay.dev/client => ../../../client

replace margay.dev/broker => ../../../broker

replace margay.dev/controlplane => ../../../controlplane

replace margay.dev/cluster => ../../../cluster

replace margay.dev/bench/peers/peer => ../peer
