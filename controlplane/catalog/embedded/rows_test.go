// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"encoding/binary"
	"testing"

	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// A row that was written before a setting was there means its default.
func TestRowsOfBeforeASetting(t *testing.T) {
	row := append(binary.BigEndian.AppendUint64(nil, 7), `{"tenant":"t","namespace":"n","name":"s","preset":"stream","shards":2,"replicas":1,
		"ack":"quorum","min_ack":"none","fsync":"always","storage":"disk","created_us":1}`...)
	l, err := decodeLog(batch.NewLogID(), row)
	if err != nil || l.OnFull != control.OnFullRefuse || l.Keep != control.KeepAll || l.Version != 7 {
		t.Fatalf("%+v, %v", l, err)
	}
	if ps := l.Validate(); len(ps) > 0 {
		t.Errorf("%v", ps)
	}
}
