package bullmq

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
)

// jsonText is the JSON text of a value as JavaScript would write it; a json.RawMessage stays as it is.
func jsonText(value any) (string, error) {
	if raw, isRaw := value.(json.RawMessage); isRaw {
		if !json.Valid(raw) {
			return "", invalid("not a JSON text: %.40q", raw)
		}
		return string(raw), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", invalid("not a JSON value: %v", err)
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}

// pack encodes a JSON value as MessagePack, byte for byte as BullMQ does: objects have 16-bit headers, and numbers beyond
// 32 bits, such as times, are doubles. A general encoder writes them otherwise, which the scripts read as well.
func pack(value any) ([]byte, error) {
	text, err := jsonText(value)
	if err != nil {
		return nil, err
	}
	return packNext(json.NewDecoder(strings.NewReader(text)))
}

func packNext(in *json.Decoder) ([]byte, error) {
	token, err := in.Token()
	if err != nil {
		return nil, err
	}
	switch value := token.(type) {
	case json.Delim:
		return packContainer(in, value == '{')
	case string:
		return append(packHead(len(value), 32, 0xa0, 0xd9, 0xda, 0xdb), value...), nil
	case float64:
		return packNumber(value), nil
	case bool:
		return []byte{map[bool]byte{true: 0xc3, false: 0xc2}[value]}, nil
	}
	return []byte{0xc0}, nil
}

func packContainer(in *json.Decoder, isObject bool) ([]byte, error) {
	var members []byte
	count := 0
	for ; in.More(); count++ {
		member, err := packNext(in)
		if err != nil {
			return nil, err
		}
		members = append(members, member...)
	}
	if _, err := in.Token(); err != nil { // the closing bracket
		return nil, err
	}
	if isObject {
		return append(packHead(count/2, 0, 0, 0, 0xde, 0xdf), members...), nil
	}
	return append(packHead(count, 16, 0x90, 0, 0xdc, 0xdd), members...), nil
}

// packHead is the first bytes of a text or container: one byte below `short`, else 8 (if there is such a kind), 16 or 32 bits.
func packHead(size, short int, fixed, kind8, kind16, kind32 byte) []byte {
	switch {
	case size < short:
		return []byte{fixed | byte(size)}
	case size < 1<<8 && kind8 != 0:
		return sized(kind8, uint64(size), 1)
	case size < 1<<16:
		return sized(kind16, uint64(size), 2)
	}
	return sized(kind32, uint64(size), 4)
}

func packNumber(value float64) []byte {
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
