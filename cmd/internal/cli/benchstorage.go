// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cluster/load/disk"
	"margay.dev/cmd/internal/exit"
	"margay.dev/wire/control"
)

func (a *app) benchStorageCommand() *cobra.Command {
	var spec disk.Spec
	var batch byteSize = 64 << 10
	var dir, fsync string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "Write with the storage engine alone, in turns with bare writes",
		Long: `Append batches to logs of the storage engine, each writer to its own, and write the same bytes with the same
flushes to plain files, in rounds that take turns. What is between the two is what the engine costs.
Needs no node, and leaves nothing behind.`,
		Example: `  margay bench storage --writers 8 --batch 64KiB
  margay bench storage --fsync never --dir /var/tmp`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.useJSON(asJSON)
			spec.Batch, spec.Fsync = int(batch), disk.Fsync(fsync)
			if err := spec.Validate(); err != nil {
				return exit.Misuse("%w", err)
			}
			if dir == "" {
				dir = os.TempDir()
			}
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return exit.Misuse("--dir %s: want a directory that is there", dir)
			}
			a.warnVolatile(dir)
			var phase atomic.Pointer[string]
			phase.Store(new(string))
			stop := a.Progress(func() string { return *phase.Load() })
			res, err := disk.Run(cmd.Context(), dir, spec, func(s string) { phase.Store(&s) })
			stop()
			if err != nil {
				return err
			}
			res.System = "margay " + a.build().Version + ", storage alone"
			return a.printBench(res, fmt.Sprintf("%.3f", res.Ratio), func(b *strings.Builder) error { return disk.Print(b, res) })
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&spec.Writers, "writers", 8, "how many write at once, each to a log of its own")
	flags.Var(&batch, "batch", "bytes of a batch")
	flags.StringVar(&fsync, "fsync", string(disk.Always), "when a writer flushes: always (behind each batch), interval (each 100ms) or never")
	flags.IntVar(&spec.Rounds, "rounds", 5, "rounds of each of the two")
	flags.DurationVar(&spec.Duration, "duration", 2*time.Second, "how long a round is, unless 1 GiB is written before")
	flags.StringVar(&dir, "dir", "", "where to write (default: the system's temporary directory)")
	flags.BoolVar(&asJSON, "json", false, "the same as --output json")
	complete(cmd, "fsync", control.FsyncAlways, control.FsyncInterval, control.FsyncNever)
	return cmd
}
