// SPDX-License-Identifier: Apache-2.0

package peer

import "os/exec"

// Start starts a server that is a program of its own, so that it ends when we do, however that happens. What it returns is
// closed when the process has ended.
func Start(cmd *exec.Cmd) (<-chan struct{}, error) {
	cmd.SysProcAttr = dieTogether()
	ended, started := make(chan struct{}), make(chan error)
	go func() {
		defer close(ended)
		lockThread() // the system ends the child with the thread that started it
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	return ended, <-started
}
