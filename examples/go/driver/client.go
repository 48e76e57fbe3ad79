package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	bullmq "example.com/bullmq"
	"github.com/redis/go-redis/v9"
)

var (
	client = map[string]any{
		"name": "bullmq-go-example", "language": "go", "version": strings.Split(bullmq.Version, ":")[1], "targets": "5.62.0",
		"packages": map[string]string{"go-redis": redis.Version()},
	}
	capabilities = []string{"clock", "managed-worker", "raw-data"}
)

// driver holds the open queues and workers by the name that the kit gave them.
type driver struct {
	*lines
	lock    sync.Mutex
	handles map[string]*handle
	frozen  atomic.Int64 // the client's clock (Unix ms) while the kit has stopped it, else 0
}

// handle is one object of the client.
type handle struct {
	queue  *bullmq.Queue
	worker *bullmq.Worker
	asked  map[string][]chan outcome // jobs of processor `ask` that wait for `resolve`, the oldest first
}

type openArgs struct {
	Role          string `json:"role"`
	Queue         string `json:"queue"`
	Prefix        string `json:"prefix"`
	Processor     string `json:"processor"`
	ProcessorArgs struct {
		Ms      float64           `json:"ms"`
		Times   int               `json:"times"`
		Message string            `json:"message"`
		Values  []json.RawMessage `json:"values"`
	} `json:"processor_args"`
	Redis struct {
		Mode     string   `json:"mode"`
		Nodes    []string `json:"nodes"`
		DB       int      `json:"db"`
		Username string   `json:"username"`
		Password string   `json:"password"`
		TLS      bool     `json:"tls"`
	} `json:"redis"`
	Options map[string]json.RawMessage `json:"options"`
}

// outcome is how `resolve` ends a job.
type outcome struct {
	Job     string  `json:"job"`
	Outcome string  `json:"outcome"`
	Value   *string `json:"value_raw"`
	Message string  `json:"message"`
	Ms      float64 `json:"ms"`
}

func (d *driver) now() time.Time {
	if frozen := d.frozen.Load(); frozen != 0 {
		return time.UnixMilli(frozen)
	}
	return time.Now()
}

// startCall runs in the order of the lines. A worker that is to be closed takes no more jobs from here on: otherwise the
// kit could end its current job first, and the worker would take another one.
func (d *driver) startCall(call message) {
	if call.NowMs != nil {
		d.frozen.Store(*call.NowMs)
	}
	if opened, err := d.named(call.Handle); call.Op == "close" && err == nil && opened.worker != nil {
		opened.worker.Stop()
	}
}

func (d *driver) open(name string, raw json.RawMessage) (any, error) {
	var args openArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	if args.Redis.Mode != "standalone" || args.Redis.TLS {
		return nil, unsupported("redis: only one server without TLS")
	}
	connection := &redis.Options{
		Addr: args.Redis.Nodes[0], DB: args.Redis.DB, Username: args.Redis.Username, Password: args.Redis.Password,
	}
	opened := &handle{asked: map[string][]chan outcome{}}
	var err error
	switch args.Role {
	case "queue":
		opened.queue, err = d.openQueue(args, connection)
	case "worker":
		opened.worker, err = d.openWorker(name, opened, args, connection)
	default:
		return nil, unsupported("role " + args.Role)
	}
	if err != nil {
		return nil, err
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	d.handles[name] = opened
	return nil, nil
}

func (d *driver) openQueue(args openArgs, connection *redis.Options) (*bullmq.Queue, error) {
	options := bullmq.QueueOptions{Redis: connection, Prefix: args.Prefix, Now: d.now}
	var streams struct {
		Events struct {
			MaxLen int `json:"maxLen"`
		} `json:"events"`
	}
	if err := options_(args.Options, map[string]any{
		"defaultJobOptions": &options.DefaultJobOptions, "skipMetasUpdate": &options.SkipMeta, "streams": &streams,
	}); err != nil {
		return nil, err
	}
	options.MaxEvents = streams.Events.MaxLen
	return bullmq.NewQueue(context.Background(), args.Queue, options)
}

func (d *driver) openWorker(name string, opened *handle, args openArgs, connection *redis.Options) (*bullmq.Worker, error) {
	process := d.processor(name, opened, args)
	if process == nil {
		return nil, unsupported("processor " + args.Processor)
	}
	options := bullmq.DefaultWorkerOptions()
	options.Redis, options.Prefix, options.Now = connection, args.Prefix, d.now
	options.OnEvent = func(event bullmq.Event) {
		switch {
		case event.Name == "error":
			d.emit(name, "error", map[string]any{"message": event.Err.Error()})
		case event.Job != "":
			d.emit(name, event.Name, map[string]any{"job": event.Job})
		default:
			d.emit(name, event.Name, struct{}{})
		}
	}
	autorun := true
	if err := options_(args.Options, map[string]any{
		"name": &options.Name, "concurrency": &options.Concurrency, "autorun": &autorun,
		"lockDuration": &ms{&options.LockDuration, 1}, "lockRenewTime": &ms{&options.LockRenewTime, 1},
		"stalledInterval": &ms{&options.StalledInterval, 1}, "drainDelay": &ms{&options.DrainDelay, 1000},
		"runRetryDelay":   &ms{&options.RunRetryDelay, 1},
		"maxStalledCount": &options.MaxStalledCount, "maxStartedAttempts": &options.MaxStartedAttempts,
		"removeOnComplete": &options.RemoveOnComplete, "removeOnFail": &options.RemoveOnFail,
		"skipStalledCheck": &options.SkipStalledCheck, "skipLockRenewal": &options.SkipLockRenewal,
	}); err != nil {
		return nil, err
	}
	worker, err := bullmq.NewWorker(context.Background(), args.Queue, process, options)
	if err == nil && autorun {
		go worker.Run()
	}
	return worker, err
}

// ms is an option of time: a number of `unit` milliseconds.
type ms struct {
	into *time.Duration
	unit float64
}

func (option *ms) UnmarshalJSON(text []byte) error {
	number, err := strconv.ParseFloat(string(text), 64)
	*option.into = time.Duration(number * option.unit * float64(time.Millisecond))
	return err
}

// options_ reads BullMQ's options into the client's. An option that the client does not have is unsupported.
func options_(given map[string]json.RawMessage, known map[string]any) error {
	for name, value := range given {
		into, isKnown := known[name]
		if !isKnown {
			return unsupported("the option " + name)
		}
		if err := json.Unmarshal(value, into); err != nil && string(value) != "null" {
			return &bullmq.InvalidError{Reason: fmt.Sprintf("%s: %v", name, err)}
		}
	}
	return nil
}

func (d *driver) add(name string, raw json.RawMessage) (any, error) {
	var args struct {
		Name string            `json:"name"`
		Data *string           `json:"data_raw"`
		Opts bullmq.JobOptions `json:"opts"`
	}
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	opened, err := d.named(name)
	if err != nil || opened.queue == nil {
		return nil, errors.Join(err, fmt.Errorf("%s is not a queue", name))
	}
	var data any
	if args.Data != nil {
		data = json.RawMessage(*args.Data)
	}
	id, err := opened.queue.Add(context.Background(), args.Name, data, args.Opts)
	if lacking := (*bullmq.UnsupportedError)(nil); errors.As(err, &lacking) {
		return nil, unsupported(lacking.Part)
	}
	return map[string]string{"id": id}, err
}

func (d *driver) close(name string, raw json.RawMessage) (any, error) {
	var args struct {
		Force bool `json:"force"`
	}
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	opened, err := d.named(name)
	if err != nil {
		return nil, err
	}
	err = opened.close(args.Force)
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.handles[name] == opened { // else a reset came first, and the name belongs to another object
		delete(d.handles, name)
	}
	return nil, err
}

func (opened *handle) close(force bool) error {
	if opened.queue != nil {
		return opened.queue.Close()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if force {
		cancel()
	}
	return opened.worker.Close(ctx)
}

// reset closes all objects without waiting for jobs. The kit calls it between scenarios.
func (d *driver) reset(string, json.RawMessage) (any, error) {
	d.lock.Lock()
	abandoned := d.handles
	d.handles = map[string]*handle{}
	d.lock.Unlock()
	for _, opened := range abandoned {
		opened.close(true)
	}
	d.frozen.Store(0)
	return nil, nil
}

func (d *driver) named(name string) (*handle, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if opened := d.handles[name]; opened != nil {
		return opened, nil
	}
	return nil, &bullmq.InvalidError{Reason: "there is no handle " + name}
}

// processor is the function that the client calls for each job; nil if there is none of that name.
func (d *driver) processor(name string, opened *handle, args openArgs) bullmq.Processor {
	with := args.ProcessorArgs
	if with.Message == "" {
		with.Message = "failed on request"
	}
	return map[string]bullmq.Processor{
		"ask":   func(ctx context.Context, job *bullmq.Job) (any, error) { return d.ask(ctx, name, opened, job) },
		"noop":  func(context.Context, *bullmq.Job) (any, error) { return nil, nil },
		"echo":  func(_ context.Context, job *bullmq.Job) (any, error) { return job.Data, nil },
		"sleep": func(ctx context.Context, _ *bullmq.Job) (any, error) { return nil, sleep(ctx, with.Ms) },
		"fail": func(_ context.Context, job *bullmq.Job) (any, error) {
			if job.AttemptsMade < max(with.Times, 1) {
				return nil, errors.New(with.Message)
			}
			return nil, nil
		},
		"throw": func(context.Context, *bullmq.Job) (any, error) { return nil, errors.New(with.Message) },
		"progress": func(ctx context.Context, job *bullmq.Job) (any, error) {
			for _, value := range with.Values {
				if err := job.UpdateProgress(ctx, value); err != nil {
					return nil, err
				}
			}
			return nil, nil
		},
		"steps": steps,
	}[args.Processor]
}

func sleep(ctx context.Context, ms float64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(ms * float64(time.Millisecond))):
		return nil
	}
}

func steps(ctx context.Context, job *bullmq.Job) (any, error) {
	var data struct {
		Steps []struct {
			Do           string          `json:"do"`
			Value        json.RawMessage `json:"value"`
			Row          string          `json:"row"`
			Ms           float64         `json:"ms"`
			Message      string          `json:"message"`
			UntilAttempt *int            `json:"until_attempt"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(job.Data, &data); err != nil {
		return nil, err
	}
	for _, step := range data.Steps {
		var err error
		switch step.Do {
		case "progress":
			err = job.UpdateProgress(ctx, step.Value)
		case "log":
			err = job.Log(ctx, step.Row)
		case "sleep":
			err = sleep(ctx, step.Ms)
		case "fail":
			if step.UntilAttempt == nil || job.AttemptsMade < *step.UntilAttempt {
				err = errors.New(step.Message)
			}
		case "unrecoverable":
			err = bullmq.Unrecoverable(step.Message)
		case "return":
			return step.Value, nil
		default:
			err = errors.New("unknown step: " + step.Do)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// ask hands the job to the kit, and waits for its `resolve`.
func (d *driver) ask(ctx context.Context, name string, opened *handle, job *bullmq.Job) (any, error) {
	answer := make(chan outcome, 1)
	d.lock.Lock() // before the event: the kit may resolve the job at once
	opened.asked[job.ID] = append(opened.asked[job.ID], answer)
	d.lock.Unlock()
	d.emit(name, "job", map[string]any{"job": view(job), "token": job.Token})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case end := <-answer:
		return end.carryOut(ctx, job, d.now())
	}
}

func (end outcome) carryOut(ctx context.Context, job *bullmq.Job, now time.Time) (any, error) {
	value := json.RawMessage("null")
	if end.Value != nil {
		value = json.RawMessage(*end.Value)
	}
	switch end.Outcome {
	case "fail":
		return nil, errors.New(end.Message)
	case "unrecoverable":
		return nil, bullmq.Unrecoverable(end.Message)
	case "delay":
		return nil, job.MoveToDelayed(ctx, now.Add(time.Duration(end.Ms*float64(time.Millisecond))))
	case "wait":
		return nil, job.MoveToWait(ctx)
	case "waiting-children":
		if err := job.MoveToWaitingChildren(ctx); err != nil {
			return nil, err
		}
	}
	return value, nil
}

func (d *driver) resolve(name string, raw json.RawMessage) (any, error) {
	var end outcome
	if err := json.Unmarshal(raw, &end); err != nil {
		return nil, err
	}
	opened, err := d.named(name)
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"complete", "fail", "unrecoverable", "delay", "wait", "waiting-children"}, end.Outcome) {
		return nil, unsupported("outcome " + end.Outcome)
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	waiting := opened.asked[end.Job]
	if len(waiting) == 0 {
		return nil, &bullmq.InvalidError{Reason: fmt.Sprintf("job %s does not wait for an answer at %s", end.Job, name)}
	}
	opened.asked[end.Job] = waiting[1:]
	waiting[0] <- end
	return nil, nil
}

// view is a job as the protocol shows it: what the client's user sees.
func view(job *bullmq.Job) map[string]any {
	shown := map[string]any{
		"id": job.ID, "name": job.Name, "data_raw": strings.ToValidUTF8(string(job.Data), "\ufffd"), "opts": job.Options,
		"attempts_made": job.AttemptsMade, "attempts_started": job.AttemptsStarted, "progress_raw": "0",
		"returnvalue_raw":   "null",
		"stacktrace_length": len(job.Stacktrace), "stalled_counter": 0.0,
		"timestamp": nil, "delay": nil, "priority": nil, "processed_on": nil, "finished_on": nil,
		"failed_reason": nil, "processed_by": nil, "parent_key": nil, "deduplication_id": nil,
	}
	for name, field := range map[string]string{
		"timestamp": "timestamp", "delay": "delay", "priority": "priority", "processed_on": "processedOn",
		"finished_on": "finishedOn", "stalled_counter": "stc",
	} {
		if number, err := strconv.ParseFloat(job.Field(field), 64); err == nil {
			shown[name] = number
		}
	}
	for name, field := range map[string]string{
		"progress_raw": "progress", "returnvalue_raw": "returnvalue", "failed_reason": "failedReason",
		"processed_by": "pb", "parent_key": "parentKey", "deduplication_id": "deid",
	} {
		if text := job.Field(field); text != "" {
			shown[name] = text
		}
	}
	return shown
}

// codes of the protocol for the refusals of the scripts.
var codes = map[int64]string{
	-1: "missing-job", -2: "missing-lock", -3: "wrong-state", -4: "pending-dependencies", -5: "missing-parent",
	-6: "lock-mismatch", -7: "parent-replaced", -8: "scheduler-job", -9: "failed-children",
}

func failureOf(err error) *opError {
	var invalid *bullmq.InvalidError
	var refused *bullmq.ScriptError
	var reply redis.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return &opError{Code: "invalid-argument", Message: err.Error(), Definite: true}
	case errors.As(err, &refused):
		return &opError{Code: codes[refused.Code], Message: err.Error(), Definite: true}
	case errors.As(err, &reply):
		return &opError{Code: "other", Message: err.Error(), Definite: true}
	}
	return &opError{Code: "connection-lost", Message: err.Error()}
}
