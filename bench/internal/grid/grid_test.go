// SPDX-License-Identifier: Apache-2.0

package grid

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// flat is a system without cliffs: what goes in or comes out costs the same everywhere.
func flat(p Point) Rates {
	share := 1.0 // of the subscribers that a record goes to
	switch p.Filter.Kind {
	case Exact, Prefix:
		share = 1 / float64(p.Keys)
	case Patterns:
		share = float64(min(p.Keys, p.Filter.Patterns)) / float64(p.Keys) / float64(p.Subscribers)
	}
	each := share * float64(p.Subscribers)
	in := 1e6 / (1 + each)
	return Rates{in, in * each}
}

func measure(t *testing.T, a Axes, f Measure) (map[Point]Rates, []Cliff) {
	t.Helper()
	rates, err := a.Run(t.Context(), f, func(Point, Rates, error) {})
	if err != nil {
		t.Fatal(err)
	}
	return rates, a.Cliffs(rates)
}

func TestWhatFollowsFromMoreWorkIsNoCliff(t *testing.T) {
	_, cliffs := measure(t, Full(), func(_ context.Context, p Point) (Rates, error) { return flat(p), nil })
	for _, c := range cliffs {
		t.Errorf("%s", c)
	}
}

func TestEveryCliffIsNamed(t *testing.T) {
	// Beyond a hundred patterns each costs as much as a delivery: somebody walks a list.
	rates, cliffs := measure(t, Full(), func(_ context.Context, p Point) (Rates, error) {
		r := flat(p)
		if p.Filter.Patterns > 100 {
			r.Publishes, r.Deliveries = r.Publishes/5, r.Deliveries/5
		}
		return r, nil
	})
	for _, c := range cliffs {
		if c.Low != rates[c.To] || c.To.Filter.Patterns <= 100 || c.From.Filter.Patterns > 100 || c.Fall <= Steep {
			t.Errorf("%s", c)
		}
	}
	want := Cliff{From: Point{1, Filter{Patterns, 100}, 1}, To: Point{1, Filter{Patterns, 1000}, 1}}
	found := false
	for _, c := range cliffs {
		found = found || c.From == want.From && c.To == want.To
	}
	if !found {
		t.Errorf("%d cliffs, and not the one at %s", len(cliffs), want.To)
	}
}

func TestACliffCountsFromTheHighSide(t *testing.T) {
	a := Axes{Keys: []int{1, 10}, Filters: []Filter{{Kind: None}}, Subscribers: []int{1}}
	_, cliffs := measure(t, a, func(_ context.Context, p Point) (Rates, error) {
		if p.Keys == 1 {
			return Rates{100, 100}, nil
		}
		return Rates{300, 250}, nil
	})
	if len(cliffs) != 1 || cliffs[0].From.Keys != 10 || cliffs[0].Fall != 2.5 {
		t.Errorf("%v", cliffs)
	}
}

func TestAMomentIsNoCliff(t *testing.T) {
	asked := map[Point]int{}
	slow := Point{100, Filter{Kind: None}, 10}
	_, cliffs := measure(t, Corner(), func(_ context.Context, p Point) (Rates, error) {
		r := flat(p)
		if asked[p]++; p == slow && asked[p] == 1 {
			r.Publishes, r.Deliveries = r.Publishes/10, r.Deliveries/10
		}
		return r, nil
	})
	if len(cliffs) != 0 || asked[slow] != 1+again {
		t.Errorf("%v; the slow cell was measured %d times", cliffs, asked[slow])
	}
	if far := (Point{1, Filter{Patterns, 1000}, 1}); asked[far] != 1 {
		t.Errorf("a cell far from it was measured %d times", asked[far])
	}
}

func TestWhatCannotBeIsNotMeasured(t *testing.T) {
	for _, p := range Full().Points() {
		if p.Filter.Patterns > MaxPatterns*p.Subscribers {
			t.Errorf("%s", p)
		}
	}
}

func TestFailedCellsAreToldAndLeftOut(t *testing.T) {
	broken := errors.New("no room")
	told := 0
	a := Corner()
	rates, err := a.Run(t.Context(), func(_ context.Context, p Point) (Rates, error) {
		if p.Keys == 1 {
			return Rates{}, broken
		}
		return flat(p), nil
	}, func(_ Point, _ Rates, err error) {
		if errors.Is(err, broken) {
			told++
		}
	})
	if err != nil || told != len(a.Points())/2 || len(rates) != told {
		t.Errorf("%d cells, told of %d, %v", len(rates), told, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	rates, err = a.Run(ctx, func(_ context.Context, p Point) (Rates, error) {
		cancel()
		return flat(p), nil
	}, func(Point, Rates, error) {})
	if !errors.Is(err, context.Canceled) || len(rates) != 0 {
		t.Errorf("interrupted: %v, %d cells", err, len(rates))
	}
}

func TestTables(t *testing.T) {
	a := Corner()
	rates, _ := measure(t, a, func(_ context.Context, p Point) (Rates, error) { return flat(p), nil })
	cliffs := []Cliff{{From: a.Points()[0], To: a.Points()[1], High: Rates{400, 400}, Low: Rates{100, 100}, Fall: 4}}
	var text, page bytes.Buffer
	if err := errors.Join(a.Print(&text, rates, cliffs), a.Page(&page, "About it.", rates, cliffs)); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), page.String()} {
		for _, want := range []string{"10 subscribers", "1,000 patterns", "500 k / 500 k", "One cliff", "4.0x from 1 key, no filter"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in\n%s", want, out)
			}
		}
	}
	if len(a.Cells(rates)) != len(rates) {
		t.Error("cells were lost")
	}
}
