// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cluster/node"
	"margay.dev/cmd/internal/config"
	"margay.dev/cmd/internal/contexts"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/controlplane/catalog"
	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/wire/control"
)

// localContext is the name under which a user's commands find the node.
const localContext = "local"

func (a *app) serveCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node: a broker and a control plane in one process",
		Long: `Run a node on a data directory. On a fresh one it makes its own CA, keys and API key, and writes
where it is and how to reach it to DATA/context.yaml and $XDG_CONFIG_HOME/margay/contexts/local.yaml,
which becomes the current context unless another is. Both are readable by their owner only.

Its configuration comes from a YAML file (--config or MARGAY_CONFIG), the environment (MARGAY_ and the
key in capitals: MARGAY_LOG_LEVEL), and flags, in this order. See ` + "`margay config --help`" + `.

SIGTERM or SIGINT stop it in order, within 3 s unless shutdown.grace is longer: what was acknowledged is
on the disk, subscribers learn where to resume. A second signal ends it at once, which loses nothing
acknowledged either. SIGHUP reads configuration and certificates again.

Exit codes of serve:
  0  stopped in order by a signal
  1  failed while running, or did not stop in time
  2  the command line, the environment or the file is wrong; nothing was touched
  4  refused to start: the address or the data directory is in use, not accessible, another node's, or
     written by a newer release; the directory was not changed`,
		Example: `  margay serve
  margay serve --config margay.yaml --data ./data`,
		Args:        cobra.NoArgs,
		Annotations: writes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			load, err := a.configuration(cmd, &f)
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), load)
		},
	}
	f.define(cmd)
	return cmd
}

func (a *app) serve(ctx context.Context, load func() (*config.Result, error)) error {
	r, err := load()
	if err != nil {
		return configFailure(err)
	}
	s := newServing(a, r, load)
	if len(r.Unknown) > 0 {
		s.log.Warn("variables that are no settings are ignored", "variables", r.Unknown)
	}
	hangup, release := a.hangups()
	defer release()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg := node.Config{
		Logger: s.log, Level: &s.level, Version: a.build().Version,
		Ready: func(info node.Info) {
			s.ready.Store(&info)
			if err := a.announce(info, r.Config.Data); err != nil {
				cancel(err)
			}
		},
	}
	r.Config.Apply(&cfg)
	defer runtime.KeepAlive(a.ballast())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx, cfg) }()
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-hangup:
			s.reload()
		case <-ctx.Done():
			s.log.Info("stopping")
			err = stopped(ended, r.Config.StopWithin())
			running = false
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return errors.Join(cause, err)
	}
	if errors.Is(err, context.Canceled) {
		err = nil // the order to stop, handed back
	}
	return startFailure(err, r.Config.Data)
}

// ballastBytes of address space count as live for the garbage collector.
const ballastBytes = 32 << 20

// ballast keeps the collector from running after every few megabytes. A node holds little that lives, and most of what it
// allocates is the bytes of publishes, which hold no pointers: at a hundred megabytes a second the collector would begin
// twenty times a second, which took a quarter of the throughput. Nobody touches these bytes, so that they take no memory; what
// may be garbage at a time, and so the memory of a busy node, grows by as much. Who sets GOGC or GOMEMLIMIT has decided
// otherwise.
func (a *app) ballast() []byte {
	if a.Getenv("GOGC") != "" || a.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, ballastBytes)
}

func stopped(ended <-chan error, within time.Duration) error {
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return &exit.Error{
			Err:  fmt.Errorf("the node did not stop within %v, so it ends now", within),
			Code: exit.Unknown,
			Data: "what was acknowledged is on the disk; the next start recovers it",
			Do:   "start it again; if this comes back, report it with the log",
		}
	}
}

// startFailure names the ordinary reasons for which a node does not start, each with its remedy.
func startFailure(err error, data string) error {
	refuse := func(do string) error {
		return &exit.Error{Err: err, Code: exit.Refused, Data: "the node does not run; its data was not changed", Do: do}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EADDRINUSE):
		return refuse("stop what listens there, or choose other ports with --listen and --http")
	case errors.Is(err, vfs.ErrLocked):
		return refuse("stop the process that serves " + data + ", or choose another directory with --data")
	case errors.Is(err, storage.ErrIncomplete):
		return refuse("put identity.json back from a copy, or choose another directory with --data")
	case errors.Is(err, catalog.ErrLocked):
		return refuse("stop the process that has the catalog open, or choose another directory with --data")
	case errors.Is(err, storage.ErrForeign), errors.Is(err, catalog.ErrForeign):
		return refuse("serve it as the node it belongs to, or choose another directory with --data")
	case errors.Is(err, storage.ErrNewerFormat), errors.Is(err, catalog.ErrNewer):
		return refuse("run the release that wrote it, or a newer one")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return refuse("give this user the right to write there, or choose another directory with --data")
	case errors.Is(err, syscall.ENOTDIR):
		return refuse("choose a directory with --data")
	}
	return &exit.Error{Err: err, Data: "what was acknowledged is on the disk; the next start recovers it"}
}

// served is what `serve --output json` prints once it is ready.
type served struct {
	Address string `json:"address"`
	TLS     string `json:"address_tls,omitempty"` // empty when TCP is off
	HTTP    string `json:"http"`
	Data    string `json:"data"`
	Context string `json:"context"` // a file
	Fresh   bool   `json:"fresh"`
	PID     int    `json:"pid"`
}

// announce writes the contexts and says where the node is. It shows no secret: those are in the files.
func (a *app) announce(info node.Info, data string) error {
	c := info.Context
	c.Name = localContext
	file := filepath.Join(data, "context.yaml")
	if err := control.SaveContext(file, &c); err != nil {
		return err
	}
	where, use := a.saveLocal(&c, file)
	if err := a.printServing(info, data, file, where, use); err != nil {
		return fmt.Errorf("write standard output: %w", err)
	}
	return a.Flush()
}

// saveLocal makes the node known to the user's commands. A machine without a home directory (a
// container) still serves: DATA/context.yaml says all there is to say.
func (a *app) saveLocal(c *control.Context, file string) (where, use string) {
	withFile := " --context " + quoteForShell(file)
	store, err := contexts.Locate(a.Getenv)
	if err == nil && othersContext(store, c) {
		a.Warn("the context %q is another node's and stays as it is; this node's is in %s", c.Name, file)
		return file, withFile
	}
	if err == nil {
		err = store.Save(c)
	}
	if err != nil {
		a.Warn("the context is in %s only: %v", file, err)
		return file, withFile
	}
	where = store.Path(c.Name)
	if current, err := store.Current(); err != nil || current != c.Name {
		return where, " --context " + c.Name
	}
	return where, ""
}

// othersContext says whether the context of this name belongs to another cluster, at another address: to replace it
// would send every later command to this node.
func othersContext(store contexts.Store, c *control.Context) bool {
	old, err := store.Load(c.Name)
	return err == nil && old.CA != c.CA && !slices.Equal(old.Addresses, c.Addresses)
}

func (a *app) printServing(info node.Info, data, file, where, use string) error {
	address, tls, both := scheme+info.Address, "", a.Bold(scheme+info.Address)
	if info.TCP {
		tls = schemeTLS + info.Address
		both += " and " + a.Bold(tls)
	}
	switch a.Format() {
	case output.JSON:
		return a.JSON(served{address, tls, info.HTTP, data, file, info.Fresh, os.Getpid()})
	case output.Raw:
		return a.Raw([]byte(address))
	case output.Text: // for a person, below
	}
	margay := a.self()
	err := a.Line("margay serves at %s, control plane %s, data in %s", both, info.HTTP, data)
	if err != nil || !info.Fresh {
		return err
	}
	return a.Line(`The context %q, which commands use, is in %s.
Paste into another terminal:

  %s stream create hello%s
  %s pub hello 'hello, world'%s
  %s sub hello --from earliest%s
`, localContext, where, margay, use, margay, use, margay, use)
}
