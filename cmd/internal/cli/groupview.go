// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"margay.dev/client"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

// groupView is a group in JSON.
type groupView struct {
	Name      string              `json:"name"`
	ID        string              `json:"id"`
	Resets    uint32              `json:"resets"`
	Created   time.Time           `json:"created"`
	Paused    bool                `json:"paused"`
	Ready     uint64              `json:"ready"`
	InFlight  uint64              `json:"in_flight"`
	Delayed   uint64              `json:"delayed"`
	Dead      uint64              `json:"dead"`
	Exact     bool                `json:"exact"`
	Oldest    time.Time           `json:"oldest,omitzero"`
	Totals    groupTotalsView     `json:"totals"`
	Settings  groupSettingsView   `json:"settings"`
	Consumers []groupConsumerView `json:"consumers"`
	Shards    []groupShardView    `json:"shards"`
}

type groupTotalsView struct {
	Acked          uint64 `json:"acked"`
	Expired        uint64 `json:"expired"`
	Cancelled      uint64 `json:"cancelled"`
	Lost           uint64 `json:"lost"`
	DeadLettered   uint64 `json:"dead_lettered"`
	Redriven       uint64 `json:"redriven"`
	Discarded      uint64 `json:"discarded"`
	FailedAttempts uint64 `json:"failed_attempts"`
}

type groupSettingsView struct {
	AckWait           control.Duration   `json:"ack_wait"`
	MaxAttempts       int                `json:"max_attempts"` // 0: any number
	Backoff           []control.Duration `json:"backoff"`
	Order             string             `json:"order"`
	FairKeys          bool               `json:"fair_keys"`
	PriorityAge       control.Duration   `json:"priority_age"`
	DeadLetterExpired bool               `json:"dead_letter_expired"`
	MaxDeadLetters    int                `json:"max_dead_letters"`
}

type groupConsumerView struct {
	Name     string `json:"name"`
	InFlight int    `json:"in_flight"`
	Room     bool   `json:"room"`
}

type groupShardView struct {
	Shard    uint32 `json:"shard"`
	Earliest uint64 `json:"earliest"`
	Next     uint64 `json:"next"` // the lowest offset that is not settled
	Latest   uint64 `json:"latest"`
	Ready    uint64 `json:"ready"`
	InFlight uint64 `json:"in_flight"`
	Delayed  uint64 `json:"delayed"`
	Dead     uint64 `json:"dead"`
	Held     string `json:"held,omitempty"`
}

// held are words for what holds a group up in a shard.
func held(h client.Held) string {
	switch h {
	case client.HeldNot:
		return ""
	case client.HeldPaused:
		return "paused"
	case client.HeldRanges:
		return "settled in too many pieces"
	case client.HeldDeadLetters:
		return "too many dead letters"
	case client.HeldParked:
		return "too many wait to be tried again"
	case client.HeldOpening:
		return "opening"
	}
	return "held up"
}

func viewGroup(g *client.GroupInfo) groupView {
	t, c := &g.Totals, &g.Config
	v := groupView{
		Name: g.Name, ID: fmt.Sprintf("%016x", g.ID), Resets: g.Resets, Created: utc(g.Created), Paused: g.Paused,
		Ready: g.Ready, InFlight: g.InFlight, Delayed: g.Delayed, Dead: g.Dead, Exact: g.Exact, Oldest: utc(g.Oldest),
		Totals: groupTotalsView{
			Acked: t.Acked, Expired: t.Expired, Cancelled: t.Cancelled, Lost: t.Lost, DeadLettered: t.DeadLettered,
			Redriven: t.Redriven, Discarded: t.Discarded, FailedAttempts: t.FailedAttempts,
		},
		Settings: groupSettingsView{
			AckWait: control.Duration(c.AckWait), MaxAttempts: max(c.MaxAttempts, 0), Backoff: []control.Duration{}, Order: orderWord(c.OrderByKey),
			FairKeys: c.FairKeys, PriorityAge: control.Duration(c.PriorityAge), DeadLetterExpired: c.DeadLetterExpired,
			MaxDeadLetters: c.MaxDeadLetters,
		},
		Consumers: []groupConsumerView{}, Shards: []groupShardView{},
	}
	for _, d := range c.Backoff {
		v.Settings.Backoff = append(v.Settings.Backoff, control.Duration(d))
	}
	for _, c := range g.Consumers {
		v.Consumers = append(v.Consumers, groupConsumerView(c))
	}
	for _, s := range g.Shards {
		v.Shards = append(v.Shards, groupShardView{
			Shard: s.Shard, Earliest: s.Start, Next: s.Next, Latest: s.End, Ready: s.Ready, InFlight: s.InFlight,
			Delayed: s.Delayed, Dead: s.Dead, Held: held(s.Held),
		})
	}
	return v
}

func (a *app) listGroups(all []*client.GroupInfo) error {
	var rows [][]string
	for _, g := range all {
		if a.Format() != output.Text {
			if err := a.printGroup(g); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			g.Name, estimate(g.Ready, g.Exact), digits(g.InFlight), estimate(g.Delayed, g.Exact), digits(g.Dead), age(g.Oldest),
			strconv.Itoa(len(g.Consumers)), heldUp(g),
		})
	}
	if len(rows) == 0 {
		return nil
	}
	return a.Table([]string{"GROUP", "READY", "IN FLIGHT", "DELAYED", "DEAD", "OLDEST", "CONSUMERS", "HELD UP"}, rows)
}

// heldUp says what holds a group up, and in which shards when not in all.
func heldUp(g *client.GroupInfo) string {
	where := map[string][]string{}
	var order []string
	for _, s := range g.Shards {
		if why := held(s.Held); why != "" {
			if where[why] == nil {
				order = append(order, why)
			}
			where[why] = append(where[why], strconv.FormatUint(uint64(s.Shard), 10))
		}
	}
	if len(order) == 0 {
		return "-"
	}
	for i, why := range order {
		if len(where[why]) < len(g.Shards) {
			order[i] = why + " (shard " + strings.Join(where[why], ", ") + ")"
		}
	}
	return strings.Join(order, "; ")
}

func digits(n uint64) string { return strconv.FormatUint(n, 10) }

func estimate(n uint64, exact bool) string {
	if exact {
		return digits(n)
	}
	return "~" + digits(n)
}

func age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return control.Duration(max(time.Since(t), 0).Truncate(time.Second)).String()
}

// groupSummary is a group's settings in a line.
func groupSummary(g *client.GroupInfo) string {
	c := &g.Config
	words := []string{
		"ack wait " + control.Duration(c.AckWait).String(), attemptsWord(c.MaxAttempts) + " attempts", "backoff " + backoffWord(c.Backoff),
	}
	if c.OrderByKey {
		words = append(words, "in order of key")
	}
	if g.Paused {
		words = append(words, "paused")
	}
	return strings.Join(words, ", ")
}

func (a *app) printGroup(g *client.GroupInfo) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(viewGroup(g))
	case output.Raw:
		return a.Raw([]byte(g.Name))
	case output.Text: // for a person, below
	}
	c, t := &g.Config, &g.Totals
	expired := "settled"
	if c.DeadLetterExpired {
		expired = "dead letters"
	}
	rows := [][]string{
		{"group", g.Name},
		{"id", fmt.Sprintf("%016x", g.ID)},
		{"ack wait", control.Duration(c.AckWait).String()},
		{"attempts", attemptsWord(c.MaxAttempts)},
		{"backoff", backoffWord(c.Backoff)},
		{"order", orderWord(c.OrderByKey)},
		{"fair keys", strconv.FormatBool(c.FairKeys)},
		{"priority age", control.Duration(c.PriorityAge).String()},
		{"expired are", expired},
		{"dead letters", strconv.Itoa(c.MaxDeadLetters) + " a shard at most"},
		{"ready", estimate(g.Ready, g.Exact)},
		{"in flight", digits(g.InFlight)},
		{"delayed", estimate(g.Delayed, g.Exact)},
		{"dead", digits(g.Dead)},
		{"oldest", oldest(g.Oldest)},
		{"held up", heldUp(g)},
		{"so far", fmt.Sprintf("%d acked, %d expired, %d cancelled, %d lost; %d dead letters, %d redriven, %d discarded; %d failed attempts",
			t.Acked, t.Expired, t.Cancelled, t.Lost, t.DeadLettered, t.Redriven, t.Discarded, t.FailedAttempts)},
		{"created", g.Created.Local().Format(time.RFC3339)},
	}
	for _, s := range g.Shards {
		rows = append(rows, []string{
			"shard " + strconv.FormatUint(uint64(s.Shard), 10),
			fmt.Sprintf("settled below %d, of offsets %d to %d (exclusive)", s.Next, s.Start, s.End),
		})
	}
	for _, c := range g.Consumers {
		name := c.Name
		if name == "" {
			name = "(no name)"
		}
		rows = append(rows, []string{"consumer", fmt.Sprintf("%s: %d in flight, %s", output.Show([]byte(name)), c.InFlight, roomText(c.Room))})
	}
	return a.Table(nil, rows)
}

func oldest(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return age(t)
}

func roomText(room bool) string {
	if room {
		return "room for more"
	}
	return "as much as it may"
}
