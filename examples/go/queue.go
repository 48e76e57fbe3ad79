// Package bullmq is a small BullMQ client: it adds jobs (Queue) and runs them (Worker), together with clients in other
// languages on the same queues. All changes of state are BullMQ's own Lua scripts; see README.md.
package bullmq

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Version is what the client writes into a queue's `meta`, as `<library>:<version>`.
const Version = "bullmq-go-example:0.1.0"

// QueueOptions are the options of NewQueue; the zero value is usable.
type QueueOptions struct {
	Redis             *redis.Options   // default: localhost:6379
	Prefix            string           // of all keys; default: bull
	DefaultJobOptions JobOptions       // apply to every job that does not say otherwise
	MaxEvents         int              // about how many events the queue keeps; default: 10000
	SkipMeta          bool             // do not write the event limit and the version into `meta`
	Now               func() time.Time // the clock of timestamps and delays; default: time.Now
}

// Queue adds jobs.
type Queue struct {
	options QueueOptions
	redis   *redis.Client
	keys    queueKeys
	calls   sync.RWMutex // held for reading by each call, so that Close waits for them
}

// NewQueue connects to Redis and writes the queue's settings.
func NewQueue(ctx context.Context, name string, options QueueOptions) (*Queue, error) {
	keys, err := newKeys(options.Prefix, name)
	if err != nil {
		return nil, err
	}
	if options.MaxEvents == 0 {
		options.MaxEvents = 10_000
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	queue := &Queue{options: options, redis: redis.NewClient(connection(options.Redis)), keys: keys}
	if options.SkipMeta {
		err = queue.redis.Ping(ctx).Err()
	} else {
		settings := []any{"opts.maxLenEvents", options.MaxEvents, "version", Version}
		err = queue.redis.HSet(ctx, keys.of("meta")[0], settings...).Err()
	}
	if err != nil {
		queue.Close()
		return nil, err
	}
	return queue, nil
}

// connection is a copy of the user's options, with what BullMQ needs.
func connection(given *redis.Options) *redis.Options {
	options := redis.Options{Addr: "localhost:6379"}
	if given != nil {
		options = *given
	}
	options.Protocol = 2
	options.DisableIdentity = true
	if options.ReadTimeout == 0 {
		options.ReadTimeout = 10 * time.Second // a script that moves many jobs may take longer than go-redis' 3 s
	}
	return &options
}

// Close lets the calls end that are under way, and closes the connections.
func (q *Queue) Close() error {
	q.calls.Lock()
	defer q.calls.Unlock()
	return q.redis.Close()
}

// Add stores a job and returns its id. `data` is any JSON value; a json.RawMessage is stored byte for byte, nil as {}.
//
// It returns an InvalidError before anything is sent, a ScriptError if the state in Redis does not allow the job, and
// otherwise the error of go-redis. After a lost connection go-redis sends the command again, so that a job without an id
// of its own may be stored twice: BullMQ delivers at least once.
func (q *Queue) Add(ctx context.Context, name string, data any, options JobOptions) (string, error) {
	text := "{}"
	if data != nil {
		var err error
		if text, err = jsonText(data); err != nil {
			return "", err
		}
	}
	add, err := q.addCall(name, text, options)
	if err != nil {
		return "", err
	}
	q.calls.RLock()
	defer q.calls.RUnlock()
	reply, err := add.run(ctx, q.redis)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(reply), nil
}

// The KEYS of the scripts that add a job, by what decides the job's place.
var addKeys = map[string][]string{
	"addStandardJob":    {"wait", "paused", "meta", "id", "completed", "delayed", "active", "events", "marker"},
	"addDelayedJob":     {"marker", "meta", "id", "delayed", "completed", "events"},
	"addPrioritizedJob": {"marker", "meta", "id", "prioritized", "delayed", "completed", "active", "events", "pc"},
}

func (q *Queue) addCall(name, data string, given JobOptions) (scriptCall, error) {
	options, err := newJobOptions(q.options.DefaultJobOptions, given)
	if err != nil {
		return scriptCall{}, err
	}
	if err := options.check(name, data); err != nil {
		return scriptCall{}, err
	}
	timestamp, isGiven := options.number("timestamp")
	if !isGiven || timestamp == 0 {
		timestamp = float64(q.options.Now().UnixMilli())
	}
	// Slots that are not used are nil: the scripts would take an empty text for a key.
	var parentKey, dependencies, parent, deduplication any
	if of, isObject := options["parent"].(map[string]any); isObject {
		parentKey = fmt.Sprintf("%v:%v", of["queue"], of["id"])
		dependencies = fmt.Sprintf("%v:dependencies", parentKey)
		parent = options.parentField(of)
	}
	if id := options.deduplicationID(); id != "" {
		deduplication = q.keys.of("de:" + id)[0]
	}
	id, _ := options["jobId"].(string)
	job, err := pack([]any{q.keys, id, name, timestamp, parentKey, dependencies, parent, options["repeatJobKey"], deduplication})
	if err != nil {
		return scriptCall{}, err
	}
	stored, err := pack(options.stored())
	if err != nil {
		return scriptCall{}, err
	}
	script := "addStandardJob"
	if delay, _ := options.number("delay"); delay > 0 {
		script = "addDelayedJob"
	} else if truthy(options["priority"]) {
		script = "addPrioritizedJob"
	}
	return scriptCall{script, q.keys.of(addKeys[script]...), []any{job, data, stored}}, nil
}
