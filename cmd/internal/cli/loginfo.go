// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

func (a *app) logInfoCommand(k collection) *cobra.Command {
	return &cobra.Command{
		Use:               "info NAME",
		Short:             "Show a " + k.preset + "'s settings, and which offsets each shard holds",
		Example:           k.examples("info "+k.name, "info shop/"+k.name+" --output json"),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeLogs(k),
		RunE: func(cmd *cobra.Command, args []string) error {
			var d control.LogDocument
			err := a.withLog(args[0], func(c *control.Client, tenant, namespace, name string) (err error) {
				if d, err = c.Logs(k.preset).Get(cmd.Context(), tenant, namespace, name); err != nil {
					return aboutLog(cmd.Context(), k, c, err, tenant, namespace, name)
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.printInfo(k, &d, a.offsets(cmd.Context(), &d))
		},
	}
}

// offsets asks the broker what each shard holds. The settings are worth showing without.
func (a *app) offsets(ctx context.Context, d *control.LogDocument) []client.Offsets {
	t, err := a.target()
	if err != nil || len(t.Addresses) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	c, err := a.connect(ctx, t)
	if err != nil {
		a.Warn("no offsets: %s", message(err))
		return nil
	}
	defer c.Close()
	all, err := c.Offsets(ctx, control.FullName(d.Tenant, d.Namespace, d.Name))
	if err != nil {
		a.Warn("no offsets: %s", message(err))
		return nil
	}
	return all
}

// infoView is a log and what it holds, in JSON.
type infoView struct {
	control.LogDocument

	Offsets []offsetsView `json:"offsets,omitempty"`
}

type offsetsView struct {
	Shard      uint32    `json:"shard"`
	Generation uint64    `json:"generation"`
	Earliest   uint64    `json:"earliest"`
	Latest     uint64    `json:"latest"` // of the next record
	AppendTime time.Time `json:"append_time,omitzero"`
}

func (a *app) printInfo(k collection, d *control.LogDocument, offsets []client.Offsets) error {
	if a.Format() == output.JSON {
		v := infoView{LogDocument: *d}
		for _, o := range offsets {
			v.Offsets = append(v.Offsets, offsetsView{o.Shard, o.Generation, o.Earliest, o.Latest, utc(o.AppendTime)})
		}
		return a.JSON(v)
	}
	if err := a.printLog(k, d); err != nil || a.Format() == output.Raw {
		return err
	}
	var rows [][]string
	for _, o := range offsets {
		last := "never"
		if !o.AppendTime.IsZero() {
			last = o.AppendTime.Local().Format(time.RFC3339)
		}
		rows = append(rows, []string{
			"shard " + strconv.FormatUint(uint64(o.Shard), 10),
			strconv.FormatUint(o.Latest-o.Earliest, 10) + " records",
			"offsets " + strconv.FormatUint(o.Earliest, 10) + " to " + strconv.FormatUint(o.Latest, 10) + " (exclusive)",
			"generation " + strconv.FormatUint(o.Generation, 10),
			"last append " + last,
		})
	}
	if len(rows) == 0 {
		return nil
	}
	return a.Table(nil, rows)
}

func (a *app) printLog(k collection, d *control.LogDocument) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(d)
	case output.Raw:
		return a.Raw([]byte(d.Name))
	case output.Text: // for a person, below
	}
	fsync := d.Fsync
	if d.FsyncInterval != nil {
		fsync += " (" + d.FsyncInterval.String() + ")"
	}
	segment := "default"
	if d.SegmentBytes > 0 {
		segment = control.FormatBytes(d.SegmentBytes)
	}
	rows := [][]string{
		{k.preset, control.FullName(d.Tenant, d.Namespace, d.Name)},
		{"id", d.ID},
		{"shards", strconv.Itoa(d.Shards)},
		{"replicas", strconv.Itoa(d.Replicas)},
		{"ack", d.Ack + " (at least " + d.MinAck + ")"},
		{"fsync", fsync},
		{"storage", d.Storage},
		{"keep", d.Keep},
	}
	if d.Keep == control.KeepNewest {
		rows = append(rows, []string{"max keys", maxKeys(d) + " a shard"}, []string{"ttl", ttl(d)})
	} else {
		rows = append(rows, []string{"max age", limit(d.MaxAge)}, []string{"max bytes", limitBytes(d.MaxBytes)}, []string{"on full", d.OnFull})
	}
	return a.Table(nil, append(rows,
		[]string{"dedup ids", "for " + d.DedupWindow.String()},
		[]string{"segments", segment},
		[]string{"created", d.CreatedAt.Local().Format(time.RFC3339)},
		[]string{"version", strconv.FormatUint(d.Version, 10)},
	))
}

// summary is a log in one line.
func summary(d *control.LogDocument) string {
	return strings.Join([]string{count(d.Shards, "shard"), "ack " + d.Ack, "fsync " + d.Fsync, "storage " + d.Storage, kept(d)}, ", ")
}

// kept says what becomes of records, in words.
func kept(d *control.LogDocument) string {
	words, age, size := "kept for good", "kept for ", "kept up to "
	if d.Keep == control.KeepUnsettled {
		words, age, size = "kept until settled", "kept until settled, at most ", "kept until settled, at most "
	}
	switch {
	case d.Keep == control.KeepNewest && d.TTL > 0:
		return "the newest of each key, for " + d.TTL.String() + " unless it says otherwise"
	case d.Keep == control.KeepNewest:
		return "the newest of each key"
	case d.Storage == control.StorageMemory && d.MaxAge == 0 && d.MaxBytes == 0:
		words = "the newest 48 MiB a shard, until the node stops"
	case d.MaxAge > 0 && d.MaxBytes > 0:
		words = age + limit(d.MaxAge) + " or up to " + limitBytes(d.MaxBytes) + " a shard"
	case d.MaxAge > 0:
		words = age + limit(d.MaxAge)
	case d.MaxBytes > 0:
		words = size + limitBytes(d.MaxBytes) + " a shard"
	}
	if d.OnFull == control.OnFullDropOldest {
		words += ", the oldest dropped when the disk is full"
	}
	return words
}

// count writes a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

func limit(d control.Duration) string {
	if d == 0 {
		return "no limit"
	}
	return d.String()
}

func limitBytes(n int64) string {
	if n == 0 {
		return "no limit"
	}
	return control.FormatBytes(n)
}

// maxKeys and ttl mean nothing where it is not the newest that are kept.
func maxKeys(d *control.LogDocument) string {
	if d.Keep != control.KeepNewest {
		return "-"
	}
	return strconv.FormatInt(d.MaxKeys, 10)
}

func ttl(d *control.LogDocument) string {
	if d.Keep != control.KeepNewest {
		return "-"
	}
	if d.TTL == 0 {
		return "none"
	}
	return d.TTL.String()
}
