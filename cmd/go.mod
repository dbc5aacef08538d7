module margay.dev/cmd

go 1.26.0

require (
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	golang.org/x/term v0.48.0
	margay.dev/wire v0.0.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace margay.dev/wire => ../wire

replace margay.dev/router => ../router

replace margay.dev/storage => ../storage

replace margay.dev/client => ../client

replace margay.dev/broker => ../broker

replace margay.dev/controlplane => ../controlplane

replace margay.dev/cluster => ../cluster

replace margay.dev/examples => ../examples
