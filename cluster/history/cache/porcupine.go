// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"math"

	"github.com/anishathalye/porcupine"

	"margay.dev/cluster/history"
)

// porcupineSteps bound what porcupine is asked of a key: most are judged within some hundreds.
const porcupineSteps = 20_000

// over is a state, and whether all that was answered lies behind it: then what may never have happened did not.
type over struct {
	keyState

	over bool
}

// porcupine says whether the attempts fit an order, as a checker does that knows nothing of versions and times. It is slow
// where much of what is unknown overlaps: the model's steps bound it.
func (m *model) porcupine(attempts []*attempt) bool {
	last := 0
	var ops []porcupine.Operation
	for _, a := range m.inputs(attempts) {
		a.value = a.Value
		end := a.ended
		if a.ended == 0 || a.Outcome == history.Unknown {
			end = math.MaxInt
		}
		last = max(last, a.began, a.ended)
		ops = append(ops, porcupine.Operation{ClientId: a.id, Input: a, Call: int64(a.began), Return: int64(end)})
	}
	ops = append(ops, porcupine.Operation{Input: input{}, Call: int64(last) + 1, Return: int64(last) + 2})
	return porcupine.CheckOperations((&porcupine.NondeterministicModel{
		Init: func() []any { return []any{over{}} },
		Step: func(s, in, _ any) []any {
			was, a := s.(over), in.(input)
			switch {
			case a.attempt == nil:
				return []any{over{was.keyState, true}}
			case was.over && a.loose():
				return []any{was}
			}
			var out []any
			for _, after := range m.step(was.keyState, a) {
				out = append(out, over{after, was.over})
			}
			return out
		},
	}).ToModel(), ops)
}
