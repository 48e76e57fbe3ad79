package bullmq

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// read reads a file of the test vectors: calls that real BullMQ has made, recorded byte for byte.
func read(t *testing.T, name string, into any) {
	folder := os.Getenv("BULLMQ_VECTORS")
	if folder == "" {
		folder = "../../vectors"
	}
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("BULLMQ_VECTORS names the folder of the vectors: %v", err)
	}
}

func expect(t *testing.T, what string, wanted, got any) {
	t.Helper()
	if !reflect.DeepEqual(wanted, got) {
		t.Errorf("%s: BullMQ has %v, this client has %v", what, wanted, got)
	}
}

func TestScriptsAreThoseOfThePackage(t *testing.T) {
	var manifest struct {
		Scripts map[string]struct{ SHA1 string }
	}
	read(t, "manifest.json", &manifest)
	expect(t, "number of scripts", len(manifest.Scripts), len(scripts()))
	for name, recorded := range manifest.Scripts {
		if script := scripts()[name]; script == nil {
			t.Errorf("%s is missing: run `go generate`", name)
		} else {
			expect(t, name, recorded.SHA1, script.Hash())
		}
	}
}

func TestPacking(t *testing.T) {
	var file struct {
		Vectors []struct {
			Name, Hex string
			Value     json.RawMessage
		}
	}
	read(t, "packing.json", &file)
	for _, vector := range file.Vectors {
		packed, err := pack(vector.Value)
		expect(t, vector.Name, nil, err)
		expect(t, vector.Name, vector.Hex, hex.EncodeToString(packed))
	}
}

// argument is one argument of a recorded command: a text, or MessagePack as hexadecimal digits and decoded.
type argument struct {
	Text    *string
	Hex     string
	Msgpack any
}

// is compares it with what this client sends. The options of a job are a map here, so that the order of their members,
// which means nothing, is Go's.
func (a argument) is(got any) bool {
	packed, isPacked := got.([]byte)
	if a.Text != nil || !isPacked {
		return a.Text != nil && fmt.Sprint(got) == *a.Text
	}
	inOrderOfGo, err := pack(a.Msgpack)
	return hex.EncodeToString(packed) == a.Hex || err == nil && bytes.Equal(packed, inOrderOfGo)
}

// vector is one recorded call of BullMQ: the state before, the arguments, and the commands that it sends.
type vector struct {
	Name   string
	Client struct {
		Queue   string
		Options map[string]any
	}
	NowMs     int64 `json:"now_ms"`
	Arguments struct {
		Name          any
		Data          string `json:"data_raw"`
		Opts          JobOptions
		Job, Token    string
		Value         string `json:"value_raw"`
		Message       string
		Unrecoverable bool
		FetchNext     bool `json:"fetch_next"`
		Timestamp     int64
		Jobs, Tokens  []string
		Duration      int64 `json:"duration_ms"`
	}
	Before   map[string]struct{ Value json.RawMessage }
	Commands []struct {
		Script    string
		Keys      []string
		Arguments []argument
	}
}

func (v vector) keys() queueKeys { return queueKeys("bull:" + v.Client.Queue + ":") }

func (v vector) now() time.Time { return time.UnixMilli(v.NowMs) }

// worker is one with the vector's options; nil if this client does not have them.
func (v vector) worker() *Worker {
	options := DefaultWorkerOptions()
	options.Now = v.now
	for name, value := range v.Client.Options {
		number, _ := value.(float64)
		switch name {
		case "name":
			options.Name = value.(string)
		case "removeOnComplete":
			options.RemoveOnComplete = value
		case "removeOnFail":
			options.RemoveOnFail = value
		case "maxStalledCount":
			options.MaxStalledCount = int(number)
		case "lockDuration":
			options.LockDuration = time.Duration(number) * time.Millisecond
		case "stalledInterval":
			options.StalledInterval = time.Duration(number) * time.Millisecond
		default: // limiter, metrics
			return nil
		}
	}
	return &Worker{settings: settings{keys: v.keys(), options: options}}
}

// compare compares a call with the recorded one.
func (v vector) compare(t *testing.T, command int, got scriptCall, err error) {
	t.Helper()
	recorded := v.Commands[command]
	expect(t, v.Name, nil, err)
	expect(t, v.Name, recorded.Script, got.script)
	expect(t, v.Name, recorded.Keys, got.keys)
	if len(recorded.Arguments) != len(got.arguments) {
		t.Errorf("%s: BullMQ sends %d arguments, this client %d", v.Name, len(recorded.Arguments), len(got.arguments))
		return
	}
	for i, wanted := range recorded.Arguments {
		if !wanted.is(got.arguments[i]) {
			t.Errorf("%s: argument %d is not %+v but %q", v.Name, i+1, wanted, got.arguments[i])
		}
	}
}

func TestAddingAJob(t *testing.T) {
	var file struct{ Vectors []vector }
	read(t, "calls/queue.add.json", &file)
	for _, vector := range file.Vectors {
		name, isText := vector.Arguments.Name.(string)
		if vector.Arguments.Opts["repeat"] != nil || !isText {
			continue // this client has no schedulers, and a name is a text by its type
		}
		defaults, _ := vector.Client.Options["defaultJobOptions"].(map[string]any)
		queue := &Queue{options: QueueOptions{DefaultJobOptions: defaults, Now: vector.now}, keys: vector.keys()}
		add, err := queue.addCall(name, vector.Arguments.Data, vector.Arguments.Opts)
		var refused *InvalidError
		if len(vector.Commands) > 0 {
			vector.compare(t, 0, add, err)
		} else if !errors.As(err, &refused) {
			t.Errorf("%s: BullMQ refuses it, this client does not", vector.Name)
		}
	}
}

// workerCalls are the calls of a worker by the operation of the vectors that record them.
var workerCalls = map[string]func(*Worker, *Job, vector) (scriptCall, error){
	"worker.getNextJob":      func(w *Worker, _ *Job, v vector) (scriptCall, error) { return w.claim(v.Arguments.Token) },
	"worker.moveToWait":      func(w *Worker, job *Job, _ vector) (scriptCall, error) { return w.giveBack(job), nil },
	"worker.checkStalled":    func(w *Worker, _ *Job, _ vector) (scriptCall, error) { return w.checkStalled(), nil },
	"worker.moveToDelayed":   delayUntil,
	"worker.moveToCompleted": complete,
	"worker.moveToFailed":    fail,
	"worker.moveToWaitingChildren": func(w *Worker, job *Job, _ vector) (scriptCall, error) {
		return w.waitForChildren(job), nil
	},
	"worker.extendLocks": func(w *Worker, _ *Job, v vector) (scriptCall, error) {
		return w.extendLocks(v.Arguments.Jobs, v.Arguments.Tokens, time.Duration(v.Arguments.Duration)*time.Millisecond)
	},
}

func delayUntil(w *Worker, job *Job, v vector) (scriptCall, error) {
	return w.delay(job, float64(max(v.Arguments.Timestamp-v.NowMs, 0)), "1", ""), nil
}

func complete(w *Worker, job *Job, v vector) (scriptCall, error) {
	return w.finish(job, completed(v.Arguments.Value), v.Arguments.FetchNext)
}

func fail(w *Worker, job *Job, v vector) (scriptCall, error) {
	cause := errors.New(v.Arguments.Message)
	if v.Arguments.Unrecoverable {
		cause = Unrecoverable(v.Arguments.Message)
	}
	return w.failing(job, cause, v.Arguments.FetchNext)
}

func TestCallsOfAWorker(t *testing.T) {
	for operation, call := range workerCalls {
		var file struct{ Vectors []vector }
		read(t, "calls/"+operation+".json", &file)
		compared := 0
		for _, vector := range file.Vectors {
			worker := vector.worker()
			if worker == nil || len(vector.Commands) == 0 || vector.Commands[0].Script == "" {
				continue // options that this client does not have, or a call that BullMQ refuses
			}
			sent, err := call(worker, vector.job(t, worker, vector.Arguments.Job), vector)
			vector.compare(t, 0, sent, err)
			compared++
			if len(vector.Commands) > 1 && vector.Commands[1].Script == "updateJobScheduler" {
				id := strings.TrimPrefix(vector.Commands[1].Keys[10], string(vector.keys()))
				sent, err = worker.following(vector.job(t, worker, id))
				vector.compare(t, 1, sent, err)
			}
		}
		if compared == 0 {
			t.Errorf("no vector of %s was compared", operation)
		}
	}
}

// job reads a job from its hash before the call.
func (v vector) job(t *testing.T, worker *Worker, id string) *Job {
	fields := map[string]string{}
	if hash := v.Before[string(v.keys())+id]; hash.Value != nil {
		_ = json.Unmarshal(hash.Value, &fields)
	}
	job, err := readJob(worker, id, v.Arguments.Token, fields)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	return job
}
