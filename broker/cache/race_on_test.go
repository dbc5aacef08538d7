// SPDX-License-Identifier: Apache-2.0

//go:build race

package cache_test

// raceDetector says that the tests run under it.
const raceDetector = true
