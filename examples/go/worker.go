package bullmq

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Processor runs a job. Its return value is the job's result; an error fails the attempt. A job may run more than
// once (after a crash, or if its lock is lost), so processors must be idempotent. ctx ends if the worker is closed by force.
type Processor func(ctx context.Context, job *Job) (any, error)

// WorkerOptions are the options of NewWorker. Start from DefaultWorkerOptions.
type WorkerOptions struct {
	Redis              *redis.Options
	Prefix             string
	Name               string        // signs the jobs of this worker
	Concurrency        int           // jobs at a time
	LockDuration       time.Duration // how long a job is safe from others if this process dies
	LockRenewTime      time.Duration // default: half of LockDuration
	StalledInterval    time.Duration // how often the queue is searched for jobs of dead workers
	MaxStalledCount    int           // a job that was recovered more often fails
	MaxStartedAttempts int           // a job that was started more often fails; 0: no limit
	DrainDelay         time.Duration // an idle worker looks again after this time, even if nothing wakes it
	RunRetryDelay      time.Duration // between two tries while Redis cannot be reached, or refuses to hand out jobs
	RemoveOnComplete   any           // for jobs without an option of their own; as BullMQ's: bool, number, {count, age}
	RemoveOnFail       any
	SkipStalledCheck   bool
	SkipLockRenewal    bool
	OnEvent            func(Event)      // called from several goroutines; must not block
	Now                func() time.Time // the clock of timestamps, delays and back-off
}

// Event is what happens in a worker: active, completed, failed, stalled, drained, closed or error.
type Event struct {
	Name string
	Job  string // its id, if the event is about one
	Err  error  // of failed and error
}

// DefaultWorkerOptions are BullMQ's defaults, except that RunRetryDelay is shorter than its 15 s.
func DefaultWorkerOptions() WorkerOptions {
	return WorkerOptions{
		Concurrency: 1, LockDuration: 30 * time.Second, StalledInterval: 30 * time.Second, MaxStalledCount: 1,
		DrainDelay: 5 * time.Second, RunRetryDelay: time.Second, OnEvent: func(Event) {}, Now: time.Now,
	}
}

const (
	longestBlock  = 10 * time.Second     // waiting for a delayed job; a lost connection would go unnoticed for longer
	shortestBlock = 2 * time.Millisecond // Redis before 7.0.8 rounds less to 0, which blocks forever
	longestPause  = 30 * time.Second     // during a rate limit
	interruptWait = time.Second          // for a blocked Redis to let go, before the socket is closed
)

// Worker runs the jobs of a queue.
type Worker struct {
	settings
	process  Processor
	id       string
	redis    *redis.Client
	blocking *redis.Client // BZPOPMIN occupies its connection

	blockingID atomic.Int64 // Redis' id of that connection
	blocked    atomic.Bool
	stopping   chan struct{}
	stop       sync.Once
	abandoned  context.Context // ends with a forced close
	abandon    context.CancelFunc
	running    sync.WaitGroup
	lock       sync.Mutex
	held       map[*Job]time.Time // when the locks of the running jobs were renewed last
	claims     int
	idle       bool
}

// NewWorker connects to Redis. Nothing is claimed before Run.
func NewWorker(ctx context.Context, queue string, process Processor, options WorkerOptions) (*Worker, error) {
	keys, err := newKeys(options.Prefix, queue)
	switch {
	case err != nil:
		return nil, err
	case options.Concurrency < 1:
		return nil, invalid("Concurrency must be at least 1, not %d", options.Concurrency)
	case options.StalledInterval <= 0 || options.DrainDelay <= 0 || options.LockDuration <= 0 || options.RunRetryDelay <= 0:
		return nil, invalid("StalledInterval, DrainDelay, LockDuration and RunRetryDelay must be more than 0")
	case options.MaxStalledCount < 0 || options.MaxStartedAttempts < 0:
		return nil, invalid("MaxStalledCount and MaxStartedAttempts must be at least 0")
	}
	if options.LockRenewTime <= 0 {
		options.LockRenewTime = options.LockDuration / 2
	}
	w := &Worker{settings: settings{keys, options}, process: process, stopping: make(chan struct{}), held: map[*Job]time.Time{}}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	w.id = hex.EncodeToString(random)
	w.abandoned, w.abandon = context.WithCancel(context.Background())
	// Without go-redis' own repetitions: a worker repeats what it must, and otherwise fetches again.
	main, blocking := connection(options.Redis), connection(options.Redis)
	main.MaxRetries, blocking.MaxRetries = -1, -1
	blocking.PoolSize, blocking.ReadTimeout, blocking.ContextTimeoutEnabled = 1, -1, true
	blocking.OnConnect = func(ctx context.Context, connected *redis.Conn) error { return w.sign(ctx, connected, queue) }
	w.redis, w.blocking = redis.NewClient(main), redis.NewClient(blocking)
	for _, client := range []*redis.Client{w.redis, w.blocking} {
		if err := client.Ping(ctx).Err(); err != nil {
			w.redis.Close()
			w.blocking.Close()
			return nil, err
		}
	}
	return w, nil
}

// sign names the blocking connection, by which getWorkers of any client finds this worker.
func (w *Worker) sign(ctx context.Context, connected *redis.Conn, queue string) error {
	prefix := w.options.Prefix
	if prefix == "" {
		prefix = "bull"
	}
	name := prefix + ":" + base64.StdEncoding.EncodeToString([]byte(queue))
	if w.options.Name != "" {
		name += ":w:" + w.options.Name
	}
	// Redis refuses some names, for example those with a space. Such a worker works, and is not listed.
	if err := connected.ClientSetName(ctx, name).Err(); isOutage(err) {
		return err
	}
	id, err := connected.ClientID(ctx).Result()
	w.blockingID.Store(id)
	return err
}

// Run claims and runs jobs until Stop or Close. Call it once.
func (w *Worker) Run() {
	w.running.Add(1)
	defer w.running.Done()
	// Before the first claim: this check then marks only jobs of other workers.
	w.every(w.options.StalledInterval, w.options.SkipStalledCheck, true, w.recoverStalled)
	w.every(w.options.LockRenewTime/2, w.options.SkipLockRenewal, false, w.renewLocks)
	slots := make(chan struct{}, w.options.Concurrency)
	for {
		select {
		case <-w.stopping:
			return
		case slots <- struct{}{}:
		}
		if w.isStopping() { // if both were ready
			return
		}
		job := w.next()
		if job == nil { // stopping
			return
		}
		w.running.Add(1)
		go func() {
			defer w.running.Done()
			for job != nil {
				job = w.runJob(job)
			}
			<-slots
		}()
	}
}

// Stop lets the worker take no further job, and returns at once.
func (w *Worker) Stop() {
	w.stop.Do(func() {
		close(w.stopping)
		go w.interrupt()
	})
}

// Close waits for the running jobs, and then closes the connections. If ctx ends before, it closes them at once: the jobs
// stay active, and another worker recovers them when their locks have expired.
func (w *Worker) Close(ctx context.Context) error {
	w.Stop()
	ended := make(chan struct{})
	go func() {
		w.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	w.abandon()
	err := errors.Join(w.blocking.Close(), w.redis.Close())
	w.emit(Event{Name: "closed"})
	return err
}

func (w *Worker) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// interrupt ends the wait for a marker by CLIENT UNBLOCK. If the socket were closed instead, a marker that Redis has just
// taken for this worker would be lost, and its job would wait for the next poll of some worker.
func (w *Worker) interrupt() {
	for until := time.Now().Add(interruptWait); w.blocked.Load() && time.Now().Before(until); {
		// Repeated, because BZPOPMIN may still be on its way.
		w.redis.ClientUnblock(w.abandoned, w.blockingID.Load())
		time.Sleep(2 * time.Millisecond)
	}
	if w.blocked.Load() {
		w.blocking.Close()
	}
}

// next waits for a job and claims it; nil if the worker stops.
func (w *Worker) next() *Job {
	for {
		token := w.id + ":" + strconv.Itoa(w.claims)
		w.claims++
		job, limit, due, err := w.fetch(token)
		if job != nil {
			return job
		}
		awake := false
		switch {
		case err != nil:
			w.report(err)
			w.pause(w.options.RunRetryDelay)
		case limit > 0:
			w.pause(min(limit, longestPause))
		default:
			awake = w.waitForMarker(due)
		}
		// A marker that was taken has to be followed by a claim, also by a worker that stops: no other worker sees it.
		if w.isStopping() && !awake {
			return nil
		}
	}
}

// fetch takes the next job under a new lock. Without one it returns how long a rate limit lasts, or when (Unix ms, 0 for
// never) the next delayed job is due.
func (w *Worker) fetch(token string) (job *Job, limit time.Duration, due float64, err error) {
	claim, err := w.claim(token)
	if err != nil {
		return nil, 0, 0, err
	}
	reply, err := w.send(w.abandoned, claim)
	if err != nil {
		return nil, 0, 0, err
	}
	return w.read(reply, token)
}

// read reads the reply of a script that claims: [fields, id, ms of the rate limit, due time of the next delayed job].
func (w *Worker) read(reply any, token string) (job *Job, limit time.Duration, due float64, err error) {
	parts, isList := reply.([]any)
	if !isList || len(parts) < 4 {
		return nil, 0, 0, nil
	}
	flat, isJob := parts[0].([]any)
	if !isJob {
		ms, _ := strconv.ParseFloat(fmt.Sprint(parts[2]), 64)
		due, _ = strconv.ParseFloat(fmt.Sprint(parts[3]), 64)
		if w.becomesIdle() {
			w.emit(Event{Name: "drained"})
		}
		return nil, time.Duration(ms * float64(time.Millisecond)), due, nil
	}
	w.setIdle(false)
	fields := map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		fields[fmt.Sprint(flat[i])] = fmt.Sprint(flat[i+1])
	}
	job, err = readJob(w, fmt.Sprint(parts[1]), token, fields)
	if err == nil {
		err = w.continueSchedule(job)
	}
	if err != nil { // an unreadable job stays active, and is recovered as stalled
		return nil, 0, 0, err
	}
	return job, 0, 0, nil
}

// continueSchedule makes the next job of a scheduler before this one runs, so that the schedule goes on if the processor
// ends the process. If that fails, the job is put off.
func (w *Worker) continueSchedule(job *Job) error {
	following, err := w.following(job)
	if err == nil && following.script != "" {
		_, err = w.send(w.abandoned, following)
	}
	if err == nil {
		return nil
	}
	_, putting := w.send(w.abandoned, w.delay(job, putOff(job.AttemptsStarted), "1", ""))
	return errors.Join(fmt.Errorf("job %s is put off, because the next one could not be made: %w", job.ID, err), putting)
}

// waitForMarker blocks until a job may be there: it was added, a delayed one is due, or the time to look again has come.
// It returns whether it has taken a marker.
func (w *Worker) waitForMarker(due float64) bool {
	for {
		block := w.options.DrainDelay
		if due > 0 {
			until := time.Duration((due - float64(w.now())) * float64(time.Millisecond))
			if until <= 0 {
				return false
			}
			block = min(until, longestBlock)
		}
		marked, err := w.popMarker(max(block, shortestBlock))
		if err != nil && !errors.Is(err, redis.Nil) {
			if !w.isStopping() {
				if !isOutage(err) {
					w.report(err)
				}
				w.pause(w.options.RunRetryDelay)
			}
			return false
		}
		// Member 1 says when the next delayed job is due, and may be older than what this worker knows.
		if len(marked) < 3 || marked[1] != "1" {
			return len(marked) > 0
		}
		next, _ := strconv.ParseFloat(fmt.Sprint(marked[2]), 64)
		if next <= float64(w.now()) || w.isStopping() {
			return true
		}
		if due == 0 || next < due {
			due = next
		}
	}
}

func (w *Worker) popMarker(block time.Duration) ([]any, error) {
	w.blocked.Store(true)
	defer w.blocked.Store(false)
	if w.isStopping() { // after the line above, so that interrupt sees a wait that this line does not prevent
		return nil, redis.Nil
	}
	// A reply that is a second late does not come: the other end has vanished without closing the connection.
	ctx, cancel := context.WithTimeout(w.abandoned, block+time.Second)
	defer cancel()
	seconds := strconv.FormatFloat(block.Seconds(), 'f', 3, 64)
	return w.blocking.Do(ctx, "BZPOPMIN", w.keys.of("marker")[0], seconds).Slice()
}

// runJob runs a job and ends it. It returns the job that was claimed in the same step, if any.
func (w *Worker) runJob(job *Job) *Job {
	reason := job.Field("defa") // it stalled too often, or one of its children failed
	if limit := w.options.MaxStartedAttempts; reason == "" && limit > 0 && job.AttemptsStarted > limit {
		reason = "job started more than allowable limit"
	}
	if reason != "" {
		return w.fail(job, Unrecoverable(reason))
	}
	w.emit(Event{Name: "active", Job: job.ID})
	w.hold(job)
	value, err := w.callProcessor(job)
	w.release(job)
	switch {
	case w.abandoned.Err() != nil, errors.Is(err, ErrMoved):
		return nil
	case err != nil:
		return w.fail(job, err)
	}
	text, err := jsonText(value)
	if err == nil {
		var reply any
		if reply, err = w.persist(func() (scriptCall, error) {
			return w.finish(job, completed(text), !w.isStopping())
		}); err == nil {
			w.emit(Event{Name: "completed", Job: job.ID})
			return w.take(reply, job.Token)
		}
	}
	if isOutage(err) {
		return nil
	}
	return w.fail(job, err) // for example pending children, or a result that is not JSON
}

// callProcessor runs the processor; a panic fails the job and not the process.
func (w *Worker) callProcessor(job *Job) (value any, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
		}
	}()
	return w.process(w.abandoned, job)
}

// fail ends a failed attempt: the job is retried at once, retried later, or failed permanently.
func (w *Worker) fail(job *Job, cause error) *Job {
	reply, err := w.persist(func() (scriptCall, error) { return w.failing(job, cause, !w.isStopping()) })
	if err != nil { // for example an unknown back-off: the job stays active, and is recovered as stalled
		return nil
	}
	w.emit(Event{Name: "failed", Job: job.ID, Err: cause})
	return w.take(reply, job.Token)
}

// take reads the job that was claimed together with the end of another; it is locked under the same token.
func (w *Worker) take(reply any, token string) *Job {
	job, _, _, err := w.read(reply, token)
	if err != nil {
		w.report(err)
	}
	return job
}

// persist repeats a call while Redis cannot be reached: the result of a job must not be lost. A worker that stops gives up;
// the job stays active, and is recovered as stalled. Other errors are reported.
func (w *Worker) persist(make func() (scriptCall, error)) (any, error) {
	for {
		var reply any
		call, err := make() // again for each try: a worker that has stopped meanwhile wants no next job
		if err == nil {
			reply, err = w.send(w.abandoned, call)
		}
		if isOutage(err) && !w.isStopping() {
			w.pause(w.options.RunRetryDelay)
			continue
		}
		if err != nil {
			w.report(err)
		}
		return reply, err
	}
}

// recoverStalled puts jobs back whose worker has died: those that were without a lock in two checks.
func (w *Worker) recoverStalled() {
	reply, err := w.send(w.abandoned, w.checkStalled())
	if err != nil {
		w.report(err)
		return
	}
	recovered, _ := reply.([]any)
	for _, id := range recovered {
		w.emit(Event{Name: "stalled", Job: fmt.Sprint(id)})
	}
}

// renewLocks renews what was not renewed for half of LockRenewTime. A lost lock is reported; the processor runs on, because
// it may have done half of its work, and only the owner of the lock can store a result.
func (w *Worker) renewLocks() {
	var ids, tokens []string
	due := map[*Job]time.Time{}
	w.lock.Lock()
	for job, renewed := range w.held {
		if time.Since(renewed) >= w.options.LockRenewTime/2 {
			ids, tokens = append(ids, job.ID), append(tokens, job.Token)
			due[job], w.held[job] = renewed, time.Now()
		}
	}
	w.lock.Unlock()
	if len(ids) == 0 {
		return
	}
	var reply any
	renewal, err := w.extendLocks(ids, tokens, w.options.LockDuration)
	if err == nil {
		reply, err = w.send(w.abandoned, renewal)
	}
	if err != nil {
		w.dueAgain(due)
		w.report(err)
		return
	}
	lost, _ := reply.([]any)
	for _, id := range lost {
		w.report(fmt.Errorf("could not renew lock for job %v", id))
	}
}

// dueAgain lets the next check renew what this one could not: the locks still live from their last renewal.
func (w *Worker) dueAgain(renewals map[*Job]time.Time) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for job, renewed := range renewals {
		if _, held := w.held[job]; held {
			w.held[job] = renewed
		}
	}
}

// every calls a check at each interval until the worker is closed, also while its jobs still run after Stop.
func (w *Worker) every(interval time.Duration, skip, atOnce bool, check func()) {
	if skip {
		return
	}
	if atOnce {
		check()
	}
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-w.abandoned.Done():
				return
			case <-ticker.C:
				check()
			}
		}
	}()
}

func (w *Worker) hold(job *Job) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.held[job] = time.Now()
}

func (w *Worker) release(job *Job) {
	w.lock.Lock()
	defer w.lock.Unlock()
	delete(w.held, job)
}

func (w *Worker) setIdle(idle bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.idle = idle
}

// becomesIdle says whether this is the first claim in a row that found nothing.
func (w *Worker) becomesIdle() bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	was := w.idle
	w.idle = true
	return !was
}

// pause sleeps, at most until the worker stops.
func (w *Worker) pause(duration time.Duration) {
	select {
	case <-w.stopping:
	case <-time.After(duration):
	}
}

func (w *Worker) send(ctx context.Context, call scriptCall) (any, error) {
	return call.run(ctx, w.redis)
}

func (w *Worker) emit(event Event) { w.options.OnEvent(event) }

func (w *Worker) report(err error) {
	if w.abandoned.Err() == nil {
		w.emit(Event{Name: "error", Err: err})
	}
}
