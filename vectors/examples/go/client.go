// Package client takes the place of your own client: its MessagePack, scores and key names.
package client

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
)

// Pack writes a JSON text as MessagePack, as BullMQ does: objects have 16-bit headers and keep their order, and
// numbers beyond 32 bits are doubles.
func Pack(text []byte) []byte { return pack(json.NewDecoder(bytes.NewReader(text))) }

func pack(in *json.Decoder) []byte {
	token, err := in.Token()
	if err != nil {
		panic(err)
	}
	switch value := token.(type) {
	case json.Delim:
		var inside []byte
		count := 0
		for ; in.More(); count++ {
			inside = append(inside, pack(in)...)
		}
		in.Token() // the closing bracket
		if value == '{' {
			return append(sized(0xde, uint64(count/2), 2), inside...)
		} else if count < 16 {
			return append([]byte{0x90 | byte(count)}, inside...)
		}
		return append(sized(0xdc, uint64(count), 2), inside...)
	case string:
		if len(value) < 32 {
			return append([]byte{0xa0 | byte(len(value))}, value...)
		} else if len(value) < 256 {
			return append(sized(0xd9, uint64(len(value)), 1), value...)
		}
		return append(sized(0xda, uint64(len(value)), 2), value...)
	case float64:
		return number(value)
	case bool:
		return []byte{map[bool]byte{true: 0xc3, false: 0xc2}[value]}
	}
	return []byte{0xc0}
}

func number(value float64) []byte {
	whole := int64(value)
	switch {
	case value != math.Trunc(value) || value < -1<<31 || value >= 1<<32:
		return sized(0xcb, math.Float64bits(value), 8)
	case whole >= -32 && whole < 128:
		return []byte{byte(whole)}
	case whole >= 0 && whole < 1<<8:
		return sized(0xcc, uint64(whole), 1)
	case whole >= 0 && whole < 1<<16:
		return sized(0xcd, uint64(whole), 2)
	case whole >= 0:
		return sized(0xce, uint64(whole), 4)
	case whole >= -1<<7:
		return sized(0xd0, uint64(whole), 1)
	case whole >= -1<<15:
		return sized(0xd1, uint64(whole), 2)
	}
	return sized(0xd2, uint64(whole), 4)
}

func sized(kind byte, value uint64, width int) []byte {
	return append([]byte{kind}, binary.BigEndian.AppendUint64(nil, value)[8-width:]...)
}

// DelayedScore is the score of a job that is due at a time (Unix ms), after `before` others of the same ms.
func DelayedScore(dueMs int64, before int) float64 { return float64(dueMs*0x1000 + int64(before)) }

// PriorityScore is the score of a job with a priority; counter is the queue's key `pc`.
func PriorityScore(priority, counter int64) float64 { return float64(priority<<32 + counter) }

// AddKeys are the KEYS of the script addStandardJob.
func AddKeys(prefix, queue string) []string {
	var keys []string
	for _, name := range []string{"wait", "paused", "meta", "id", "completed", "delayed", "active", "events", "marker"} {
		keys = append(keys, prefix+":"+queue+":"+name)
	}
	return keys
}
