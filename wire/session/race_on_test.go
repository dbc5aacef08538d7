// SPDX-License-Identifier: Apache-2.0

//go:build race

package session

// raceDetector says that the tests run under it.
const raceDetector = true
