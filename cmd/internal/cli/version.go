// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/output"
)

// buildVersion is what this binary is, as far as the build knows.
type buildVersion struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a tree with changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) build() buildVersion {
	v := buildVersion{Version: a.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if v.Version == "" {
		v.Version = "0.0.0-dev"
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say what this binary is",
		Example: `  margay version
  margay version --output json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := a.build()
			switch a.Format() {
			case output.JSON:
				return a.JSON(v)
			case output.Raw:
				return a.Raw([]byte(v.Version))
			case output.Text: // for a person, below
			}
			commit := ""
			if v.Commit != "" {
				commit = " " + v.Commit
				if v.Modified {
					commit += "+changes"
				}
			}
			return a.Line("margay %s%s (%s, %s)", v.Version, commit, v.Go, v.Platform)
		},
	}
}
