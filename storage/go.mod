module margay.dev/storage

go 1.26.0

require margay.dev/wire v0.0.0

replace margay.dev/wire => ../wire
