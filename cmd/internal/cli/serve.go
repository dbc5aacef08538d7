// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cluster/node"
	"margay.dev/cmd/internal/contexts"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/controlplane/catalog"
	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/wire/control"
)

const (
	defaultListen = "127.0.0.1:" + defaultPort
	defaultHTTP   = "127.0.0.1:" + defaultHTTPPort
	// localContext is the name under which a user's commands find the node.
	localContext = "local"
	// stopWithin bounds an orderly shutdown: service managers kill what takes long, at a moment of their
	// choosing.
	stopWithin = 3 * time.Second
)

type serveFlags struct {
	data, listen, http  string
	logLevel, logFormat string
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node: a broker and a control plane in one process",
		Long: `Run a node on a data directory. On a fresh one it makes its own CA, keys and API key, and writes
where it is and how to reach it to DATA/context.yaml and $XDG_CONFIG_HOME/margay/contexts/local.yaml,
which becomes the current context unless another is. Both are readable by their owner only.

SIGTERM or SIGINT stop it in order within 3 s: what was acknowledged is on the disk, subscribers learn
where to resume. A second signal ends it at once, which loses nothing acknowledged either.

Exit codes of serve:
  0  stopped in order by a signal
  1  failed while running, or did not stop within 3 s
  2  the command line or the environment is wrong; nothing was touched
  4  refused to start: the address or the data directory is in use, not accessible, another node's, or
     written by a newer release; the directory was not changed

Besides the common ones it reads MARGAY_DATA, MARGAY_LISTEN, MARGAY_HTTP, MARGAY_LOG_LEVEL and
MARGAY_LOG_FORMAT.`,
		Example: `  margay serve
  margay serve --data ./data --listen 127.0.0.1:7500 --http 127.0.0.1:7501`,
		Args:        cobra.NoArgs,
		Annotations: writes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", "", "data directory (default $XDG_DATA_HOME/margay)")
	flags.StringVar(&f.listen, "listen", defaultListen, "UDP address for clients; port 0 takes a free one")
	flags.StringVar(&f.http, "http", defaultHTTP, "TCP address of the control plane; port 0 takes a free one")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json, on standard error")
	fromEnvironment(flags, "data", "listen", "http", "log-level", "log-format")
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	complete(cmd, "log-format", "text", "json")
	return cmd
}

func (a *app) serve(ctx context.Context, f *serveFlags) error {
	logger, err := a.logger(f)
	if err != nil {
		return err
	}
	for flag, address := range map[string]string{"--listen": f.listen, "--http": f.http} {
		if err := checkAddress(address); err != nil {
			return exit.Misuse("%s %q: %w", flag, address, err)
		}
	}
	data := f.data
	if data == "" {
		if data, err = contexts.DataDir(a.Getenv); err != nil {
			return exit.Misuse("--data: %w", err)
		}
	}
	if data, err = filepath.Abs(data); err != nil {
		return exit.Misuse("--data: %w", err)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		ended <- node.Run(ctx, node.Config{
			Dir: data, Listen: f.listen, HTTP: f.http, Logger: logger, Version: a.build().Version,
			Ready: func(info node.Info) {
				if err := a.announce(info, data); err != nil {
					cancel(err)
				}
			},
		})
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		logger.Info("stopping")
		err = stopped(ended)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return errors.Join(cause, err)
	}
	if errors.Is(err, context.Canceled) {
		err = nil // the order to stop, handed back
	}
	return startFailure(err, data)
}

// checkAddress finds what no start would forgive before anything is touched.
func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("want HOST:PORT")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("want a port from 0 (any free one) to 65535")
	}
	return nil
}

func stopped(ended <-chan error) error {
	late := time.NewTimer(stopWithin)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return &exit.Error{
			Err:  fmt.Errorf("the node did not stop within %v, so it ends now", stopWithin),
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

func (a *app) logger(f *serveFlags) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, exit.Misuse("--log-level %q: want debug, info, warn or error", f.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(a.Streams.Err, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.Streams.Err, options)), nil
	}
	return nil, exit.Misuse("--log-format %q: want text or json", f.logFormat)
}

// serving is what `serve --output json` prints once it is ready.
type serving struct {
	Address string `json:"address"`
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

func (a *app) printServing(info node.Info, data, file, where, use string) error {
	address := scheme + info.Address
	switch a.Format() {
	case output.JSON:
		return a.JSON(serving{address, info.HTTP, data, file, info.Fresh, os.Getpid()})
	case output.Raw:
		return a.Raw([]byte(address))
	case output.Text: // for a person, below
	}
	margay := a.self()
	err := a.Line("margay serves at %s, control plane %s, data in %s", a.Bold(address), info.HTTP, data)
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
