// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"
)

// Weather is how a network treats packets. The zero value is a good one: each arrives at once, once, in order.
type Weather struct {
	Delay     time.Duration // of each packet
	Jitter    time.Duration // up to which more is added; packets overtake each other with it
	Loss      float64       // share of packets that never arrive
	Duplicate float64       // share that arrives twice, the second one up to a second later
}

// Network carries the packets between hosts, and connections of streams.
type Network struct {
	mu        sync.Mutex
	rng       *rand.Rand
	weather   Weather
	cuts      map[cut]bool
	hosts     map[netip.AddrPort]*host
	listeners map[string]*listener
	closed    bool
	running   sync.WaitGroup

	lastHost, lastPort uint16
}

// cut is a direction in which nothing gets through.
type cut struct{ from, to netip.Addr }

func newNetwork(rng *rand.Rand) *Network {
	return &Network{
		rng: rng, cuts: map[cut]bool{}, hosts: map[netip.AddrPort]*host{}, listeners: map[string]*listener{},
		weather: Weather{Delay: 5 * time.Millisecond},
	}
}

// SetWeather changes how packets are treated from now on.
func (n *Network) SetWeather(w Weather) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather = w
}

// Cut lets nothing through from one address to another, until Heal. The zero address stands for every one.
func (n *Network) Cut(from, to netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[cut{from, to}] = true
}

// CutOff separates a host from everybody, in both directions.
func (n *Network) CutOff(at netip.Addr) {
	n.Cut(at, netip.Addr{})
	n.Cut(netip.Addr{}, at)
}

// Heal ends every cut.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// isCut is called with mu held.
func (n *Network) isCut(from, to netip.Addr) bool {
	return n.cuts[cut{from, to}] || n.cuts[cut{from, netip.Addr{}}] || n.cuts[cut{netip.Addr{}, to}]
}

// host is a socket and the packets that are on their way to it.
type host struct {
	conn *simnet.SimConn

	mu     sync.Mutex
	queue  queue
	count  uint64
	wake   chan struct{}
	ended  chan struct{}
	ending sync.Once
}

// Socket opens a UDP socket. A later one at the same address takes its place, as a new process on a host does.
func (n *Network) Socket(at netip.AddrPort) net.PacketConn {
	h := &host{wake: make(chan struct{}, 1), ended: make(chan struct{})}
	addr := net.UDPAddrFromAddrPort(at)
	n.mu.Lock()
	defer n.mu.Unlock()
	h.conn = simnet.NewBlockingSimConn(addr, router{n, h})
	if n.closed {
		h.end()
		return &socket{h.conn, h}
	}
	n.hosts[at] = h
	n.running.Go(h.run)
	return &socket{h.conn, h}
}

// NewHost returns the address of a host that nobody has yet.
func (n *Network) NewHost() netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastHost++
	return netip.AddrFrom4([4]byte{10, 1, byte(n.lastHost >> 8), byte(n.lastHost)})
}

// ClientSocket opens a socket at a port of a host that is free.
func (n *Network) ClientSocket(at netip.Addr) net.PacketConn {
	n.mu.Lock()
	n.lastPort++
	port := 1024 + n.lastPort%60_000
	n.mu.Unlock()
	return n.Socket(netip.AddrPortFrom(at, port))
}

// socket ends its host when it is closed.
type socket struct {
	*simnet.SimConn
	host *host
}

func (s *socket) Close() error {
	s.host.end()
	return s.SimConn.Close()
}

// Silence takes away whatever is at an address without a word: what it sends from now on goes nowhere, and it does not know.
// The returned function ends its socket, which it notices.
func (n *Network) Silence(at netip.AddrPort) (end func()) {
	n.mu.Lock()
	h := n.hosts[at]
	delete(n.hosts, at)
	n.mu.Unlock()
	if h == nil {
		return func() {}
	}
	return h.end
}

// router is a host's way into the network.
type router struct {
	network *Network
	host    *host
}

// AddNode implements simnet.Router. Hosts are added by Socket.
func (router) AddNode(net.Addr, simnet.PacketReceiver) {}

// SendPacket implements simnet.Router. A packet that is lost is no error: its sender cannot know.
func (r router) SendPacket(p simnet.Packet) error {
	from, to, err := ends(p)
	if err != nil {
		return err
	}
	n := r.network
	n.mu.Lock()
	defer n.mu.Unlock()
	w := &n.weather
	target := n.hosts[to]
	if n.hosts[from] != r.host || target == nil || n.isCut(from.Addr(), to.Addr()) || n.rng.Float64() < w.Loss {
		return nil
	}
	now := time.Now()
	delay := w.Delay
	if w.Jitter > 0 {
		delay += time.Duration(n.rng.Int64N(int64(w.Jitter)))
	}
	target.add(p, now.Add(delay))
	if n.rng.Float64() < w.Duplicate {
		target.add(p, now.Add(delay+time.Duration(n.rng.Int64N(int64(time.Second)))))
	}
	return nil
}

func ends(p simnet.Packet) (from, to netip.AddrPort, err error) {
	f, ok1 := p.From.(*net.UDPAddr)
	t, ok2 := p.To.(*net.UDPAddr)
	if !ok1 || !ok2 {
		return from, to, fmt.Errorf("packet from %v to %v: want UDP addresses", p.From, p.To)
	}
	return unmapped(f.AddrPort()), unmapped(t.AddrPort()), nil
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

func (h *host) end() { h.ending.Do(func() { close(h.ended); _ = h.conn.Close() }) }

func (h *host) add(p simnet.Packet, at time.Time) {
	h.mu.Lock()
	h.count++
	heap.Push(&h.queue, arrival{p, at, h.count})
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// next takes the packet that is due, or says how long it is until one is.
func (h *host) next() (p simnet.Packet, due bool, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		return p, false, 24 * time.Hour
	}
	if wait = time.Until(h.queue[0].at); wait > 0 {
		return p, false, wait
	}
	return heap.Pop(&h.queue).(arrival).packet, true, 0
}

// run hands over packets, each at its time and those of one instant in the order in which they were sent.
func (h *host) run() {
	for {
		p, due, wait := h.next()
		if due {
			h.conn.RecvPacket(p)
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-h.wake:
		case <-h.ended:
			t.Stop()
			return
		}
		t.Stop()
	}
}

type arrival struct {
	packet simnet.Packet
	at     time.Time
	order  uint64
}

// queue is a heap of arrivals, the next one first.
type queue []arrival

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	if c := q[i].at.Compare(q[j].at); c != 0 {
		return c < 0
	}
	return q[i].order < q[j].order
}
func (q *queue) Push(x any) { *q = append(*q, x.(arrival)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

func (n *Network) close() {
	n.mu.Lock()
	n.closed = true
	hosts := n.hosts
	n.hosts = nil
	n.mu.Unlock()
	for _, h := range hosts {
		h.end()
	}
	n.running.Wait()
}

// ListenPacket implements node.Sockets.
func (n *Network) ListenPacket(_ context.Context, _, address string) (net.PacketConn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", address, err)
	}
	return n.Socket(at), nil
}

var errRefused = errors.New("connection refused")
