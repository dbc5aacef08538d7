// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"margay.dev/bench/peers/peer"
)

// modeAlways is the only one: etcd answers when its log is flushed. (unsafe-no-fsync is not an option that anybody runs.)
const modeAlways = "always"

const startTimeout = time.Minute

func serve(_ context.Context, o peer.ServeOptions) (*peer.Server, error) {
	e, err := embed.StartEtcd(config(o))
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	stop := func() error {
		e.Close()
		return nil
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return nil, errors.Join(fmt.Errorf("start: %w", err), stop())
	case <-time.After(startTimeout):
		return nil, errors.Join(fmt.Errorf("start: not ready after %v", startTimeout), stop())
	}
	return &peer.Server{Addr: e.Clients[0].Addr().String(), Ended: e.Server.StopNotify(), Stop: stop}, nil
}

func config(o peer.ServeOptions) *embed.Config {
	c := embed.NewConfig()
	c.Name = "peer"
	c.Dir = filepath.Join(o.Dir, "etcd") // etcd insists on its permissions
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: o.Addr}}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}} // nobody will come
	c.AdvertisePeerUrls = c.ListenPeerUrls
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.LogLevel = "panic" // a stop as it should be is an error to it
	c.EnableGRPCGateway = false
	c.QuotaBackendBytes = 8 << 30 // the default 2 GiB would end a long run
	// A put that took long is not worth a line in the middle of a run.
	c.WarningApplyDuration, c.WarningUnaryRequestDuration = time.Minute, time.Minute
	return c
}
