// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var stay, tls bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: publish 10,000 records, kill the node in the middle, find every one",
		Long: `Start a node in a temporary directory, publish 10,000 records to it while tailing them live, kill it
with SIGKILL in the middle, start it again, and compare what is there with what was acknowledged, byte
for byte. Takes a few seconds, uses free ports, touches nothing of yours, and cleans up behind itself.

Exits 0 only when every acknowledged record is there, once and unchanged.`,
		Example: `  margay demo
  margay demo --stay
  margay demo --tls`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), demo.Config{
				Executable: a.Executable, Margay: a.self(), Stay: stay, TLS: tls, Printer: a.Printer,
			})
		},
	}
	cmd.Flags().BoolVar(&stay, "stay", false, "keep the node running afterwards, for you to try")
	cmd.Flags().BoolVar(&tls, "tls", false, "reach the node over TLS on TCP instead of QUIC")
	return cmd
}
