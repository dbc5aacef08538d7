module margay.dev/storage

go 1.26.0

require (
	github.com/tidwall/btree v1.8.2
	go.uber.org/goleak v1.3.0
	margay.dev/wire v0.0.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)

replace margay.dev/wire => ../wire
