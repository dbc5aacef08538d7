// SPDX-License-Identifier: Apache-2.0

// Command check holds the repository to what its documents say: links, promises, import arrows, package comments. It
// reads the files that git knows in one tree, writes nothing, and refuses to fix what it finds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "the repository")
	quiet := flag.Bool("q", false, "print no warnings")
	flag.Parse()
	t, err := readTree(context.Background(), *root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2)
	}
	failed := 0
	for _, f := range t.check() {
		if f.warning && *quiet {
			continue
		}
		fmt.Println(f)
		if !f.warning {
			failed++
		}
	}
	if failed > 0 {
		fmt.Fprintf(os.Stderr, "check: %d findings\n", failed)
		os.Exit(1)
	}
	fmt.Printf("check: %d files, no findings\n", len(t.names))
}
