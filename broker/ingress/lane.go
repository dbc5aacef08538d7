// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"margay.dev/broker/host"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// A publish frame leaves room before its batch for the frame of a delivery: the same buffer is what is
// stored and what subscribers are sent.
const _ = uint(wire.PublishHead - host.HeadRoom)

// lane serves the requests of one lane in order; publishes are answered as they commit.
type lane struct {
	conn    *conn
	lane    *session.Lane
	control bool

	publishes, reads granted
	lists            chan struct{} // held by who makes a large answer, see beside

	mu  sync.Mutex
	out []byte // answers of a commit under way
	ok  wire.Published
}

// serve reads frames until the lane ends.
func (l *lane) serve(ctx context.Context) {
	defer func() { _ = l.lane.Close() }() // the peer's half may be gone already
	for {
		h, err := l.lane.ReadHeader()
		if err != nil {
			l.broken(err)
			return
		}
		if err := l.frame(ctx, h); err != nil {
			if !errors.Is(err, errLaneDone) {
				l.broken(err)
			}
			return
		}
	}
}

var errLaneDone = errors.New("lane done")

// broken closes the connection when the peer does not speak the protocol: nothing behind a bad header can
// be trusted. A lane that simply ends concerns nobody else.
func (l *lane) broken(err error) {
	if errors.Is(err, code.Protocol) {
		l.conn.srv.metrics.ended[endProtocol].Inc()
		l.conn.srv.sampled(l.conn.log.Load(), slog.LevelWarn, "the peer broke the protocol", "error", err)
		l.conn.close(code.Protocol, err.Error())
	}
}

// frame handles one frame. An error ends the lane.
func (l *lane) frame(ctx context.Context, h wire.Header) error {
	authed := l.conn.claims.Load() != nil
	if !authed && h.Size > wire.MaxFrameBeforeAuth {
		return code.New(code.Protocol, "frame %s of %d bytes before authentication", h.Type, h.Size)
	}
	if err := h.Supported(); err != nil {
		return l.skip(h, err)
	}
	switch h.Type {
	case wire.TypeHello, wire.TypeAuth, wire.TypePing:
		if !l.control {
			return l.skip(h, code.New(code.BadRequest, "frame %s belongs on the control lane", h.Type))
		}
	case wire.TypeLookup, wire.TypeOffsets, wire.TypePublish, wire.TypeSubscribe, wire.TypeTrim, wire.TypeProducerState,
		wire.TypeCursorList, wire.TypeCursorDelete, wire.TypeSetLast, wire.TypeClearLast, wire.TypeGet, wire.TypeList, wire.TypeCount, wire.TypeWatch,
		wire.TypeConsume, wire.TypeGroupCommand, wire.TypeGroupQuery, wire.TypeBrowse:
		if !authed {
			return l.skip(h, code.New(code.Unauthenticated, "the connection has shown no valid token"))
		}
	default:
		return l.skip(h, code.New(code.Unsupported, "frame %s is not a request", h.Type))
	}
	if h.Type == wire.TypePublish {
		return l.publish(ctx, h)
	}
	if limit := maxBody(h.Type); h.Size > limit {
		return l.skip(h, code.New(code.TooLarge, "frame %s of %d bytes", h.Type, h.Size).With(code.DetailLimit, uint64(limit)))
	}
	if h.Type == wire.TypeGet {
		return l.get(ctx, h)
	}
	body, err := l.lane.AppendBody(nil)
	if err != nil {
		return err
	}
	switch h.Type {
	case wire.TypeHello:
		return reply(l, h, body, &wire.Hello{}, l.hello)
	case wire.TypeAuth:
		return reply(l, h, body, &wire.Auth{}, func(f *wire.Auth) (wire.Frame, error) { return frameOrNil(l.conn.authenticate(f.Token)) })
	case wire.TypePing:
		return reply(l, h, body, &wire.Ping{}, func(*wire.Ping) (wire.Frame, error) { return &wire.Pong{}, nil })
	case wire.TypeLookup:
		return reply(l, h, body, &wire.Lookup{}, l.lookup)
	case wire.TypeOffsets:
		return reply(l, h, body, &wire.Offsets{}, l.offsets)
	case wire.TypeTrim:
		return reply(l, h, body, &wire.Trim{}, func(f *wire.Trim) (wire.Frame, error) { return l.trim(ctx, f) })
	case wire.TypeProducerState:
		return reply(l, h, body, &wire.ProducerState{}, func(f *wire.ProducerState) (wire.Frame, error) { return l.producerState(ctx, f) })
	case wire.TypeCursorList:
		return reply(l, h, body, &wire.CursorList{}, func(f *wire.CursorList) (wire.Frame, error) { return l.cursorList(ctx, f) })
	case wire.TypeCursorDelete:
		return l.cursorDelete(h, body)
	case wire.TypeSetLast:
		return l.setLast(h, body)
	case wire.TypeClearLast:
		return l.clearLast(h, body)
	case wire.TypeList:
		return l.list(ctx, h, body)
	case wire.TypeCount:
		return l.count(ctx, h, body)
	case wire.TypeWatch:
		return l.watchLane(ctx, h, body)
	case wire.TypeConsume:
		return l.consume(ctx, h, body)
	case wire.TypeGroupCommand:
		return l.groupCommand(ctx, h, body)
	case wire.TypeGroupQuery:
		return l.groupQuery(ctx, h, body)
	case wire.TypeBrowse:
		return l.browse(ctx, h, body)
	default:
		return l.subscribe(ctx, h, body)
	}
}

// maxBody bounds the frames that are no publish: only those with many filters or a record are large.
func maxBody(t wire.Type) uint32 {
	switch t {
	case wire.TypeSubscribe:
		return wire.MaxFilters*(batch.MaxKey+8) + 64<<10
	case wire.TypeSetLast:
		return batch.MaxLast + 4<<10
	case wire.TypeGet:
		return wire.MaxGetKeys*(batch.MaxKey+8) + 4<<10
	case wire.TypeSettle:
		return maxSettleFrame
	case wire.TypeExtend:
		return wire.MaxSettleTokens*16 + 4<<10
	case wire.TypeGroupCommand:
		return wire.MaxCommandOffsets*8 + 16<<10
	case wire.TypeConsume, wire.TypeFlow:
		return 1 << 20 // some twelve bytes for each shard
	case wire.TypeBrowse:
		return batch.MaxKey + 2*batch.MaxHeaderBytes + 4<<10
	default:
		return wire.MaxFrameBeforeAuth
	}
}

// skip passes over a frame and answers it: the lane and the connection live on.
func (l *lane) skip(h wire.Header, err error) error {
	if e := l.lane.Skip(h.Size); e != nil {
		return e
	}
	return l.lane.Send(l.frameError(h.Corr, err))
}

// reply parses a request, asks for its answer and sends that or the error.
func reply[F wire.Frame](l *lane, h wire.Header, body []byte, f F, answer func(F) (wire.Frame, error)) error {
	if err := wire.ParseFrame(h, f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	a, err := answer(f)
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	return l.lane.SendFrame(h.Corr, a)
}

func frameOrNil[F wire.Frame](f F, err error) (wire.Frame, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

func badFrame(err error) error {
	if typed, ok := errors.AsType[*code.Error](err); ok {
		return typed
	}
	return code.New(code.BadRequest, "the frame cannot be read: %w", err)
}

// served is what this broker has built: a client must not ask for more.
const served = wire.AllFeatures

func (l *lane) hello(f *wire.Hello) (wire.Frame, error) {
	if f.VersionMin > wire.Version || f.VersionMax < wire.Version {
		return nil, code.New(code.Unsupported, "the client speaks versions %d to %d, this broker %d", f.VersionMin, f.VersionMax, wire.Version)
	}
	agreed := f.Features & served
	l.conn.features.Store(uint64(agreed))
	l.conn.hello.Store(true)
	cfg := &l.conn.srv.cfg
	lim := cfg.Batch.Effective()
	return &wire.HelloOk{
		Version: wire.Version, Features: agreed, Node: cfg.Node, Cluster: cfg.Cluster,
		Limits: wire.Limits{
			MaxFrame: uint32(cfg.MaxFrame), MaxBatch: uint32(lim.Batch), MaxRecord: uint32(lim.Record), MaxKey: uint32(lim.Key),
			MaxHeaderBytes: uint32(lim.HeaderBytes), MaxHeaders: uint16(lim.Headers), MaxInFlight: uint32(min(cfg.InFlightConnection, 1<<31)),
		},
		KeepAliveMs: uint32(cfg.KeepAlive.Milliseconds()), IdleMs: uint32(cfg.Idle.Milliseconds()),
	}, nil
}

// allow checks the caller's grant on a log.
func (l *lane) allow(rl *router.Log, found bool, action token.Action) error {
	return l.allowed(l.conn.claims.Load(), rl, found, action)
}

// allowed checks a grant on a log. A log of another tenant does not exist.
func (l *lane) allowed(claims *token.Claims, rl *router.Log, found bool, action token.Action) error {
	if found && claims.Allows(action, rl.Name) {
		return nil
	}
	if l.conn.srv.cfg.Table.Load().Version() == 0 { // nobody can say yet what there is
		return code.New(code.Opening, "the broker has not read the catalog yet").Retry(retryOpening)
	}
	info := infoOf(rl)
	if !found || info == nil || info.Tenant != claims.Tenant {
		return code.New(code.NotFound, "there is no such log")
	}
	return code.New(code.PermissionDenied, "the token does not grant %s on %s", action, rl.Name)
}

// infoOf is the catalog's description of a log; nil where there is none.
func infoOf(rl *router.Log) *control.Log {
	if rl == nil {
		return nil
	}
	info, _ := rl.Info.(*control.Log) // the host puts nothing else there
	return info
}

// mayLookup lets whoever may do anything with a log look it up.
func (l *lane) mayLookup(rl *router.Log, found bool) error {
	claims := l.conn.claims.Load()
	_, err := l.grantedOf(claims, rl, found, token.Write, token.Publish)
	if err == nil {
		return nil
	}
	if _, err := l.mayReadOf(claims, rl, found); err == nil {
		return nil
	}
	if l.allow(rl, found, token.Consume) == nil || l.allow(rl, found, token.Manage) == nil {
		return nil
	}
	return err
}

func (l *lane) lookup(f *wire.Lookup) (wire.Frame, error) {
	m := l.conn.srv.cfg.Table.Load()
	rl, found := m.ByName(f.Name)
	if err := l.mayLookup(rl, found); err != nil {
		return nil, err
	}
	out := logInfo(rl, wire.Features(l.conn.features.Load()))
	out.MapVersion = m.Version()
	return out, nil
}

// logInfo is what a client that agreed on these features is told of a log.
func logInfo(rl *router.Log, agreed wire.Features) *wire.LogInfo {
	info := infoOf(rl)
	out := &wire.LogInfo{
		Log: info.ID, Name: rl.Name, Ack: wireAck(info.Ack), MinAck: wireAck(info.MinAck), Fsync: wireFsync(info.Fsync),
		Storage: wire.StorageDisk,
	}
	if info.Storage == control.StorageMemory {
		out.Storage = wire.StorageMemory
	}
	if agreed.Has(wire.FeatureCaches) { // another client could not read the answer
		out.Keep, out.DefaultTTL = wire.KeepAll, uint64(info.TTL.Microseconds())
		switch {
		case info.Keep == control.KeepNewest:
			out.Keep = wire.KeepNewest
		case info.Keep == control.KeepUnsettled && agreed.Has(wire.FeatureQueues):
			out.Keep = wire.KeepUnsettled
		}
	}
	for _, s := range rl.Shards {
		out.Shards = append(out.Shards, wire.Route{Address: s.Address, Generation: s.Generation})
	}
	return out
}

func wireAck(s string) wire.Ack {
	switch s {
	case control.AckNone:
		return wire.AckNone
	case control.AckLeader:
		return wire.AckLeader
	}
	return wire.AckQuorum
}

func wireFsync(s string) wire.Fsync {
	switch s {
	case control.FsyncInterval:
		return wire.FsyncInterval
	case control.FsyncNever:
		return wire.FsyncNever
	}
	return wire.FsyncAlways
}

// led resolves a shard to the one this broker has open, or says why not.
func led(m *router.Map, id batch.LogID, n uint32) (*host.Shard, *code.Error) {
	r := m.Resolve(router.LogID(id), n)
	if s, ok := r.Shard.(*host.Shard); ok && r.Outcome == router.Local {
		return s, nil
	}
	if r.Outcome == router.Forward {
		e := code.New(code.NotLeader, "another node leads shard %d", n)
		e.Address, e.Generation = r.Address, r.Generation
		return nil, e
	}
	switch r.Reason {
	case router.UnknownLog:
		return nil, code.New(code.NotFound, "there is no such log")
	case router.NoSuchShard:
		return nil, code.New(code.NotFound, "the log has no shard %d", n)
	case router.Exhausted:
		return nil, code.New(code.TooMany, "shard %d is not open: %s", n, r.Fault).Retry(time.Second)
	case router.Quarantined:
		return nil, code.New(code.Quarantined, "shard %d stays closed: %s", n, r.Fault)
	case router.Opening:
		return nil, code.New(code.Opening, "shard %d is being opened", n).Retry(retryOpening)
	default:
		return nil, code.New(code.Unavailable, "nobody leads shard %d", n).Retry(retryOpening)
	}
}

func (l *lane) offsets(f *wire.Offsets) (wire.Frame, error) {
	m := l.conn.srv.cfg.Table.Load()
	rl, found := m.ByID(router.LogID(f.Log))
	if err := l.allow(rl, found, token.Subscribe); err != nil {
		return nil, err
	}
	s, refused := led(m, f.Log, f.Shard)
	if refused != nil {
		return nil, refused
	}
	v := s.View()
	return &wire.OffsetsOk{Shard: f.Shard, Generation: v.Generation, Earliest: v.Start.Offset, Latest: v.Ceiling, AppendTime: v.LastAppend}, nil
}
