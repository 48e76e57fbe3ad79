package bullmq

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:generate go run ./fetch scripts

// The folder is part of the program, so that a running client needs neither files nor a registry. Its .gitignore lets the
// module compile before `go generate` has written the scripts.
//
//go:embed all:scripts
var scriptFiles embed.FS

var scriptFile = regexp.MustCompile(`^(\w+)-\d+\.lua$`)

// scripts returns BullMQ's own Lua scripts by name. All state changes in them, so that every client changes it alike.
var scripts = sync.OnceValue(func() map[string]*redis.Script {
	found := map[string]*redis.Script{}
	files, _ := scriptFiles.ReadDir("scripts")
	for _, file := range files {
		if named := scriptFile.FindStringSubmatch(file.Name()); named != nil {
			text, _ := scriptFiles.ReadFile(path.Join("scripts", file.Name()))
			found[named[1]] = redis.NewScript(string(text))
		}
	}
	return found
})

// ScriptError is the refusal of a script: the state in Redis does not allow the step. Codes: BullMQ's ErrorCode.
type ScriptError struct {
	Code   int64
	Script string
}

var scriptCodes = map[int64]string{
	-1: "the job does not exist", -2: "the job has no lock", -3: "the job is in another state",
	-4: "the job has pending children", -5: "the parent does not exist", -6: "another worker owns the lock",
	-7: "the job has another parent", -8: "the job belongs to a scheduler", -9: "the job has failed children",
}

func (e *ScriptError) Error() string {
	return fmt.Sprintf("%s: %s (code %d)", e.Script, scriptCodes[e.Code], e.Code)
}

// scriptCall is one call of a script, not sent yet.
type scriptCall struct {
	script    string
	keys      []string
	arguments []any
}

// run calls the script by its digest, and by its text if Redis does not know it (after a restart, or SCRIPT FLUSH).
func (call scriptCall) run(ctx context.Context, client redis.Scripter) (any, error) {
	script := scripts()[call.script]
	if script == nil {
		return nil, fmt.Errorf("the script %s is missing: run `go generate` in the client's folder and build again", call.script)
	}
	reply, err := script.Run(ctx, client, call.keys, call.arguments...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if code, isNumber := reply.(int64); isNumber && code < 0 {
		return nil, &ScriptError{Code: code, Script: call.script}
	}
	return reply, nil
}

// queueKeys makes the key names of one queue. Its text is the part before the name, PREFIX:QUEUE: with both colons.
type queueKeys string

func newKeys(prefix, queue string) (queueKeys, error) {
	if prefix == "" {
		prefix = "bull"
	}
	for _, char := range queue {
		if char == ':' {
			return "", invalid("queue name cannot contain ':': %q", queue)
		}
	}
	if queue == "" {
		return "", invalid("queue name is missing")
	}
	return queueKeys(prefix + ":" + queue + ":"), nil
}

func (base queueKeys) of(names ...string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = string(base) + name
	}
	return keys
}

// InvalidError is an argument that the client refuses before it sends anything.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

func invalid(format string, args ...any) error {
	return &InvalidError{Reason: fmt.Sprintf(format, args...)}
}

// isOutage says whether Redis could not be reached, so that the outcome is unknown and a later call may succeed.
func isOutage(err error) bool {
	var reply redis.Error
	var refused *ScriptError
	var bad *InvalidError
	if err == nil || errors.As(err, &refused) || errors.As(err, &bad) {
		return false
	}
	if errors.As(err, &reply) { // Redis has replied
		return redis.HasErrorPrefix(err, "LOADING")
	}
	return true
}
