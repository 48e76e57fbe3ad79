package bullmq

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
)

// JobOptions are BullMQ's options of a job under BullMQ's names: attempts, backoff, deduplication, delay (ms), jobId,
// keepLogs, lifo, parent, priority, removeOnComplete, removeOnFail, sizeLimit, stackTraceLimit, timestamp (Unix ms) and
// others. Values are anything that becomes the right JSON. Options that this client does not know are stored too, as in
// Node.js: a worker in another language may know them. That is why this is not a struct.
type JobOptions map[string]any

const priorityLimit = 2097152

// shortNames are the options that are stored under another name.
var shortNames = map[string]string{
	"deduplication": "de", "debounce": "de", "failParentOnFailure": "fpof", "continueParentOnFailure": "cpof",
	"ignoreDependencyOnFailure": "idof", "removeDependencyOnFailure": "rdof", "keepLogs": "kl",
}

// childFailureOptions exclude each other: each says something else about a parent whose child failed.
var childFailureOptions = []string{
	"removeDependencyOnFailure", "failParentOnFailure", "continueParentOnFailure", "ignoreDependencyOnFailure",
}

// newJobOptions merges options into their JSON form, in which all numbers are float64.
func newJobOptions(defaults, given JobOptions) (JobOptions, error) {
	merged := JobOptions{"attempts": 0}
	for _, options := range []JobOptions{defaults, given} {
		for name, value := range options {
			merged[name] = value
		}
	}
	if _, isGiven := given["jobId"]; !isGiven {
		delete(merged, "jobId") // an id belongs to one job
	}
	text, err := jsonText(merged)
	if err != nil {
		return nil, err
	}
	var options JobOptions
	if err := json.Unmarshal([]byte(text), &options); err != nil {
		return nil, invalid("job options: %v", err)
	}
	if delay, isNumber := options.number("backoff"); isNumber {
		options["backoff"] = map[string]any{"type": "fixed", "delay": delay}
	} else if !truthy(options["backoff"]) {
		delete(options, "backoff")
	}
	return options, nil
}

// storedJobOptions reads the options of a stored job. A client may have written no options as [].
func storedJobOptions(text string) (JobOptions, error) {
	var stored any
	if text == "" {
		text = "{}"
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}
	options := JobOptions{"attempts": 0.0}
	members, _ := stored.(map[string]any)
	for name, value := range members {
		options[name] = value
	}
	for name, short := range shortNames {
		if value, isStored := options[short]; isStored && name != "debounce" {
			delete(options, short)
			options[name] = value
		}
	}
	delete(options, "repeatJobKey")
	return options, nil
}

// stored returns the options under their stored names.
func (o JobOptions) stored() JobOptions {
	stored := JobOptions{}
	for name, value := range o {
		if short, hasShort := shortNames[name]; hasShort {
			name = short
		}
		stored[name] = value
	}
	if chosen := o["deduplication"]; chosen != nil { // it wins over its former name
		stored["de"] = chosen
	}
	delete(stored, "repeatJobKey") // a field of its own
	if telemetry, isObject := o["telemetry"].(map[string]any); isObject {
		delete(stored, "telemetry")
		for name, short := range map[string]string{"metadata": "tm", "omitContext": "omc"} {
			if value := telemetry[name]; value != nil {
				stored[short] = value
			}
		}
	}
	return stored
}

func (o JobOptions) number(name string) (float64, bool) {
	value, isNumber := o[name].(float64)
	return value, isNumber
}

func (o JobOptions) deduplicationID() string {
	for _, name := range []string{"deduplication", "debounce"} {
		if chosen, isObject := o[name].(map[string]any); isObject {
			id, _ := chosen["id"].(string)
			return id
		}
	}
	return ""
}

// parentField is the hash field `parent`: the parent, and what the job's failure means to it.
func (o JobOptions) parentField(parent map[string]any) map[string]any {
	field := map[string]any{"id": parent["id"], "queueKey": parent["queue"]}
	for _, name := range childFailureOptions {
		if truthy(o[name]) {
			field[shortNames[name]] = true
		}
	}
	return field
}

var integerID = regexp.MustCompile(`^(0|-?[1-9]\d*)$`)

// check refuses what Node.js refuses: ids that could meet a generated id or a key of the queue, and values that the
// scripts would store although no worker can handle them.
func (o JobOptions) check(name, data string) error {
	id, isText := o["jobId"].(string)
	switch {
	case o["jobId"] != nil && !isText:
		return invalid("jobId must be a text, not %v", o["jobId"])
	case id == "0" || strings.HasPrefix(id, "0:"):
		return invalid("jobId cannot be '0' or start with '0:': %q", id)
	case integerID.MatchString(id):
		return invalid("jobId cannot be an integer: %q", id)
	case strings.Contains(id, ":") && strings.Count(id, ":") != 2: // two: the id of a scheduler's job
		return invalid("jobId cannot contain ':': %q", id)
	}
	if limit, isGiven := o.number("sizeLimit"); isGiven && limit != 0 && float64(len(data)) > limit {
		return invalid("the data of job %s is longer than %v bytes", name, limit)
	}
	if truthy(o["repeat"]) {
		return &UnsupportedError{"the job option repeat"}
	}
	var together []string
	for _, option := range childFailureOptions {
		if truthy(o[option]) {
			together = append(together, option)
		}
	}
	if len(together) > 1 {
		return invalid("options that exclude each other: %s", strings.Join(together, ", "))
	}
	if priority, isNumber := o.number("priority"); truthy(o["priority"]) {
		if !isNumber || priority != math.Trunc(priority) {
			return invalid("priority must be an integer, not %v", o["priority"])
		} else if priority > priorityLimit {
			return invalid("priority must be at most %d, not %v", priorityLimit, priority)
		}
	}
	for _, option := range []string{"deduplication", "debounce"} {
		if truthy(o[option]) && o.deduplicationID() == "" {
			return invalid("%s needs an id", option)
		}
	}
	backoff, _ := o["backoff"].(map[string]any)
	if jitter, isGiven := backoff["jitter"].(float64); isGiven && (jitter < 0 || jitter > 1) {
		return invalid("jitter must be between 0 and 1, not %v", jitter)
	}
	return nil
}

// truthy is JavaScript's: options come from clients in other languages too.
func truthy(value any) bool { return value != nil && value != false && value != "" && value != 0.0 }

// UnsupportedError names a part of BullMQ that this client does not have.
type UnsupportedError struct{ Part string }

func (e *UnsupportedError) Error() string { return "this client does not have " + e.Part }
