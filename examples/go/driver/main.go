// Command driver puts the client behind the driver protocol of bullmq-conformance: JSON lines on stdin and stdout.
// main.go is the skeleton that `bullmq-conformance driver new go` writes; client.go calls the client.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
)

const maxLineBytes = 16 * 1024 * 1024

// message is a line of the kit: "hello" or "call".
type message struct {
	Type   string          `json:"type"`
	ID     int64           `json:"id"`
	Op     string          `json:"op"`
	Handle string          `json:"handle"`
	Args   json.RawMessage `json:"args"`
	NowMs  *int64          `json:"now_ms"`
}

// result is the answer to one call.
type result struct {
	Type   string   `json:"type"`
	ID     int64    `json:"id"`
	Status string   `json:"status"`
	Value  any      `json:"value,omitempty"`
	Error  *opError `json:"error,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// opError is the reason of a failed operation. Definite: it certainly did not happen.
type opError struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Definite bool   `json:"definite"`
}

func (e *opError) Error() string { return e.Message }

// unsupported is the error of an operation that the client does not have.
type unsupported string

func (reason unsupported) Error() string { return string(reason) }

// operation carries out one call and returns the fields of its answer.
type operation func(handle string, args json.RawMessage) (any, error)

// lines writes to stdout, one line at a time.
type lines struct {
	lock   sync.Mutex
	stdout *os.File
}

func (l *lines) emit(handle, name string, args any) {
	l.send(map[string]any{"type": "event", "handle": handle, "name": name, "args": args})
}

func (l *lines) send(line any) {
	encoded, err := json.Marshal(line)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot encode a line:", err)
		return
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	l.stdout.Write(append(encoded, '\n'))
}

// answer carries out one call. It runs in its own goroutine, so a slow call does not delay the others.
func (l *lines) answer(ops map[string]operation, call message) {
	answer := result{Type: "result", ID: call.ID}
	do, found := ops[call.Op]
	if !found {
		answer.Status, answer.Reason = "unsupported", "no operation "+call.Op
		l.send(answer)
		return
	}
	value, err := do(call.Handle, call.Args)
	var reason unsupported
	switch failure := failureOf(err); {
	case err == nil && value == nil:
		answer.Status, answer.Value = "ok", struct{}{}
	case err == nil:
		answer.Status, answer.Value = "ok", value
	case errors.As(err, &reason):
		answer.Status, answer.Reason = "unsupported", string(reason)
	case failure.Definite:
		answer.Status, answer.Error = "fail", failure
	default:
		answer.Status, answer.Error = "info", failure
	}
	l.send(answer)
}

func main() {
	// stdout is for the protocol only. Output of the client goes to stderr, which the kit keeps as the log.
	output := &lines{stdout: os.Stdout}
	os.Stdout = os.Stderr
	d := &driver{lines: output, handles: map[string]*handle{}}
	ops := map[string]operation{
		"open": d.open, "close": d.close, "reset": d.reset, "queue.add": d.add, "resolve": d.resolve,
	}
	names := make([]string, 0, len(ops))
	for name := range ops {
		names = append(names, name)
	}
	sort.Strings(names)

	input := bufio.NewScanner(os.Stdin)
	input.Buffer(make([]byte, 64*1024), maxLineBytes)
	for input.Scan() {
		var line message
		if err := json.Unmarshal(input.Bytes(), &line); err != nil {
			fmt.Fprintln(os.Stderr, "not a line of the protocol:", err)
			continue
		}
		switch line.Type {
		case "hello":
			output.send(map[string]any{
				"type": "ready", "protocol": 1, "client": client, "ops": names, "capabilities": capabilities,
			})
		case "call":
			d.startCall(line)
			go output.answer(ops, line)
		}
	}
	// The kit is gone: returning from main ends the process immediately, even with open connections.
}
