// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// deviceVariable names the context file for a process of this test binary that leaves a last record and waits to be killed.
const deviceVariable = "E2E_DEVICE"

// device is one that comes and goes.
type device struct {
	t    *testing.T
	p    *process.Process
	name string
	c    *client.Client
	s    *client.Subscription
}

func (d *device) comes(opts ...client.SubscribeOption) {
	d.t.Helper()
	d.c = d.p.Connect()
	var err error
	if d.s, err = d.c.Subscribe(within(d.t), "notices", append(opts, client.Durable(d.name))...); err != nil {
		d.t.Fatalf("%s: %v", d.name, err)
	}
}

// reads demands these records and no others before them, and stores that they were read.
func (d *device) reads(want ...string) {
	d.t.Helper()
	i := 0
	for rec, err := range d.s.Records(within(d.t)) {
		if err != nil {
			d.t.Fatalf("%s: after %d records: %v", d.name, i, err)
		}
		if rec.Gap != nil || string(rec.Value) != want[i] {
			d.t.Fatalf("%s: record %d is %s with gap %+v, want %s", d.name, i, rec.Value, rec.Gap, want[i])
		}
		if i++; i == len(want) {
			break
		}
	}
	if err := d.s.Commit(within(d.t)); err != nil {
		d.t.Fatalf("%s: %v", d.name, err)
	}
}

func (d *device) goes() { d.c.Close() }

// Two devices that are away both get the one record that was published meanwhile, once and in its order, though the broker
// was killed right behind the acknowledgement; so do they when it is killed while they are there.
func TestDevicesGetWhatTheyMissed(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "notices"})
	pub := p.Connect().Publisher("notices")
	a, b := &device{t: t, p: p, name: "phone"}, &device{t: t, p: p, name: "tablet"}
	for _, d := range []*device{a, b} {
		d.comes(client.FromLatest())
		if d.s.Resumed() {
			t.Errorf("%s was never here and resumed", d.name)
		}
	}
	publish(t, pub, "k", "both are here")
	a.reads("both are here")
	b.reads("both are here")
	for round := range 3 {
		a.goes()
		if round != 1 { // once the kill meets one that is there
			b.goes()
		}
		meanwhile, behind := fmt.Sprintf("meanwhile %d", round), fmt.Sprintf("behind it %d", round)
		publish(t, pub, "k", meanwhile)
		p.Kill()
		p.Start()
		publish(t, pub, "k", behind)
		for _, d := range []*device{a, b} {
			if d == a || round != 1 {
				d.comes(client.FromEarliest()) // its cursor says where, not this
				if !d.s.Resumed() {
					t.Errorf("%s was here before and is new", d.name)
				}
			}
			d.reads(meanwhile, behind)
		}
	}
}

// A device that is killed is announced, once, to all who listen; one that says goodbye is not.
func TestAKilledDeviceIsAnnounced(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "presence"})
	s, err := p.Connect().Subscribe(within(t), "presence", client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), deviceVariable+"="+p.ContextFile())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // ends with this process, and with it the device
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != attached+"\n" {
		t.Fatalf("the device said %q (%v)", line, err)
	}
	polite := p.Connect()
	if _, err := polite.LastRecord(within(t), "presence", record("", "polite"), time.Minute); err != nil {
		t.Fatal(err)
	}
	polite.Close()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for rec, err := range s.Records(within(t)) {
		if err != nil || string(rec.Value) != "gone" {
			t.Fatalf("announced was %q, %v", rec.Value, err)
		}
		break
	}
	if n := gauge(t, p, "margay_last_records_published_total"); n != 1 {
		t.Errorf("%v are counted", n)
	}
}

// deviceProcess leaves a last record, says so, and does nothing until its standard input ends.
func deviceProcess() {
	ctx := context.Background()
	err := func() error {
		k, err := control.LoadContext(os.Getenv(deviceVariable))
		if err != nil {
			return err
		}
		c, err := client.Connect(ctx, "", client.WithContext(*k))
		if err != nil {
			return err
		}
		_, err = c.LastRecord(ctx, "presence", record("", "gone"), time.Minute)
		return err
	}()
	if err != nil {
		fmt.Printf("%q\n", err)
		os.Exit(1)
	}
	fmt.Println(attached)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}
