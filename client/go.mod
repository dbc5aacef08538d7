module margay.dev/client

go 1.26.0

require margay.dev/wire v0.0.0
require margay.dev/router v0.0.0

replace margay.dev/wire => ../wire
replace margay.dev/router => ../router
