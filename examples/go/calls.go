package bullmq

import (
	"encoding/json"
	"strings"
	"time"
)

// Every call of a script that a worker makes. These functions only put arguments together, so that the unit tests compare
// them with the recorded calls of real BullMQ, without a Redis.

// fetchKeys are the first KEYS of the scripts that claim a job.
var fetchKeys = strings.Fields("wait active prioritized events stalled limiter delayed paused meta pc")

// settings are what the calls of one worker have in common.
type settings struct {
	keys    queueKeys
	options WorkerOptions
}

func (s settings) now() int64 { return s.options.Now().UnixMilli() }

// signature is the worker's name in the jobs that it runs; nil for none.
func (s settings) signature() any {
	if s.options.Name == "" {
		return nil
	}
	return s.options.Name
}

func (s settings) call(script string, keys []string, arguments ...any) scriptCall {
	return scriptCall{script, s.keys.of(keys...), arguments}
}

func (s settings) claim(token string) (scriptCall, error) {
	packed, err := pack(struct {
		Token        string `json:"token"`
		LockDuration int64  `json:"lockDuration"`
		Limiter      any    `json:"limiter"`
		Name         any    `json:"name"`
	}{token, s.options.LockDuration.Milliseconds(), nil, s.signature()})
	return s.call("moveToActive", append(fetchKeys[:len(fetchKeys):len(fetchKeys)], "marker"),
		string(s.keys), s.now(), packed), err
}

// ending is how a job ends: completed with a JSON text, or failed with a reason and further fields of its hash.
type ending struct {
	state, property, value string
	fields                 any // packed; empty for none
}

func completed(value string) ending { return ending{"completed", "returnvalue", value, ""} }

func failed(reason string, fields []byte) ending {
	return ending{"failed", "failedReason", reason, fields}
}

// finish moves a job to completed or failed, and claims the next one in the same step if the worker wants one.
func (s settings) finish(job *Job, end ending, fetchNext bool) (scriptCall, error) {
	option, workers := "removeOnComplete", s.options.RemoveOnComplete
	if end.state == "failed" {
		option, workers = "removeOnFail", s.options.RemoveOnFail
	}
	flag := func(name string) bool { return truthy(job.Options[name]) }
	packed, err := pack(struct {
		Token        string `json:"token"`
		Name         any    `json:"name"`
		KeepJobs     any    `json:"keepJobs"`
		Limiter      any    `json:"limiter"`
		LockDuration int64  `json:"lockDuration"`
		Attempts     any    `json:"attempts"`
		Metrics      string `json:"maxMetricsSize"` // empty: off
		Fail         bool   `json:"fpof"`
		Continue     bool   `json:"cpof"`
		Ignore       bool   `json:"idof"`
		Remove       bool   `json:"rdof"`
	}{
		job.Token, s.signature(), keptJobs(job.Options, option, workers), nil, s.options.LockDuration.Milliseconds(),
		job.Options["attempts"], "", flag("failParentOnFailure"), flag("continueParentOnFailure"),
		flag("ignoreDependencyOnFailure"), flag("removeDependencyOnFailure"),
	})
	fetch := map[bool]int{true: 1, false: 0}[fetchNext]
	keys := append(fetchKeys[:len(fetchKeys):len(fetchKeys)], end.state, job.ID, "metrics:"+end.state, "marker")
	return s.call("moveToFinished", keys,
		job.ID, s.now(), end.property, end.value, end.state, fetch, string(s.keys), packed, end.fields), err
}

// failing ends a failed attempt: the job is retried at once, retried later, or failed permanently.
func (s settings) failing(job *Job, cause error, fetchNext bool) (scriptCall, error) {
	delay, final, err := job.failure(cause)
	if err != nil {
		return scriptCall{}, err
	}
	fields, err := job.failedFields(cause)
	switch {
	case err != nil:
		return scriptCall{}, err
	case final:
		return s.finish(job, failed(cause.Error(), fields), fetchNext)
	case delay != 0:
		return s.delay(job, delay, "0", fields), nil
	}
	return s.retry(job, fields), nil
}

// keptJobs says how many finished jobs to keep: the job's own option wins; a count of -1 keeps all, 0 none.
func keptJobs(options JobOptions, name string, workers any) any {
	chosen, isGiven := options[name]
	if !isGiven {
		chosen = workers
	}
	switch value := chosen.(type) {
	case map[string]any:
		return value
	case bool:
		return map[string]any{"count": map[bool]int{true: 0, false: -1}[value]}
	case nil:
		return map[string]any{"count": -1}
	}
	return map[string]any{"count": chosen}
}

// retry puts a failed attempt back at once.
func (s settings) retry(job *Job, fields []byte) scriptCall {
	push := "LPUSH"
	if truthy(job.Options["lifo"]) {
		push = "RPUSH"
	}
	keys := append([]string{"active", "wait", "paused", job.ID},
		"meta", "events", "delayed", "prioritized", "pc", "marker", "stalled")
	return s.call("retryJob", keys, string(s.keys), s.now(), push, job.ID, job.Token, fields)
}

// delay puts a job off. skipAttempt "1": this is not the end of an attempt.
func (s settings) delay(job *Job, ms float64, skipAttempt string, fields any) scriptCall {
	keys := []string{"marker", "active", "prioritized", "delayed", job.ID, "events", "meta", "stalled"}
	return s.call("moveToDelayed", keys, string(s.keys), s.now(), job.ID, job.Token, ms, skipAttempt, fields)
}

func (s settings) giveBack(job *Job) scriptCall {
	keys := strings.Fields("active wait stalled paused meta limiter prioritized marker events")
	return s.call("moveJobFromActiveToWait", keys, job.ID, job.Token, s.keys.of(job.ID)[0])
}

func (s settings) waitForChildren(job *Job) scriptCall {
	keys := []string{"active", "waiting-children", job.ID, job.ID + ":dependencies", job.ID + ":unsuccessful", "stalled", "events"}
	return s.call("moveToWaitingChildren", keys, job.Token, "", s.now(), job.ID, string(s.keys))
}

func (s settings) checkStalled() scriptCall {
	keys := strings.Fields("stalled wait active stalled-check meta paused marker events")
	return s.call("moveStalledJobsToWait", keys,
		s.options.MaxStalledCount, string(s.keys), s.now(), s.options.StalledInterval.Milliseconds())
}

func (s settings) extendLocks(ids, tokens []string, duration time.Duration) (scriptCall, error) {
	packedIDs, err := pack(ids)
	if err != nil {
		return scriptCall{}, err
	}
	packedTokens, err := pack(tokens)
	return s.call("extendLocks", []string{"stalled"}, string(s.keys), packedTokens, packedIDs, duration.Milliseconds()), err
}

// failedFields are the hash fields of a failed attempt. The trace has one text for each attempt, the newest last.
func (j *Job) failedFields(cause error) ([]byte, error) {
	traces := append([]string{}, j.Stacktrace...)
	traces = append(traces, traceOf(cause))
	if limit, isGiven := j.Options.number("stackTraceLimit"); isGiven && float64(len(traces)) > limit {
		traces = traces[len(traces)-int(max(limit, 0)):]
	}
	text, err := json.Marshal(traces)
	if err != nil {
		return nil, err
	}
	return pack([]string{"failedReason", cause.Error(), "stacktrace", string(text)})
}
