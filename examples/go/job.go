package bullmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"strconv"
	"strings"
	"time"
)

// Job is a job that a worker has claimed.
type Job struct {
	ID, Name        string
	Data            json.RawMessage
	Options         JobOptions
	Token           string  // of its lock
	Timestamp       int64   // when it was added (Unix ms)
	Delay           float64 // ms
	AttemptsMade    int     // attempts that have ended
	AttemptsStarted int
	Stacktrace      []string // of the failed attempts, the newest last

	worker *Worker           // that has claimed it
	fields map[string]string // its hash
}

var (
	// ErrMoved says that the processor has moved its job itself; the Move… methods return it, for `return nil, err`.
	ErrMoved = errors.New("the processor has moved the job")
	// ErrUnrecoverable in an error's chain fails the job permanently, even if attempts are left.
	ErrUnrecoverable = errors.New("unrecoverable")
)

// Unrecoverable is an error that fails the job permanently, with this message.
func Unrecoverable(message string) error { return unrecoverable(message) }

type unrecoverable string

func (e unrecoverable) Error() string        { return string(e) }
func (e unrecoverable) Is(target error) bool { return target == ErrUnrecoverable }

// traceOf is the text of an error in a job's `stacktrace`, which other clients show: its kind and message, and all that its
// %+v adds (the packages that record stacks use that).
func traceOf(err error) string {
	kind := "Error"
	if errors.Is(err, ErrUnrecoverable) {
		kind = "UnrecoverableError"
	}
	return strings.TrimSuffix(fmt.Sprintf("%s: %+v", kind, err), ": ")
}

// readJob makes a job from its hash. A hash that was evicted has neither name nor data, and the job still has to end.
func readJob(worker *Worker, id, token string, fields map[string]string) (*Job, error) {
	job := &Job{ID: id, Name: fields["name"], Token: token, worker: worker, fields: fields, Data: json.RawMessage("{}")}
	if data := fields["data"]; data != "" {
		job.Data = json.RawMessage(data)
	}
	if !json.Valid(job.Data) {
		return nil, fmt.Errorf("the data of job %s is not JSON", id)
	}
	var err error
	if job.Options, err = storedJobOptions(fields["opts"]); err != nil {
		return nil, fmt.Errorf("the options of job %s are not JSON: %w", id, err)
	}
	job.Timestamp, _ = strconv.ParseInt(fields["timestamp"], 10, 64)
	job.Delay, _ = strconv.ParseFloat(fields["delay"], 64)
	job.AttemptsMade, _ = strconv.Atoi(fields["atm"])
	job.AttemptsStarted, _ = strconv.Atoi(fields["ats"])
	_ = json.Unmarshal([]byte(fields["stacktrace"]), &job.Stacktrace)
	return job, nil
}

// Field returns a field of the job's hash as it was when the job was claimed.
func (j *Job) Field(name string) string { return j.fields[name] }

// UpdateProgress stores the progress, any JSON value, and publishes it.
func (j *Job) UpdateProgress(ctx context.Context, progress any) error {
	text, err := jsonText(progress)
	if err != nil {
		return err
	}
	_, err = j.worker.send(ctx, j.worker.call("updateProgress", []string{j.ID, "events", "meta"}, j.ID, text))
	return err
}

// Log appends a row to the job's log, of which the option keepLogs keeps the newest rows.
func (j *Job) Log(ctx context.Context, row string) error {
	keep := any("")
	if rows, isGiven := j.Options.number("keepLogs"); isGiven && rows > 0 {
		keep = rows
	}
	_, err := j.worker.send(ctx, j.worker.call("addLog", []string{j.ID, j.ID + ":logs"}, j.ID, row, keep))
	return err
}

// MoveToDelayed puts the job off until a time, without counting the attempt.
func (j *Job) MoveToDelayed(ctx context.Context, due time.Time) error {
	delay := max(due.Sub(j.worker.options.Now()).Milliseconds(), 0)
	_, err := j.worker.send(ctx, j.worker.delay(j, float64(delay), "1", ""))
	return moved(err)
}

// MoveToWait gives the job back: it runs next, and the attempt does not count.
func (j *Job) MoveToWait(ctx context.Context) error {
	_, err := j.worker.send(ctx, j.worker.giveBack(j))
	return moved(err)
}

// MoveToWaitingChildren lets the job wait for its children. It returns nil if none is pending: the job then goes on.
func (j *Job) MoveToWaitingChildren(ctx context.Context) error {
	reply, err := j.worker.send(ctx, j.worker.waitForChildren(j))
	if err == nil && reply != int64(0) {
		return nil
	}
	return moved(err)
}

func moved(err error) error {
	if err == nil {
		return ErrMoved
	}
	return err
}

// retryDelay is how many ms a failed attempt waits for the next one, which this is the `attempt`-th of (the first is 1).
func retryDelay(backoff map[string]any, attempt int, random func() float64) (float64, error) {
	if backoff == nil {
		return 0, nil
	}
	delay, _ := backoff["delay"].(float64)
	switch backoff["type"] {
	case "fixed":
	case "exponential":
		delay = math.Round(math.Pow(2, float64(attempt-1)) * delay)
	default:
		return 0, fmt.Errorf("unknown backoff strategy: %v", backoff["type"])
	}
	if jitter, _ := backoff["jitter"].(float64); jitter > 0 {
		delay = math.Floor(random()*delay*jitter + delay*(1-jitter))
	}
	return delay, nil
}

// failure decides how a failed attempt ends: with another attempt after `delay` ms, or permanently.
func (j *Job) failure(cause error) (delay float64, final bool, err error) {
	attempts, _ := j.Options.number("attempts")
	if float64(j.AttemptsMade+1) >= attempts || errors.Is(cause, ErrUnrecoverable) {
		return 0, true, nil
	}
	backoff, _ := j.Options["backoff"].(map[string]any)
	delay, err = retryDelay(backoff, j.AttemptsMade+1, rand.Float64)
	return delay, false, err
}
