// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// built is the binary of this test process. It is a global because a build takes seconds that every test would pay, and
// it is never handed from one test process to the next, so that it cannot be of other sources than the test.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// Main runs a package's tests, looks for goroutines that they left, and removes the binary that they built. Call it from
// TestMain.
func Main(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections() // what Metrics has kept
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left behind the tests:", err)
			code = 1
		}
	}
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // a temporary directory
	}
	os.Exit(code)
}

// Binary builds `margay` from the sources around the test, once, with the race detector if the test has it, and returns
// its path.
func Binary(t testing.TB) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = build() })
	if built.err != nil {
		t.Fatalf("build margay: %v", built.err)
	}
	return filepath.Join(built.dir, "margay")
}

// RaceDetector says whether nodes run under the race detector: their memory is then the detector's more than theirs.
func RaceDetector() bool { return raceDetector }

func build() (string, error) {
	root, err := workspace()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "margay-test-")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-C", filepath.Join(root, "cmd"), "-buildvcs=false", "-o", filepath.Join(dir, "margay")}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./margay")...) //nolint:noctx // the test's own deadline bounds it
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("go build: %w\n%s", err, out), os.RemoveAll(dir))
	}
	return dir, nil
}

// workspace finds the repository that the test runs in.
func workspace() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the test does not run inside the workspace that holds cmd/margay")
		}
		dir = filepath.Dir(dir)
	}
}
