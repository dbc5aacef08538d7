module margay.dev/router

go 1.26.0


