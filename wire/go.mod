module margay.dev/wire

go 1.26.0


