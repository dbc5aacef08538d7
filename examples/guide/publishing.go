// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"
	"fmt"

	"margay.dev/client"
)

func together(ctx context.Context, p *client.Publisher, order string, lines [][]byte) error {
	for n, line := range lines {
		rec := client.Record{
			Key:      fmt.Appendf(nil, "%s/line/%d", order, n),
			ShardKey: []byte(order),
			Value:    line,
		}
		if _, err := p.Publish(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

func compareAndSet(ctx context.Context, p *client.Publisher) error {
	rec := client.Record{Key: []byte("account/7"), Value: []byte("10")}
	ack, err := p.Publish(ctx, rec, client.IfAbsent())
	if err != nil {
		return err
	}
	rec.Value = []byte("11")
	_, err = p.Publish(ctx, rec, client.IfVersion(ack.Version()))
	if version, _, ok := client.CurrentVersion(err); ok {
		return fmt.Errorf("somebody else was here: account/7 has version %d", version)
	}
	return err
}

func once(ctx context.Context, p *client.Publisher) error {
	rec := client.Record{Key: []byte("order-42"), Value: []byte("paid"), DedupID: "payment/8c1f"}
	ack, err := p.Publish(ctx, rec)
	if err != nil {
		return err
	}
	if ack.Duplicate {
		fmt.Println("it was there already, at offset", ack.Offset)
	}
	return nil
}

func importLines(ctx context.Context, c *client.Client, lines [][]byte) error {
	p := c.Publisher("readings", client.ProducerName("import/meters"))
	last, err := p.Sequences(ctx)
	if err != nil {
		return err
	}
	for i, line := range lines {
		n := uint64(i + 1) // the first is 1
		rec := client.Record{Value: line}
		shard, err := p.ShardOf(ctx, rec, client.Sequence(n))
		if err != nil {
			return err
		}
		if n <= last[shard] {
			continue // it is there
		}
		p.PublishAsync(ctx, rec, client.Sequence(n))
	}
	return p.Flush(ctx)
}
