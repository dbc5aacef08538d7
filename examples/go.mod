module margay.dev/examples

go 1.26.0

replace margay.dev/wire => ../wire

replace margay.dev/router => ../router

replace margay.dev/client => ../client
