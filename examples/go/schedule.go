package bullmq

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// A job scheduler has one job ahead, and the worker that takes it makes the next one. This client cannot create schedulers,
// but a worker that did not continue those of others would end them.

var patterns = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// following is the call that makes the job after this one of a scheduler; without a script if there is none.
func (s settings) following(job *Job) (scriptCall, error) {
	repeat, isRepeated := job.Options["repeat"].(map[string]any)
	id := job.Field("rjk")
	if !isRepeated || id == "" || strings.Count(id, ":") >= 4 { // the key of a repeatable job before BullMQ 5
		return scriptCall{}, nil
	}
	now := float64(s.now())
	count, _ := repeat["count"].(float64)
	limit, isLimited := repeat["limit"].(float64)
	end, hasEnd := repeat["endDate"].(float64)
	if isLimited && count+1 > limit || hasEnd && now > end {
		return scriptCall{}, nil
	}
	// For intervals the script itself computes the time, and with it the delay and the id.
	due, next, delay := "", any(nil), any(nil)
	if pattern, _ := repeat["pattern"].(string); pattern != "" {
		ms, err := nextDue(pattern, repeat, max(now, numberOf(job.Options["prevMillis"])))
		if err != nil {
			return scriptCall{}, err
		}
		if hasEnd && float64(ms) > end {
			return scriptCall{}, nil
		}
		due, next, delay = strconv.FormatInt(ms, 10), ms, max(float64(ms)-now, 0)
	}
	again := maps.Clone(repeat)
	delete(again, "immediately")
	again["count"], again["offset"] = count+1, nil
	again["startDate"], again["endDate"] = repeat["startDate"], repeat["endDate"]
	options := maps.Clone(job.Options)
	options["repeat"], options["delay"], options["timestamp"] = again, delay, now
	options["jobId"] = "repeat:" + id + ":" + map[bool]string{true: "undefined", false: due}[due == ""]
	delete(options, "prevMillis")
	if next != nil {
		options["prevMillis"] = next
	}
	stored := options.stored()
	stored["repeatJobKey"] = id
	packed, err := pack(stored)
	keys := append(strings.Fields("repeat delayed wait paused meta prioritized marker id events pc"), job.ID, "active")
	return s.call("updateJobScheduler", keys, due, id, string(job.Data), packed, s.now(), string(s.keys), job.ID), err
}

// nextDue is the next time of a cron pattern after a time (both Unix ms).
func nextDue(pattern string, repeat map[string]any, after float64) (int64, error) {
	zone := time.Local
	if name, _ := repeat["tz"].(string); name != "" {
		var err error
		if zone, err = time.LoadLocation(name); err != nil {
			return 0, err
		}
	}
	schedule, err := patterns.Parse(pattern)
	if err != nil {
		return 0, fmt.Errorf("the pattern %q of a scheduler: %w", pattern, err)
	}
	after = max(after, numberOf(repeat["startDate"]))
	return schedule.Next(time.UnixMilli(int64(after)).In(zone)).UnixMilli(), nil
}

func numberOf(value any) float64 {
	number, _ := value.(float64)
	return number
}

// putOff is how long a job waits whose successor could not be made, so that an error does not end a schedule.
func putOff(started int) float64 { return min(1000*math.Pow(2, float64(started)), 300_000) }
