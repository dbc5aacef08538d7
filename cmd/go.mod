module margay.dev/cmd

go 1.26.0

require margay.dev/wire v0.0.0
require margay.dev/router v0.0.0
require margay.dev/storage v0.0.0
require margay.dev/client v0.0.0
require margay.dev/broker v0.0.0
require margay.dev/controlplane v0.0.0
require margay.dev/cluster v0.0.0
require margay.dev/examples v0.0.0

replace margay.dev/wire => ../wire
replace margay.dev/router => ../router
replace margay.dev/storage => ../storage
replace margay.dev/client => ../client
replace margay.dev/broker => ../broker
replace margay.dev/controlplane => ../controlplane
replace margay.dev/cluster => ../cluster
replace margay.dev/examples => ../examples
